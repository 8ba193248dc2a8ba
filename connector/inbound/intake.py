"""The doors of the connector: what people do becomes an entry of an inbox before Slack hears that we have it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from connector import phrases
from connector.inbox import Inbound
from connector.messages import Place, is_stop_word, message_of
from connector.outbound.errors import SlackCallFailed
from connector.outbound.wire import key_of
from connector.protocols import Entry
from connector.view import STATUS_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from connector.conversations import Conversations
    from connector.desk import Workplace
    from connector.messages import Deletion, Edit, Message, Reaction
    from connector.protocols import Instance, Kind, Runs

_REMEMBERED = 10_000
_STOP_REACTION = "x"
# Slack delivers an event again within so many seconds; what came after it may have overtaken it.
_OVERTAKEN_WITHIN_S = 600.0
# How long an event may wait for Slack: after three seconds it comes again.
_LOOK_WITHIN_S = 2.0


class NotNow(Exception):  # noqa: N818 - a fact about the service
    """An event cannot be taken just now: Slack delivers it again, to whoever is there then."""


class _Remembered:
    """The latest of many names."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        self._names[name] = None
        if len(self._names) > _REMEMBERED:
            self._names.popitem(last=False)


class Intake:
    """Takes in what people do, in each conversation in the order in which it comes."""

    def __init__(self, workplace: Workplace, runs: Runs, conversations: Conversations, bot_user: str) -> None:
        self._desk = workplace.desk
        self._router = workplace.router
        self._runs = runs
        self._conversations = conversations
        self._bot_user = bot_user
        self._in_turn: dict[str, tuple[asyncio.Lock, int]] = {}
        self._answered = _Remembered()
        # Threads that have not begun with an agent.
        self._others = _Remembered()

    async def on_message(self, message: Message) -> None:
        """Take a message in; the second event of one post changes nothing.

        Raises:
            NotNow: the service is shutting down, or Slack does not answer.
        """
        self._refuse_when_closing()
        async with self._turn(message.place.conversation_id):
            routed = await self._routed(message)
            if routed is None:
                return
            instance, prompt = routed
            if is_stop_word(prompt):
                data = {"user": message.user, "at": message.ts, "message": asdict(message)}
                await self._runs.admit(message.place.conversation_id, Entry(message.id, "stop", data))
                return
            if prompt or message.files:
                inbound = Inbound(message, instance.name, prompt or ", ".join(message.files), message.id)
                entry = Entry(message.id, "message", inbound.written())
            else:
                self._answer_once(message)
                return
            await self._runs.admit(message.place.conversation_id, entry, instance.name)

    async def _routed(self, message: Message) -> tuple[Instance, str] | None:
        """What the gate says, once the first message of the thread is in, if this one has overtaken it."""
        routed = await self._router.route(message)
        is_reply = message.thread_ts is not None and not message.direct
        if routed is not None or not is_reply or message.mentions_anyone():
            return routed
        return await self._router.route(message) if await self._take_in_first(message) else None

    async def _take_in_first(self, reply: Message) -> bool:
        """Take in the first message of a thread, whose event is still on its way to us; whether it is for us."""
        place, thread_ts = reply.place.conversation_id, reply.thread_ts or reply.ts
        if float(reply.ts) - float(thread_ts) > _OVERTAKEN_WITHIN_S or place in self._others:
            return False
        found = await self._found(reply.channel, thread_ts)
        first = message_of({**found, "channel": reply.channel}, reply.team) if found else None
        routed = await self._router.route(first) if first else None
        if first is None or routed is None:
            self._others.add(place)
            return False
        instance, prompt = routed
        text = prompt or ", ".join(first.files)
        if not text or is_stop_word(prompt):
            return False
        inbound = Inbound(first, instance.name, text, first.id)
        await self._runs.admit(place, Entry(first.id, "message", inbound.written()), instance.name)
        return True

    async def _found(self, channel: str, ts: str) -> dict[str, Any] | None:
        """A message, as Slack has it; `None`: it cannot be had.

        Raises:
            NotNow: Slack does not answer.
        """
        try:
            async with asyncio.timeout(_LOOK_WITHIN_S):
                return await self._desk.wire.message(channel, ts)
        except TimeoutError as e:
            raise NotNow from e
        except SlackCallFailed as e:
            if e.is_passing:
                raise NotNow from e
            return None

    async def on_edit(self, edit: Edit) -> None:
        """Take an edit in, where it is of a message to an agent.

        Raises:
            NotNow: the service is shutting down, or Slack does not answer.
        """
        await self._on_change("edit", edit.id, edit.message, edit.before, edit.event_ts)

    async def on_deletion(self, deletion: Deletion) -> None:
        """Take a deletion in, where it is of a message to an agent.

        Raises:
            NotNow: the service is shutting down, or Slack does not answer.
        """
        await self._on_change("withdrawal", deletion.id, deletion.message, deletion.message, deletion.event_ts)

    async def _on_change(self, kind: Kind, entry_id: str, message: Message, before: Message, event_ts: str) -> None:
        self._refuse_when_closing()
        conversation_id = message.place.conversation_id
        async with self._turn(conversation_id):
            routed, routed_before = await self._routed(message), await self._router.route(before)
            if routed is None or routed_before is None:
                return
            instance, prompt = routed
            if not prompt and not message.files:  # what is left is a bare mention
                kind, prompt = "withdrawal", routed_before[1]
            inbound = Inbound(message, instance.name, prompt or ", ".join(message.files), entry_id, edited_ts=event_ts)
            entry = Entry(entry_id, kind, inbound.written())
            if float(event_ts) - float(message.ts) < _OVERTAKEN_WITHIN_S and not is_stop_word(prompt):
                # The message may still be on its way. Where it is, this is it: what comes of it then is known.
                itself = Entry(message.id, "message" if kind == "edit" else kind, entry.data)
                await self._runs.admit(conversation_id, itself, instance.name)
            await self._runs.admit(conversation_id, entry)

    async def on_reaction(self, reaction: Reaction) -> None:
        """Stop the run whose status or starting message got an ❌.

        Raises:
            NotNow: the service is shutting down, or Slack does not answer.
        """
        if reaction.name != _STOP_REACTION or reaction.user == self._bot_user:
            return
        self._refuse_when_closing()
        found = self._conversations.running_at(reaction.channel, reaction.ts) or await self._look_up(reaction)
        if found is None:
            return
        conversation_id, run_id = found
        async with self._turn(conversation_id):
            data = {"user": reaction.user, "at": reaction.event_ts, "ts": reaction.ts, "run": run_id}
            await self._runs.admit(conversation_id, Entry(reaction.id, "stop", data))

    async def _look_up(self, reaction: Reaction) -> tuple[str, str | None] | None:
        """The conversation of a message, and the run whose status it is; `None`: no agent takes part in it."""
        message = await self._found(reaction.channel, reaction.ts)
        if message is None:
            return None
        root = message.get("thread_ts")
        if not reaction.channel.startswith("D"):
            root = root or reaction.ts
        place = Place(self._router.team, reaction.channel, root)
        if await self._runs.agent_of(place.conversation_id) is None:
            return None
        run_id, is_status, _ = key_of(message).partition(STATUS_KEY)
        return place.conversation_id, run_id if is_status else None

    def _answer_once(self, message: Message) -> None:
        """A bare mention gets an answer, though it is no message to an agent; its second event gets none."""
        if message.id not in self._answered:
            self._answered.add(message.id)
            self._desk.tell(message, phrases.NO_TEXT)

    def _refuse_when_closing(self) -> None:
        if self._conversations.is_closing:
            raise NotNow

    @asynccontextmanager
    async def _turn(self, conversation_id: str) -> AsyncIterator[None]:
        """What people do in one conversation is taken in in the order in which it came."""
        lock, users = self._in_turn.get(conversation_id, (asyncio.Lock(), 0))
        self._in_turn[conversation_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._in_turn.pop(conversation_id)
            if users > 1:
                self._in_turn[conversation_id] = (lock, users - 1)
