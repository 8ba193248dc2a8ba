"""The doors of the connector: what people do becomes an entry of an inbox before Slack hears that we have it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from connector import phrases
from connector.inbound.gate import Gate, Policy
from connector.inbox import Inbound
from connector.messages import Place, Stop, home_of, is_stop_word, message_of
from connector.outbound.errors import SlackCallFailed
from connector.outbound.scheduler import Turn
from connector.outbound.wire import key_of
from connector.protocols import Entry
from connector.view import STATUS_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from connector.conversations import Conversations
    from connector.desk import Workplace
    from connector.inbound.gate import Visitor
    from connector.messages import Deletion, Edit, Message, Reaction
    from connector.protocols import Instance, Kind, Runs

log = structlog.get_logger(__name__)

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

    def __init__(
        self,
        workplace: Workplace,
        runs: Runs,
        conversations: Conversations,
        bot_user: str,
        policy: Policy | None = None,
    ) -> None:
        self._gate = Gate(policy or Policy(), workplace.router.team, workplace.desk.wire)
        self._desk = workplace.desk
        self._router = workplace.router
        self._runs = runs
        self._conversations = conversations
        self._bot_user = bot_user
        self._in_turn: dict[str, tuple[asyncio.Lock, int]] = {}
        self._answered = _Remembered()
        # Threads that have not begun with an agent.
        self._others = _Remembered()

    async def on_message(self, message: Message, visitor: Visitor) -> None:
        """Take a message in; the second event of one post changes nothing.

        Raises:
            NotNow: the service is shutting down, or Slack does not answer.
        """
        self._refuse_when_closing()
        conversation_id = message.place.conversation_id
        async with self._turn(conversation_id):
            if not await self._may(visitor, message):
                return
            routed = await self._routed(message, visitor)
            if routed is None:
                return
            instance, prompt = routed
            if is_stop_word(prompt):
                await self._stop(conversation_id, Stop(message.id, message.user, message.ts, message=message))
            elif prompt or message.files:
                inbound = Inbound(message, instance.name, prompt or ", ".join(message.files), message.id)
                await self._runs.admit(conversation_id, Entry(message.id, "message", inbound.written()), instance.name)
            else:
                self._answer_once(message)

    async def _may(self, visitor: Visitor, message: Message | None = None) -> bool:
        """Whether somebody may use the bot here. Where they may not and have addressed it, they hear why."""
        refusal = await self._gate.refusal(visitor)
        if refusal is None:
            return True
        is_addressed = message is not None and (message.direct or message.mentions(self._bot_user))
        if message is not None and is_addressed and self._gate.is_to_be_told(visitor):
            log.info("gate.refused", user=visitor.user, channel=visitor.channel)
            arguments = {"channel": message.channel, "user": message.user, "text": refusal}
            if message.thread_ts is not None:
                arguments["thread_ts"] = message.thread_ts
            self._desk.spawn(self._desk.wire.call("chat.postEphemeral", arguments, Turn()))
        return False

    async def _routed(self, message: Message, visitor: Visitor) -> tuple[Instance, str] | None:
        """What the gate says, once the first message of the thread is in, if this one has overtaken it."""
        routed = await self._router.route(message)
        is_reply = message.thread_ts is not None and not message.direct
        if routed is not None or not is_reply or message.mentions_anyone():
            return routed
        return await self._router.route(message) if await self._take_in_first(message, visitor) else None

    async def _take_in_first(self, reply: Message, visitor: Visitor) -> bool:
        """Take in the first message of a thread, whose event is still on its way to us; whether it is for us."""
        place, thread_ts = reply.place.conversation_id, reply.thread_ts or reply.ts
        if float(reply.ts) - float(thread_ts) > _OVERTAKEN_WITHIN_S or place in self._others:
            return False
        found = await self._found(reply.channel, thread_ts)
        first = message_of({**found, "channel": reply.channel}, reply.team) if found else None
        routed = await self._router.route(first) if first else None
        if found is None or first is None or routed is None:
            self._others.add(place)
            return False
        if not await self._may(replace(visitor, user=first.user, home=home_of(found))):
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

    async def on_edit(self, edit: Edit, visitor: Visitor) -> None:
        """Take an edit in, where it is of a message to an agent.

        Raises:
            NotNow: the service is shutting down, or Slack does not answer.
        """
        await self._on_change("edit", edit, edit.before, visitor)

    async def on_deletion(self, deletion: Deletion, visitor: Visitor) -> None:
        """Take a deletion in, where it is of a message to an agent.

        Raises:
            NotNow: the service is shutting down, or Slack does not answer.
        """
        await self._on_change("withdrawal", deletion, deletion.message, visitor)

    async def _on_change(self, kind: Kind, change: Edit | Deletion, before: Message, visitor: Visitor) -> None:
        self._refuse_when_closing()
        message, event_ts = change.message, change.event_ts
        conversation_id = message.place.conversation_id
        async with self._turn(conversation_id):
            if not await self._may(visitor):
                return
            routed, routed_before = await self._routed(message, visitor), await self._router.route(before)
            if routed is None or routed_before is None:
                return
            instance, prompt = routed
            if not prompt and not message.files:  # what is left is a bare mention
                kind, prompt = "withdrawal", routed_before[1]
            inbound = Inbound(message, instance.name, prompt or ", ".join(message.files), change.id, edited_ts=event_ts)
            entry = Entry(change.id, kind, inbound.written())
            if float(event_ts) - float(message.ts) < _OVERTAKEN_WITHIN_S and not is_stop_word(prompt):
                # The message may still be on its way. Where it is, this is it: what comes of it then is known.
                itself = Entry(message.id, "message" if kind == "edit" else kind, entry.data)
                await self._runs.admit(conversation_id, itself, instance.name)
            await self._runs.admit(conversation_id, entry)

    async def on_reaction(self, reaction: Reaction, visitor: Visitor) -> None:
        """Stop the run whose status or starting message got an ❌.

        Raises:
            NotNow: the service is shutting down, or Slack does not answer.
        """
        if reaction.name != _STOP_REACTION or reaction.user == self._bot_user:
            return
        self._refuse_when_closing()
        if not await self._may(visitor):
            return
        found = self._conversations.running_at(reaction.channel, reaction.ts) or await self._look_up(reaction)
        if found is None:
            return
        conversation_id, run_id = found
        stop = Stop(reaction.id, reaction.user, reaction.event_ts, reaction.ts, run_id)
        async with self._turn(conversation_id):
            await self._stop(conversation_id, stop)

    async def on_stop(self, place: Place, stop: Stop, visitor: Visitor) -> None:
        """Stop what runs in a conversation, where an agent takes part in it.

        Raises:
            NotNow: the service is shutting down.
        """
        self._refuse_when_closing()
        if not await self._may(visitor):
            return
        conversation_id = place.conversation_id
        async with self._turn(conversation_id):
            if await self._runs.agent_of(conversation_id) is not None:
                await self._stop(conversation_id, stop)

    async def _stop(self, conversation_id: str, stop: Stop) -> None:
        """What every stop comes to, whichever way it was asked for: an entry like others, of which each counts once."""
        await self._runs.admit(conversation_id, Entry(stop.id, "stop", stop.written()))

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
