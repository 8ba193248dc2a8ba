"""What the agent says of each message agrees with the log, and with what its author asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator_interactive import Receipt
    from simulated.posts import Post
    from simulated.scenario import Scenario

    from .runs import RunRecord


@dataclass(slots=True)
class _Kept:
    """What is known of one message: by its own account, or by the log's."""

    post: Post
    state: str = "waiting"
    iteration: int | None = None


class Receipts:
    """Keeps the books on every message that was written to a run."""

    def __init__(self, scene: Scenario) -> None:
        self._scene = scene
        self._kept: dict[str, _Kept] = {}
        self._answers = 0

    def begin(self) -> None:
        """A run begins: what waits is its own."""
        self._kept = {each: kept for each, kept in self._kept.items() if kept.state == "waiting"}
        self._answers = 0

    def forget(self) -> None:
        """The process was killed, and knew them by heart only."""
        self._kept.clear()

    def accepted(self, post: Post, receipt: Receipt) -> None:
        if (receipt.state, receipt.iteration) != ("waiting", None):
            self._scene.blame(f"The receipt for message {post.number} says '{receipt.state}' at once.")
        if not post.plain and receipt.id != post.id:
            self._scene.blame(f"The receipt for message {post.number} is for {receipt.id}.")
        self._kept[receipt.id] = _Kept(post)

    def withdrawn(self, message_id: str) -> None:
        self._kept[message_id].state = "withdrawn"

    def answered(self) -> None:
        self._answers += 1

    def row_added(self, row: dict[str, Any]) -> None:
        for each in (row.get("metadata") or {}).get("injections", ()):
            if (kept := self._kept.get(each)) is None:
                self._scene.blame("A row tells of a message that has no receipt.")
                continue
            if kept.state == "withdrawn":
                self._scene.blame(f"Message {kept.post.number} was taken back, and is in a row.")
            kept.state, kept.iteration = "delivered", self._answers + 1

    def told(self, run: RunRecord, receipts: Iterable[dict[str, Any]], *, where: str) -> None:
        """The agent says where every message stands."""
        if run.was_abandoned:
            return  # whether the last row stands, nobody knows
        told = [(each["id"], each["state"], each["iteration"]) for each in receipts]
        kept = [(each, kept.state, kept.iteration) for each, kept in self._kept.items()]
        if told != kept:
            wrong = [f"{_named(self._kept, e)} {e[1:]}" for e in told if e not in kept]
            right = [f"{_named(self._kept, e)} {e[1:]}" for e in kept if e not in told]
            self._scene.blame(f"{where} tells of {wrong or 'the same in another order'}; it is {right}.")


def _named(kept: dict[str, _Kept], entry: tuple[Any, ...]) -> str:
    return f"message {kept[entry[0]].post.number}" if entry[0] in kept else "a message that nobody wrote"
