"""What the owner of a conversation knows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from connector.conversations.cleanup import Cleanup
from connector.protocols import RunFailed, StateChanges
from connector.records.inbox import Inbox
from connector.runs.slack_run import SlackRun
from connector.runs.start_mode import New, StartMode

if TYPE_CHECKING:
    from connector.protocols import ConversationLease, End, InboxEntry
    from connector.records.run_record import RunRecord
    from connector.runs.background_tasks import WorkspaceContext

log = structlog.get_logger(__name__)


class ConversationState:
    """A conversation that is ours, with the run that is on in it, and what those before it have left to be done."""

    def __init__(self, lease: ConversationLease, workplace: WorkspaceContext) -> None:
        self.lease = lease
        self.workplace = workplace
        self.inbox = Inbox(workplace.desk.names, lease.claim.held)
        self.aftermath = Cleanup(lease, workplace.desk)
        self.execution: SlackRun | None = None

    @property
    def id(self) -> str:
        return self.lease.conversation_id

    def start(self, record: RunRecord, beginning: StartMode = New()) -> SlackRun:  # noqa: B008 - it is frozen
        """Have a run on, whose first message is in the inbox."""
        self.inbox.give(record.first)
        self.execution = SlackRun(record, self.lease, self.inbox, self.workplace, beginning)
        return self.execution

    async def close(self, entry: InboxEntry, end: End = "done") -> None:
        """The entry has had its effect."""
        await self.lease.write(StateChanges(closed={entry.seq: end}))

    async def in_log(self, agent: str, ids: set[str]) -> frozenset[str]:
        """Those of the messages that the log of this agent has.

        Raises:
            RunFailed: the log cannot be read, and never will be.
        """
        instance = self.workplace.router.instance(agent)
        return await self.workplace.sessions.delivered(instance.name, self.id, ids, fence=self.lease.claim.token)

    async def delivered(self, agent: str, ids: set[str]) -> frozenset[str]:
        """The same, but none where the log cannot be read: what people are told of that, they have been told."""
        try:
            return await self.in_log(agent, ids)
        except RunFailed as e:
            log.error("log.unreadable", conversation=self.id, error=str(e))  # noqa: TRY400 - a sentence
            return frozenset()
