"""Clicks and choices in messages and views, other gestures of people, and what the app gets for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiohttp import web

from local_slack.blocks.elements import action_json, find_element, state_of
from local_slack.blocks.slack_json import interaction_json, message_json, share_json, view_json
from local_slack.delivery.events import views_event
from local_slack.methods.calls import Arguments, read_arguments, token_of
from local_slack.web import entry_points, modals
from local_slack.web.response_urls import Reply, ResponseUrls
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import Body
from local_slack.workspace.people import Person

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from local_slack.delivery.events import Subscription
    from local_slack.json_limits import Json
    from local_slack.methods.app import App
    from local_slack.workspace.messages import WorkspaceMessage
    from local_slack.workspace.workspace import Workspace

    Gesture = Callable[[Subscription, Person, Arguments, str], Awaitable[Json | None]]


class Interactivity:
    """Accept gestures of people, identified by their tokens, and deliver them to the app.

    ``_entered`` has what a person has chosen and typed, by message or view and person.
    """

    def __init__(self, subscriptions: Sequence[Subscription], app: App) -> None:
        self._subscriptions = subscriptions
        self._app = app
        self._response_urls = ResponseUrls()
        self._entered: dict[tuple[str, str], Json] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/page/click", self._gesture(self._click)),
            web.post("/page/click_home", self._gesture(self._click_home)),
            web.post("/page/click_modal", self._gesture(self._click_modal)),
            web.post("/page/command", self._gesture(self._command)),
            web.post("/page/shortcut", self._gesture(self._shortcut)),
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
        place = f"{message.channel}/{message.ts}"
        action, state = self._act(workspace, person, place, message.blocks, args)
        reply = Reply(workspace, message.channel, person, message)
        container: Json = {"type": "message", "message_ts": message.ts, "channel_id": message.channel}
        if message.thread_ts:
            container["thread_ts"] = message.thread_ts
        payload = {
            **self._payload(workspace, person, "block_actions"),
            "container": container | {"is_ephemeral": bool(message.only_for)},
            "channel": entry_points.channel_json(workspace.channel(message.channel)),
            **({} if message.only_for else {"message": message_json(message, workspace.directory.team)}),
            "state": {"values": state},
            "response_url": base_url + self._response_urls.give(reply),
            "actions": [action],
        }
        await subscription.interact(payload)

    async def _click_home(self, subscription: Subscription, person: Person, args: Arguments, _: str) -> None:
        await self._click_view(subscription, person, args, is_home=True)

    async def _click_modal(self, subscription: Subscription, person: Person, args: Arguments, _: str) -> None:
        await self._click_view(subscription, person, args, is_home=False)

    async def _click_view(self, subscription: Subscription, person: Person, args: Arguments, *, is_home: bool) -> None:
        workspace = subscription.workspace
        view = workspace.views.home(person.id) if is_home else modals.shown(workspace, person, args)
        if view is None:
            raise SlackRefused("not_found")
        action, state = self._act(workspace, person, view.id, view.content["blocks"], args)
        payload = {
            **self._payload(workspace, person, "block_actions"),
            "container": {"type": "view", "view_id": view.id},
            "view": view_json(view, workspace.directory, state),
            "actions": [action],
        }
        await subscription.interact(payload)

    def _act(
        self, workspace: Workspace, person: Person, place: str, blocks: Sequence[Json], args: Arguments
    ) -> tuple[Json, Json]:
        """Return the entry of ``actions`` for a gesture on one of the blocks, and the values of their inputs."""
        members, value = workspace.directory.members, args.given().get("value")
        action_id, block_id = args.required("action_id"), args.text("block_id")
        block, element = find_element(blocks, action_id, block_id, value, person.id)
        action = action_json(block, element, value, members)
        state = state_of(blocks, modals.given_in(args), self._entered.get((place, person.id), {}), members)
        if action_id in (inputs := state.get(block["block_id"], {})):
            inputs[action_id] = {name: part for name, part in action.items() if name not in ("action_id", "block_id")}
        self._entered[place, person.id] = state
        return action | {"action_ts": _now()}, state

    def _payload(self, workspace: Workspace, person: Person, kind: str) -> Json:
        trigger = {"trigger_id": workspace.views.issue_trigger(person.id)}
        return interaction_json(kind, person, workspace.directory) | trigger

    async def _command(self, subscription: Subscription, person: Person, args: Arguments, base_url: str) -> Json:
        ts = await entry_points.run_command(
            subscription, person, args, self._app.commands, lambda reply: base_url + self._response_urls.give(reply)
        )
        return {"ts": ts}

    async def _shortcut(self, subscription: Subscription, person: Person, args: Arguments, base_url: str) -> None:
        """Use a shortcut, on the message ``ts`` in ``channel`` unless it is global."""
        workspace = subscription.workspace
        kind = "message" if args.has("ts") else "global"
        shortcut = entry_points.shortcut_named(self._app.shortcuts, args.required("callback_id"), kind)
        if kind == "global":
            payload = self._payload(workspace, person, "shortcut") | {"callback_id": shortcut.callback_id}
            await subscription.interact(payload | {"action_ts": _now()})
            return
        message = _visible(workspace, person, args.required("channel"), args.required("ts"))
        if message.tombstone or message.only_for:
            raise SlackRefused("message_not_found")
        payload = {
            **self._payload(workspace, person, "message_action"),
            "callback_id": shortcut.callback_id,
            "action_ts": _now(),
            "channel": entry_points.channel_json(workspace.channel(message.channel)),
            "message_ts": message.ts,
            "message": message_json(message, workspace.directory.team),
            "response_url": base_url + self._response_urls.give(Reply(workspace, message.channel, person)),
        }
        await subscription.interact(payload)

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
        """Open a tab of the app; with the Home tab, the app gets the view that it last published."""
        workspace = subscription.workspace
        tab = args.one_of("tab", ("home", "messages")) if args.has("tab") else "messages"
        channel, _was_open = workspace.open_im(person, workspace.directory.bot)
        home = views_event(person.id, workspace)["home"] if tab == "home" else None
        event = {"type": "app_home_opened", "user": person.id, "channel": channel.id, "tab": tab}
        subscription.publish({**event, **({"view": home} if home else {}), "event_ts": _now()})

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
        await modals.submit(subscription, person, args, self._entered)

    async def _close_view(self, subscription: Subscription, person: Person, args: Arguments, _: str) -> None:
        await modals.close(subscription, person, args)


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


def _now() -> str:
    return f"{time.time():.6f}"
