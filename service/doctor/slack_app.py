"""Check the Slack app: its tokens, scopes, clock, events and features, and the transport of events."""

from __future__ import annotations

import errno
import json
import secrets
import socket
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.proxy_env_variable_loader import load_http_proxy_from_env
from slack_sdk.web.async_client import AsyncWebClient

from connector.inbound.http_server import signature_of
from connector.setup import APP_SCOPE, BOT_SCOPES, PATH
from connector.slack_api.errors import RetryDecision, SlackCallFailed, failure
from service.config.config_errors import ConfigError
from service.config.credentials import app_token, bot_token, config_token, signing_secret
from service.config.slack import address_of
from service.doctor import failed, passed, skipped, warning
from service.tables import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from connector.setup import MethodRequirement
    from service.config.config import Environment
    from service.config.slack import ListenAddress, SlackConfig
    from service.doctor import DoctorFinding

# Maximum age of a signed request from Slack; a clock that is off by more rejects every request. In seconds.
_MOST_OFF_S = 300
_OFF_S = 30
_COMPARE = (
    "Compare the App Manifest on your app's page at api.slack.com/apps with `amplifier-slack manifest --config FILE`"
)
_CANNOT_TELL = (
    f"cannot be read with these tokens. {_COMPARE}; or set SLACK_CONFIG_TOKEN to a token from Your App Configuration "
    "Tokens at api.slack.com/apps, and run this check again. Required events:"
)
_UNKNOWN_APP = f"cannot be read before a token of the app works. {_COMPARE}. Required events:"
_LASTS = (
    "This kind of token expires after 12 hours. Create a new one at api.slack.com/apps, under Your App Configuration "
    "Tokens, and set SLACK_CONFIG_TOKEN to it."
)
_HELLO_WITHIN_S = 10.0
_OFF = "Turn it on on your app's page at api.slack.com/apps, under Socket Mode."
_NEW_ONE = (
    f"Create a token with the scope {APP_SCOPE.name} on your app's page at api.slack.com/apps, under Basic Information "
    "→ App-Level Tokens (xapp-…)."
)
_DISCONNECTED = {
    "link_disabled": f"is turned off. {_OFF}",
    "too_many_websockets": "has Slack's maximum of 10 connections. Run fewer replicas.",
}
_WHERE = (
    "In the app's settings, under Event Subscriptions and under Interactivity, the Request URL must be "
    "https://YOUR-HOST/slack/events, and your proxy must forward it to this address."
)


@dataclass(frozen=True, slots=True)
class SlackProbeAnswer:
    """Slack's answer, with headers by lower-case name; `at_s` is the local time at the middle of the call."""

    data: Mapping[str, Any]
    headers: Mapping[str, str]
    at_s: float


@dataclass(frozen=True, slots=True)
class SlackProbe:
    """Slack's Web API at one URL, without retries: the doctor reports the first failure.

    `http` is the client for other requests.
    """

    url: str
    http: aiohttp.ClientSession

    async def call(self, method: str, token: str, **arguments: str) -> SlackProbeAnswer:
        """Call a method.

        Raises:
            SlackCallFailed: Slack returned an error, or no valid answer.
        """
        client = AsyncWebClient(token, base_url=self.url, session=self.http, retry_handlers=[])
        begun_s = time.time()
        try:
            response = await client.api_call(method, data=arguments)
        except SlackApiError as e:
            raise failure(method, e) from e
        except (aiohttp.ClientError, TimeoutError, OSError, AttributeError, TypeError, ValueError) as e:
            # The SDK raises the last three for an answer that is not from Slack.
            raise SlackCallFailed(method, "no_answer") from e
        if not isinstance(response.data, dict):
            raise SlackCallFailed(method, "no_answer")
        headers = {name.lower(): value for name, value in response.headers.items()}
        return SlackProbeAnswer(response.data, headers, (begun_s + time.time()) / 2)


async def answer_to(api: SlackProbe, environment: Environment) -> SlackProbeAnswer | DoctorFinding:
    """Call `auth.test` and return Slack's answer, or a finding if the call failed."""
    try:
        return await api.call("auth.test", bot_token(environment))
    except ConfigError as e:
        return failed("bot token", str(e))
    except SlackCallFailed as e:
        if e.may_be_unreachable:
            return failed("Slack", f"cannot be reached at {api.url} ({e}). Check the network and SLACK_API_URL.")
        return failed(
            "bot token",
            f"Slack does not accept SLACK_BOT_TOKEN ({e.error}). Copy it again from your app's page at "
            "api.slack.com/apps, under OAuth & Permissions.",
        )


