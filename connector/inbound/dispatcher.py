"""Dispatch the payloads of both transports to Bolt listeners: ours, then those of the deployment.

Ours run in a Bolt app of their own, so that no listener or middleware of a deployment can delay or stop the storing of
an event.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from slack_bolt.async_app import AsyncApp, AsyncBoltRequest
from slack_bolt.authorization import AuthorizeResult
from slack_bolt.response import BoltResponse
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from connector.events import (
    ALLOW_ACTION,
    ASK,
    DENY_ACTION,
    FEEDBACK,
    FORK,
    HOME_ACTIONS,
    OPTIONS_ACTION,
    REQUEST_ACTIONS,
    REQUEST_FORM,
    RERUN,
    STOP_ACTION,
    SUMMARISE,
    Consent,
    clicked_of,
    deletion_of,
    edit_of,
    home_click_of,
    home_of,
    home_opened_of,
    message_of,
    rating_of,
    reaction_of,
    request_click_of,
    session_stop_of,
    shortcut_of,
    slash_of,
    view_of,
)
from connector.inbound.access_policy import Actor
from connector.inbound.entry_points import action_of
from connector.inbound.intake import NotNow
from connector.records import UNREADABLE
from connector.setup import ConnectionRefused
from connector.slack_api.errors import error_boundary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence

    from connector.events import SlackMessage
    from connector.inbound.intake import Intake
    from connector.setup import Identity

    Handling = Coroutine[Any, Any, None] | None
    Keep = Callable[[dict[str, Any]], Awaitable[None]]
    Receive = Callable[[dict[str, Any]], Awaitable["Reply"]]
    # Adds the listeners of a deployment to its Bolt app.
    AddListeners = Callable[[AsyncApp], Awaitable[None] | None]

log = structlog.get_logger(__name__)

# The last two are of apps with the older `assistant_view`.
_VIEWS = (
    "app_home_opened",
    "app_context_changed",
    "assistant_thread_started",
    "assistant_thread_context_changed",
)
# Time for the acknowledgement by a listener of the deployment. Slack waits three seconds.
_ACK_WITHIN_S = 2.0
_UNKNOWN = 404
# Levels of lists and objects in one frame or body. Slack's payloads have fewer than 20.
_MAX_NESTING = 100


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to Slack. 200 acknowledges the payload; after any other status Slack sends it again."""

    status: int
    payload: dict[str, Any] | None = None


DONE = Reply(200)
NOT_NOW = Reply(503)


