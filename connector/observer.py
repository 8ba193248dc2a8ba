"""The reports of the connector and the store, for metrics and traces."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection
    from contextlib import AbstractContextManager

    from connector.protocols import End, InboxEntry, PersonAnswer, PersonRequest

LeaseMove = Literal["taken", "taken_over", "released", "handed_over", "lost"]


@dataclass(slots=True)
class RunReport:
    """How a run ended: the status of its `complete` event, `suspended`, or `error` if nothing else is known."""

    outcome: str = "error"


class Observer:
    """Receives the reports. A method returns at once and does not raise; the methods of this class do nothing."""

    def run(
        self,
        run_id: str,  # noqa: ARG002 - for subclasses
        conversation_id: str,  # noqa: ARG002
        instance: str,  # noqa: ARG002
        message_id: str,  # noqa: ARG002
    ) -> AbstractContextManager[RunReport]:
        """Surround a run that begins with this message; the body sets the outcome in the report."""
        return nullcontext(RunReport())

    def stopped(self, door: str, user: str, conversation_id: str, run_id: str | None) -> None:
        """Note a stop request: by reaction, button, word, operator, time limit, or deletion of the first message."""

    def consented(self, by: str, user: str, conversation_id: str, run_id: str, *, allows: bool) -> None:
        """Report that the owner of a run let a person steer it, or did not."""

    def answered(self, request: PersonRequest, answer: PersonAnswer, conversation_id: str, run_id: str) -> None:
        """Report the answer to a request of a run, once it is stored."""

    def refused(self, user: str, channel: str, why: str) -> None:
        """Note that the access rules refused a request of a user."""

    def called(self, method: str, result: str) -> None:
        """Count a call of the Web API that was sent: `ok`, or Slack's error."""

    def admitted(self, conversation_id: str, entry: InboxEntry) -> None:
        """Note a new inbox entry."""

    def left_inbox(self, ends: Collection[End]) -> None:
        """Count entries that left an inbox of this process."""

    def lease(self, move: LeaseMove) -> None:
        """Count a change of a lease of this process."""
