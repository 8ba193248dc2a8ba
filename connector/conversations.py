"""The doors of the conversations: what people do becomes an entry of an inbox, and whoever owns it acts on it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Self

import structlog

from connector import phrases
from connector.conversation import Conversation
from connector.inbox import Inbound
from connector.messages import Place, is_stop_word
from connector.protocols import Entry, LeaseLost
from connector.view import STATUS_KEY
from connector.wire import key_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from connector.desk import Workplace
    from connector.messages import Deletion, Edit, Message, Reaction
    from connector.protocols import Kind, Runs

log = structlog.get_logger(__name__)

_REMEMBERED = 10_000
_STOP_REACTION = "x"
# Slack delivers an event again within so many seconds; what came after it may have overtaken it.
_OVERTAKEN_WITHIN_S = 3600.0
# How long before the end of its grace the runs that have reached no boundary are cut: seconds, or half of a short one.
_CUT_BEFORE_S = 2.0
# After an error that nobody has foreseen, a conversation is left alone for so long, in seconds.
_REST_S = 5.0


class ShuttingDown(Exception):  # noqa: N818 - a fact about the service
    """Nothing is taken any more: Slack delivers it again, to whoever is there then."""


class Conversations:
    """Takes in what people do, and acts in the conversations that this process owns."""

    def __init__(self, workplace: Workplace, runs: Runs, bot_user: str, shutdown_grace_s: float) -> None:
        self._workplace = workplace
        self._desk = workplace.desk
        self._router = workplace.router
        self._runs = runs
        self._bot_user = bot_user
        self._grace_s = shutdown_grace_s
        self._owned: dict[str, Conversation] = {}
        self._working: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._in_turn: dict[str, tuple[asyncio.Lock, int]] = {}
        self._answered: OrderedDict[str, None] = OrderedDict()
        self._is_closing = False

    async def __aenter__(self) -> Self:
        self._runs.watch(self.look_after)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let the runs come to a boundary, and hand over what is on."""
        self._is_closing = True
        last_s = min(_CUT_BEFORE_S, self._grace_s / 2)
        for within_s in (self._grace_s - last_s, last_s / 2):
            for conversation in self._owned.values():
                conversation.suspend()
            if self._working:
                await asyncio.wait(self._working.values(), timeout=within_s)
        for working in self._working.values():
            working.cancel()
        if self._working:
            await asyncio.wait(self._working.values(), timeout=last_s / 2)

    async def on_message(self, message: Message) -> None:
        """Take a message in; the second event of one post changes nothing.

        Raises:
            ShuttingDown: nothing is taken any more.
        """
        self._refuse_when_closing()
        async with self._turn(message.place.conversation_id):
            routed = await self._router.route(message)
            if routed is None:
                return
            instance, prompt = routed
            if is_stop_word(prompt):
                entry = Entry(message.id, "stop", {"user": message.user, "message": asdict(message)})
            elif prompt or message.files:
                inbound = Inbound(message, instance.name, prompt or ", ".join(message.files), message.id)
                entry = Entry(message.id, "message", inbound.written())
            else:
                self._answer_once(message)
                return
            await self._runs.admit(message.place.conversation_id, entry, instance.name)

    async def on_edit(self, edit: Edit) -> None:
        """Take an edit in, where it is of a message to an agent.

        Raises:
            ShuttingDown: nothing is taken any more.
        """
        await self._on_change("edit", edit.id, edit.message, edit.before, edit.event_ts)

    async def on_deletion(self, deletion: Deletion) -> None:
        """Take a deletion in, where it is of a message to an agent.

        Raises:
            ShuttingDown: nothing is taken any more.
        """
        await self._on_change("withdrawal", deletion.id, deletion.message, deletion.message, deletion.event_ts)

    async def _on_change(self, kind: Kind, entry_id: str, message: Message, before: Message, event_ts: str) -> None:
        self._refuse_when_closing()
        conversation_id = message.place.conversation_id
        async with self._turn(conversation_id):
            routed = await self._router.route(message)
            if routed is None or await self._router.route(before) is None:
                return
            instance, prompt = routed
            edited_ts = event_ts if kind == "edit" else ""
            inbound = Inbound(message, instance.name, prompt or ", ".join(message.files), entry_id, edited_ts=edited_ts)
            if float(event_ts) - float(message.ts) < _OVERTAKEN_WITHIN_S and not is_stop_word(prompt):
                # The message may still be on its way: what comes of it then is known.
                await self._runs.admit(conversation_id, Entry(message.id, "message", inbound.written()), instance.name)
            await self._runs.admit(conversation_id, Entry(entry_id, kind, inbound.written()))

    async def on_reaction(self, reaction: Reaction) -> None:
        """Stop the run whose status or starting message got an ❌.

        Raises:
            ShuttingDown: nothing is taken any more.
        """
        if reaction.name != _STOP_REACTION or reaction.user == self._bot_user:
            return
        self._refuse_when_closing()
        found = self._running_at(reaction) or await self._look_up(reaction)
        if found is None:
            return
        conversation_id, run_id = found
        async with self._turn(conversation_id):
            data = {"user": reaction.user, "ts": reaction.ts, "run": run_id}
            await self._runs.admit(conversation_id, Entry(reaction.id, "stop", data))

    def look_after(self, conversation_id: str) -> None:
        """See whether something is to be done in a conversation, here or by whoever owns it."""
        owned = self._owned.get(conversation_id)
        if owned is not None and not owned.is_over:
            owned.nudge()
        elif conversation_id in self._working:
            self._again.add(conversation_id)  # it is being claimed, or has just been given up
        elif not self._is_closing:
            self._working[conversation_id] = asyncio.create_task(self._work(conversation_id))

    async def _work(self, conversation_id: str) -> None:
        lease = None
        try:
            lease = await self._runs.claim(conversation_id)
            if lease is None:
                return
            conversation = Conversation(lease, self._workplace)
            if self._is_closing:
                conversation.suspend()
            self._owned[conversation_id] = conversation
            await conversation.work()
        except* LeaseLost:
            log.warning("lease.lost", conversation=conversation_id)
        except* Exception:  # a Slack handler's border: one conversation may not take the others down
            log.exception("conversation.crashed", conversation=conversation_id)
            if lease is not None:
                await asyncio.sleep(_REST_S)
                await lease.hand_over()
        finally:
            self._owned.pop(conversation_id, None)
            del self._working[conversation_id]
            if conversation_id in self._again:
                self._again.discard(conversation_id)
                self.look_after(conversation_id)

    def _running_at(self, reaction: Reaction) -> tuple[str, str | None] | None:
        """The conversation of the run here that an emoji is meant for."""
        for conversation_id, conversation in self._owned.items():
            execution = conversation.execution
            if execution is None or execution.place.channel != reaction.channel:
                continue
            if execution.view.is_status(reaction.ts) or reaction.ts == execution.first.message.ts:
                return conversation_id, execution.record.id
        return None

    async def _look_up(self, reaction: Reaction) -> tuple[str, str | None] | None:
        """The conversation of a message, and the run whose status it is; `None`: no agent takes part in it."""
        message = await self._desk.wire.message(reaction.channel, reaction.ts)
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
            self._answered[message.id] = None
            if len(self._answered) > _REMEMBERED:
                self._answered.popitem(last=False)
            self._desk.tell(message, phrases.NO_TEXT)

    def _refuse_when_closing(self) -> None:
        if self._is_closing:
            raise ShuttingDown

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
