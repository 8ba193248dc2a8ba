"""Credentials of a workspace, and the check of its tokens before the service starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.slack_api.client import SlackClient

_TOKEN_ERRORS = frozenset(
    {
        "account_inactive",
        "invalid_auth",
        "missing_scope",
        "no_permission",
        "not_allowed_token_type",
        "not_authed",
        "token_expired",
        "token_revoked",
    }
)


class ConnectionRefused(Exception):  # noqa: N818 - named after the event
    """The service cannot be connected to Slack; the message names a remedy."""


@dataclass(frozen=True, slots=True)
class SocketTransport:
    """Socket Mode: the service connects to Slack with the app's token (`xapp-…`)."""

    app_token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class HttpTransport:
    """Events over HTTP: Slack's requests arrive at `host` and `port`, signed with the app's signing secret.

    `health` returns the lines after "ok" at `/healthz`. It is called for each request, and must return at once.
    """

    signing_secret: str = field(repr=False)
    host: str
    port: int
    health: Callable[[], str] = field(default=str, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SlackCredentials:
    """Credentials of a workspace. `api_url` ends with a slash, as in `https://slack.com/api/`."""

    bot_token: str = field(repr=False)
    api_url: str
    transport: SocketTransport | HttpTransport


@dataclass(frozen=True, slots=True)
class Identity:
    """The bot's identity in its workspace. Display names may be blank.

    `enterprise` is the id of the workspace's organisation; blank: it has none.
    """

    team: str
    user: str
    bot_id: str
    team_name: str = ""
    user_name: str = ""
    url: str = ""
    enterprise: str = ""


@dataclass(frozen=True, slots=True)
class _Token:
    variable: str
    prefix: str
    page: str


_BOT_TOKEN = _Token("SLACK_BOT_TOKEN", "xoxb-", "OAuth & Permissions")
_APP_TOKEN = _Token("SLACK_APP_TOKEN", "xapp-", "Basic Information → App-Level Tokens, scope connections:write")


async def preflight(api_url: str, bot: SlackClient) -> Identity:
    """Check the bot's token, and return the bot's identity.

    Raises:
        ConnectionRefused: Slack cannot be reached, or does not accept the token.
    """
    who = await _call(api_url, bot, "auth.test", _BOT_TOKEN)
    try:
        names = {"team_name": who.get("team", ""), "user_name": who.get("user", ""), "url": who.get("url", "")}
        names["enterprise"] = who.get("enterprise_id") or ""
        return Identity(who["team_id"], who["user_id"], who["bot_id"], **names)
    except KeyError as e:
        raise ConnectionRefused(f"SLACK_BOT_TOKEN is not a bot's token: the answer of auth.test has no {e}.") from e


async def first_address(api_url: str, app: SlackClient) -> str:
    """Check the app's token, and return the address for one Socket Mode connection.

    Raises:
        ConnectionRefused: Slack cannot be reached, or does not accept the token.
    """
    return str((await _call(api_url, app, "apps.connections.open", _APP_TOKEN)).get("url", ""))


async def _call(api_url: str, client: SlackClient, method: str, kind: _Token) -> dict[str, Any]:
    try:
        return await client.call(method, {}, CallSlot())
    except SlackCallFailed as e:
        if e.is_transient:
            raise ConnectionRefused(
                f"Slack cannot be reached at {api_url} ({e}). Check the network, and SLACK_API_URL if you set it."
            ) from e
        if e.error not in _TOKEN_ERRORS:
            raise ConnectionRefused(
                f"Slack refuses {kind.variable} ({e}). Ask an administrator of the workspace; "
                "`amplifier-slack doctor` shows the details."
            ) from e
        raise ConnectionRefused(
            f"Slack does not accept {kind.variable} ({e.error}). "
            f"It begins with {kind.prefix}. Find it on your app's page at api.slack.com/apps under {kind.page}."
        ) from e
