"""Records of runs, stops, model calls and tool calls, as the actors observe them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import Any, Literal

from orchestrator_interactive.kernel.contracts.messages import ChatRequest
from simulated.agent.messages import Post
from simulated.simulation import Simulation

# A run whose time limit is reached has this long for its last answer.
_LAST_ANSWER_S = 60.0
_TOLERANCE_S = 1e-6
# Hooks that change results.
CHANGING_HOOKS = {
    *("denying hooks", "modifying hooks", "approval hooks", "broken hooks", "slow hooks", "hanging hooks"),
    "uncancellable hooks",
}
# The finish reason of an answer that an urgent message interrupted.
INTERRUPTED = "interrupted"
# The failure of a model call that counts as a refusal.
FILTERED = "ContentFilterError"


def is_answered(event: str, data: dict[str, Any]) -> bool:
    """Return whether the event is that of an answer, or of a refusal by a content filter."""
    return event == "provider:response" or (event == "provider:error" and data["error"]["type"] == FILTERED)


class Invariant:
    """Base class. A subclass has a method `on_EVENT` for each event of `Invariants.emit` that it observes."""

    def __init__(self, sim: Simulation):
        self.sim = sim
        self.violation = sim.violation


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """Options of the loop, and the `providers` in the order in which they are mounted."""

    stop_grace_s: float
    stall_timeout_s: float
    max_iterations: int
    max_waiting: int
    max_retries: int
    retry_base_delay_s: float
    tool_timeout_s: float
    max_result_chars: int
    max_tokens: int | None
    max_cost_usd: Decimal | None
    max_duration_s: float | None
    providers: tuple[str, ...]

    @classmethod
    def draw(cls, rng: random.Random, features: AbstractSet[str]) -> LoopOptions:
        return cls(
            stop_grace_s=rng.choice([0.0, 0.5, 2.0]),
            stall_timeout_s=rng.choice([5.0, 120.0]),
            max_iterations=rng.choice([2, 5, 100]),
            max_waiting=2 if "small queue" in features else 100,
            max_retries=rng.choice([0, 1, 3]),
            retry_base_delay_s=rng.choice([0.0, 1.0]),
            tool_timeout_s=rng.choice([2.0, 600.0]) if "tool timeouts" in features else 600.0,
            max_result_chars=100 if "capped results" in features else 100_000,
            max_tokens=rng.choice([60, 300]) if "token limit" in features else None,
            max_cost_usd=Decimal("0.03") if "cost limit" in features else None,
            max_duration_s=rng.choice([1.0, 10.0]) if "time limit" in features else None,
            providers=("chaos", "spare", "last")[: rng.choice([2, 3]) if "fallback models" in features else 1],
        )

    def config(self) -> dict[str, Any]:
        """Return the options for the mount plan."""
        return {name: value for name, value in asdict(self).items() if name != "providers" and value is not None}


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A request as the model gets it. `can_choose`: the model supports tool_choice. `is_whole`: nothing is cut."""

    name: str
    request: ChatRequest
    can_choose: bool
    token_budget: int | None
    is_whole: bool


@dataclass(slots=True)
class ToolCallRecord:
    """An execution of a tool. `mark` is in its input, and unique even if a call id is not."""

    mark: str
    tool: str
    is_side_effect_free: bool
    timeout_s: float
    began_s: float
    task: asyncio.Task[Any] | None
    call_id: str = ""
    is_early: bool = False
    end: Literal["returned", "refused", "raised", "cancelled", "cancelled itself"] | None = None
    ended_s: float = 0.0
    text: str | None = None


@dataclass(frozen=True, slots=True)
class StopRecord:
    """A stop that the agent accepted. It is `certain` if the agent confirmed it before the run reported its end.

    `line` is its place in the trace.
    """

    at_s: float
    immediate: bool
    certain: bool
    line: int


@dataclass(slots=True)
class RunRecord:
    """A run.

    Attributes:
        id: the agent's id of the run, once known.
        stops: those that the agent accepted.
        cancelled_s: when its task was cancelled from outside.
        was_ending: its outcome was decided when it was stopped.
        was_abandoned: its end took so long that the agent may have continued without the rest.
        was_out_of_time: it had not begun its last answer long after its time limit.
        deadline_s: its time limit.
        statuses: how it ended, by source: events, progress, session.
    """

    number: int
    prompt: Post
    process: int
    begins_a_process: bool = False
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
        """Whether it was not interrupted, did not fail and was not denied."""
        return not (self.cut_s is not None or self.was_out_of_time or self.error is not None or self.was_denied)

    def is_out_of_time(self, at_s: float) -> bool:
        return self.deadline_s is not None and at_s >= self.deadline_s

    def reports_end(self, at_s: float) -> None:
        self.was_out_of_time = self.is_out_of_time(at_s - _LAST_ANSWER_S + _TOLERANCE_S)

    @property
    def is_certainly_stopped(self) -> bool:
        return not self.was_ending and any(stop.certain for stop in self.stops)

    @property
    def cut_s(self) -> float | None:
        """When the first stop or cancellation came."""
        return min([*(s.at_s for s in self.stops[:1]), *_optional(self.cancelled_s)], default=None)

    @property
    def immediately_cut_s(self) -> float | None:
        """When its tools had to end at once."""
        return min([*(s.at_s for s in self.stops if s.immediate), *_optional(self.cancelled_s)], default=None)


def _optional(value: float | None) -> tuple[float, ...]:
    return () if value is None else (value,)
