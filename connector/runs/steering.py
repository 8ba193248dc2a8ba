"""How what people write gets into a running loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector import texts
from connector.protocols import QueueFull, Refused, SteeringMessage
from connector.runs.post import noted

if TYPE_CHECKING:
    from connector.records.inbox import Inbox, PendingMessage
    from connector.runs.background_tasks import WorkspaceContext
    from connector.runs.view import RunView


class Steering:
    """Hands a run's loop the messages of its conversation, in their order, as soon as they are ready.

    They wait in the conversation's inbox until the loop listens, and where it has enough to read. What it does not read
    any more leads the next run.

    Args:
        key: the instance and the conversation, as the sessions know them.
    """

    def __init__(self, key: tuple[str, str], inbox: Inbox, workplace: WorkspaceContext, view: RunView) -> None:
        self._key = key
        self._inbox = inbox
        self._sessions = workplace.sessions
        self._desk = workplace.desk
        self._view = view
        self._is_open = self._is_closed = False
        # What has come and nobody has looked at yet.
        self._news: list[PendingMessage] = []

    async def open(self) -> None:
        """The loop reads what it is given from here on, and is given what waits."""
        self._is_open = True
        await self._inbox.get_all_ready()
        self.hand_in()

    def close(self) -> None:
        """The loop reads nothing any more, or is not to."""
        self._is_closed = True

    def add(self, inbound: PendingMessage) -> None:
        """Take note of a message that waits for this run, or for the one after it."""
        self._news.append(inbound)
        if len(self._news) == 1:
            self._desk.spawn(self._take_in())

    def hand_in(self) -> None:
        """Give the loop what is ready, oldest first, for as long as it takes that."""
        instance, _ = self._key
        while self._is_open and not self._is_closed and (inbound := self._inbox.next_for(instance)) is not None:
            if not self._offer(inbound):
                return

    async def _take_in(self) -> None:
        """Hand in what has come by now: all at once, so that many are not much more work than one."""
        news, self._news = self._news, []
        await self._inbox.get_ready(news)
        self.hand_in()
        for inbound in news:
            if self._inbox.find(inbound.id) is not None:
                self._mark_accepted(inbound)

    def _offer(self, inbound: PendingMessage) -> bool:
        """Whether the loop takes more."""
        names, message = self._desk.names, inbound.message
        text, author = names.identified(inbound.prompt), names.author(message.user)
        steer = SteeringMessage(inbound.id, text, author, inbound.written_s, message.files)
        try:
            taken = self._sessions.inject(*self._key, steer)
        except QueueFull:
            return False
        except Refused as e:
            self._inbox.remove((inbound,))
            self._desk.spawn(self._refuse(inbound, str(e)))
            return True
        if taken:
            self._inbox.give(inbound)
        return taken

    def _mark_accepted(self, inbound: PendingMessage) -> None:
        if not inbound.is_about_another:  # what was read has been marked so
            self._desk.mark_accepted(inbound.message)

    async def _refuse(self, inbound: PendingMessage, why: str) -> None:
        self._desk.take_back(inbound.message)
        notice = noted(f"refused:{inbound.id}", texts.refused(inbound.prompt, why))
        await self._view.post(*notice, closed={inbound.seq: "refused"})
