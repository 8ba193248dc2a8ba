"""Store events of people as inbox entries, before they are acknowledged to Slack.

Events may arrive out of order: an event that depends on an older message looks that message up in Slack.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import structlog

from connector import texts
from connector.commands import command_of
from connector.events import (
    MessageEdit,
    RequestForm,
    StopRequest,
    ThreadAddress,
    is_direct,
    is_stop_word,
    message_of,
    plain_text,
    thread_of,
    worker_of_run,
)
from connector.formatting.content import Content
from connector.inbound.access_policy import MAX_NAMES, LatestEntries
from connector.inbound.admission import pending_of
from connector.inbound.commands import ANSWER_REACTIONS, Commands
from connector.inbound.entry_points import MessageActions
from connector.message_text import read
from connector.protocols import InboxEntry, aside_fact, change_fact
from connector.runs.request_view import form
from connector.runs.run_status import STATUS_KEY
from connector.slack_api.client import key_of
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from connector.conversations.worker_pool import WorkerPool
    from connector.events import (
        AppView,
        Consent,
        HomeClick,
        HomeOpened,
        MessageDeletion,
        RatingClick,
        ReactionAdded,
        RequestAddress,
        RequestClick,
        Shortcut,
        SlackMessage,
        SlashCommand,
    )
    from connector.inbound.access_policy import Actor
    from connector.inbound.admission import Admitter, Routed
    from connector.inbound.entry_points import MessageAction
    from connector.protocols import EntryKind, RunService, SlackOptions
    from connector.routing import Router
    from connector.runs.workspace import WorkspaceContext
    from connector.slack_api.client import SlackClient

    Ask = Callable[[], Awaitable[dict[str, Any] | None]]

log = structlog.get_logger(__name__)

# Acknowledged stop reactions whose conversation is still being looked up.
_MAX_STOP_LOOK_UPS = 20
# Seconds within which Slack redelivers an event. Events posted later may arrive before it.
_REDELIVERY_WINDOW_S = 600.0
# An edit of a younger message to the agent that no process has received begins a run: a store keeps ids for a week.
_MISSED_WITHIN_S = 6 * 86_400.0
# Slack redelivers an event that is not acknowledged within three seconds.
_LOOK_UP_TIMEOUT_S = 1.0
# All events share the same slots: events that need a look-up must leave most slots free.
_MAX_CONCURRENT = 5
_MAX_WAITING = 5
_PAGE = 200

T = TypeVar("T")


class NotNow(Exception):  # noqa: N818 - a fact about the service
    """The event cannot be stored while the service shuts down: Slack delivers it again, to any connected process."""


class NoAnswer(Exception):  # noqa: N818 - a fact about a look-up
    """A look-up failed: Slack did not answer in time, or the rate limit left no room."""


class LookUps:
    """Looks up messages in Slack whose events may not have arrived yet: few at once, at the lowest priority.

    Every method raises NoAnswer if Slack does not answer in time. The call then leaves the rate limiter's queue.
    """

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)
        self._pending = 0

    async def thread(self, reply: SlackMessage, oldest_ts: float = 0.0) -> list[dict[str, Any]]:
        """Return the first page of the thread before a reply, oldest first; empty if Slack refuses."""
        messages = await self._client.history.known(reply.channel, reply.place.thread_ts)
        if messages is None:
            arguments = {"channel": reply.channel, "ts": reply.place.thread_ts, "latest": reply.ts, "limit": _PAGE}
            if oldest_ts:
                arguments["oldest"] = f"{oldest_ts:.6f}"
            slot = CallSlot(Priority.LOOK_UP)
            page = await self.answer(lambda: self._client.call("conversations.replies", arguments, slot))
            messages = (page or {}).get("messages", [])
        found = [{**each, "channel": reply.channel} for each in messages]
        return [each for each in found if oldest_ts <= float(each["ts"]) < float(reply.ts)]

    async def may_be_answered(self, message: SlackMessage, router: Router) -> bool:
        """Return whether the bot has posted in the conversation since a message, or Slack refuses an answer."""
        place, method = message.place, "conversations.history"
        arguments = {"channel": place.channel, "oldest": message.ts, "limit": _PAGE}
        if place.thread_ts is not None:
            method, arguments["ts"] = "conversations.replies", place.thread_ts
        # Not from what events brought: the bot's own posts are missing there.
        page = await self.answer(lambda: self._client.call(method, arguments, CallSlot(Priority.LOOK_UP)))
        posts = [each for each in (page or {}).get("messages", []) if router.is_own_post(each)]
        return page is None or any(float(each["ts"]) > float(message.ts) for each in posts)

    async def answer(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Return the answer to a call; `None`: Slack refuses it."""
        if self._pending == _MAX_CONCURRENT + _MAX_WAITING:
            raise NoAnswer
        self._pending += 1
        try:
            async with asyncio.timeout(_LOOK_UP_TIMEOUT_S), self._slots:
                return await ask()
        except TimeoutError as e:
            raise NoAnswer from e
        except SlackCallFailed as e:
            if e.is_transient:
                raise NoAnswer from e
            return None
        finally:
            self._pending -= 1


