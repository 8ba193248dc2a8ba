"""Clicks on buttons and menus, other gestures of people, and the app's responses to a ``response_url``."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from local_slack.blocks.blocks import check_blocks, with_ids
from local_slack.blocks.slack_json import VERIFICATION_TOKEN, message_json, share_json
from local_slack.methods.calls import Arguments, read_arguments, token_of
from local_slack.web import modals
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import Body
from local_slack.workspace.people import Person

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from local_slack.delivery.events import Subscription
    from local_slack.json_limits import Json
    from local_slack.workspace.messages import WorkspaceMessage
    from local_slack.workspace.workspace import Workspace

    Gesture = Callable[[Subscription, Person, Arguments, str], Awaitable[Json | None]]

_MENUS = {"static_select", "overflow", "radio_buttons"}
_RESPONSE_URL_USES = 5
_RESPONSE_URL_LASTS_S = 30 * 60.0


class Interactivity:
    """Accept gestures of people, identified by their tokens, and deliver them to the app."""

    def __init__(self, subscriptions: Sequence[Subscription]) -> None:
        self._subscriptions = subscriptions
        self._response_urls = ResponseUrls()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/page/click", self._gesture(self._click)),
            web.post("/page/forward", self._gesture(self._forward)),
            web.post("/page/stop_session", self._gesture(self._stop_session)),
            web.post("/page/open_home", self._gesture(self._open_home)),
            web.post("/page/look_at", self._gesture(self._look_at)),
            web.post("/page/open_thread", self._gesture(self._open_thread)),
            web.post("/page/submit_view", self._gesture(self._submit_view)),
            web.post("/page/close_view", self._gesture(self._close_view)),
            web.post("/actions/{team}/{number}/{secret}", self._response_urls.handle),
        ]

    def _gesture(self, gesture: Gesture) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                values = await read_arguments(request)
                subscription, person = self._who(token_of(request, values))
                base_url = f"{request.scheme}://{request.host}/"
                answer = await gesture(subscription, person, Arguments(values), base_url)
            except SlackRefused as refused:
                messages = {"response_metadata": {"messages": list(refused.messages)}} if refused.messages else {}
                return web.json_response({"ok": False, "error": refused.code, **messages})
            return web.json_response({"ok": True, **(answer or {})})

        return handle

    def _who(self, token: str) -> tuple[Subscription, Person]:
        for subscription in self._subscriptions:
            person = subscription.workspace.directory.holders.get(token)
            if isinstance(person, Person):
                return subscription, person
        raise SlackRefused("invalid_auth" if token else "not_authed")

    async def _click(self, subscription: Subscription, person: Person, args: Arguments, base_url: str) -> None:
        args.need("channel", "ts", "action_id")
        workspace = subscription.workspace
        message = _visible(workspace, person, args.required("channel"), args.required("ts"))
        action = _find_action(message, args)
        response_url = base_url + self._response_urls.give(workspace, message, person)
        await subscription.interact(_interaction(workspace, person, message, action, response_url))

    async def _forward(self, subscription: Subscription, person: Person, args: Arguments, _: str) -> Json:
        """Share a message in the conversation ``to``, a channel or a member, with the comment ``text``."""
        args.need("channel", "ts", "to")
        workspace, to = subscription.workspace, args.required("to")
        message = _visible(workspace, person, args.required("channel"), args.required("ts"))
        if message.tombstone or message.only_for:
            raise SlackRefused("message_not_found")
        share = share_json(message, workspace.channel(message.channel), workspace.directory)
        if member := workspace.directory.members.get(to):
            to = workspace.open_im(person, member)[0].id
        body = Body(args.text("text") or "", attachments=(share,))
        posted = workspace.post(to, person, body, thread_ts=args.thread_ts())
        return {"channel": posted.channel, "ts": posted.ts}

    async def _stop_session(self, subscription: Subscription, person: Person, args: Arguments, _: str) -> None:
        args.need("channel", "thread_ts")
        channel = subscription.workspace.channel(args.required("channel"))
        if person.id not in channel.members:
            raise SlackRefused("not_in_channel")
        thread_ts = args.required("thread_ts")
        streaming = subscription.workspace.streams.stop(channel.id, thread_ts)
        event = {"type": "agent_session_stopped", "channel": channel.id, "thread_ts": thread_ts}
        subscription.publish({**event, "user": person.id, "streaming_message_ts": streaming, "event_ts": _now()})

    async def _open_home(self, subscription: Subscription, person: Person, args: Arguments, _: str) -> None:
        workspace = subscription.workspace
        channel, _was_open = workspace.open_im(person, workspace.directory.bot)
        event = {"type": "app_home_opened", "user": person.id, "channel": channel.id}
        subscription.publish({**event, "tab": args.text("tab") or "messages", "event_ts": _now()})

    async def _look_at(self, subscription: Subscription, person: Person, args: Arguments, _: str) -> None:
        """Show a channel next to the app's direct message; without one, nothing."""
        workspace, named = subscription.workspace, args.text("channel")
        place, _was_open = workspace.open_im(person, workspace.directory.bot)
        entity = {"type": "slack#/types/channel_id", "team_id": workspace.directory.team.id}
        context = {"entities": [{**entity, "value": workspace.channel(named).id}]} if named else {}
        event = {"type": "app_context_changed", "user": person.id, "channel": place.id}
        subscription.publish({**event, "context": context, "event_ts": _now()})

    async def _open_thread(self, subscription: Subscription, person: Person, args: Arguments, _: str) -> None:
        """Open a thread with the agent from a channel, or change the channel that the person sees next to the thread.

        The root of a new thread is a post by the app, as in Slack.
        """
        workspace, named = subscription.workspace, args.text("context")
        context = {"channel_id": workspace.channel(named).id, "team_id": workspace.directory.team.id} if named else {}
        place, _was_open = workspace.open_im(person, workspace.directory.bot)
        thread_ts, kind = args.thread_ts(), "assistant_thread_context_changed"
        if thread_ts is None:
            kind = "assistant_thread_started"
            root = Body("New Assistant Thread")
            thread_ts = workspace.post(place.id, workspace.directory.bot, root, subtype="assistant_app_thread").ts
        thread = {"user_id": person.id, "context": context, "channel_id": place.id, "thread_ts": thread_ts}
        subscription.publish({"type": kind, "assistant_thread": thread, "event_ts": _now()})

    async def _submit_view(self, subscription: Subscription, person: Person, args: Arguments, _: str) -> None:
        await modals.submit(subscription, person, args)

    async def _close_view(self, subscription: Subscription, person: Person, _args: Arguments, _: str) -> None:
        await modals.close(subscription, person)


