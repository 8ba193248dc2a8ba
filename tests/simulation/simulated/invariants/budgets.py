"""What a run used up is told, and a run that has used up its share answers once more, without tools."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.messages import Usage
    from simulated.scenario import Scenario

    from .loop_options import Terms
    from .runs import RunRecord

_KEYS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_MOST_CONTINUATIONS = 3
_CUT_SHORT = {"max_tokens", "length"}


class Spending:
    """Adds up what the answers cost. `limits` are those that the run has reached, each from the moment that it had to
    know of it.
    """

    def __init__(self, scene: Scenario, terms: Terms) -> None:
        self._scene = scene
        self._terms = terms
        self._conversation = _nothing()
        self._run = _nothing()
        self.begin()

    def begin(self) -> None:
        self._run = _nothing()
        self._call = [_nothing()]
        self._summary = _nothing()
        self._began_s = self._scene.now()
        self.limits: list[str] = []
        self._answers = self._turns = 0
        self._last_reason: str | None = None
        self._is_owed = False
        self._continued = 0

    def thinks(self) -> None:
        """The agent is about to ask the model: how far may it go?"""
        terms, spent = self._terms, self._run
        tokens = spent["input_tokens"] + spent["output_tokens"]
        reached = {
            "max_iterations": self._turns >= terms.max_iterations,
            "max_tokens": terms.max_tokens is not None and tokens >= terms.max_tokens,
            "max_cost_usd": terms.max_cost_usd is not None and (spent["cost_usd"] or 0) >= terms.max_cost_usd,
            "max_duration_s": terms.max_duration_s is not None
            and self._scene.now() - self._began_s >= terms.max_duration_s,
        }
        if not self.limits and any(reached.values()):
            self._is_owed = True
        self.limits = [name for name, is_so in reached.items() if is_so or name in self.limits]

    def row_added(self, row: dict[str, Any]) -> None:
        if row.get("tool_calls"):
            self._turns, self._continued = self._turns + 1, 0
        metadata = row.get("metadata") or {}
        if "injections" in metadata or "results" in metadata:
            self._is_owed, self._continued = True, 0  # it is to be answered

    def reads(self, usage: Usage | None) -> None:
        """A model says at once what a call has used up so far; one that is cut has cost that much."""
        self._call = [_of(usage)]

    def completed(self, usage: Usage | None) -> None:
        """A model has given a whole answer."""
        self._call.append(_of(usage))

    def answered(self, usage: Usage | None, finish_reason: str | None) -> None:
        """The agent has told of an answer."""
        self._answers += 1
        self._last_reason = finish_reason
        if _of(usage) not in self._call:
            self._scene.blame(f"The agent tells of an answer that used up {_of(usage)}; it used up {self._call}.")
        self._close_call(_of(usage))
        if self.limits and not self._is_owed:
            self._scene.blame(f"The run goes on beyond its limit ({', '.join(self.limits)}).")
        self._continued = self._continued + 1 if finish_reason in _CUT_SHORT else 0
        self._is_owed = 0 < self._continued <= _MOST_CONTINUATIONS
        if self._continued > _MOST_CONTINUATIONS + 1:
            self._scene.blame(f"An answer was continued {self._continued - 1} times.")

    def failed(self) -> None:
        """The agent has told of a call that failed."""
        self._close_call(self._call[0])

    def summed_up(self, usage: Usage | None) -> None:
        """A model has made a summary for the context."""
        self._summary = _of(usage)

    def compacted(self, told: dict[str, Any] | None) -> None:
        """The context tells what its summary has used up, where it has one."""
        if told is not None and told != _as_told(self._summary):
            self._scene.blame(f"A summary used up {self._summary}; told is {told}.")
        if told is not None:
            _add_all(self._run, self._summary)

    def told(self, run: RunRecord, data: dict[str, Any]) -> None:
        """The agent tells how the run ended, and what it has used up."""
        for used in self._call:  # nobody was told of the call that a stop has cut
            if _as_told(_sum(self._run, used)) == data["usage"]:
                self._close_call(used)
                break
        self._check("run", self._run, data["usage"])
        _add_all(self._conversation, self._run)
        if self._answers or not run.begins_a_life:
            self._check("conversation", self._conversation, data["conversation_usage"])
        if run.error is None and run.cut_s is None and data["status"] != "error" and data.get("reason") != "denied":
            self._check_reason(run, data)
        if "reason" in data:
            self._scene.count(f"run incomplete: {data['reason']}")

    def restarted(self, rows: list[dict[str, Any]]) -> None:
        """The process died, and another has only what the log tells."""
        self._conversation = _nothing()
        for row in rows:
            if usage := (row.get("metadata") or {}).get("usage"):
                cost = usage["cost_usd"]
                _add_all(self._conversation, {**usage, "cost_usd": None if cost is None else Decimal(cost)})

    def _close_call(self, used: dict[str, Any]) -> None:
        _add_all(self._run, used)
        self._call = [_nothing()]

    def _check_reason(self, run: RunRecord, data: dict[str, Any]) -> None:
        if run.was_out_of_time:
            expected = {"max_duration_s"}
        elif self._last_reason == "refusal":
            expected = {"refusal"}
        elif self._last_reason in _CUT_SHORT:
            expected = {"length"}
        else:
            expected = set(self.limits) or {None}
        if data.get("reason") not in expected:
            words = " or ".join(str(each) for each in expected)
            self._scene.blame(f"The run ended because of '{data.get('reason')}'; it is {words}.")
        if (data["status"] == "incomplete") != (data.get("reason") is not None):
            self._scene.blame(f"The run ended as '{data['status']}', and the reason is '{data.get('reason')}'.")

    def _check(self, whose: str, expected: dict[str, Any], told: dict[str, Any]) -> None:
        if told != _as_told(expected):
            self._scene.blame(f"The {whose} used up {expected}; people are told {told}.")


def _nothing() -> dict[str, Any]:
    return {**dict.fromkeys(_KEYS, 0), "cost_usd": None}


def _as_told(total: dict[str, Any]) -> dict[str, Any]:
    cost = total["cost_usd"]
    return {**total, "cost_usd": None if cost is None else str(cost)}


def _of(usage: Usage | None) -> dict[str, Any]:
    if usage is None:
        return _nothing()
    return {**{key: getattr(usage, key) or 0 for key in _KEYS}, "cost_usd": usage.cost_usd}


def _sum(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    total = dict(one)
    _add_all(total, other)
    return total


def _add_all(total: dict[str, Any], more: dict[str, Any]) -> None:
    for key in _KEYS:
        total[key] += more[key]
    if more["cost_usd"] is not None:
        total["cost_usd"] = (total["cost_usd"] or Decimal()) + more["cost_usd"]
