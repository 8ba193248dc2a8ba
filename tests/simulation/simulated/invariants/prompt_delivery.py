"""A message is read as soon as it can matter: in the request after the answer during which it came, and ever after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator_interactive.loop.tool_results import LATE_PREFIX
from simulated.posts import marks, text_of

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest
    from simulated.posts import Post
    from simulated.scenario import Scenario

    from .deliveries import Deliveries


# The metadata of user rows that are no prompts.
_BESIDE = {"injections", "notices", "results"}


class _Row(NamedTuple):
    """A row of the log, and what is looked for in a user's: the numbers of messages, or late results."""

    role: str
    begins_a_task: bool = False
    messages: tuple[int, ...] = ()
    late: bool = False

    @property
    def is_beside_a_task(self) -> bool:
        return self.role == "user" and not self.begins_a_task

    @property
    def words(self) -> str:
        return "late results" if self.late else ", ".join(map(str, self.messages))


class Reading:
    """Compares what has been accepted and delivered with what the model is given to read.

    What a model refused is left out from then on, with all of the task, and what was waiting for that.
    """

    def __init__(self, scene: Scenario, deliveries: Deliveries) -> None:
        self._scene = scene
        self._deliveries = deliveries
        self._answers = 0
        self._came_at: dict[int, int] = {}
        self._rows: list[_Row] = []

    def accepted(self, post: Post) -> None:
        self._came_at[post.number] = self._answers

    def answered(self) -> None:
        """The model has answered, or a run begins: what was there before must be in the next request."""
        self._answers += 1

    def row_added(self, row: dict[str, Any]) -> None:
        if is_refused(row):
            self._leave_out_the_task()
            return
        metadata = row.get("metadata") or {}
        is_prompt = row["role"] == "user" and metadata.get("source") != "hook" and not _BESIDE & metadata.keys()
        self._rows.append(_Row(row["role"], is_prompt, *_sought(row["role"], text_of(row))))

    def _leave_out_the_task(self) -> None:
        rows = self._rows
        begin = max((place for place, row in enumerate(rows) if row.begins_a_task), default=0)
        while begin > 0 and rows[begin - 1].is_beside_a_task:
            begin -= 1
        rows[begin:] = [_Row("user", begins_a_task=True)]

    def asked(self, request: ChatRequest, *, is_whole: bool) -> None:
        """`is_whole`: the model is to see the whole conversation."""
        for post in self._deliveries.waiting():
            if self._came_at.get(post.number, self._answers) < self._answers:
                self._scene.blame(f"Message {post.number} came before the last answer, and is not in the request.")
        if not is_whole:
            return
        texts = (text_of(each.model_dump(include={"content"})) for each in request.messages if each.role == "user")
        read = [words for text in texts if (words := _Row("user", False, *_sought("user", text)).words)]
        expected = [row.words for row in self._rows if row.words]
        if read != expected:
            self._scene.blame(f"The log has the messages {expected}; the model reads {read}.")


def is_refused(row: dict[str, Any]) -> bool:
    """Whether this is what a model said when it refused to answer."""
    return bool((row.get("metadata") or {}).get("refused"))


def _sought(role: str, text: str) -> tuple[tuple[int, ...], bool]:
    return (tuple(marks(text)), text.startswith(LATE_PREFIX)) if role == "user" else ((), False)
