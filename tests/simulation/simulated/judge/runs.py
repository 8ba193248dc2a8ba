"""One run, as the judges see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulated.posts import Post


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

    `stops` are those that the agent took, `cancelled_s` is when its task was cancelled from outside.


    `was_ending` says that its outcome was decided when it was stopped: it only had to be told of.
    `statuses` holds what each witness said of how it ended: the events, the progress, the session.
    """

    number: int
    prompt: Post
    life: int
    model_calls: int = 0
    entered: bool = False
    over: bool = False
    killed: bool = False
    stops: list[StopRecord] = field(default_factory=list)
    cancelled_s: float | None = None
    answer: str | None = None
    error: BaseException | None = None
    was_ending: bool = False
    statuses: dict[str, str] = field(default_factory=dict)

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