class Intake:
    """Handle messages, edits, deletions, reactions and stops, per conversation in the order of arrival.

    Every public method raises NotNow while the service shuts down. A failed look-up in Slack does not reject an event.
    """

    def __init__(
        self,
        workspace: WorkspaceContext,
        runs: RunService,
        conversations: WorkerPool,
        admitter: Admitter,
        bot_user: str,
    ) -> None:
        self._admitter = admitter
        self.commands = Commands(workspace, admitter, conversations.step_of)
        self._home = workspace.home
        self._message_actions = MessageActions(workspace, admitter)
        self._tasks = workspace.background
        self._router = workspace.router
        self._runs = runs
        self._conversations = conversations
        self._bot_user = bot_user
        self._look_ups = LookUps(workspace.background.client)
        # Threads without an agent before some reply. A later mention can still call an agent into them.
        self._without_agent: LatestEntries[None] = LatestEntries(MAX_NAMES)
        # Threads with a look-up in progress: one look-up serves all their replies.
        self._looking_up: set[str] = set()
        self._stop_look_ups = 0

    @property
    def options(self) -> SlackOptions:
        return self._tasks.options

    async def on_message(self, message: SlackMessage, actor: Actor) -> None:
        """Admit a message. The second event of the same post has no effect."""
        if self._router.is_own(message):
            return
        async with self._in_order(message.place.conversation_id):
            if self._admitter.unrouted.was_deleted(message.id) or await self._admit(message, actor):
                return
            has_agent = await self._note_talk(message, actor)
            # By now another process may have admitted the mention of its author.
            if has_agent and not message.bot and await self._admit(message, actor):
                return
            if message.bot:
                await self._admitter.leave_unanswered(message)
            if not _may_be_a_reply_to_us(message):
                return
            self._admitter.unrouted.add(message, actor)
        if not has_agent and not message.bot and await self._look_up_mention(message, actor):
            # By now the mention is admitted, by this process or another one, or the look-up failed.
            async with self._in_order(message.place.conversation_id):
                if await self._admit(message, actor):
                    await self._admitter.admit_passed(message.place.conversation_id, message.thread_ts or message.ts)

    async def _admit(self, message: SlackMessage, actor: Actor, called_ts: str = "") -> bool:
        """Admit a message if it is for an agent and its author is allowed. Return whether it is for an agent.

        `called_ts`: time of the edit that added the mention; blank: it was there from the start. The access check comes
        second because it may wait for Slack.
        """
        if await self._command(message, actor):
            return True
        message, edited_ts = self._admitter.unrouted.latest(message, called_ts)
        routed = await self._router.route(message)
        if routed is not None and await self._admitter.is_allowed(actor, message):
            await self._admitter.admit(message, routed, actor, called_ts or message.ts, edited_ts)
        elif message.thread_ts is None:
            self._without_agent[message.place.conversation_id] = None
        return routed is not None

    async def _command(self, message: SlackMessage, actor: Actor) -> bool:
        """Admit a command for the thread. Return whether the message is one, by a person who takes part."""
        command = command_of(plain_text(message.text, self._bot_user))
        if command is None or message.bot:
            return False
        thread = await self._router.thread_of(message)
        takes_part = thread.agent is not None and thread.takes_part(message.user, message.ts)
        may_steer = takes_part or (thread.agent is not None and await self._router.may_steer_only(message))
        if not (may_steer or await self._router.route(message)):
            return False
        if await self._admitter.is_allowed(actor, message):
            await self.commands.admit(message, command, thread)
        return True

    async def _note_talk(self, message: SlackMessage, actor: Actor) -> bool:
        """Record that people talk in a thread with an agent. Return whether it has one.

        Where anyone may steer, an active run reads the message.
        """
        if message.thread_ts is None or (thread := await self._router.thread_of(message)).agent is None:
            return False
        is_current = not thread.changed(message.ts)
        if is_current and await self._router.may_steer_only(message) and await self._admitter.is_allowed(actor):
            written = pending_of(message, await self._router.resolve(message), "")
            entry = InboxEntry(message.id, "aside", asdict(written))
            await self._runs.admit(
                message.place.conversation_id, entry, facts={"talk": message.ts} | aside_fact(message.ts)
            )
        else:
            await self._admitter.note_talk(message)
        return True

    async def _look_up_thread(self, message: SlackMessage, actor: Actor) -> None:
        """Look up the mention that called an agent into the thread, if no agent is known there."""
        if _may_be_a_reply_to_us(message) and (await self._router.thread_of(message)).agent is None:
            await self._look_up_mention(message, actor)

    async def _look_up_mention(self, reply: SlackMessage, actor: Actor) -> bool:
        """Admit the mention that called an agent into a thread, if it has not arrived yet, and the replies to it.

        Returns False if this reply starts no look-up: the thread has no agent, or a look-up in progress serves it.
        """
        conversation_id = reply.place.conversation_id
        if conversation_id in self._without_agent or conversation_id in self._looking_up:
            return False
        self._looking_up.add(conversation_id)
        try:
            found = await self._look_ups.thread(reply, float(reply.ts) - _REDELIVERY_WINDOW_S)
            async with self._in_order(conversation_id):
                for each in found:
                    if await self._admitter.admit_found(each, actor):
                        return True
                self._without_agent[conversation_id] = None
        except NoAnswer:
            log.info("thread.not_looked_up", conversation=conversation_id)
        finally:
            self._looking_up.discard(conversation_id)
        return True

    async def on_edit(self, edit: MessageEdit, actor: Actor) -> None:
        """Store the edit of a message to an agent.

        If the new text is empty or no longer for an agent, withdraw the message.
        """
        message, unrouted = edit.message, self._admitter.unrouted
        if not self._router.is_heard(message):
            return
        if actor.is_shared:
            message = replace(message, is_shared=True)
            edit = replace(edit, message=message)
        if all(command_of(plain_text(each.text, self._bot_user)) for each in (message, edit.before)):
            async with self._in_order(message.place.conversation_id):  # a corrected command; an admitted one is known
                await self._command(message, actor)
            return
        async with self._in_order(message.place.conversation_id):
            unrouted.edit(message, actor, edit.event_ts)
        await self._look_up_thread(message, actor)
        is_new = await self._router.route(edit.before) is None and _is_fresh(edit)
        may_still_arrive = is_new or await self._may_still_arrive(edit)
        async with self._in_order(message.place.conversation_id):
            routed, before = await self._router.route(message), await self._router.route(edit.before)
            if routed is None and _may_be_a_reply_to_us(message):
                unrouted.add(message, actor, edit.event_ts)
            if before is None:
                if await self._edit_unrouted(edit, routed, actor):
                    return
                before, may_still_arrive = await self._router.resolve(edit.before), False
            thread = await self._router.thread_of(message)
            if await self._admitter.is_allowed(actor, if_unknown=thread.takes_part(message.user, message.ts)):
                await self._store_edit(edit, routed, before, "message" if may_still_arrive else None)

    async def _store_edit(
        self, edit: MessageEdit, routed: Routed | None, before: Routed, placeholder: EntryKind | None
    ) -> None:
        message = edit.message
        if routed is None and not message.mentions_anyone():  # a root message whose mention was removed
            routed = await self._router.resolve(message)
        if routed is not None and is_stop_word(routed[1]):
            await self._stop_by_edit(edit, before)
        elif routed is not None and not message.bot and command_of(routed[1]) is not None:
            self.commands.answer(message, texts.EDITED_TO_COMMAND)
            await self._store_change("withdrawal", edit, before, placeholder="withdrawal")
        elif routed is None or not (routed[1] or message.files or message.quoted):
            await self._store_change("withdrawal", edit, before, placeholder="withdrawal")
        else:
            await self._store_change("edit", edit, routed, placeholder)

    async def _edit_unrouted(self, edit: MessageEdit, routed: Routed | None, actor: Actor) -> bool:
        """Store the edit of a message that only an active run reads, or admit one to which the edit adds a mention.

        Returns False for a message to the agent from which an earlier edit has removed the mention.
        """
        message, bot = edit.message, self._bot_user
        if await self._edit_aside(edit, routed, actor):
            return True
        if not message.mentions(bot):
            return not (await self._router.thread_of(message)).changed(message.ts)
        if edit.before.mentions(bot) or self._admitter.unrouted.was_deleted(message.id):
            return True
        if command_of(plain_text(message.text, bot)) is None or message.bot:
            await self._admit(message, actor, edit.event_ts)
        elif await self._admitter.is_allowed(actor, message):
            self.commands.answer(message, texts.EDITED_TO_COMMAND)
        return True

    async def _edit_aside(self, edit: MessageEdit, routed: Routed | None, actor: Actor) -> bool:
        """Store the edit of a message that only an active run reads. Returns whether it is one."""
        message, before = edit.message, edit.before
        if message.thread_ts is None or (thread := await self._router.thread_of(before)).agent is None:
            return False
        if not (await self._router.may_steer_only(before) and await self._admitter.is_allowed(actor)):
            return False
        resolved = routed or await self._router.resolve(message)
        _, prompt = resolved
        if routed is not None and is_stop_word(prompt):
            await self._stop_by_edit(edit, await self._router.resolve(before))
        elif not message.bot and command_of(prompt) is not None:
            self.commands.answer(message, texts.EDITED_TO_COMMAND)
            await self._store_change("withdrawal", edit, resolved)
        elif routed is not None and (prompt or message.files or message.quoted):
            if not thread.was_aside(message.ts):
                return False
            is_first = not thread.takes_part(message.user, message.ts)
            if is_first:  # later messages of the author are to the agent, too
                pending, facts = pending_of(message, resolved, edit.event_ts), await self._router.facts_of(message)
                await self._admitter.ask_for_catch_up(pending, edit.event_ts, actor, facts)
            await self._store_change("edit", edit, resolved)
            if is_first:
                await self._admitter.admit_passed(message.place.conversation_id, edit.event_ts)
            self.commands.answer(message, texts.MENTION_ADDED)
        else:
            is_empty = not (prompt or message.files or message.quoted)
            kind: EntryKind = "withdrawal" if is_empty or message.mentions_anyone() else "edit"
            await self._store_change(kind, edit, resolved)
        return True

    async def _stop_by_edit(self, edit: MessageEdit, before: Routed) -> None:
        """Withdraw a message that was edited to a stop word, and stop the run.

        If the run began with this message, the withdrawal stops it.
        """
        if is_stop_word(before[1]):
            return
        message = edit.message
        began_a_run = self._conversations.running_at(message.channel, message.ts) is not None
        await self._store_change("withdrawal", edit, before, placeholder="withdrawal")
        if not began_a_run:
            stop = StopRequest(f"{edit.id}:stop", message.user, edit.event_ts)
            await self._admitter.stop(message.place.conversation_id, stop)

    async def _may_still_arrive(self, edit: MessageEdit) -> bool:
        """Return whether the message may arrive after its edit and was for an agent when posted.

        If the look-up fails, return True: an agent takes part in the thread by now.
        """
        message, before = edit.message, edit.before
        if message.id in self._admitter.admitted:
            return False
        is_addressed = self._router.is_addressed(before)
        if not _is_fresh(edit):
            return is_addressed and await self._was_missed(edit)
        if is_addressed or before.thread_ts is None:  # a top-level message for an agent is so by itself
            return True
        try:
            thread = await self._look_ups.thread(message)
        except NoAnswer:
            return True
        names_us = (f"<@{self._bot_user}>", f"<@{self._bot_user}|")
        if any(self._router.is_own_post(each) or any(name in read(each).own for name in names_us) for each in thread):
            return True
        # The text of a deleted root, and with it the mention, is gone.
        is_root_gone = any(each.get("subtype") == "tombstone" for each in thread)
        return is_root_gone and (await self._runs.thread_of(message.place.conversation_id)).agent is not None

    async def _was_missed(self, edit: MessageEdit) -> bool:
        """Return whether an older message was missed: it is no command, and the bot has not posted there since."""
        before, prompt = edit.before, plain_text(edit.before.text, self._bot_user)
        if not _is_fresh(edit, _MISSED_WITHIN_S) or command_of(prompt) is not None:
            return False
        try:
            said_nothing = not (prompt or before.files or before.quoted)
            return said_nothing or not await self._look_ups.may_be_answered(edit.message, self._router)
        except NoAnswer:
            return False

    async def on_deletion(self, deletion: MessageDeletion, actor: Actor) -> None:
        """Store the deletion of a message in a conversation with an agent."""
        message = deletion.message
        if not self._router.is_heard(message):
            return
        async with self._in_order(message.place.conversation_id):
            self._admitter.unrouted.drop(message.id)
        await self._look_up_thread(message, actor)
        async with self._in_order(message.place.conversation_id):
            routed = await self._router.route(message)
            thread = await self._router.thread_of(message)
            may_steer = thread.takes_part(message.user, message.ts) or await self._router.may_steer_only(message)
            is_for_agent = routed or (thread.agent and may_steer)
            if not is_for_agent or not await self._admitter.is_allowed(actor, if_unknown=True):
                return
            if routed is not None:
                await self._store_change("withdrawal", deletion, routed, placeholder="withdrawal")
            else:
                await self._store_change("withdrawal", deletion, await self._router.resolve(message))

    async def _store_change(
        self,
        kind: EntryKind,
        change: MessageEdit | MessageDeletion,
        routed: Routed,
        placeholder: EntryKind | None = None,
    ) -> None:
        """Store an edit or a deletion.

        If the event of the message may still arrive, store an entry of kind `placeholder` under the message's id too.
        """
        before = change.before if isinstance(change, MessageEdit) else change.message
        addressed, _, _ = await self._admitter.to_worker(before, await self._router.resolve(before))
        message = replace(change.message, worker=addressed.worker)
        if message.worker:
            _, routed, _ = await self._admitter.to_worker(message, routed)
        instance, prompt = routed
        conversation_id = message.place.conversation_id
        pending = pending_of(message, routed, change.event_ts, change.id)
        if isinstance(change, MessageEdit):
            pending = replace(pending, old_files=tuple(each.id for each in before.files))
        written, changed = asdict(pending), change_fact(message.ts, change.event_ts)
        may_be_missing = placeholder == "message" or _is_fresh(change)
        if placeholder is not None and may_be_missing and not is_stop_word(prompt):
            # The message's own event, if it arrives later, is a duplicate of this entry.
            facts = await self._router.facts_of(message) if placeholder == "message" else {}
            entry = InboxEntry(message.id, placeholder, written)
            await self._runs.admit(conversation_id, entry, instance.name, {**facts, **changed})
        await self._runs.admit(conversation_id, InboxEntry(change.id, kind, written), facts=changed)

    async def on_reaction(self, reaction: ReactionAdded, actor: Actor) -> None:
        """Stop the run whose status message or first message got the stop reaction, or withdraw a pending message.

        A reaction to an answer may run its message again.
        """
        is_stop = reaction.name == self._tasks.options.stop_reaction
        if not is_stop and reaction.name.partition("::")[0] in ANSWER_REACTIONS:
            await self._on_answer(reaction, actor)
            return
        if not is_stop or reaction.user == self._bot_user:
            return
        if self._conversations.is_closing:
            raise NotNow
        is_ours, dm_threads = reaction.author == self._bot_user, self.options.dm_threads
        as_root = ThreadAddress.of(self._router.team, reaction.channel, reaction.ts, dm_threads=dm_threads)
        may_be_root = as_root.thread_ts is not None and not is_ours
        found: tuple[str, str | None] | None = self._conversations.running_at(reaction.channel, reaction.ts)
        if found is None and (
            admitted := self._admitter.admitted.get(f"{as_root.team}:{reaction.channel}:{reaction.ts}")
        ):
            found = admitted, None
        if found is None and may_be_root and (await self._runs.thread_of(as_root.conversation_id)).agent is not None:
            found = as_root.conversation_id, None
        is_of_others = found is None and may_be_root and as_root.conversation_id in self._without_agent
        if is_of_others or not await self._admitter.is_allowed(actor, if_unknown=True):
            return
        if found is not None:
            await self._stop(reaction, *found)
            return
        slot = CallSlot(Priority.PERSON if is_ours else Priority.LOOK_UP)
        ask = partial(self._tasks.client.history.message, reaction.channel, reaction.ts, slot)
        try:
            message = await self._look_ups.answer(ask)
        except NoAnswer:
            self._stop_later(reaction, actor, as_root, ask)
        else:
            await self._stop_at(message, reaction, actor, as_root)

    def _stop_later(self, reaction: ReactionAdded, actor: Actor, as_root: ThreadAddress, ask: Ask) -> None:
        """Stop the run once the look-up of its conversation succeeds. If this process ends first, the stop is lost."""
        if self._stop_look_ups == _MAX_STOP_LOOK_UPS:
            log.warning("reaction.dropped", channel=reaction.channel, ts=reaction.ts)
            return

        async def stop() -> None:
            try:
                message = await self._tasks.client.retry_until_done(ask)
                with suppress(NotNow):
                    await self._stop_at(message, reaction, actor, as_root)
            finally:
                self._stop_look_ups -= 1

        self._stop_look_ups += 1
        self._tasks.spawn(stop())

    async def _stop_at(
        self, message: dict[str, Any] | None, reaction: ReactionAdded, actor: Actor, as_root: ThreadAddress
    ) -> None:
        """Stop the run of the message's conversation, if an agent takes part in it."""
        if message is None:
            return
        thread_ts = thread_of(message)
        place = as_root if thread_ts is None else replace(as_root, thread_ts=thread_ts)
        conversation_id = place.conversation_id
        run_id, is_status, _ = key_of(message).partition(STATUS_KEY)
        if is_status and (worker := worker_of_run(run_id)):
            await self._stop(reaction, replace(place, worker=worker).conversation_id, run_id)
            return
        found_in_channel = {**message, "channel": reaction.channel}
        if float(reaction.event_ts) - float(reaction.ts) < _REDELIVERY_WINDOW_S:
            async with self._in_order(conversation_id):
                await self._admitter.admit_found(found_in_channel, actor, with_replies=True)
        post = message_of(found_in_channel, self._router.team, dm_threads=self.options.dm_threads)
        if post is not None and not is_status:
            addressed, _, _ = await self._admitter.to_worker(post, await self._router.resolve(post))
            place = addressed.place if addressed.worker else place
        if (found := await self._with_agent(place)) is not None:
            await self._stop(reaction, found, run_id if is_status else None)

    async def _stop(self, reaction: ReactionAdded, conversation_id: str, run_id: str | None) -> None:
        is_own = reaction.author == reaction.user
        stop = StopRequest(reaction.id, reaction.user, reaction.event_ts, reaction.ts, run_id, is_own=is_own)
        async with self._in_order(conversation_id):
            await self._admitter.stop(conversation_id, stop)

    async def on_stop(self, place: ThreadAddress, stop: StopRequest, actor: Actor) -> None:
        """Stop the run of a conversation, if an agent takes part in it."""
        if worker := worker_of_run(stop.run or ""):
            place = replace(place, worker=worker)
        conversation_id = await self._with_agent(place) or place.conversation_id
        async with self._in_order(conversation_id):
            has_agent = (await self._runs.thread_of(conversation_id)).agent is not None
            if has_agent and await self._admitter.is_allowed(actor, if_unknown=True):
                await self._admitter.stop(conversation_id, stop)

    async def on_command(self, command: SlashCommand, actor: Actor) -> str | None:
        """Carry out a slash command and return its answer, in Slack's markup; `None`: it is another app's."""
        if command.name != self.options.command:
            return None
        if self._conversations.is_closing:
            raise NotNow
        return await self._admitter.policy.refusal(actor) or await self.commands.on_slash(command)

    async def on_shortcut(self, shortcut: Shortcut, actor: Actor) -> None:
        """Store an action on a message, or ask the user to confirm it."""
        async with self._in_order(shortcut.place.conversation_id):
            if await self._admitter.is_allowed(actor):
                await self.commands.on_shortcut(shortcut)

    async def on_message_action(self, action: MessageAction, actor: Actor) -> None:
        """Open the form of an action on a message, or store a submitted one."""
        if self._conversations.is_closing:
            raise NotNow
        await self._message_actions.carry_out(action, await self._admitter.policy.refusal(actor))

    async def on_rating(self, rating: RatingClick, actor: Actor) -> None:
        """Store the rating of an answer; a bad one by a button opens a form for a comment."""
        async with self._in_order(rating.place.conversation_id):
            if await self._admitter.is_allowed(actor):
                await self.commands.rate(rating)

    async def _on_answer(self, reaction: ReactionAdded, actor: Actor) -> None:
        """Run the message again whose answer got 🔁; store the rating by 👍 or 👎."""
        if self._conversations.is_closing:
            raise NotNow
        is_ours = reaction.author in (None, self._bot_user) and reaction.user != self._bot_user
        if not is_ours or not await self._admitter.is_allowed(actor):
            return
        ask = partial(self._tasks.client.history.message, reaction.channel, reaction.ts, CallSlot(Priority.PERSON))
        try:
            found = await self._look_ups.answer(ask)
        except NoAnswer as e:
            raise NotNow from e
        if found is not None:
            dm_threads, team = self.options.dm_threads, self._router.team
            place = ThreadAddress.of(team, reaction.channel, reaction.ts, thread_of(found), dm_threads=dm_threads)
            await self.commands.on_answer(found, place, reaction)

    async def on_consent(self, place: ThreadAddress, consent: Consent, actor: Actor) -> None:
        """Store whether a person may steer a run; the process that owns the conversation checks the user."""
        if worker := worker_of_run(consent.run):
            place = replace(place, worker=worker)
        async with self._in_order(place.conversation_id):
            if await self._admitter.is_allowed(actor):
                await self._runs.admit(place.conversation_id, InboxEntry(consent.id, "consent", asdict(consent)))

    async def on_request(self, address: RequestAddress, click: RequestClick | RequestForm, actor: Actor) -> None:
        """Store an answer to a request; the process that owns the conversation checks it. Or open the form for one."""
        place = address.place
        refusal = await self._admitter.policy.refusal(actor)
        if refusal is None and (await self._runs.thread_of(place.conversation_id)).agent is None:
            refusal = texts.NO_REQUEST
        if refusal is not None:
            slot, client = CallSlot(Priority.PERSON), self._tasks.client
            self._tasks.spawn(client.post_ephemeral(place, actor.user, Content(refusal), slot))
        elif isinstance(click, RequestForm):
            arguments = {"trigger_id": click.trigger, "view": json.dumps(form(click))}
            self._tasks.spawn(self._open_form(arguments, place, actor.user))
        else:
            async with self._in_order(place.conversation_id):
                click = replace(click, admitted_s=self._tasks.now_s())
                await self._runs.admit(place.conversation_id, InboxEntry(click.id, "click", asdict(click)))

    async def _open_form(self, arguments: dict[str, Any], place: ThreadAddress, user: str) -> None:
        """Open a form, or tell the person that it could not be opened: Slack accepts a click for three seconds."""
        client = self._tasks.client
        try:
            await client.call("views.open", arguments, CallSlot(Priority.PERSON))
        except SlackCallFailed as e:
            log.info("form.not_opened", error=e.error)
            await client.post_ephemeral(place, user, Content(texts.FORM_FAILED), CallSlot(Priority.PERSON))

    async def _with_agent(self, place: ThreadAddress) -> str | None:
        """Return the id of the conversation at a place if an agent takes part in it.

        A thread of direct messages without an agent may begin with a message of the channel's conversation.
        """
        places = (place, place.of_channel) if is_direct(place.channel) else (place,)
        for each in dict.fromkeys(places):
            if (await self._runs.thread_of(each.conversation_id)).agent is not None:
                return each.conversation_id
        return None

    async def on_view(self, view: AppView, actor: Actor) -> None:
        """Remember the channel that a person looks at, and suggest prompts in direct messages that were opened."""
        if self._conversations.is_closing:
            raise NotNow
        if await self._admitter.policy.refusal(actor) is None:
            place = ThreadAddress(self._router.team, view.channel, view.thread_ts)
            agent = (await self._runs.thread_of(place.conversation_id)).agent if view.is_opened else None
            prompts = self._router.prompts(agent, self.options.suggested_prompts)
            self._tasks.app_views.on_view(view, prompts)

    async def on_home(self, opened: HomeOpened, actor: Actor) -> None:
        """Show a person their Home tab."""
        if self._conversations.is_closing:
            raise NotNow
        if self._home is not None:
            self._home.open(opened, await self._admitter.policy.refusal(actor))

    async def on_home_click(self, click: HomeClick, actor: Actor) -> None:
        """Stop a run, or revoke a rule, from the Home tab."""
        if self._conversations.is_closing:
            raise NotNow
        if click.place is not None and click.stop is not None:
            await self.on_stop(click.place, click.stop, actor)
        elif self._home is not None:
            await self._home.revoke(click)

    def _in_order(self, conversation_id: str) -> asyncio.Lock:
        if self._conversations.is_closing:
            raise NotNow
        return self._admitter.in_order(conversation_id)


def _may_be_a_reply_to_us(message: SlackMessage) -> bool:
    """Return whether a message is for an agent if one takes part in its thread."""
    return message.thread_ts is not None and not message.mentions_anyone()


def _is_fresh(change: MessageEdit | MessageDeletion, within_s: float = _REDELIVERY_WINDOW_S) -> bool:
    """Return whether Slack may still deliver the message of this edit or deletion."""
    return float(change.event_ts) - float(change.message.ts) < within_s
