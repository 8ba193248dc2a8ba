"""The connection to one Slack workspace: Bolt over Socket Mode on the way in, the Web API on the way out."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import aiohttp
import structlog
from slack_bolt.adapter.socket_mode.aiohttp import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.response import BoltResponse
from slack_sdk.web.async_client import AsyncWebClient

from connector.conversations import Conversations
from connector.desk import Desk, Workplace
from connector.inbound.intake import Intake, NotNow
from connector.inbound.routing import Router
from connector.messages import deletion_of, edit_of, message_of, reaction_of
from connector.outbound.scheduler import Scheduler
from connector.outbound.wire import Wire
from connector.preflight import ConnectionRefused, preflight

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from connector.outbound.errors import SlackCallFailed
    from connector.preflight import Identity, SlackAccess
    from connector.protocols import Budget, Instance, Runs, SessionManager

log = structlog.get_logger(__name__)

# The SDK looks after a lost connection once per interval: this is how long people may wait for it.
_PING_INTERVAL_S = 2
_CONNECT_WITHIN_S = 20.0
_CALL_WITHIN_S = 15.0
_CLOSE_WITHIN_S = 1.0
_ANY_EVENT = re.compile(".*")


@asynccontextmanager
async def connected(  # noqa: PLR0913 - what it joins
    access: SlackAccess,
    instances: Sequence[Instance],
    sessions: SessionManager,
    runs: Runs,
    *,
    shutdown_grace_s: float = 10.0,
    budget: Budget | None = None,
    rate_scale: float = 1.0,
) -> AsyncIterator[None]:
    """Answer people in the workspace for as long as the context lasts.

    At its end nothing more is taken in, and runs that are on are handed over within `shutdown_grace_s`. `budget` is
    what is left of the calls that Slack allows, where others use it, too; `rate_scale` a factor on Slack's limits.

    Raises:
        ConnectionRefused: at entry, when a token is wrong or Slack is out of reach; later, when Slack does not let us
            do anything any more.
    """
    # Without a limit of ours, one call that is never answered could hold everything for minutes.
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_CALL_WITHIN_S)) as http:
        # The SDK's own retries would send a post twice after a dropped connection.
        open_client = partial(AsyncWebClient, base_url=access.api_url, session=http, retry_handlers=[])
        client = open_client(access.bot_token)
        async with Scheduler("") as scheduler:
            app_wire = Wire(open_client(access.app_token), scheduler)
            identity = await preflight(access.api_url, Wire(client, scheduler), app_wire)
        router = Router(instances, runs, identity.team, identity.user)
        async with Scheduler(identity.team, budget, rate_scale) as scheduler:
            wire = Wire(client, scheduler)
            async with _open(wire), Desk(wire) as desk:
                workplace = Workplace(sessions, desk, router)
                async with Conversations(workplace, runs, shutdown_grace_s) as conversations:
                    intake = Intake(workplace, runs, conversations, identity.user)
                    async with _listening(_app(open_client(), access, identity, intake), access, client):
                        log.info("slack.connected", team=identity.team, bot_user=identity.user)
                        try:
                            yield
                        finally:
                            conversations.suspend()


@asynccontextmanager
async def _open(wire: Wire) -> AsyncIterator[None]:
    """Let the body run for as long as Slack lets us do anything.

    Raises:
        ConnectionRefused: it does not any more.
    """
    body = asyncio.current_task()
    refused: list[SlackCallFailed] = []

    async def watch() -> None:
        refused.append(await wire.closed())
        if body is not None:
            body.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not refused or body is None or body.uncancel():
            raise
    finally:
        watching.cancel()
    if refused:
        log.critical("slack.closed", error=str(refused[0]))
        raise ConnectionRefused(
            f"Slack does not let us do anything any more ({refused[0]}). Look at the app's tokens and scopes, and "
            "start the service again: what was on goes on."
        )


@asynccontextmanager
async def _listening(app: AsyncApp, access: SlackAccess, client: AsyncWebClient) -> AsyncIterator[None]:
    handler = AsyncSocketModeHandler(app, access.app_token, web_client=client, ping_interval=_PING_INTERVAL_S)
    try:
        try:
            async with asyncio.timeout(_CONNECT_WITHIN_S):
                await handler.connect_async()  # type: ignore[no-untyped-call]  # as Bolt has it
        except TimeoutError as e:
            raise ConnectionRefused(
                "Slack answers, but its Socket Mode connection cannot be opened. "
                "Check that the network lets WebSockets (wss) through."
            ) from e
        yield
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_WITHIN_S):
                await handler.close_async()  # type: ignore[no-untyped-call]  # as Bolt has it


def _app(client: AsyncWebClient, access: SlackAccess, identity: Identity, intake: Intake) -> AsyncApp:
    async def authorize() -> AuthorizeResult:
        # Resolved once: Bolt would ask Slack again for every event of a cold burst.
        return AuthorizeResult(
            enterprise_id=None,
            team_id=identity.team,
            bot_token=access.bot_token,
            bot_id=identity.bot_id,
            bot_user_id=identity.user,
        )

    # Slack hears that we have an event when its listener has ended: when it is kept, that is.
    app = AsyncApp(
        client=client,
        authorize=authorize,
        logger=logging.getLogger("connector.bolt"),
        process_before_response=True,
    )

    @app.event(_ANY_EVENT)
    async def on_event(event: dict[str, Any]) -> BoltResponse | None:
        try:
            await _dispatch(event, identity.team, intake)
        except NotNow:
            return BoltResponse(status=503)  # unacknowledged, it comes again
        except Exception:  # a Slack handler's border
            log.exception("event.failed", slack_event=event.get("type"))
            return BoltResponse(status=500)
        return None

    return app


async def _dispatch(event: dict[str, Any], team: str, intake: Intake) -> None:
    """Every event has a listener, so that every event is acknowledged; few mean anything to us."""
    match event:
        case {"type": "message", "subtype": "message_changed" | "message_deleted"}:
            if (deletion := deletion_of(event, team)) is not None:
                await intake.on_deletion(deletion)
            elif (edit := edit_of(event, team)) is not None:
                await intake.on_edit(edit)
        case {"type": "message" | "app_mention"}:
            if (message := message_of(event, team)) is not None:
                await intake.on_message(message)
        case {"type": "reaction_added"}:
            if (reaction := reaction_of(event)) is not None:
                await intake.on_reaction(reaction)