def findings_in(answer: SlackProbeAnswer) -> list[DoctorFinding]:
    """Check identity, scopes and clock in the answer to `auth.test`."""
    identity, header = answer.data, answer.headers.get("x-oauth-scopes")
    if identity.get("bot_id"):
        where = f"{identity.get('team')} ({identity.get('team_id')})"
        token = passed("bot token", f"valid: @{identity.get('user')} in {where}.")
    else:
        token = failed("bot token", "SLACK_BOT_TOKEN is not a bot token. Use the token that begins with xoxb-.")
    if header is None:
        scopes = [skipped("scopes", "Slack does not return the token's scopes.")]
    else:
        granted = {scope.strip() for scope in header.split(",")}
        scopes = _of_names("scopes", granted, BOT_SCOPES, "granted", "OAuth & Permissions → Scopes")
    return [token, *scopes, _of_clock(answer)]


def _of_names(
    area: str, present: Collection[str], required: Sequence[MethodRequirement], done: str, where: str
) -> list[DoctorFinding]:
    """Report each scope or event that the app lacks, with the place in its settings to add it."""
    fix = f"Add it under {where}, and reinstall the app."
    return [
        failed(area, f"{need.name} is missing; it is required to {need.purpose}. {fix}")
        if need.is_required
        else warning(area, f"{need.name} is missing: {need.without}. {fix}")
        for need in required
        if need.name not in present
    ] or [passed(area, f"all {len(required)} are {done}.")]


def _of_clock(answer: SlackProbeAnswer) -> DoctorFinding:
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


async def id_of(api: SlackProbe, bot_token: str, bot_id: str) -> str | None:
    """Return the id of the bot's app; `None` if Slack does not return it."""
    try:
        answer = await api.call("bots.info", bot_token, bot=bot_id)
    except SlackCallFailed:
        return None
    bot: dict[str, Any] = answer.data.get("bot") or {}
    return str(bot.get("app_id") or "") or None


def of_two_apps(app_tokens: str | None, bot_tokens: str | None) -> list[DoctorFinding]:
    if not app_tokens or not bot_tokens or app_tokens == bot_tokens:
        return []
    problem = f"SLACK_APP_TOKEN belongs to the app {app_tokens}, SLACK_BOT_TOKEN to {bot_tokens}."
    return [failed("tokens", f"{problem} Use two tokens of the same app.")]


async def check_settings(
    api: SlackProbe,
    environment: Environment,
    config: SlackConfig,
    app_id: str | None,
    required: Sequence[MethodRequirement],
) -> list[DoctorFinding]:
    """Compare the app's manifest in Slack with the required events and settings."""
    try:
        token = config_token(environment)
        if token is None or app_id is None:
            reason = _CANNOT_TELL if token is None else _UNKNOWN_APP
            return [skipped("events", f"{reason} {', '.join(need.name for need in required)}.")]
        answer = await api.call("apps.manifest.export", token, app_id=app_id)
    except ConfigError as e:
        return [failed("events", str(e))]
    except SlackCallFailed as e:
        again = "Try again." if e.is_transient else _LASTS
        return [skipped("events", f"Slack does not return the app's settings ({e.error}). {again}")]
    manifest: dict[str, Any] = answer.data.get("manifest") or {}
    return [
        *_of_names(
            "events",
            _at(manifest, "settings", "event_subscriptions", "bot_events") or (),
            required,
            "subscribed to",
            "Event Subscriptions → Subscribe to bot events",
        ),
        *(list(_of_features(manifest, config)) or [passed("app", "the settings are correct.")]),
    ]


def _of_features(manifest: dict[str, Any], config: SlackConfig) -> Iterator[DoctorFinding]:
    home, settings = _at(manifest, "features", "app_home") or {}, manifest.get("settings") or {}
    if not home.get("messages_tab_enabled") or home.get("messages_tab_read_only_enabled"):
        problem = (
            "users cannot send direct messages to the bot. Under App Home, turn on the Messages Tab and allow users to "
            "send messages."
        )
        yield failed("app", problem)
    if not _at(settings, "interactivity", "is_enabled"):
        yield failed("app", "buttons do not work. Turn on Interactivity under Interactivity & Shortcuts.")
    if bool(settings.get("socket_mode_enabled")) != (config.transport == "socket"):
        on = "off" if config.transport == "socket" else "on"
        problem = f"Socket Mode is turned {on}, but `slack.transport` is {config.transport}. Change one setting."
        yield failed("app", problem)
    if config.transport == "http":
        yield _of_addresses(settings)
    if not _at(manifest, "features", "agent_view"):
        problem = "the app is not an agent: status line, titles and Stop button are missing. Turn it on under Agents."
        yield warning("app", problem)


