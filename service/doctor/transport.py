"""Check the transport of events: a Socket Mode connection, or the address for HTTP requests."""

from __future__ import annotations

import errno
import json
import secrets
import socket
import time
from typing import TYPE_CHECKING

import aiohttp
from slack_sdk.proxy_env_variable_loader import load_http_proxy_from_env

from connector.inbound.http_server import signature_of
from connector.setup import APP_SCOPE, PATH
from connector.slack_api.errors import RetryDecision as Reason
from connector.slack_api.errors import SlackCallFailed
from service.config.config import ConfigError
from service.config.slack import address_of
from service.config.tokens import app_token, signing_secret
from service.doctor.findings import failed, passed
from service.tables import counted

if TYPE_CHECKING:
    from service.config.config import Environment
    from service.config.slack import ListenAddress, SlackConfig
    from service.doctor.findings import DoctorFinding
    from service.doctor.slack_app import SlackProbe

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
    if error.is_transient:
        return failed("Socket Mode", f"Slack does not open a connection at {url} ({error}). Try again.")
    if error.error == "missing_scope":
        return failed("app token", f"SLACK_APP_TOKEN lacks the scope {APP_SCOPE.name}. {_NEW_ONE}")
    if error.decision is Reason.WORKSPACE_CLOSED or error.error == "not_allowed_token_type":
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
