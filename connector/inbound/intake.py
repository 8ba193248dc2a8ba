"""The doors of the connector: what people do becomes an entry of an inbox before Slack hears that we have it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import structlog

from connector.inbound.gate import Gate, Policy
from connector.inbound.overtaken import OVERTAKEN_WITHIN_S, LookUps, NotNow, PassedBy, Remembered
from connector.inbox import Inbound
from connector.messages import Place, Stop, home_of, is_stop_word, message_of, thread_of
from connector.outbound.history import key_of
from connector.outbound.scheduler import Turn
from connector.protocols import Entry
from connector.status import STATUS_KEY

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any

    from connector.conversations import Conversations
    from connector.desk import Workplace
    from connector.inbound.gate import Visitor
    from connector.messages import Deletion, Edit, Message, Reaction
    from connector.protocols import Instance, Kind, Runs

    Routed = tuple[Instance, str]

__all__ = ["Intake", "NotNow"]

log = structlog.get_logger(__name__)

_STOP_REACTION = "x"


class Intake:
    """Takes in what people do, in each conversation in the order in which it comes.

    Everything here raises NotNow where the service is shutting down, or Slack is asked and does not answer.
    """

    def __init__(  # noqa: PLR0913 - the last two have defaults
        self,
        workplace: Workplace,
        runs: Runs,
        conversations: Conversations,
        bot_user: str,
        policy: Policy | None = None,
        *,
        enterprise: str = "",
    ) -> None:
        self._gate = Gate(policy or Policy(), workplace.router.team, workplace.desk.wire, enterprise=enterprise)
        self._desk = workplace.desk
        self._router = workplace.router
        self._runs = runs
        self._conversations = conversations
        self._bot_user = bot_user
        self._look_ups = LookUps(workplace.desk.wire)
        self._in_turn: dict[str, tuple[asyncio.Lock, int]] = {}
        self._taken = Remembered()
        # Threads that have not begun with an agent.
        self._others = Remembered()
        self._passed_by = PassedBy()

    async def on_message(self, message: Message, visitor: Visitor, said_ts: str) -> None:
        """Take a message in; the second event of one post changes nothing.

        `said_ts` is when it was written, or when an edit made it a mention.
        """
        async with self._turn(message.place.conversation_id):
            routed = await self._routed(message, visitor) if await self._may(visitor, message) else None
            if routed is not None:
                await self._take(message, routed, said_ts)
            elif message.thread_ts is None:
                self._others.add(message.place.conversation_id)

    async def _may(self, visitor: Visitor, message: Message | None = None) -> bool:
        """Whether somebody may use the bot here. Where they may not and have addressed it, they hear why."""
        refusal = await self._gate.refusal(visitor)
        if refusal is None:
            return True
        is_addressed = message is not None and self._router.is_addressed(message)
        if message is not None and is_addressed and self._gate.is_to_be_told(visitor):
            log.info("gate.refused", user=visitor.user, channel=visitor.channel)
            arguments = {"channel": message.channel, "user": message.user, "text": refusal}
            if message.thread_ts is not None:
                arguments["thread_ts"] = message.thread_ts
            self._desk.spawn(self._desk.wire.call("chat.postEphemeral", arguments, Turn()))
        return False

    async def _take(self, message: Message, routed: Routed, said_ts: str) -> None:
        """Take in what is for us, and then the replies to it that have come before it."""
        (instance, prompt), conversation_id = routed, message.place.conversation_id
        if is_stop_word(prompt):
            await self._stop(conversation_id, Stop(message.id, message.user, message.ts, message=message))
            return
        if not prompt and not message.files:
            mention = Entry(f"{message.id}:mention", "mention", {"message": asdict(message)})
            await self._runs.admit(conversation_id, mention)
            return
        inbound = Inbound(message, instance.name, prompt or ", ".join(message.files), message.id)
        await self._runs.admit(conversation_id, Entry(message.id, "message", inbound.written()), instance.name)
        self._taken.add(message.id)
        if not message.mentions(self._bot_user):
            return
        for reply in self._passed_by.take_after(conversation_id, said_ts):
            if (routed_reply := await self._router.route(reply)) is not None:
                await self._take(reply, routed_reply, reply.ts)

    async def _routed(self, message: Message, visitor: Visitor) -> Routed | None:
        """What the gate says, once the message that called an agent is in, if this one has overtaken it."""
        routed = await self._router.route(message)
        if routed is not None or message.thread_ts is None or message.mentions_anyone():
            return routed
        if await self._take_in_first(message, visitor):
            return await self._router.route(message)
        self._passed_by.add(message)
        return None

    async def _take_in_first(self, reply: Message, visitor: Visitor) -> bool:
        """Take in the message that called an agent into a thread, if it is still on its way to us."""
        conversation_id = reply.place.conversation_id
        if conversation_id in self._others:
            return False
        for found in await self._look_ups.thread(reply, float(reply.ts) - OVERTAKEN_WITHIN_S):
            if await self._take_found(found, visitor):
                return True
        self._others.add(conversation_id)
        return False

    async def _take_found(self, found: dict[str, Any], visitor: Visitor) -> bool:
        """Take in a message as Slack has it, if it is for us wherever it stands, and says something."""
        message = message_of(found, self._router.team)
        if message is None or not self._router.is_addressed(message):
            return False
        routed = await self._router.read(message)
        says_something = bool(routed[1] or message.files) and not is_stop_word(routed[1])
        if not says_something or not await self._may(replace(visitor, user=message.user, home=home_of(found))):
            return False
        await self._take(message, routed, message.ts)
        return True

    async def on_edit(self, edit: Edit, visitor: Visitor) -> None:
        """Take an edit in, where it is of a message to an agent.

        Where that turns to somebody else now, or says nothing any more, it is taken back.
        """
        message, was_message = edit.message, edit.before
        async with self._turn(message.place.conversation_id):
            if not await self._may(visitor):
                return
            self._passed_by.edit(message)
            routed, before = await self._routed(message, visitor), await self._router.route(was_message)
            if before is None:
                return
            if routed is None and not message.mentions_anyone():  # the first of its thread, without its mention
                routed = await self._router.read(message)
            if routed is not None and is_stop_word(routed[1]):
                await self._stop_by_edit(edit, before)
            elif routed is None or not (routed[1] or message.files):
                await self._change("withdrawal", edit, before, makes_up="withdrawal")
            else:
                makes_up: Kind | None = "message" if await self._may_be_on_its_way(edit) else None
                await self._change("edit", edit, routed, makes_up=makes_up)

    async def _stop_by_edit(self, edit: Edit, before: Routed) -> None:
        """A message that was something else says `stop` now: it is taken back, and that stops what it began."""
        if is_stop_word(before[1]):
            return
        message = edit.message
        began_a_run = self._conversations.running_at(message.channel, message.ts) is not None
        await self._change("withdrawal", edit, before, makes_up="withdrawal")
        if not began_a_run:
            await self._stop(message.place.conversation_id, Stop(f"{edit.id}:stop", message.user, edit.event_ts))

    async def _may_be_on_its_way(self, edit: Edit) -> bool:
        """Whether what was edited may still come as it was: if so, it was for us when it was written."""
        message, before = edit.message, edit.before
        if message.id in self._taken or not _is_fresh(edit):
            return False
        if self._router.is_addressed(before):
            return True
        thread = await self._look_ups.thread(message)
        names_us = (f"<@{self._bot_user}>", f"<@{self._bot_user}|")
        if any(
            each.get("user") == self._bot_user or any(name in (each.get("text") or "") for name in names_us)
            for each in thread
        ):
            return True
        # A root that was deleted does not say any more whom it named.
        is_root_gone = any(each.get("subtype") == "tombstone" for each in thread)
        return is_root_gone and await self._runs.agent_of(message.place.conversation_id) is not None

    async def on_deletion(self, deletion: Deletion, visitor: Visitor) -> None:
        """Take a deletion in, where an agent takes part: whoever has that message knows it."""
        message = deletion.message
        async with self._turn(message.place.conversation_id):
            if not await self._may(visitor):
                return
            routed = await self._routed(message, visitor)
            self._passed_by.drop(message.id)
            if routed is not None:
                await self._change("withdrawal", deletion, routed, makes_up="withdrawal")
            elif await self._runs.agent_of(message.place.conversation_id) is not None:
                await self._change("withdrawal", deletion, await self._router.read(message), makes_up=None)

    async def _change(self, kind: Kind, change: Edit | Deletion, routed: Routed, *, makes_up: Kind | None) -> None:
        """Keep an edit or a deletion; `makes_up` is what becomes of its message, if that is still on its way to us."""
        (instance, prompt), message = routed, change.message
        conversation_id, text = message.place.conversation_id, prompt or ", ".join(message.files)
        written = Inbound(message, instance.name, text, change.id, edited_ts=change.event_ts).written()
        if makes_up is not None and _is_fresh(change) and not is_stop_word(prompt):
            # Where it is on its way, this is it: what comes of it then is known.
            await self._runs.admit(conversation_id, Entry(message.id, makes_up, written), instance.name)
        await self._runs.admit(conversation_id, Entry(change.id, kind, written))

    async def on_reaction(self, reaction: Reaction, visitor: Visitor) -> None:
        """Stop the run whose status or starting message got an ❌."""
        if reaction.name != _STOP_REACTION or reaction.user == self._bot_user:
            return
        self._refuse_when_closing()
        if not await self._may(visitor):
            return
        found = self._conversations.running_at(reaction.channel, reaction.ts) or await self._look_up(reaction, visitor)
        if found is None:
            return
        conversation_id, run_id = found
        stop = Stop(reaction.id, reaction.user, reaction.event_ts, reaction.ts, run_id)
        async with self._turn(conversation_id):
            await self._stop(conversation_id, stop)

    async def on_stop(self, place: Place, stop: Stop, visitor: Visitor) -> None:
        """Stop what runs in a conversation, where an agent takes part in it."""
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

    async def _look_up(self, reaction: Reaction, visitor: Visitor) -> tuple[str, str | None] | None:
        """The conversation of a message, and the run whose status it is; `None`: no agent takes part in it."""
        is_direct, is_ours = reaction.channel.startswith("D"), reaction.author == self._bot_user
        begun = Place(self._router.team, reaction.channel, None if is_direct else reaction.ts)
        if not is_direct and not is_ours:
            if await self._runs.agent_of(begun.conversation_id) is not None:
                return begun.conversation_id, None
            if begun.conversation_id in self._others:
                return None
        message = await self._look_ups.message(reaction.channel, reaction.ts)
        if message is None:
            return None
        thread_ts = thread_of(message)
        conversation_id = (begun if thread_ts is None else replace(begun, thread_ts=thread_ts)).conversation_id
        if float(reaction.event_ts) - float(reaction.ts) < OVERTAKEN_WITHIN_S:
            async with self._turn(conversation_id):
                await self._take_found({**message, "channel": reaction.channel}, visitor)
        if await self._runs.agent_of(conversation_id) is None:
            return None
        run_id, is_status, _ = key_of(message).partition(STATUS_KEY)
        return conversation_id, run_id if is_status else None

    def _refuse_when_closing(self) -> None:
        if self._conversations.is_closing:
            raise NotNow

    @asynccontextmanager
    async def _turn(self, conversation_id: str) -> AsyncIterator[None]:
        """What people do in one conversation is taken in in the order in which it came."""
        self._refuse_when_closing()
        lock, users = self._in_turn.get(conversation_id, (asyncio.Lock(), 0))
        self._in_turn[conversation_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._in_turn.pop(conversation_id)
            if users > 1:
                self._in_turn[conversation_id] = (lock, users - 1)


def _is_fresh(change: Edit | Deletion) -> bool:
    """Whether the message of which this is may still be on its way to us."""
    return float(change.event_ts) - float(change.message.ts) < OVERTAKEN_WITHIN_S
