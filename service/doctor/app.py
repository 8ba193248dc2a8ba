"""The app's own settings: events, features, and whether both tokens are of one app."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connector.setup.scopes import BOT_EVENTS, PATH
from connector.slack_api.errors import SlackCallFailed
from service.config.config import ConfigError
from service.config.tokens import config_token
from service.doctor.findings import lacking, unknown, well, wrong

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from service.config.config import Environment
    from service.config.slack import SlackConfig
    from service.doctor.findings import DoctorFinding
    from service.doctor.web_api import WebApi

_CANNOT_TELL = (
    "these tokens cannot tell. Compare your app's page at api.slack.com/apps with `amplifier-slack manifest`, under "
    "App Manifest; or set SLACK_CONFIG_TOKEN to a token of yours from the foot of that page (Your App Configuration "
    "Tokens), and it is looked up. The events are"
)

_LASTS = (
    "Such a token lasts for 12 hours: make a new one at api.slack.com/apps, under Your App Configuration Tokens, and "
    "set SLACK_CONFIG_TOKEN to it."
)


async def id_of(api: WebApi, bot_token: str, bot_id: str) -> str | None:
    """The id of the app that a bot belongs to; `None`: Slack does not tell us."""
    try:
        told = await api.call("bots.info", bot_token, bot=bot_id)
    except SlackCallFailed:
        return None
    bot: dict[str, Any] = told.data.get("bot") or {}
    return str(bot.get("app_id") or "") or None


def of_two_apps(app_tokens: str | None, bot_tokens: str | None) -> Iterator[DoctorFinding]:
    if app_tokens and bot_tokens and app_tokens != bot_tokens:
        yield wrong(
            "tokens",
            f"SLACK_APP_TOKEN is of the app {app_tokens}, SLACK_BOT_TOKEN of {bot_tokens}: what one hears, the other "
            "cannot answer. Take both from the same app.",
        )


async def look_at_settings(
    api: WebApi, environment: Environment, config: SlackConfig, app_id: str | None
) -> AsyncIterator[DoctorFinding]:
    """The manifest that Slack has, beside what is needed."""
    try:
        token = config_token(environment)
        if token is None or app_id is None:
            yield unknown("events", f"{_CANNOT_TELL} {', '.join(need.name for need in BOT_EVENTS)}.")
            return
        told = await api.call("apps.manifest.export", token, app_id=app_id)
    except ConfigError as e:
        yield wrong("events", str(e))
        return
    except SlackCallFailed as e:
        again = "Try again." if e.is_passing else _LASTS
        yield unknown("events", f"Slack does not tell the app's settings ({e.error}). {again}")
        return
    manifest: dict[str, Any] = told.data.get("manifest") or {}
    for finding in (*_of_events(manifest), *_of_features(manifest, config)):
        yield finding


def _of_events(manifest: dict[str, Any]) -> Iterator[DoctorFinding]:
    subscribed = _at(manifest, "settings", "event_subscriptions", "bot_events") or ()
    missing = [need for need in BOT_EVENTS if need.name not in subscribed]
    if not missing:
        yield well("events", f"all {len(BOT_EVENTS)} are subscribed to.")
    for need in missing:
        what_to_do = "Add it under Event Subscriptions → Subscribe to bot events, and reinstall the app."
        if need.is_required:
            yield wrong("events", f"{need.name} is missing, which it takes to {need.purpose}. {what_to_do}")
        else:
            yield lacking("events", f"{need.name} is missing: {need.without}. {what_to_do}")


def _of_features(manifest: dict[str, Any], config: SlackConfig) -> Iterator[DoctorFinding]:
    home, settings = _at(manifest, "features", "app_home") or {}, manifest.get("settings") or {}
    found = []
    if not home.get("messages_tab_enabled") or home.get("messages_tab_read_only_enabled"):
        said = (
            "nobody can write to the bot directly. Under App Home, turn on the Messages Tab, and that users may write."
        )
        found.append(wrong("app", said))
    if not _at(settings, "interactivity", "is_enabled"):
        found.append(wrong("app", "buttons do nothing. Turn Interactivity on, under Interactivity & Shortcuts."))
    if bool(settings.get("socket_mode_enabled")) != (config.door == "socket"):
        on = "off" if config.door == "socket" else "on"
        found.append(wrong("app", f"Socket Mode is {on}, and `slack.door` is {config.door}. Change one of them."))
    if config.door == "http":
        found += _of_addresses(settings)
    if not _at(manifest, "features", "agent_view"):
        said = "it is no agent to Slack: status line, titles and Stop button are missing. Turn it on, under Agents."
        found.append(lacking("app", said))
    yield from found or [well("app", "its settings are as they should be.")]


def _of_addresses(settings: dict[str, Any]) -> Iterator[DoctorFinding]:
    """Both kinds of requests must come to the same address, which is ours."""
    events = _at(settings, "event_subscriptions", "request_url")
    clicks = _at(settings, "interactivity", "request_url")
    if not events:
        yield wrong("app", "Slack has no address for events. Enter it under Event Subscriptions → Request URL.")
    elif events != clicks:
        yield wrong("app", f"events go to {events}, clicks do not. Enter it under Interactivity & Shortcuts, too.")
    else:
        yield well("app", f"Slack sends to {events}; see that your proxy leads from there to {PATH}.")


def _at(value: Any, *keys: str) -> Any:
    """What stands below these keys; `None`: nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
