"""Clicks on buttons and menus, and the responses of the app to their ``response_url``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from aiohttp import web

from local_slack.delivery.envelope import Envelope
from local_slack.interactivity.actions import find_action, interaction
from local_slack.interactivity.response_urls import ResponseUrls
from local_slack.methods.arguments import Arguments, read_arguments
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.people import PersonToken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from local_slack.blocks.slack_json import Json
    from local_slack.delivery.delivery import Delivery
    from local_slack.delivery.subscription import Subscription
    from local_slack.workspace.messages import Message
    from local_slack.workspace.people import Person
    from local_slack.workspace.workspace import Workspace

    Gesture = Callable[[Subscription, Person, Arguments, str], Awaitable[None]]


class Interactivity:
    """Accept clicks from people, identified by their tokens, and deliver them to the app."""

    def __init__(self, subscriptions: Sequence[Subscription], delivery: Delivery, numbers: Iterator[int]) -> None:
        self._subscriptions = subscriptions
        self._delivery = delivery
        self._numbers = numbers
        self._response_urls = ResponseUrls()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/page/click", self._gesture(self._click)),
            web.post("/page/stop_session", self._gesture(self._stop_session)),
            web.post("/page/open_home", self._gesture(self._open_home)),
            *self._response_urls.routes(),
        ]

    def _gesture(self, gesture: Gesture) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                args = Arguments(await read_arguments(request))
                subscription, person = self._who(request, args)
                await gesture(subscription, person, args, f"{request.scheme}://{request.host}/")
            except SlackRefused as refused:
                return web.json_response({"ok": False, "error": refused.code})
            return web.json_response({"ok": True})

        return handle

    def _who(self, request: web.Request, args: Arguments) -> tuple[Subscription, Person]:
        _, _, bearer = request.headers.get("Authorization", "").partition(" ")
        token = bearer.strip() or args.text("token") or ""
        for subscription in self._subscriptions:
            credential = subscription.workspace.directory.credential(token)
            if isinstance(credential, PersonToken):
                return subscription, credential.member
        raise SlackRefused("invalid_auth" if token else "not_authed")

    async def _click(self, subscription: Subscription, person: Person, args: Arguments, base_url: str) -> None:
        args.need("channel", "ts", "action_id")
        workspace = subscription.workspace
        message = _visible(workspace, person, args.required("channel"), args.required("ts"))
        action = find_action(message, args)
        response_url = base_url + self._response_urls.give(workspace, message, person)
        payload = interaction(workspace, person, message, action, response_url)
        refusal = await self._ask(payload)
        if refusal:
            raise SlackRefused(refusal)

    async def _ask(self, payload: Json) -> str:
        envelope = Envelope(
            f"envelope-{next(self._numbers):06d}", "interactive", payload, accepts_response_payload=True
        )
        return await self._delivery.ask(envelope)

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


def _visible(workspace: Workspace, person: Person, channel: str, ts: str) -> Message:
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
