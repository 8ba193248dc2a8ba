"""A message is read as soon as it can matter: in the request after the answer during which it came, and ever after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator_interactive.results import LATE_PREFIX
from simulated.posts import marks, text_of

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.messages import ChatRequest
    from simulated.posts import Post
    from simulated.scene import Scene

    from .deliveries import Deliveries


class _Words(NamedTuple):
    """What a row of the user brings: the numbers of messages, or late results."""

    messages: tuple[int, ...] = ()
    late: bool = False


class Reading:
    """Compares what has been accepted and delivered with what the model is given to read.

    What a model refused is left out from then on, with the row of the user that it was an answer to.
    """

    def __init__(self, scene: Scene, deliveries: Deliveries) -> None:
        self._scene = scene
        self._deliveries = deliveries
        self._answers = 0
        self._came_at: dict[int, int] = {}
        self._rows: list[_Words] = []

    def accepted(self, post: Post) -> None:
        self._came_at[post.number] = self._answers

    def answered(self) -> None:
        """The model has answered, or a run begins: what was there before must be in the next request."""
        self._answers += 1

    def row_added(self, row: dict[str, Any]) -> None:
        if row["role"] == "user":
            self._rows.append(_words_in(text_of(row)))
        elif is_refused(row) and self._rows:
            self._rows[-1] = _Words()

    def asked(self, request: ChatRequest, *, is_whole: bool) -> None:
        """`is_whole`: the model is to see the whole conversation."""
        for post in self._deliveries.waiting():
            if self._came_at.get(post.number, self._answers) < self._answers:
                self._scene.blame(f"Message {post.number} came before the last answer, and is not in the request.")
        if not is_whole:
            return
        texts = (
            text_of(message.model_dump(include={"content"})) for message in request.messages if message.role == "user"
        )
        read = [words for text in texts if (words := _words_in(text)) != _Words()]
        expected = [words for words in self._rows if words != _Words()]
        if read != expected:
            self._scene.blame(f"The log has {list(map(_told, expected))}; the model reads {list(map(_told, read))}.")


def is_refused(row: dict[str, Any]) -> bool:
    """Whether this is what a model said when it refused to answer."""
    return bool((row.get("metadata") or {}).get("refused"))


def _words_in(text: str) -> _Words:
    return _Words(tuple(marks(text)), late=text.startswith(LATE_PREFIX))


def _told(words: _Words) -> str:
    numbers = ", ".join(map(str, words.messages))
    return "late results" if words.late else f"the messages {numbers}"