class Dispatcher:
    """Passes payloads to the listeners and acknowledges those without a listener, which Slack would send again.

    Args:
        client: an SDK client without a token, which sends with the session of the service.
        identity: the bot, resolved at the start. Bolt would ask Slack for it at every event of a cold burst.
        keep: stores the message of an event, before the event is handled.
    """

    def __init__(
        self, client: AsyncWebClient, bot_token: str, identity: Identity, intake: Intake, keep: Keep | None = None
    ) -> None:
        self._client = client
        self._team = identity.team
        self._identity = identity
        self.bot_token = bot_token
        # `process_before_response`: an event is acknowledged after its listener returns, when it is stored.
        self._ours = self._app("bolt", client, process_before_response=True)
        self._of_deployment: AsyncApp | None = None
        self._client_of_deployment = client

        async def on_payload(body: dict[str, Any]) -> BoltResponse:
            """Return 200 if the event is stored, else 503, so that Slack delivers it again."""
            # A click on the stop button is its own event. It does not contain whether its channel is shared.
            event, is_shared = body.get("event"), body.get("is_ext_shared_channel") is True
            event = body if event is None else event
            with error_boundary("event.failed", slack_event=event["type"]), suppress(NotNow):
                if keep is not None:
                    await keep(event)
                await dispatch(event, identity.team, intake, is_shared=is_shared)
                return BoltResponse(status=DONE.status)
            return BoltResponse(status=NOT_NOW.status)

        for kind in ("message", "app_mention", "reaction_added", "agent_session_stopped", *_VIEWS):
            self._ours.event(kind)(on_payload)
        for action in (STOP_ACTION, ALLOW_ACTION, DENY_ACTION, RERUN, FEEDBACK, *HOME_ACTIONS):
            self._ours.action(action)(on_payload)
        for action in (OPTIONS_ACTION, *REQUEST_ACTIONS):
            self._ours.action(action)(on_payload)
        for form in (FEEDBACK, REQUEST_FORM, ASK, SUMMARISE):
            self._ours.view(form)(on_payload)
        for callback_id in (FORK, RERUN, ASK, SUMMARISE):
            self._ours.message_shortcut(callback_id)(on_payload)

        async def on_command(body: dict[str, Any]) -> BoltResponse:
            """Return the answer to a slash command; 404 if it is not ours."""
            with error_boundary("command.failed", command=body.get("command")), suppress(NotNow):
                answer = await answer_command(body, identity.team, intake)
                return BoltResponse(status=_UNKNOWN if answer is None else DONE.status, body=answer or "")
            return BoltResponse(status=NOT_NOW.status)

        self._ours.command(re.compile(""))(on_command)

    async def add_listeners(self, functions: Sequence[AddListeners]) -> None:
        """Let each function add its listeners to the Bolt app of the deployment.

        Raises:
            ConnectionRefused: a function failed.
        """
        if not functions:
            return
        # Calls of the deployment's listeners bypass the rate limiter.
        client = AsyncWebClient(
            base_url=self._client.base_url,
            session=self._client.session,
            retry_handlers=[AsyncRateLimitErrorRetryHandler(max_retry_count=2)],
        )
        self._of_deployment = self._app("listeners", client)
        self._client_of_deployment = client
        client.token = self.bot_token  # from now on: an app that begins with a token asks Slack who it is
        for function in functions:
            try:
                if inspect.isawaitable(added := function(self._of_deployment)):
                    await added
            except Exception as e:  # the code of a deployment
                name = f"{function.__module__}:{function.__qualname__}"
                raise ConnectionRefused(
                    f"slack.listeners: {name} failed ({type(e).__name__}: {e}). Correct it, or remove it from the list."
                ) from e

    def use_token(self, bot_token: str) -> None:
        """Give the bot's new token to the listeners of the deployment."""
        self.bot_token = bot_token
        if self._of_deployment is not None:
            self._client_of_deployment.token = bot_token

    async def receive(self, body: dict[str, Any]) -> Reply:
        """Handle a payload; return once it is stored or ignored."""
        try:
            if not self._is_for_us(body):
                return DONE
            ours = await self._ours.async_dispatch(AsyncBoltRequest(body=body, mode="socket_mode"))
        except Exception as e:  # noqa: BLE001 - a Slack handler's border: Bolt fails in many ways on odd payloads
            log.warning("slack.payload_unreadable", type=body.get("type"), error=repr(e))
            return DONE
        if ours.status == NOT_NOW.status:
            return NOT_NOW
        theirs = None if self._of_deployment is None else await self._pass_on(self._of_deployment, body)
        # Bolt answers 404 to payloads without a listener and 500 to malformed ones.
        if theirs is None and ours.status != DONE.status:
            log.info("slack.unknown", type=body.get("type"))
        if ours.status == DONE.status and ours.body:
            return Reply(DONE.status, {"response_type": "ephemeral", "text": ours.body})
        return theirs or DONE

    @staticmethod
    async def _pass_on(app: AsyncApp, body: dict[str, Any]) -> Reply | None:
        """Return the acknowledgement by a listener of the deployment; `None`: no listener acknowledged the payload."""
        with error_boundary("listeners.failed", type=body.get("type")):
            async with asyncio.timeout(_ACK_WITHIN_S):
                response = await app.async_dispatch(AsyncBoltRequest(body=body, mode="socket_mode"))
            if response.status == DONE.status:
                is_json = response.headers.get("content-type", [""])[0].startswith("application/json")
                payload = json.loads(response.body) if is_json and response.body else {"text": response.body}
                return Reply(DONE.status, payload if response.body else None)
        return None

    def _is_for_us(self, body: dict[str, Any]) -> bool:
        if body.get("type") == "app_rate_limited":
            log.warning("slack.events_limited", team=body.get("team_id"), minute=body.get("minute_rate_limited"))
            return False
        if (teams := set(teams_of(body))) and self._team not in teams:
            log.info("slack.other_team", teams=sorted(teams), type=body.get("type"))
            return False
        # The fields that Bolt requires.
        event = body.get("event")
        is_event = isinstance(event, dict) and isinstance(event.get("type"), str)
        is_other = body.get("type") != "event_callback" and (isinstance(body.get("type"), str) or "command" in body)
        if not (is_event or is_other):
            log.info("slack.unknown", type=body.get("type"))
        return is_event or is_other

    def _app(self, name: str, client: AsyncWebClient, *, process_before_response: bool = False) -> AsyncApp:
        async def authorize() -> AuthorizeResult:
            who = self._identity
            return AuthorizeResult(
                enterprise_id=None, team_id=who.team, bot_token=self.bot_token, bot_id=who.bot_id, bot_user_id=who.user
            )

        logger = logging.getLogger(f"connector.{name}")
        logger.setLevel(logging.ERROR)  # Bolt warns about each payload without a listener
        return AsyncApp(
            name=name,  # without one, Bolt inspects every loaded module to find a name
            client=client,
            authorize=authorize,
            logger=logger,
            process_before_response=process_before_response,
            # The HTTP server does these.
            request_verification_enabled=False,
            ssl_check_enabled=False,
            url_verification_enabled=False,
        )


