"""Check the Slack app: its tokens, scopes, clock, events and features."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from connector.setup.manifest import BOT_EVENTS, BOT_SCOPES, PATH
from connector.slack_api.errors import SlackCallFailed
from service.config.config import ConfigError
from service.config.tokens import bot_token, config_token
from service.doctor.findings import failed, passed, skipped, warning

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from connector.setup.manifest import MethodRequirement
    from service.config.config import Environment
    from service.config.slack import SlackConfig
    from service.doctor.findings import DoctorFinding
    from service.doctor.web_api import WebApi, WebApiAnswer

# Maximum age of a signed request from Slack; a clock that is off by more rejects all of them. In seconds.
_MOST_OFF_S = 300
_OFF_S = 30
_CANNOT_TELL = (
    "cannot be read with these tokens. Compare the App Manifest on your app's page at api.slack.com/apps with "
    "`amplifier-slack manifest`; or set SLACK_CONFIG_TOKEN to a token from Your App Configuration Tokens at "
    "api.slack.com/apps, and run this check again. Required events:"
)
_LASTS = (
    "This kind of token expires after 12 hours. Create a new one at api.slack.com/apps, under Your App Configuration "
    "Tokens, and set SLACK_CONFIG_TOKEN to it."
)


async def answer_to(api: WebApi, environment: Environment) -> WebApiAnswer | DoctorFinding:
    """Call `auth.test` and return Slack's answer, or a finding if the call failed."""
    try:
        return await api.call("auth.test", bot_token(environment))
    except ConfigError as e:
        return failed("bot token", str(e))
    except SlackCallFailed as e:
        if e.is_transient:
            return failed("Slack", f"cannot be reached at {api.url} ({e}). Check the network and SLACK_API_URL.")
        return failed(
            "bot token",
            f"Slack does not accept SLACK_BOT_TOKEN ({e.error}). Copy it again from your app's page at "
            "api.slack.com/apps, under OAuth & Permissions.",
        )


def findings_in(answer: WebApiAnswer) -> Iterator[DoctorFinding]:
    """Check identity, scopes and clock in the answer to `auth.test`."""
    identity = answer.data
    if not identity.get("bot_id"):
        yield failed("bot token", "SLACK_BOT_TOKEN is not a bot token. Use the token that begins with xoxb-.")
    else:
        where = f"{identity.get('team')} ({identity.get('team_id')})"
        yield passed("bot token", f"valid: @{identity.get('user')} in {where}.")
    yield from _of_scopes(answer)
    yield _of_clock(answer)


def _of_scopes(answer: WebApiAnswer) -> Iterator[DoctorFinding]:
    header = answer.headers.get("x-oauth-scopes")
    if header is None:
        yield skipped("scopes", "Slack does not return the token's scopes.")
        return
    granted = {scope.strip() for scope in header.split(",")}
    missing = [need for need in BOT_SCOPES if need.name not in granted]
    if not missing:
        yield passed("scopes", f"all {len(BOT_SCOPES)} are granted.")
    for need in missing:
        yield _missing("scopes", need, "OAuth & Permissions → Scopes")


def _missing(area: str, need: MethodRequirement, where: str) -> DoctorFinding:
    fix = f"Add it under {where}, and reinstall the app."
    if need.is_required:
        return failed(area, f"{need.name} is missing; it is required to {need.purpose}. {fix}")
    return warning(area, f"{need.name} is missing: {need.without}. {fix}")


def _of_clock(answer: WebApiAnswer) -> DoctorFinding:
    try:
        theirs_s = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (KeyError, ValueError):
        return skipped("clock", "Slack does not return its time.")
    off_s = answer.at_s - theirs_s
    if abs(off_s) <= _OFF_S:
        return passed("clock", "agrees with Slack's.")
    problem = (
        f"{abs(off_s):.0f} s {'ahead of' if off_s > 0 else 'behind'} Slack's. Synchronize this machine's time (NTP)."
    )
    return failed("clock", problem) if abs(off_s) > _MOST_OFF_S else warning("clock", problem)


