"""Whether Slack lets us in: the tokens are tried before anything else is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from connector.setup.credentials import ConnectionRefused
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot

if TYPE_CHECKING:
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


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the bot is in its workspace, resolved once; what is called so by people may be blank.

    `enterprise` is the id of the organisation that the workspace belongs to; blank: it belongs to none.
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
    """Try the bot's token, and learn who we are.

    Raises:
        ConnectionRefused: Slack is out of reach, or does not accept the token.
    """
    who = await _call(api_url, bot, "auth.test", _BOT_TOKEN)
    try:
        names = {"team_name": who.get("team", ""), "user_name": who.get("user", ""), "url": who.get("url", "")}
        names["enterprise"] = who.get("enterprise_id") or ""
        return Identity(who["team_id"], who["user_id"], who["bot_id"], **names)
    except KeyError as e:
        raise ConnectionRefused(f"SLACK_BOT_TOKEN is not a bot's token: auth.test tells no {e}.") from e


async def first_address(api_url: str, app: SlackClient) -> str:
    """Try the app's token, and return the address that it gives for one connection.

    Raises:
        ConnectionRefused: Slack is out of reach, or does not accept the token.
    """
    return str((await _call(api_url, app, "apps.connections.open", _APP_TOKEN)).get("url", ""))


async def _call(api_url: str, client: SlackClient, method: str, kind: _Token) -> dict[str, Any]:
    try:
        return await client.call(method, {}, CallSlot())
    except SlackCallFailed as e:
        if e.is_passing:
            raise ConnectionRefused(
                f"Slack cannot be reached at {api_url} ({e}). Check the network, and SLACK_API_URL if you set it."
            ) from e
        if e.error not in _TOKEN_ERRORS:
            raise ConnectionRefused(
                f"Slack refuses {kind.variable} ({e}). Ask whoever administers the workspace; "
                "`amplifier-slack doctor` says more."
            ) from e
        raise ConnectionRefused(
            f"Slack does not accept {kind.variable} ({e.error}). "
            f"It begins with {kind.prefix} and stands on your app's page at api.slack.com/apps under {kind.page}."
        ) from e
