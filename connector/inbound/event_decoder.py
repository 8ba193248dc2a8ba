"""Decode the payloads of both transports and dispatch them through Bolt."""

from __future__ import annotations

import json
import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.response import BoltResponse

from connector.error_boundary import error_boundary
from connector.inbound.dispatcher import dispatch, dispatch_action
from connector.inbound.intake import NotNow

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator

    from slack_sdk.web.async_client import AsyncWebClient

    from connector.inbound.intake import Intake
    from connector.setup.preflight import Identity

    Receive = Callable[[dict[str, Any]], Awaitable["Reply"]]

log = structlog.get_logger(__name__)

_ANY = re.compile(".*", re.DOTALL)
# The statuses of our listeners. Bolt itself answers 404 to unknown payloads and 500 to malformed ones.
_OUR_STATUSES = (200, 503)


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to Slack. 200 acknowledges the payload; after any other status Slack sends it again."""

    status: int
    payload: dict[str, Any] | None = None


DONE = Reply(200)
NOT_NOW = Reply(503)


class EventDecoder:
    """Passes payloads to Bolt. Catch-all listeners acknowledge unknown ones, which Slack would otherwise redeliver."""

    def __init__(self, client: AsyncWebClient, bot_token: str, identity: Identity, intake: Intake) -> None:
        self._team = identity.team
        self._app = _app(client, bot_token, identity, intake)

    async def receive(self, body: dict[str, Any]) -> Reply:
        """Handle a payload; return once it is stored or ignored."""
        try:
            if not self._is_for_us(body):
                return DONE
            response = await self._app.async_dispatch(AsyncBoltRequest(body=body, mode="socket_mode"))
        except Exception as e:  # noqa: BLE001 - a Slack handler's border: Bolt fails in many ways on odd payloads
            log.warning("slack.payload_unreadable", type=body.get("type"), error=repr(e))
            return DONE
        if response.status not in _OUR_STATUSES:
            log.info("slack.unknown", type=body.get("type"))
            return DONE
        return Reply(response.status, _payload(response))

    def _is_for_us(self, body: dict[str, Any]) -> bool:
        if body.get("type") == "app_rate_limited":
            log.warning("slack.events_limited", team=body.get("team_id"), minute=body.get("minute_rate_limited"))
            return False
        if (teams := set(_teams(body))) and self._team not in teams:
            log.info("slack.other_team", teams=sorted(teams), type=body.get("type"))
            return False
        if not _is_complete(body):
            log.info("slack.unknown", type=body.get("type"))
            return False
        return True


def _is_complete(body: dict[str, Any]) -> bool:
    """Return whether a payload has the fields that Bolt requires."""
    if body.get("type") != "event_callback":
        return "command" in body or isinstance(body.get("type"), str)
    event = body.get("event")
    return isinstance(event, dict) and isinstance(event.get("type"), str)


def _teams(body: dict[str, Any]) -> Iterator[str]:
    """Yield the workspaces named in a payload. An event by a foreign user in a shared channel names ours too."""
    authorizations = [each for each in body.get("authorizations") or () if isinstance(each, dict)]
    inside = [body.get("team"), body.get("user"), body.get("message")]
    team, user, message = (each if isinstance(each, dict) else {} for each in inside)
    places = [
        body.get("team_id"),
        body.get("context_team_id"),
        team.get("id"),
        user.get("team_id"),
        message.get("team"),
    ]
    for place in (*places, *(each.get("team_id") for each in authorizations)):
        if isinstance(place, str) and place.startswith("T"):
            yield place


def _payload(response: BoltResponse) -> dict[str, Any] | None:
    if not response.body:
        return None
    if response.headers.get("content-type", [""])[0].startswith("application/json"):
        payload: dict[str, Any] = json.loads(response.body)
        return payload
    return {"text": response.body}


def _app(client: AsyncWebClient, bot_token: str, identity: Identity, intake: Intake) -> AsyncApp:
    async def authorize() -> AuthorizeResult:
        # Resolved at the start: Bolt would call Slack for every event of a cold burst.
        return AuthorizeResult(
            enterprise_id=None,
            team_id=identity.team,
            bot_token=bot_token,
            bot_id=identity.bot_id,
            bot_user_id=identity.user,
        )

    # `process_before_response`: the event is acknowledged after its listener returns, when it is stored.
    app = AsyncApp(
        # Without a name, Bolt inspects every loaded module to find one. It also names a logger; none of ours has it.
        name="bolt",
        client=client,
        authorize=authorize,
        logger=logging.getLogger("connector.bolt"),
        process_before_response=True,
        request_verification_enabled=False,  # the HTTP server verifies the signature
    )

    @app.event(_ANY)
    async def on_event(event: dict[str, Any], body: dict[str, Any]) -> BoltResponse:
        is_shared = body.get("is_ext_shared_channel") is True
        return await _respond(dispatch(event, identity.team, intake, is_shared=is_shared), event.get("type"))

    @app.action(_ANY)
    async def on_action(body: dict[str, Any]) -> BoltResponse:
        return await _respond(dispatch_action(body, identity.team, intake), "block_actions")

    return app


async def _respond(dispatched: Coroutine[Any, Any, None], kind: str | None) -> BoltResponse:
    """Return 200 if the event is stored, else 503, so that Slack delivers it again."""
    with error_boundary("event.failed", slack_event=kind), suppress(NotNow):
        await dispatched
        return BoltResponse(status=200)
    return BoltResponse(status=503)