async def dispatch(event: dict[str, Any], team: str, intake: Intake, *, is_shared: bool = False) -> None:
    """Parse an event or a click and pass it to the intake. `is_shared`: its channel is shared with another workspace.

    Raises:
        NotNow: the service is shutting down; Slack must deliver the event again.
    """
    try:
        handling = _handling(event, team, intake, is_shared=is_shared)
    except UNREADABLE as e:
        log.warning("event.unreadable", slack_event=event.get("type"), error=repr(e))
        return
    if handling is not None:
        await handling


async def answer_command(body: dict[str, Any], team: str, intake: Intake) -> str | None:
    """Carry out a slash command and return the answer; `None`: it is not ours, or unreadable.

    Raises:
        NotNow: as in `dispatch`.
    """
    try:
        command = slash_of(body, team, time.time())
    except UNREADABLE as e:
        log.warning("command.unreadable", error=repr(e))
        return None
    is_shared = body.get("is_ext_shared_channel") is True
    home = home_of({"team": body.get("team_id")})
    return await intake.on_command(command, Actor(command.user, command.place.channel, home, is_shared or None))


def _handling(  # noqa: C901, PLR0911, PLR0912 - a case for each kind of event
    event: dict[str, Any], team: str, intake: Intake, *, is_shared: bool
) -> Handling:
    """Parse an event and return the coroutine that handles it; `None`: nothing to do."""
    dm_threads = intake.options.dm_threads
    match event:
        case {"type": "message", "subtype": "message_changed" | "message_deleted"}:
            home = home_of(event.get("message") or event.get("previous_message") or {})
            if (deletion := deletion_of(event, team, dm_threads=dm_threads)) is not None:
                return intake.on_deletion(deletion, _author(deletion.message, home, is_shared))
            if (edit := edit_of(event, team, dm_threads=dm_threads)) is not None:
                return intake.on_edit(edit, _author(edit.message, home, is_shared))
        case {"type": "app_mention", "edited": {}}:
            # Slack sends it again after every edit of a message with a mention; the event of the edit counts.
            return None
        case {"type": "message" | "app_mention"}:
            if (message := message_of(event, team, dm_threads=dm_threads)) is not None:
                actor = _author(message, home_of(event), is_shared)
                return intake.on_message(message, actor)
        case {"type": "reaction_added"}:
            if (reaction := reaction_of(event)) is not None:
                return intake.on_reaction(reaction, Actor(reaction.user, reaction.channel, None, is_shared))
        case {"type": "agent_session_stopped"}:
            if (stopped := session_stop_of(event, team)) is not None:
                place, stop = stopped
                return intake.on_stop(place, stop, Actor(stop.user, place.channel, None, is_shared))
        case {"type": "app_home_opened"} if (opened := home_opened_of(event)) is not None:
            return intake.on_home(opened, Actor(opened.user, opened.channel, None, None))
        case {"type": kind} if kind in _VIEWS:
            if (view := view_of(event)) is not None:
                return intake.on_view(view, Actor(view.user, view.channel, None, is_shared))
        case {"type": "message_action" | "view_submission"} if (
            action := action_of(event, team, dm_threads=dm_threads)
        ) is not None:
            home = home_of({"team": event["user"].get("team_id")})
            return intake.on_message_action(action, Actor(action.user, action.place.channel, home, None))
        case {"type": "block_actions"} if (clicked := clicked_of(event, team)) is not None:
            place, click = clicked
            home = home_of({"team": event["user"].get("team_id")})
            if isinstance(click, Consent):
                return intake.on_consent(place, click, Actor(click.by, place.channel, home, None))
            return intake.on_stop(place, click, Actor(click.user, place.channel, home, None))
        case {"type": "block_actions" | "view_submission"} if (answered := request_click_of(event, team)) is not None:
            address, answer = answered
            home = home_of({"team": event["user"].get("team_id")})
            return intake.on_request(address, answer, Actor(answer.by, address.place.channel, home, None))
        case {"type": "block_actions" | "view_submission"} if (rating := rating_of(event, team)) is not None:
            home = home_of({"team": event["user"].get("team_id")})
            return intake.on_rating(rating, Actor(rating.user, rating.place.channel, home, None))
        case {"type": "block_actions"} if (home_click := home_click_of(event, team)) is not None:
            home = home_of({"team": event["user"].get("team_id")})
            channel = home_click.place.channel if home_click.place is not None else ""
            return intake.on_home_click(home_click, Actor(home_click.user, channel, home, None))
        case {"type": "block_actions" | "message_action"}:
            if (shortcut := shortcut_of(event, team, dm_threads=dm_threads)) is not None:
                home = home_of({"team": event["user"].get("team_id")})
                return intake.on_shortcut(shortcut, Actor(shortcut.user, shortcut.place.channel, home, None))
    return None


