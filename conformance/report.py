"""Reports as a table in Markdown, and as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from conformance.scenarios import Scenario

Verdict = Literal["passed", "failed", "not tried"]
_SIGNS: dict[Verdict, str] = {"passed": "yes", "failed": "**no**", "not tried": "-"}


@dataclass(frozen=True)
class Result:
    """The result of one scenario; ``measured_s`` has times in seconds by their names."""

    scenario: str
    verdict: Verdict
    detail: str = ""
    measured_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class AgentReport:
    agent: str
    version: str
    results: tuple[Result, ...]

    def of(self, scenario: str) -> Result:
        return next(each for each in self.results if each.scenario == scenario)

    @property
    def failures(self) -> list[Result]:
        return [each for each in self.results if each.verdict == "failed"]


def as_json(reports: Sequence[AgentReport], date: str) -> str:
    return json.dumps({"date": date, "agents": [asdict(each) for each in reports]}, indent=2, ensure_ascii=False) + "\n"


def as_markdown(reports: Sequence[AgentReport], scenarios: Sequence[Scenario], date: str) -> str:
    """Return a table of scenarios and agents, and below it why an agent failed."""
    titles = [f"{each.agent} {each.version}".strip() for each in reports]
    lines = [f"Measured on {date}.", "", _row(["", *titles]), _row(["---", *(["---"] * len(titles))])]
    for scenario in scenarios:
        signs = (_SIGNS[each.of(scenario.name).verdict] for each in reports)
        lines.append(_row([f"`{scenario.name}`: {scenario.promise}", *signs]))
    for report, title in zip(reports, titles, strict=True):
        if report.failures:
            lines += ["", f"{title}:", ""]
            lines += [f"- `{each.scenario}`: {each.detail}" for each in report.failures]
    return "\n".join((*lines, ""))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
