"""Whether Slack lets us in: both tokens are tried before anything else is done.

The Socket Mode client would retry a wrong one silently for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from connector.outbound.errors import SlackCallFailed
from connector.outbound.scheduler import Turn

if TYPE_CHECKING:
    from connector.outbound.wire import Wire

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


class ConnectionRefused(Exception):  # noqa: N818 - what Slack did
    """Slack cannot be reached or does not let us in; the message says what to do."""


@dataclass(frozen=True, slots=True)
class SlackAccess:
    """The way into a workspace. `api_url` ends with a slash, as in `https://slack.com/api/`."""

    app_token: str = field(repr=False)
    bot_token: str = field(repr=False)
    api_url: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Who the bot is in its workspace, resolved once."""

    team: str
    user: str
    bot_id: str


@dataclass(frozen=True, slots=True)
class _Token:
    variable: str
    prefix: str
    page: str


_BOT_TOKEN = _Token("SLACK_BOT_TOKEN", "xoxb-", "OAuth & Permissions")
_APP_TOKEN = _Token("SLACK_APP_TOKEN", "xapp-", "Basic Information → App-Level Tokens, scope connections:write")


async def preflight(api_url: str, bot: Wire, app: Wire) -> Identity:
    """Try both tokens, each on a wire of its own, and learn who we are.

    Raises:
        ConnectionRefused: Slack is out of reach, or does not accept a token.
    """
    try:
        who = await _tried(bot, "auth.test", _BOT_TOKEN)
        await _tried(app, "apps.connections.open", _APP_TOKEN)
    except SlackCallFailed as e:
        raise ConnectionRefused(
            f"Slack cannot be reached at {api_url} ({e}). Check the network, and SLACK_API_URL if you set it."
        ) from e
    try:
        return Identity(team=who["team_id"], user=who["user_id"], bot_id=who["bot_id"])
    except KeyError as e:
        raise ConnectionRefused(f"SLACK_BOT_TOKEN is not a bot's token: auth.test tells no {e}.") from e


async def _tried(wire: Wire, method: str, kind: _Token) -> dict[str, Any]:
    try:
        return await wire.call(method, {}, Turn())
    except SlackCallFailed as e:
        if e.error not in _TOKEN_ERRORS:
            raise
        raise ConnectionRefused(
            f"Slack does not accept {kind.variable} ({e.error}). "
            f"It begins with {kind.prefix} and stands on your app's page at api.slack.com/apps under {kind.page}."
        ) from e
