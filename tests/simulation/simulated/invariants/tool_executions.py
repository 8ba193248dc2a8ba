"""What tools really did: when each began and how it ended, against what the agent says of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from simulated.scenario import Scenario

    from .runs import RunRecord

    Row = dict[str, Any]

End = Literal["returned", "refused", "raised", "cancelled", "cancelled itself"]

# The agent's own word for an answer that an urgent message cut.
INTERRUPTED = "interrupted"
# A tool is cancelled a callback after its time.
_SLACK_S = 0.05
# Where these are, a result is not what the tool made of it.
_MEDDLING = {
    "denying hooks",
    "modifying hooks",
    "asking hooks",
    "broken hooks",
    "slow hooks",
    "hanging hooks",
    "deaf hooks",
    "odd tools",
}


@dataclass(slots=True)
class Use:
    """A tool at work. `mark` stands in its input, and is its own even where a model gives an id twice.

    `is_harmless`: it has no side effects. `end` is how it ended, if it has.
    """

    mark: str
    tool: str
    is_harmless: bool
    timeout_s: float
    began_s: float
    task: asyncio.Task[Any] | None
    call_id: str = ""
    is_early: bool = False
    end: End | None = None
    ended_s: float = 0.0
    text: str | None = None


class Uses:
    """Follows every use of a tool from its beginning to what is told of it."""

    def __init__(self, scene: Scenario) -> None:
        self._scene = scene
        self.begin()

    def begin(self) -> None:
        """A run begins."""
        self._uses: dict[str, Use] = {}
        self._ids: dict[str, str] = {}
        self._committed: dict[str, str] = {}
        self._to_keep: list[Use] = []
        self._before = 0
        self._told: list[dict[str, Any]] | None = None
        self.store_failed = False

    def prepared(self, data: dict[str, Any]) -> None:
        """The agent tells that it is about to begin a call."""
        self._ids[data["tool_input"].get("call", "")] = data["tool_call_id"]

    def row_added(self, row: Row) -> None:
        for call in row.get("tool_calls") or ():
            mark = json.loads(call["function"]["arguments"]).get("call", "")
            self._committed[mark] = call["id"]
            if self._ids.get(mark, call["id"]) != call["id"]:
                self._scene.blame(f"The call {self._ids[mark]} stands in the log as {call['id']}.")

    def began(self, use: Use) -> Use:
        """A tool has begun."""
        use.call_id = self._ids.get(use.mark, use.mark)
        use.is_early = use.mark not in self._committed
        if use.is_early:
            self._scene.count("tool began early")
        if use.is_early and not use.is_harmless:
            self._scene.blame(f"The tool '{use.tool}' has side effects, and began before its call stood in the log.")
        if use.mark in self._uses:
            self._scene.blame(f"The call {use.call_id} was executed twice.")
        self._uses[use.mark] = use
        return use

    def of(self, mark: str) -> Use | None:
        return self._uses.get(mark)

    def finished(self) -> list[Use]:
        """Those whose results the model is to read, where it can be told from their text."""
        uses = (use for use in self._uses.values() if use.end == "returned" and use.mark in self._committed)
        return [use for use in uses if use.mark in (use.text or "") and not self._is_deaf(use)]

    def answered(self, finish_reason: str | None) -> None:
        """The agent has told of an answer. One that an urgent message cut keeps the calls that have begun."""
        if finish_reason == INTERRUPTED:
            self._to_keep = [use for use in list(self._uses.values())[self._before :] if use.is_early]

    def asked(self) -> None:
        """The model is asked: calls of an answer that came to nothing have ended."""
        for use in self._uses.values():
            if use.is_early and use.end is None and use.mark not in self._committed and not self._is_deaf(use):
                self._scene.blame(f"The tool '{use.tool}' is still at work, and nobody will hear of its result.")
        for use in self._to_keep:
            if use.mark not in self._committed and "modifying hooks" not in self._scene.features:
                self._scene.blame(
                    f"The tool '{use.tool}' had begun; an urgent message came, and its call is forgotten."
                )
        self._to_keep, self._before = [], len(self._uses)

    def told(self, outcomes: list[dict[str, Any]]) -> None:
        """The agent says how each call ended."""
        self._told = outcomes

    def returned(self, run: RunRecord) -> None:
        """The run is over."""
        if run.ended_by_itself:
            for use in self._uses.values():
                self._check_cause(use, run)
        if self._told is not None and not run.was_abandoned:
            self._check_told(self._told)

    def _check_cause(self, use: Use, run: RunRecord) -> None:
        """Nobody is cancelled in a run that went to its own end, except for a reason."""
        was_dropped = use.mark not in self._committed
        timed_out = use.ended_s >= use.began_s + use.timeout_s - _SLACK_S
        if use.end == "cancelled" and not (was_dropped or timed_out or run.is_out_of_time(use.ended_s)):
            self._scene.blame(f"The tool '{use.tool}' was cancelled, and neither its time was up nor the run's.")

    def _check_told(self, outcomes: list[dict[str, Any]]) -> None:
        ids = [each["id"] for each in outcomes]
        for each in dict.fromkeys(ids):
            if ids.count(each) > 1:
                self._scene.blame(f"The end tells {ids.count(each)} times what became of the call {each}.")
        wanted = {use.call_id: use.tool for use in self._uses.values()}
        if not self.store_failed:
            wanted |= dict.fromkeys(self._committed.values(), "a tool")
        for call_id, tool in wanted.items():
            if call_id not in ids:
                self._scene.blame(f"The end does not tell what became of the call {call_id} of {tool}.")
        for outcome in outcomes:
            uses = [self._uses.get(mark) for mark in self._marks(outcome["id"])]
            expected = set[str]().union(*map(self._expected, uses)) or {"cancelled"}
            if outcome["outcome"] not in expected:
                really = " or ".join(sorted(expected))
                self._scene.blame(f"The end tells that {outcome['tool']} is '{outcome['outcome']}'; it is {really}.")

    def _marks(self, call_id: str) -> list[str]:
        """Whose id this is: where an answer came to nothing, a call of the next one may have the id of one of its."""
        return [mark for mark, each in {**self._committed, **self._ids}.items() if each == call_id]

    def _expected(self, use: Use | None) -> set[str]:
        if use is None:
            return {"cancelled", "failed"}
        cut = {"cancelled"} if use.is_harmless else {"unknown"}
        match use.end:
            case "cancelled" | "cancelled itself" | None:
                return cut
            case "returned":
                known = {"finished"}
            case _:
                known = {"failed"}
        if _MEDDLING & self._scene.features:
            known = {"finished", "failed"}
        return known | cut if self._is_deaf(use) else known

    def _is_deaf(self, use: Use) -> bool:
        return use.task in self._scene.deaf