async def id_of(api: WebApi, bot_token: str, bot_id: str) -> str | None:
    """Return the id of the bot's app; `None` if Slack does not return it."""
    try:
        answer = await api.call("bots.info", bot_token, bot=bot_id)
    except SlackCallFailed:
        return None
    bot: dict[str, Any] = answer.data.get("bot") or {}
    return str(bot.get("app_id") or "") or None


def of_two_apps(app_tokens: str | None, bot_tokens: str | None) -> Iterator[DoctorFinding]:
    if app_tokens and bot_tokens and app_tokens != bot_tokens:
        yield failed(
            "tokens",
            f"SLACK_APP_TOKEN belongs to the app {app_tokens}, SLACK_BOT_TOKEN to {bot_tokens}. Use two tokens of the "
            "same app.",
        )


async def check_settings(
    api: WebApi, environment: Environment, config: SlackConfig, app_id: str | None
) -> AsyncIterator[DoctorFinding]:
    """Compare the app's manifest in Slack with the required settings."""
    try:
        token = config_token(environment)
        if token is None or app_id is None:
            yield skipped("events", f"{_CANNOT_TELL} {', '.join(need.name for need in BOT_EVENTS)}.")
            return
        answer = await api.call("apps.manifest.export", token, app_id=app_id)
    except ConfigError as e:
        yield failed("events", str(e))
        return
    except SlackCallFailed as e:
        again = "Try again." if e.is_transient else _LASTS
        yield skipped("events", f"Slack does not return the app's settings ({e.error}). {again}")
        return
    manifest: dict[str, Any] = answer.data.get("manifest") or {}
    for finding in (*_of_events(manifest), *_of_features(manifest, config)):
        yield finding


def _of_events(manifest: dict[str, Any]) -> Iterator[DoctorFinding]:
    subscribed = _at(manifest, "settings", "event_subscriptions", "bot_events") or ()
    missing = [need for need in BOT_EVENTS if need.name not in subscribed]
    if not missing:
        yield passed("events", f"all {len(BOT_EVENTS)} are subscribed to.")
    for need in missing:
        yield _missing("events", need, "Event Subscriptions → Subscribe to bot events")


def _of_features(manifest: dict[str, Any], config: SlackConfig) -> Iterator[DoctorFinding]:
    home, settings = _at(manifest, "features", "app_home") or {}, manifest.get("settings") or {}
    found = []
    if not home.get("messages_tab_enabled") or home.get("messages_tab_read_only_enabled"):
        problem = (
            "users cannot send direct messages to the bot. Under App Home, turn on the Messages Tab and allow users to "
            "send messages."
        )
        found.append(failed("app", problem))
    if not _at(settings, "interactivity", "is_enabled"):
        found.append(failed("app", "buttons do not work. Turn on Interactivity under Interactivity & Shortcuts."))
    if bool(settings.get("socket_mode_enabled")) != (config.transport == "socket"):
        on = "off" if config.transport == "socket" else "on"
        found.append(
            failed(
                "app", f"Socket Mode is turned {on}, but `slack.transport` is {config.transport}. Change one of them."
            )
        )
    if config.transport == "http":
        found += _of_addresses(settings)
    if not _at(manifest, "features", "agent_view"):
        problem = "the app is not an agent: status line, titles and Stop button are missing. Turn it on under Agents."
        found.append(warning("app", problem))
    yield from found or [passed("app", "the settings are correct.")]


def _of_addresses(settings: dict[str, Any]) -> Iterator[DoctorFinding]:
    """Check that Slack sends events and interactions to the same URL."""
    events = _at(settings, "event_subscriptions", "request_url")
    clicks = _at(settings, "interactivity", "request_url")
    if not events:
        yield failed("app", "no URL for events is set. Enter it under Event Subscriptions → Request URL.")
    elif events != clicks:
        yield failed(
            "app", f"events go to {events}, interactions do not. Enter it under Interactivity & Shortcuts, too."
        )
    else:
        yield passed("app", f"Slack sends requests to {events}. Check that your proxy forwards this URL to {PATH}.")


def _at(value: Any, *keys: str) -> Any:
    """Return the nested value at these keys; `None` if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
