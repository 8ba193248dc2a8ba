"""The in-memory state of a conversation that this process owns."""

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
    """A conversation with its lease, inbox, active run, and pending cleanup of earlier runs."""

    def __init__(self, lease: ConversationLease, workspace: WorkspaceContext) -> None:
        self.lease = lease
        self.workspace = workspace
        self.inbox = Inbox(workspace.background.users, lease.claim.held_seq)
        self.cleanup = Cleanup(lease, workspace.background)
        self.run: SlackRun | None = None

    @property
    def id(self) -> str:
        return self.lease.conversation_id

    def start(self, record: RunRecord, start_mode: StartMode = New()) -> SlackRun:  # noqa: B008 - it is frozen
        """Create the active run; its first message must be in the inbox."""
        self.inbox.give(record.first)
        self.run = SlackRun(record, self.lease, self.inbox, self.workspace, start_mode)
        return self.run

    async def close(self, entry: InboxEntry, end: End = "done") -> None:
        """Close an entry that is fully processed."""
        await self.lease.write(StateChanges(closed={entry.seq: end}))

    async def in_log(self, agent: str, ids: set[str]) -> frozenset[str]:
        """Return which of the messages are delivered in the log of this agent.

        Raises:
            RunFailed: the log is permanently unreadable.
        """
        instance = self.workspace.router.instance(agent)
        return await self.workspace.sessions.delivered(instance.name, self.id, ids, fence=self.lease.claim.token)

    async def delivered(self, agent: str, ids: set[str]) -> frozenset[str]:
        """Like `in_log`, but return none if the log is unreadable; the run's failure notice reports that error."""
        try:
            return await self.in_log(agent, ids)
        except RunFailed as e:
            log.error("log.unreadable", conversation=self.id, error=str(e))  # noqa: TRY400 - a sentence
            return frozenset()
