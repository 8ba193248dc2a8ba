"""The connection to one Slack workspace: Bolt over Socket Mode on the way in, the Web API on the way out."""

from __future__ import annotations

import logging
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import structlog
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from connector.conversations import Conversations
from connector.messages import message_of, reaction_of
from connector.routing import Router
from connector.wire import Wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from connector.protocols import Instance, SessionManager

log = structlog.get_logger(__name__)

# The SDK looks after a lost connection once per interval: this is how long people may wait for it.
_PING_INTERVAL_S = 2
_ANY_EVENT = re.compile(".*")


class ConnectionRefused(Exception):  # noqa: N818 - what Slack did
    """Slack cannot be reached or does not let us in; the message says what to do."""


@dataclass(frozen=True, slots=True)
class SlackAccess:
    """The way into a workspace. `api_url` ends with a slash, as in `https://slack.com/api/`."""

    app_token: str
    bot_token: str
    api_url: str


@dataclass(frozen=True, slots=True)
class _Identity:
    team: str
    user: str
    bot_id: str


@asynccontextmanager
async def connected(
    access: SlackAccess, instances: Sequence[Instance], sessions: SessionManager
) -> AsyncIterator[Conversations]:
    """Answer people in the workspace for as long as the context lasts.

    Raises:
        ConnectionRefused: at entry, when a token is wrong or Slack is out of reach.
    """
    async with aiohttp.ClientSession() as http:
        # The SDK's own retries would send a post twice after a dropped connection.
        open_client = partial(AsyncWebClient, base_url=access.api_url, session=http, retry_handlers=[])
        client = open_client(access.bot_token)
        identity = await _preflight(client, access)
        router = Router(instances, identity.user)
        async with Conversations(sessions, Wire(client), router, identity.user) as conversations:
            app = _app(open_client(), access, identity, conversations)
            handler = AsyncSocketModeHandler(app, access.app_token, web_client=client, ping_interval=_PING_INTERVAL_S)
            try:
                await handler.connect_async()  # type: ignore[no-untyped-call]  # as Bolt has it
                log.info("slack.connected", team=identity.team, bot_user=identity.user)
                yield conversations
            finally:
                await handler.close_async()  # type: ignore[no-untyped-call]  # as Bolt has it


def _app(client: AsyncWebClient, access: SlackAccess, identity: _Identity, conversations: Conversations) -> AsyncApp:
    async def authorize() -> AuthorizeResult:
        # Resolved once: Bolt would ask Slack again for every event of a cold burst.
        return AuthorizeResult(
            enterprise_id=None,
            team_id=identity.team,
            bot_token=access.bot_token,
            bot_id=identity.bot_id,
            bot_user_id=identity.user,
        )

    app = AsyncApp(client=client, authorize=authorize, logger=logging.getLogger("connector.bolt"))

    @app.event(_ANY_EVENT)
    async def on_event(event: dict[str, Any]) -> None:
        await _dispatch(event, identity.team, conversations)

    return app


async def _dispatch(event: dict[str, Any], team: str, conversations: Conversations) -> None:
    """Every event has a listener, so that every event is acknowledged; few mean anything to us."""
    try:
        match event["type"]:
            case "message" | "app_mention":
                message = message_of(event, team)
                if message is not None:
                    await conversations.on_message(message)
            case "reaction_added":
                reaction = reaction_of(event)
                if reaction is not None:
                    await conversations.on_reaction(reaction)
    except Exception:  # a Slack handler's border
        log.exception("event.failed", slack_event=event.get("type"))


async def _preflight(client: AsyncWebClient, access: SlackAccess) -> _Identity:
    """Try both tokens: the Socket Mode client would retry a wrong one silently for ever."""
    try:
        who = await client.auth_test()
    except SlackApiError as e:
        raise ConnectionRefused(_refusal("SLACK_BOT_TOKEN", "xoxb-", "OAuth & Permissions", e)) from e
    except (aiohttp.ClientError, OSError, TimeoutError) as e:
        raise ConnectionRefused(
            f"Slack cannot be reached at {access.api_url}: {e or type(e).__name__}. "
            "Check the network, and SLACK_API_URL if you set it."
        ) from e
    try:
        await client.apps_connections_open(app_token=access.app_token)
    except SlackApiError as e:
        raise ConnectionRefused(
            _refusal("SLACK_APP_TOKEN", "xapp-", "Basic Information → App-Level Tokens, scope connections:write", e)
        ) from e
    return _Identity(team=who["team_id"], user=who["user_id"], bot_id=who["bot_id"])


def _refusal(variable: str, prefix: str, page: str, error: SlackApiError) -> str:
    word = error.response["error"] if isinstance(error.response.data, dict) else f"HTTP {error.response.status_code}"
    return (
        f"Slack does not accept {variable} ({word}). "
        f"It begins with {prefix} and stands on your app's page at api.slack.com/apps under {page}."
    )
