"""Inject messages into a running loop."""

from __future__ import annotations

import asyncio
from itertools import compress
from typing import TYPE_CHECKING

from connector import texts
from connector.protocols import NO_TALK, QueueFull, Refused
from connector.runs.posts import service_post

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from connector.protocols import ThreadTalk
    from connector.records import PendingMessage
    from connector.runs.inbox import Inbox
    from connector.runs.message_files import MessageFiles
    from connector.runs.outbox import Outbox
    from connector.runs.thread_reader import ThreadReader
    from connector.runs.workspace import WorkspaceContext

# How long a message waits for the talk before it.
_READ_WITHIN_S = 2.0


class Steering:
    """Injects the messages of a conversation into its run, in order, as soon as they are ready.

    Messages wait in the inbox until the loop accepts injections, and while its queue is full. Undelivered messages
    begin the next run.

    Args:
        key: instance name and conversation id.
        may_steer: whether the run reads this message; others wait for the next run.
        ask_owner: asks the owner of the run about the author of such a message, if the settings ask for that.
        files: fetches the files of the messages.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a run
        self,
        key: tuple[str, str],
        inbox: Inbox,
        workspace: WorkspaceContext,
        outbox: Outbox,
        reader: ThreadReader,
        may_steer: Callable[[PendingMessage], bool],
        ask_owner: Callable[[PendingMessage], Awaitable[None]],
        files: MessageFiles,
    ) -> None:
        self._files = files
        self._key = key
        self._reader = reader
        # By the id of a message: the talk before it.
        self._talk: dict[str, ThreadTalk] = {}
        self._prepared: set[str] = set()
        # Messages that the agent has not read as talk.
        self._new: set[str] = set()
        self._may_steer = may_steer
        self._ask_owner = ask_owner
        self._inbox = inbox
        self._sessions = workspace.sessions
        self._background = workspace.background
        self._outbox = outbox
        self._is_open = self._is_closed = False
        # Added messages that are not processed yet.
        self._added: list[PendingMessage] = []

    async def open(self) -> None:
        """Start injecting, beginning with the messages that wait: the run has its prompt."""
        while new := [
            each for each in self._inbox.waiting.values() if not each.is_note and each.id not in self._prepared
        ]:
            await self._prepare(new)
        self._is_open = True
        self.flush()

    def close(self) -> None:
        """Stop injecting."""
        self._is_closed = True

    def add(self, inbound: PendingMessage) -> None:
        """Queue a message for injection into this run, or for the next run."""
        self._added.append(inbound)
        if len(self._added) == 1:
            self._background.spawn(self._process_added())

    async def insert(self, inbound: PendingMessage) -> None:
        """Queue a message in its place: newer ones that the loop has not read wait with it for its files.

        Urgent ones stay, and those before an urgent one.
        """
        self.add(inbound)
        if not inbound.message.files or inbound.instance != self._key[0] or not self._may_steer(inbound):
            return
        given = [each for each in self._inbox.given.values() if each.id in self._new]
        since_s = max([inbound.written_s, *(each.written_s for each in given if each.is_urgent)])
        newer = [each for each in given if each.written_s > since_s]
        # Concurrently: a session in another process may answer late.
        withdrawn = await asyncio.gather(*(self.withdraw(each.id) for each in newer))
        for each in compress(newer, withdrawn):
            self._inbox.take_back_one(each.id)
            self.add(each)

    def on_consent(self, user: str) -> None:
        """Prepare the messages of a person that may steer now: their files and the talk before them were not read."""
        for each in [each for each in self._inbox.waiting.values() if each.message.user == user and not each.is_note]:
            self._inbox.take_back_one(each.id)
            self.add(each)

    def flush(self) -> None:
        """Inject the messages that are ready, oldest first, until the loop accepts no more."""
        instance, _ = self._key
        while (
            self._is_open
            and not self._is_closed
            and (inbound := self._inbox.next_for(instance, self._may_steer)) is not None
        ):
            # An urgent message makes the ones before it ready; they may be talk that was read.
            if inbound.id not in self._new or not self._offer(inbound):
                return

    async def _process_added(self) -> None:
        """Process all added messages in one batch."""
        added, self._added = self._added, []
        await self._prepare(added, with_talk=self._is_open)
        self.flush()
        for inbound in added:
            # The message that a late change is about has its reaction already.
            if self._inbox.find(inbound.id) is not None and not inbound.is_late_change:
                self._background.mark_accepted(inbound.message)
            if not self._may_steer(inbound):
                await self._ask_owner(inbound)

    async def _prepare(self, messages: Sequence[PendingMessage], *, with_talk: bool = True) -> None:
        """Read the talk before these messages, fetch their files, and wait until they are ready."""
        if with_talk:
            await self._read_talk(messages)
        # Some may be edited or withdrawn by now.
        present = [now for each in messages if (now := self._inbox.waiting.get(each.id)) is not None]
        if with_files := [each for each in present if each.message.files and self._may_steer(each)]:
            await self._files.fetch(with_files)
        await self._inbox.get_ready(messages)

    async def _read_talk(self, messages: Sequence[PendingMessage]) -> None:
        """Read the talk before these messages, unless one is urgent."""
        is_urgent = any(each.is_urgent for each in messages)
        self._prepared.update(each.id for each in messages)
        for each in messages:
            if await self._reader.has_read(each):
                self._inbox.remove((each,))
                self._background.unmark_accepted(each.message)
                await self._outbox.add(closed={each.seq: "done"})
            else:
                self._new.add(each.id)
        self.flush()  # an urgent message may wait for these
        for each in messages:
            if each.id in self._new and not is_urgent and self._may_steer(each):
                self._talk[each.id] = await self._reader.before(each, _READ_WITHIN_S)
            if each.id not in self._inbox.waiting:  # an urgent message took it along
                self._reader.give_up(each.id)

    def _offer(self, inbound: PendingMessage) -> bool:
        """Inject one message. Returns whether the loop accepts more."""
        users, message = self._background.users, inbound.message
        self._files.begin((inbound,))  # an urgent message takes it along: its files come later
        try:
            taken = self._sessions.inject(
                *self._key,
                users.with_ids(inbound.prompt),
                message_id=inbound.id,
                author=users.author_of(message),
                written_s=inbound.written_s,
                files=self._files.of(inbound),
                talk=self._talk.get(inbound.id, NO_TALK),
            )
        except QueueFull:
            return False
        except Refused as e:
            self._inbox.remove((inbound,))
            self._background.spawn(self._refuse(inbound, str(e)))
            return True
        if taken:
            self._inbox.give(inbound)
            if message.files:
                self._background.spawn(self._files.tell_at_end(inbound))
        return taken

    async def _refuse(self, inbound: PendingMessage, why: str) -> None:
        self._background.unmark_accepted(inbound.message)
        notice = service_post(f"refused:{inbound.id}", texts.refused(inbound.prompt, why))
        await self._outbox.add(*notice, closed={inbound.seq: "refused"})

    async def withdraw(self, message_id: str) -> bool:
        """Withdraw a message given to the loop. Returns False if it is delivered."""
        is_withdrawn = await self._sessions.withdraw(*self._key, message_id)
        if is_withdrawn:
            self._reader.give_up(message_id)
            self._talk.pop(message_id, None)
            self._prepared.discard(message_id)
        return is_withdrawn
