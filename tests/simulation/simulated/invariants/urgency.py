"""An urgent message is in a request within a second, not counting what others hold the agent up."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from simulated.posts import Post
    from simulated.scenario import Scenario

    from .deliveries import Deliveries
    from .runs import RunRecord

# A model and tools that are deaf to their cancellation are waited for, a moment each.
_WITHIN_S = 1.0


class _Since(NamedTuple):
    at_s: float
    held_s: float


class Urgency:
    """Takes the time from the acceptance of each urgent message to the request that it is in.

    What does not count: hooks and approvals, a slow store, whoever is told of progress, a compaction, and the wait
    before a model is asked again.
    """

    def __init__(self, scene: Scenario, deliveries: Deliveries) -> None:
        self._scene = scene
        self._deliveries = deliveries
        self._open: dict[int, tuple[Post, _Since]] = {}

    def begin(self) -> None:
        """A run begins: for what waits already, time counts from now."""
        self._open = {number: (post, self._now()) for number, (post, _) in self._open.items()}

    def accepted(self, post: Post) -> None:
        if post.is_urgent:
            self._open[post.number] = (post, self._now())

    def withdrawn(self, post: Post) -> None:
        self._open.pop(post.number, None)

    def asked(self) -> None:
        for post, since in list(self._open.values()):
            if self._deliveries.has_arrived(post):
                self._scene.count("urgent message read")
                self._check(post, since)
                del self._open[post.number]

    def returned(self, run: RunRecord) -> None:
        if run.cut_s is None:
            for post, since in self._open.values():
                self._check(post, since)

    def _check(self, post: Post, since: _Since) -> None:
        now = self._now()
        waited_s = now.at_s - since.at_s - (now.held_s - since.held_s)
        if waited_s > _WITHIN_S:
            self._scene.blame(f"The urgent message {post.number} was not read for {waited_s:.3f} s.")

    def _now(self) -> _Since:
        return _Since(self._scene.now(), self._scene.held_s())