def _of_addresses(settings: dict[str, Any]) -> DoctorFinding:
    """Check that Slack sends events and interactions to the same URL."""
    events = _at(settings, "event_subscriptions", "request_url")
    if not events:
        return failed("app", "no URL for events is set. Enter it under Event Subscriptions → Request URL.")
    if events != _at(settings, "interactivity", "request_url"):
        problem = f"events go to {events}, interactions do not. Enter it under Interactivity & Shortcuts, too."
        return failed("app", problem)
    return passed("app", f"Slack sends requests to {events}. Check that your proxy forwards this URL to {PATH}.")


async def check_socket(api: SlackProbe, environment: Environment) -> tuple[DoctorFinding, str | None]:
    """Open a Socket Mode connection and close it after Slack's first message; also return the app's id, if known.

    An event that Slack sends over this connection is not acknowledged, so Slack sends it again over another one.
    """
    try:
        opened = await api.call("apps.connections.open", app_token(environment))
        proxy = load_http_proxy_from_env()
        async with api.http.ws_connect(str(opened.data.get("url")), proxy=proxy) as connection:
            first = await connection.receive_json(timeout=_HELLO_WITHIN_S)
    except ConfigError as e:
        return failed("app token", str(e)), None
    except SlackCallFailed as e:
        return _not_opened(e, api.url), None
    except (aiohttp.ClientError, TimeoutError, OSError, TypeError, ValueError):
        problem = "the Web API answers, but the WebSocket connection fails. Allow WebSockets (wss) in the network."
        return failed("Socket Mode", problem), None
    if not isinstance(first, dict) or first.get("type") != "hello":
        reason = str(first.get("reason")) if isinstance(first, dict) else "no hello"
        return failed("Socket Mode", _DISCONNECTED.get(reason, f"was closed by Slack ({reason}). Try again.")), None
    others = counted(int(first.get("num_connections", 1)) - 1, "other connection")
    app_id = (first.get("connection_info") or {}).get("app_id")
    return passed("Socket Mode", f"works; the app has {others}."), app_id


def _not_opened(error: SlackCallFailed, url: str) -> DoctorFinding:
    if error.may_be_unreachable:
        return failed("Socket Mode", f"Slack does not open a connection at {url} ({error}). Try again.")
    if error.error == "missing_scope":
        return failed("app token", f"SLACK_APP_TOKEN lacks the scope {APP_SCOPE.name}. {_NEW_ONE}")
    if error.decision is RetryDecision.WORKSPACE_CLOSED or error.error == "not_allowed_token_type":
        return failed("app token", f"Slack does not accept SLACK_APP_TOKEN ({error.error}). {_NEW_ONE}")
    return failed("Socket Mode", f"Slack does not open a connection ({error.error}). {_OFF}")


async def check_http(api: SlackProbe, config: SlackConfig, environment: Environment) -> DoctorFinding:
    """Check that the configured address is free, or that this service already listens on it."""
    address = address_of(config.listen)
    try:
        secret = signing_secret(environment)
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        with socket.socket(family) as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(address)
    except ConfigError as e:
        return failed("signing secret", str(e))
    except OSError as e:
        if e.errno != errno.EADDRINUSE:
            problem = f"cannot listen on {config.listen}: {e.strerror or e}. Change `slack.listen`."
            return failed("HTTP transport", problem)
        if await _is_ours(api, address, secret):
            return passed("HTTP transport", f"the service answers at {config.listen}. {_WHERE}")
        return failed(
            "HTTP transport",
            f"{config.listen} is in use by another program, or by the service with another SLACK_SIGNING_SECRET. "
            "Stop it, or change `slack.listen`.",
        )
    return passed("HTTP transport", f"{config.listen} is free to listen on. {_WHERE}")


async def _is_ours(api: SlackProbe, address: ListenAddress, secret: str) -> bool:
    """Send a signed `url_verification` request, as Slack does, and check that the challenge is returned."""
    challenge, timestamp = secrets.token_hex(8), str(int(time.time()))
    body = json.dumps({"type": "url_verification", "challenge": challenge}).encode()
    headers = {
        "Content-Type": "application/json",
        "X-Slack-Request-Timestamp": timestamp,
        "X-Slack-Signature": signature_of(secret, timestamp, body),
    }
    host = f"[{address.host}]" if ":" in address.host else address.host
    try:
        url = f"http://{host}:{address.port}{PATH}"
        async with api.http.post(url, data=body, headers=headers, allow_redirects=False) as response:
            return response.status == 200 and challenge in await response.text()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return False


def _at(value: Any, *keys: str) -> Any:
    """Return the nested value at these keys; `None` if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