def _visible(workspace: Workspace, person: Person, channel: str, ts: str) -> WorkspaceMessage:
    """Find a message that this person can see, ephemeral ones included."""
    place = workspace.channel(channel)
    if person.id not in place.members:
        raise SlackRefused("not_in_channel")
    whispers = (w for w in workspace.whispers(place.id) if w.ts == ts and w.only_for == person.id)
    message = workspace.message(place.id, ts) or next(whispers, None)
    if message is None:
        raise SlackRefused("message_not_found")
    return message


def _find_action(message: WorkspaceMessage, args: Arguments) -> Json:
    """Return the entry of ``actions`` for the named element; raises ``no_such_action``."""
    action_id, block_id = args.required("action_id"), args.text("block_id")
    selected = args.object("selected_option", "invalid_arguments")
    value = args.text("value") or selected.get("value")
    for number, block in enumerate(message.blocks):
        place = str(block.get("block_id") or f"block{number}")
        for element in (*block.get("elements", ()), block.get("accessory")):
            if not isinstance(element, dict) or element.get("action_id") != action_id or block_id not in {None, place}:
                continue
            chosen = next((choice for choice in _choices(element) if value in {None, choice.get("value")}), None)
            if chosen is None and value is not None:
                continue
            action = {"type": element["type"], "action_id": action_id, "block_id": place, "action_ts": _now()}
            if element["type"] in _MENUS:
                return action | {"selected_option": chosen or {}}
            return action | {name: chosen[name] for name in ("text", "value", "style") if chosen and name in chosen}
    raise SlackRefused("no_such_action")


