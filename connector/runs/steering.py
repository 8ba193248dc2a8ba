"""Inject messages into a running loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector import texts
from connector.protocols import QueueFull, Refused, SteeringMessage
from connector.runs.post import service_post

if TYPE_CHECKING:
    from connector.records.inbox import Inbox, PendingMessage
    from connector.runs.background_tasks import WorkspaceContext
    from connector.runs.view import RunView


class Steering:
    """Injects the messages of a conversation into its run, in order, as soon as they are ready.

    Messages wait in the inbox until the loop accepts injections, and while its queue is full. Undelivered messages
    begin the next run.

    Args:
        key: instance name and conversation id.
    """

    def __init__(self, key: tuple[str, str], inbox: Inbox, workspace: WorkspaceContext, view: RunView) -> None:
        self._key = key
        self._inbox = inbox
        self._sessions = workspace.sessions
        self._background = workspace.background
        self._view = view
        self._is_open = self._is_closed = False
        # Added messages that are not processed yet.
        self._added: list[PendingMessage] = []

    async def open(self) -> None:
        """Start injecting, beginning with the messages that wait."""
        self._is_open = True
        await self._inbox.get_all_ready()
        self.flush()

    def close(self) -> None:
        """Stop injecting."""
        self._is_closed = True

    def add(self, inbound: PendingMessage) -> None:
        """Queue a message for injection into this run, or for the next run."""
        self._added.append(inbound)
        if len(self._added) == 1:
            self._background.spawn(self._process_added())

    def flush(self) -> None:
        """Inject the messages that are ready, oldest first, until the loop accepts no more."""
        instance, _ = self._key
        while self._is_open and not self._is_closed and (inbound := self._inbox.next_for(instance)) is not None:
            if not self._offer(inbound):
                return

    async def _process_added(self) -> None:
        """Process all added messages in one batch."""
        added, self._added = self._added, []
        await self._inbox.get_ready(added)
        self.flush()
        for inbound in added:
            if self._inbox.find(inbound.id) is not None:
                self._mark_accepted(inbound)

    def _offer(self, inbound: PendingMessage) -> bool:
        """Inject one message. Returns whether the loop accepts more."""
        users, message = self._background.users, inbound.message
        text, author = users.with_ids(inbound.prompt), users.author(message.user)
        injection = SteeringMessage(inbound.id, text, author, inbound.written_s, message.files)
        try:
            taken = self._sessions.inject(*self._key, injection)
        except QueueFull:
            return False
        except Refused as e:
            self._inbox.remove((inbound,))
            self._background.spawn(self._refuse(inbound, str(e)))
            return True
        if taken:
            self._inbox.give(inbound)
        return taken

    def _mark_accepted(self, inbound: PendingMessage) -> None:
        if not inbound.is_late_change:  # the message it is about has its reaction already
            self._background.mark_accepted(inbound.message)

    async def _refuse(self, inbound: PendingMessage, why: str) -> None:
        self._background.unmark_accepted(inbound.message)
        notice = service_post(f"refused:{inbound.id}", texts.refused(inbound.prompt, why))
        await self._view.post(*notice, closed={inbound.seq: "refused"})
