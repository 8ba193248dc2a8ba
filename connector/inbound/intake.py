"""The doors of the connector: what people do becomes an entry of an inbox before Slack hears that we have it."""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from connector.events import StopRequest, ThreadAddress, is_stop_word, thread_of
from connector.inbound.out_of_order import OVERTAKEN_WITHIN_S, LookUps, LRUSet, NoAnswer, NotNow
from connector.protocols import InboxEntry
from connector.records.inbox import PendingMessage
from connector.runs.status.message import STATUS_KEY
from connector.slack_api.history import key_of
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from typing import Any

    from connector.conversations.worker_pool import WorkerPool
    from connector.events import MessageDeletion, MessageEdit, ReactionAdded, SlackMessage
    from connector.inbound.access_policy import Actor
    from connector.inbound.admission import Admitter, Routed
    from connector.protocols import Kind, RunService
    from connector.runs.background_tasks import WorkspaceContext

    Ask = Callable[[], Awaitable[dict[str, Any] | None]]

__all__ = ["Intake", "NotNow"]

log = structlog.get_logger(__name__)

# Acknowledged reactions whose conversation Slack has not told yet.
_MOST_STOPS_LOOKED_UP = 20


class Intake:
    """Takes in what people do, in each conversation in the order in which it comes.

    Everything here raises NotNow where the service is shutting down. That Slack cannot be asked is no reason to refuse
    an event.
    """

    def __init__(
        self,
        workplace: WorkspaceContext,
        runs: RunService,
        conversations: WorkerPool,
        admitter: Admitter,
        bot_user: str,
    ) -> None:
        self._admitter = admitter
        self._desk = workplace.desk
        self._router = workplace.router
        self._runs = runs
        self._conversations = conversations
        self._bot_user = bot_user
        self._stop_reaction = workplace.desk.options.stop_reaction
        self._look_ups = LookUps(workplace.desk.wire)
        # Threads that no agent was called into before some reply; a mention that comes later adopts them.
        self._others = LRUSet()
        # Threads that are being looked up: one look-up serves all their replies.
        self._looked_up: set[str] = set()
        self._stops_looked_up = 0

    async def on_message(self, message: SlackMessage, visitor: Actor, said_ts: str) -> None:
        """Take a message in; the second event of one post changes nothing.

        `said_ts` is when it was written, or when an edit made it a mention.
        """
        async with self._turn(message.place.conversation_id):
            if await self._take(message, visitor, said_ts):
                return
            if not _may_be_a_reply_to_us(message):
                return
            self._admitter.passed_by.add(message, visitor)
        if await self._has_looked(message, visitor):
            # The mention is admitted by now, by this process or another one, or Slack did not say.
            async with self._turn(message.place.conversation_id):
                await self._take(message, visitor, said_ts)

    async def _take(self, message: SlackMessage, visitor: Actor, said_ts: str) -> bool:
        """Take a message in if it is for an agent and the gate lets its author in. Return whether it is for an agent.

        The gate comes second, because it may wait for Slack.
        """
        routed = await self._router.route(message)
        if routed is not None and await self._admitter.may(visitor, message):
            await self._admitter.take(message, routed, visitor, said_ts)
        elif message.thread_ts is None:
            self._others.add(message.place.conversation_id)
        return routed is not None

    async def _look_first(self, message: SlackMessage, visitor: Actor) -> None:
        """Look for the mention that called an agent into the thread of a message, if no agent is known there."""
        if _may_be_a_reply_to_us(message) and await self._router.route(message) is None:
            await self._has_looked(message, visitor)

    async def _has_looked(self, reply: SlackMessage, visitor: Actor) -> bool:
        """Admit the mention that called an agent into a thread, if it has not arrived yet, and the replies to it.

        Returns False if this reply causes no look-up: the thread has no agent, or a look-up is under way, which also
        serves this reply.
        """
        conversation_id = reply.place.conversation_id
        if conversation_id in self._others or conversation_id in self._looked_up:
            return False
        self._looked_up.add(conversation_id)
        try:
            found = await self._look_ups.thread(reply, float(reply.ts) - OVERTAKEN_WITHIN_S)
            async with self._turn(conversation_id):
                for each in found:
                    if await self._admitter.take_found(each, visitor):
                        return True
                self._others.add(conversation_id)
        except NoAnswer:
            log.info("thread.not_looked_up", conversation=conversation_id)
        finally:
            self._looked_up.discard(conversation_id)
        return True

    async def on_edit(self, edit: MessageEdit, visitor: Actor) -> None:
        """Take an edit in, where it is of a message to an agent.

        Where that turns to somebody else now, or says nothing any more, it is taken back.
        """
        message, passed_by = edit.message, self._admitter.passed_by
        async with self._turn(message.place.conversation_id):
            passed_by.edit(message, visitor, edit.event_ts)
        await self._look_first(message, visitor)
        may_be_on_its_way = await self._router.route(edit.before) is None or await self._may_be_on_its_way(edit)
        async with self._turn(message.place.conversation_id):
            routed, before = await self._router.route(message), await self._router.route(edit.before)
            if routed is None and _may_be_a_reply_to_us(message):
                passed_by.add(message, visitor, edit.event_ts)
            if before is None or not await self._admitter.may(visitor):
                return
            if routed is None and not message.mentions_anyone():  # the first of its thread, without its mention
                routed = await self._router.read(message)
            if routed is not None and is_stop_word(routed[1]):
                await self._stop_by_edit(edit, before)
            elif routed is None or not (routed[1] or message.files):
                await self._change("withdrawal", edit, before, makes_up="withdrawal")
            else:
                await self._change("edit", edit, routed, makes_up="message" if may_be_on_its_way else None)

    async def _stop_by_edit(self, edit: MessageEdit, before: Routed) -> None:
        """A message that was something else says `stop` now: it is taken back, and that stops what it began."""
        if is_stop_word(before[1]):
            return
        message = edit.message
        began_a_run = self._conversations.running_at(message.channel, message.ts) is not None
        await self._change("withdrawal", edit, before, makes_up="withdrawal")
        if not began_a_run:
            stop = StopRequest(f"{edit.id}:stop", message.user, edit.event_ts)
            await self._admitter.stop(message.place.conversation_id, stop)

    async def _may_be_on_its_way(self, edit: MessageEdit) -> bool:
        """Return whether the message may arrive after its edit, and was for an agent when it was written.

        Where Slack cannot be asked, it was: an agent takes part in the thread by now.
        """
        message, before = edit.message, edit.before
        if message.id in self._admitter.taken or not _is_fresh(edit):
            return False
        if self._router.is_addressed(before):
            return True
        try:
            thread = await self._look_ups.thread(message)
        except NoAnswer:
            return True
        names_us = (f"<@{self._bot_user}>", f"<@{self._bot_user}|")
        if any(
            each.get("user") == self._bot_user or any(name in (each.get("text") or "") for name in names_us)
            for each in thread
        ):
            return True
        # A root that was deleted does not say any more whom it named.
        is_root_gone = any(each.get("subtype") == "tombstone" for each in thread)
        return is_root_gone and await self._runs.agent_of(message.place.conversation_id) is not None

    async def on_deletion(self, deletion: MessageDeletion, visitor: Actor) -> None:
        """Take a deletion in, where an agent takes part: whoever has that message knows it."""
        message = deletion.message
        async with self._turn(message.place.conversation_id):
            self._admitter.passed_by.drop(message.id)
        await self._look_first(message, visitor)
        async with self._turn(message.place.conversation_id):
            routed = await self._router.route(message)
            has_agent = await self._runs.agent_of(message.place.conversation_id) is not None
            if not (routed or has_agent) or not await self._admitter.may(visitor):
                return
            if routed is not None:
                await self._change("withdrawal", deletion, routed, makes_up="withdrawal")
            else:
                await self._change("withdrawal", deletion, await self._router.read(message), makes_up=None)

    async def _change(
        self, kind: Kind, change: MessageEdit | MessageDeletion, routed: Routed, *, makes_up: Kind | None
    ) -> None:
        """Keep an edit or a deletion; `makes_up` is what becomes of its message, if that is still on its way to us."""
        (instance, prompt), message = routed, change.message
        conversation_id, text = message.place.conversation_id, prompt or ", ".join(message.files)
        written = PendingMessage(message, instance.name, text, change.id, edited_ts=change.event_ts).written()
        if makes_up is not None and _is_fresh(change) and not is_stop_word(prompt):
            # Where it is on its way, this is it: what comes of it then is known.
            await self._runs.admit(conversation_id, InboxEntry(message.id, makes_up, written), instance.name)
        await self._runs.admit(conversation_id, InboxEntry(change.id, kind, written))

    async def on_reaction(self, reaction: ReactionAdded, visitor: Actor) -> None:
        """Stop the run whose status or starting message got an ❌."""
        if reaction.name != self._stop_reaction or reaction.user == self._bot_user:
            return
        self._refuse_when_closing()
        is_direct, is_ours = reaction.channel.startswith("D"), reaction.author == self._bot_user
        begun = ThreadAddress(self._router.team, reaction.channel, None if is_direct else reaction.ts)
        may_be_root = not is_direct and not is_ours
        found: tuple[str, str | None] | None = self._conversations.running_at(reaction.channel, reaction.ts)
        if found is None and may_be_root and await self._runs.agent_of(begun.conversation_id) is not None:
            found = begun.conversation_id, None
        is_of_others = found is None and may_be_root and begun.conversation_id in self._others
        if is_of_others or not await self._admitter.may(visitor):
            return
        if found is not None:
            await self._stop(reaction, *found)
            return
        turn = CallSlot(Priority.PERSON if is_ours else Priority.LOOK_UP)
        ask = partial(self._desk.wire.history.message, reaction.channel, reaction.ts, turn)
        try:
            message = await self._look_ups.answer(ask)
        except NoAnswer:
            self._stop_later(reaction, visitor, begun, ask)
        else:
            await self._stop_at(message, reaction, visitor, begun)

    def _stop_later(self, reaction: ReactionAdded, visitor: Actor, begun: ThreadAddress, ask: Ask) -> None:
        """Stop the run when Slack tells its conversation. The reaction is lost if this process ends before."""
        if self._stops_looked_up == _MOST_STOPS_LOOKED_UP:
            log.warning("reaction.dropped", channel=reaction.channel, ts=reaction.ts)
            return

        async def stop() -> None:
            try:
                message = await self._desk.wire.insisting(ask)
                with suppress(NotNow):
                    await self._stop_at(message, reaction, visitor, begun)
            finally:
                self._stops_looked_up -= 1

        self._stops_looked_up += 1
        self._desk.spawn(stop())

    async def _stop_at(
        self, message: dict[str, Any] | None, reaction: ReactionAdded, visitor: Actor, begun: ThreadAddress
    ) -> None:
        """Stop the run that the message belongs to, if an agent takes part in its conversation."""
        if message is None:
            return
        thread_ts = thread_of(message)
        conversation_id = (begun if thread_ts is None else replace(begun, thread_ts=thread_ts)).conversation_id
        if float(reaction.event_ts) - float(reaction.ts) < OVERTAKEN_WITHIN_S:
            async with self._turn(conversation_id):
                await self._admitter.take_found({**message, "channel": reaction.channel}, visitor)
        if await self._runs.agent_of(conversation_id) is not None:
            run_id, is_status, _ = key_of(message).partition(STATUS_KEY)
            await self._stop(reaction, conversation_id, run_id if is_status else None)

    async def _stop(self, reaction: ReactionAdded, conversation_id: str, run_id: str | None) -> None:
        stop = StopRequest(reaction.id, reaction.user, reaction.event_ts, reaction.ts, run_id)
        async with self._turn(conversation_id):
            await self._admitter.stop(conversation_id, stop)

    async def on_stop(self, place: ThreadAddress, stop: StopRequest, visitor: Actor) -> None:
        """Stop what runs in a conversation, where an agent takes part in it."""
        conversation_id = place.conversation_id
        async with self._turn(conversation_id):
            has_agent = await self._runs.agent_of(conversation_id) is not None
            if has_agent and await self._admitter.may(visitor):
                await self._admitter.stop(conversation_id, stop)

    def _refuse_when_closing(self) -> None:
        if self._conversations.is_closing:
            raise NotNow

    @asynccontextmanager
    async def _turn(self, conversation_id: str) -> AsyncIterator[None]:
        self._refuse_when_closing()
        async with self._admitter.turn(conversation_id):
            yield


def _may_be_a_reply_to_us(message: SlackMessage) -> bool:
    """Whether a message is for an agent if one takes part in its thread."""
    return message.thread_ts is not None and not message.mentions_anyone()


def _is_fresh(change: MessageEdit | MessageDeletion) -> bool:
    """Whether the message of which this is may still be on its way to us."""
    return float(change.event_ts) - float(change.message.ts) < OVERTAKEN_WITHIN_S
