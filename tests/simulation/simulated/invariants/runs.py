"""One run, as the judges see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulated.posts import Post


# A run whose time is up has so long for its last answer.
_LAST_WORD_S = 60.0
_SLACK_S = 1e-6


@dataclass(frozen=True, slots=True)
class StopRecord:
    """A stop that the agent took.

    It is `certain` to have met the run at work if the agent itself said so before it told of its end. `line` is the
    place of the stop in the story.
    """

    at_s: float
    immediate: bool
    certain: bool
    line: int


@dataclass(slots=True)
class RunRecord:
    """A run, and the life of the process that it is in.

    `id` is the agent's name for it, once that is known.
    `stops` are those that the agent took, `cancelled_s` is when its task was cancelled from outside.

    `was_ending` says that its outcome was decided when it was stopped: it only had to be told of.
    `was_abandoned` says that it took so long over its end that the agent may have gone on without the rest.
    `was_out_of_time` says that it had not come to its last answer long after its time was up.
    `deadline_s` is when its time is up, where that is limited.
    `statuses` holds what each witness said of how it ended: the events, the progress, the session.
    """

    number: int
    prompt: Post
    life: int
    begins_a_life: bool = False
    model_calls: int = 0
    id: str | None = None
    entered: bool = False
    over: bool = False
    killed: bool = False
    stops: list[StopRecord] = field(default_factory=list)
    cancelled_s: float | None = None
    answer: str | None = None
    error: BaseException | None = None
    was_ending: bool = False
    was_abandoned: bool = False
    was_out_of_time: bool = False
    deadline_s: float | None = None
    statuses: dict[str, str] = field(default_factory=dict)

    @property
    def was_denied(self) -> bool:
        return (self.answer or "").startswith("Operation denied")

    @property
    def ended_by_itself(self) -> bool:
        """Whether it went to its own end: it was not cut, did not fail and was not denied."""
        return not (self.cut_s is not None or self.was_out_of_time or self.error is not None or self.was_denied)

    def is_out_of_time(self, at_s: float) -> bool:
        return self.deadline_s is not None and at_s >= self.deadline_s

    def ends(self, at_s: float) -> None:
        """It tells of its end: of its own accord, or is it stopped, since its time was up for so long?"""
        self.was_out_of_time = self.is_out_of_time(at_s - _LAST_WORD_S + _SLACK_S)

    @property
    def is_certainly_stopped(self) -> bool:
        return not self.was_ending and any(stop.certain for stop in self.stops)

    @property
    def cut_s(self) -> float | None:
        """When somebody first ended it."""
        cuts = [stop.at_s for stop in self.stops[:1]]
        if self.cancelled_s is not None:
            cuts.append(self.cancelled_s)
        return min(cuts, default=None)

    @property
    def harshly_cut_s(self) -> float | None:
        """When its tools were to end at once."""
        cuts = [stop.at_s for stop in self.stops if stop.immediate]
        if self.cancelled_s is not None:
            cuts.append(self.cancelled_s)
        return min(cuts, default=None)
