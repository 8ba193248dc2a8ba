"""A message is read as soon as it can matter: in the request after the answer during which it came, and ever after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulated.posts import marks, text_of

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.messages import ChatRequest
    from simulated.posts import Post
    from simulated.scene import Scene

    from .deliveries import Deliveries


class Reading:
    """Compares what has been accepted and delivered with what the model is given to read."""

    def __init__(self, scene: Scene, deliveries: Deliveries) -> None:
        self._scene = scene
        self._deliveries = deliveries
        self._answers = 0
        self._came_at: dict[int, int] = {}

    def accepted(self, post: Post) -> None:
        self._came_at[post.number] = self._answers

    def answered(self) -> None:
        """The model has answered, or a run begins: what was there before must be in the next request."""
        self._answers += 1

    def asked(self, request: ChatRequest, *, is_whole: bool) -> None:
        """`is_whole`: the model is to see the whole conversation."""
        for post in self._deliveries.waiting():
            if self._came_at.get(post.number, self._answers) < self._answers:
                self._scene.blame(f"Message {post.number} came before the last answer, and is not in the request.")
        if not is_whole:
            return
        rows = [message.model_dump(exclude_none=True) for message in request.messages if message.role == "user"]
        read = [number for row in rows for number in marks(text_of(row))]
        if read != self._deliveries.delivered:
            self._scene.blame(f"Delivered were the messages {self._deliveries.delivered}; the model reads {read}.")
