"""The state of each message injected into a run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

State = Literal["waiting", "delivered", "withdrawn"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """The state of one message.

    Args:
        id: identity of the message.
        state: waiting: pending in the queue; delivered: its id is in a committed row; withdrawn: by its author.
        iteration: number of the model call that reads it, from 1, in the run that committed it.
    """

    id: str
    state: State = "waiting"
    iteration: int | None = None


class Receipts:
    """The messages of the current or the last run, in the order in which they were accepted."""

    def __init__(self) -> None:
        self._by_id: dict[str, Receipt] = {}

    def begin(self) -> None:
        """Start a new run: keep only the pending messages."""
        self._by_id = {each.id: each for each in self._by_id.values() if each.state == "waiting"}

    def of(self, message_id: str) -> Receipt | None:
        return self._by_id.get(message_id)

    def accept(self, message_id: str) -> Receipt:
        receipt = self._by_id[message_id] = Receipt(message_id)
        return receipt

    def deliver(self, message_ids: Iterable[str], iteration: int) -> None:
        for each in message_ids:
            self._by_id[each] = Receipt(each, "delivered", iteration)

    def withdraw(self, message_id: str) -> None:
        self._by_id[message_id] = replace(self._by_id[message_id], state="withdrawn")

    def forget(self, message_id: str) -> None:
        """Forget a message; the caller keeps it."""
        self._by_id.pop(message_id, None)

    def all(self) -> tuple[Receipt, ...]:
        return tuple(self._by_id.values())

    def to_event(self) -> list[dict[str, Any]]:
        """Return the form in progress events."""
        return [{"id": each.id, "state": each.state, "iteration": each.iteration} for each in self._by_id.values()]
