"""What the owner of a conversation knows of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from connector.protocols import Changes

if TYPE_CHECKING:
    from connector.desk import Workplace
    from connector.execution import Execution
    from connector.inbox import Inbox
    from connector.protocols import End, Entry, Lease


@dataclass(slots=True)
class Owned:
    """A conversation that is ours, with the run that is on in it."""

    lease: Lease
    workplace: Workplace
    inbox: Inbox
    execution: Execution | None = None

    @property
    def id(self) -> str:
        return self.lease.conversation_id

    async def close(self, entry: Entry, end: End = "done") -> None:
        """The entry has had its effect."""
        await self.lease.write(Changes(closed={entry.seq: end}))

    async def in_log(self, agent: str, ids: set[str]) -> frozenset[str]:
        """Those of the messages that the log of this agent has.

        Raises:
            RunFailed: the log cannot be read, and never will be.
        """
        instance = self.workplace.router.instance(agent)
        return await self.workplace.sessions.delivered(instance.name, self.id, ids, fence=self.lease.claim.token)