def _choices(element: Json) -> tuple[Json, ...]:
    """Return the objects with a value: a menu's options, both feedback buttons, or the button itself."""
    match element.get("type"):
        case "feedback_buttons":
            return element.get("positive_button", {}), element.get("negative_button", {})
        case kind if kind in _MENUS:
            return tuple(element.get("options", ()))
        case _:
            return (element,)


def _interaction(
    workspace: Workspace, person: Person, message: WorkspaceMessage, action: Json, response_url: str
) -> Json:
    """Return the ``block_actions`` payload."""
    team, channel = workspace.directory.team, workspace.channel(message.channel)
    container: Json = {"type": "message", "message_ts": message.ts, "channel_id": channel.id}
    if message.thread_ts:
        container["thread_ts"] = message.thread_ts
    seen = {} if message.only_for else {"message": message_json(message, team)}
    return {
        "type": "block_actions",
        "user": {"id": person.id, "username": person.name, "name": person.name, "team_id": team.id},
        "api_app_id": workspace.directory.bot.app_id,
        "token": VERIFICATION_TOKEN,
        "container": container | {"is_ephemeral": bool(message.only_for)},
        "trigger_id": workspace.views.issue_trigger(person.id),
        "team": {"id": team.id, "domain": team.domain},
        "enterprise": None,
        "is_enterprise_install": False,
        "channel": {"id": channel.id, "name": "directmessage" if channel.is_im else channel.name},
        **seen,
        "state": {"values": {}},
        "response_url": response_url,
        "actions": [action],
    }


def _now() -> str:
    return f"{time.time():.6f}"


@dataclass(slots=True)
class _Click:
    """The click of a response URL, with which the app can post, replace or delete a few times within 30 minutes."""

    workspace: Workspace
    message: WorkspaceMessage
    person: Person
    until: float
    uses: int = 0

    def answer(self, args: Arguments) -> None:
        workspace, channel, ts = self.workspace, self.message.channel, self.message.ts
        bot, kept = workspace.directory.bot, not self.message.only_for
        if args.flag("delete_original"):
            if kept:
                workspace.delete(channel, ts, bot)
            return
        text, blocks = args.text("text") or "", args.objects("blocks", "invalid_blocks_format")
        if not text and not blocks:
            raise SlackRefused("no_text")
        check_blocks(blocks)
        body = Body(text, with_ids(blocks), args.objects("attachments", "invalid_attachments"))
        thread_ts = args.text("thread_ts")
        if args.flag("replace_original") and kept:
            workspace.edit(channel, ts, bot, body)
        elif args.text("response_type") == "in_channel":
            workspace.post(channel, bot, body, thread_ts=thread_ts)
        else:
            workspace.whisper(channel, bot, body, to=self.person.id, thread_ts=thread_ts)


class ResponseUrls:
    """Create response URLs and handle requests to them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._clicks: dict[str, _Click] = {}

    def give(self, workspace: Workspace, message: WorkspaceMessage, person: Person) -> str:
        """Return the path of a new response URL."""
        path = f"actions/{workspace.directory.team.id}/{len(self._clicks) + 1}/{secrets.token_urlsafe(18)}"
        self._clicks[path] = _Click(workspace, message, person, self._clock() + _RESPONSE_URL_LASTS_S)
        return path

    def problem(self, path: str) -> str | None:
        """Return the error of an expired or used-up URL, or None."""
        click = self._clicks.get(path)
        if click is None or self._clock() > click.until:
            return "expired_url"
        return "used_url" if click.uses >= _RESPONSE_URL_USES else None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/")
        if problem := self.problem(path):
            return web.json_response({"ok": False, "error": problem}, status=404)
        click = self._clicks[path]
        try:
            click.answer(Arguments(await read_arguments(request)))
        except SlackRefused as refused:
            return web.json_response({"ok": False, "error": refused.code}, status=400)
        click.uses += 1
        return web.Response(text="ok")