def _author(message: SlackMessage, home: str | None, is_shared: bool) -> Actor:
    return Actor(message.user, message.channel, home, is_shared, is_bot=bool(message.bot))


def teams_of(body: dict[str, Any]) -> Iterator[str]:
    """Yield the workspaces named in a payload: that of the installation first, then those of the place and its people.

    An event by a foreign user in a shared channel names ours too.
    """
    team, user, message = (body.get(name) for name in ("team", "user", "message"))
    inside: list[tuple[Any, str]] = [(each, "team_id") for each in (*(body.get("authorizations") or ()), body)]
    inside += [(body, "context_team_id"), (team, "id"), (user, "team_id"), (message, "team")]
    for where, name in inside:
        place = where.get(name) if isinstance(where, dict) else None
        if isinstance(place, str) and place.startswith("T"):
            yield place


def team_of(body: dict[str, Any]) -> str:
    """Return the workspace of the installation that a payload is for; blank: it names none.

    An event is for its first authorization. A click is for the workspace of the app's view or message; the person may
    be in another one. An action on a message is for the workspace of the person: the message can be anyone's.
    """
    event, view, message = (body.get(name) for name in ("event", "view", "message"))
    authorizations = [each for each in body.get("authorizations") or () if isinstance(each, dict)]
    of_app = None if body.get("type") == "message_action" else message
    named: list[tuple[Any, str]] = [(view, "app_installed_team_id"), (of_app, "team"), (body.get("team"), "id")]
    if isinstance(event, dict):
        named = [(authorizations[0] if authorizations else None, "team_id"), (body, "context_team_id")]
    for where, name in (*named, (body, "team_id")):
        place = where.get(name) if isinstance(where, dict) else None
        if isinstance(place, str) and place.startswith("T"):
            return place
    return ""


def parse_json(text: str) -> Any:
    """Parse untrusted JSON, and bound its nesting, so that no later copy or serialization exhausts the stack.

    Raises:
        ValueError: the text is not JSON, or nested more than 100 levels deep.
    """
    try:
        value = json.loads(text)
    except RecursionError as e:
        raise ValueError("it is nested too deeply") from e
    if text.count("[") + text.count("{") > _MAX_NESTING:
        level = [value]
        for _ in range(_MAX_NESTING + 1):
            level = [
                child
                for each in level
                if isinstance(each, dict | list)
                for child in (each.values() if isinstance(each, dict) else each)
            ]
        if level:
            raise ValueError(f"it is nested more than {_MAX_NESTING} levels deep")
    return value
