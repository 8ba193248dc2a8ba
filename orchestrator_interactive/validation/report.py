"""Report of a validation: one finding per rule of a contract, and its rendering as text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ModuleType = Literal["orchestrator", "context", "provider", "tool", "hook"]
MODULE_TYPES: tuple[ModuleType, ...] = get_args(ModuleType)
WITH_ARTICLE: Mapping[ModuleType, str] = {
    "orchestrator": "an orchestrator",
    "context": "a context",
    "provider": "a provider",
    "tool": "a tool",
    "hook": "a hook",
}
Part = Literal["structure", "behaviour"]
Outcome = Literal["passed", "failed", "warning", "not checked"]


@dataclass(frozen=True, slots=True)
class ValidationFinding:
    """Outcome of one rule.

    Args:
        rule: the rule as a sentence without its full stop.
        outcome: "failed" if a required rule is violated, "warning" if a recommended one is.
        problem: the violations, as sentences; blank if the rule passed.
        fix: remedy for a violation; blank if the rule passed.
        section: section of the contract that states the rule.
        module_type: the contract that was checked, if the rule belongs to one type.
        key: key of the rule in `rules.md`.
    """

    rule: str
    outcome: Outcome
    problem: str = ""
    fix: str = ""
    section: str = "Validation Checklist"
    part: Part = "behaviour"
    module_type: ModuleType | None = None
    key: str = ""


@dataclass(frozen=True, slots=True)
class ValidatedModule:
    """The validated module. `detected_by` is how its type was detected; `module_type` is `None` until then.

    `others` are the other types that it mounts, each with how it was detected.
    """

    path: str
    name: str
    module_type: ModuleType | None = None
    detected_by: str = ""
    others: tuple[tuple[ModuleType, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """All findings about one module, in the order of the checks."""

    subject: ValidatedModule
    findings: tuple[ValidationFinding, ...]

    @property
    def passed(self) -> bool:
        """Whether no required rule is violated; warnings are allowed."""
        return not self.of("failed")

    @property
    def complete(self) -> bool:
        """Whether all structure rules were checked; they are not if the module mounts nothing without options."""
        return not any(each.outcome == "not checked" and each.part == "structure" for each in self.findings)

    def of(self, outcome: Outcome) -> tuple[ValidationFinding, ...]:
        return tuple(finding for finding in self.findings if finding.outcome == outcome)

    def summary(self) -> str:
        """Return the verdict and the counts in one line."""
        counts = Counter(finding.outcome for finding in self.findings)
        verdict = "Failed" if not self.passed else "Passed" if self.complete else "Not validated"
        parts = [f"{counts['passed']} of {_number(len(self.findings), 'check')} passed"]
        parts += [f"{counts['failed']} failed"] if counts["failed"] else []
        parts += [_number(counts["warning"], "warning")] if counts["warning"] else []
        parts += [f"{counts['not checked']} not checked"] if counts["not checked"] else []
        return f"{verdict}: {', '.join(parts)}."


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def rendered(report: Report, paint: Callable[[Outcome, str], str] = lambda _outcome, text: text) -> str:
    """Return the report as text; `paint` may colour the outcome of a rule."""
    lines = [f"Module {report.subject.name} in {report.subject.path}"]
    kind, by = report.subject.module_type, report.subject.detected_by
    lines.append("Type: unknown." if kind is None else f"Type: {kind} ({by}).")
    lines += [f"Also: {module_type} ({by})." for module_type, by in report.subject.others]
    title = ""
    for finding in sorted(report.findings, key=lambda finding: finding.part != "structure"):
        if title != (title := _title(report, finding)):
            lines += ["", title]
        lines += _entry(finding, report.subject, paint)
    verdict, _, counts = report.summary().partition(":")
    outcome: Outcome = "failed" if not report.passed else "passed" if report.complete else "not checked"
    return "\n".join([*lines, "", f"{paint(outcome, verdict)}:{counts}"])


def _title(report: Report, finding: ValidationFinding) -> str:
    """Return the heading of a finding: behaviour is grouped by type if the module has several."""
    types = {each.module_type for each in report.findings if each.module_type}
    if finding.part == "behaviour" and finding.module_type and len(types) > 1:
        return f"Behaviour as {WITH_ARTICLE[finding.module_type]}"
    return finding.part.title()


def _entry(finding: ValidationFinding, subject: ValidatedModule, paint: Callable[[Outcome, str], str]) -> Iterator[str]:
    width = len("not checked")
    yield f"  {paint(finding.outcome, finding.outcome.ljust(width))}  {finding.rule}"
    if finding.outcome == "passed":
        return
    module_type = finding.module_type or subject.module_type
    contract = f"{module_type.title()} Contract" if module_type else "Module Contracts"
    margin = " " * (width + 4)
    yield f"{margin}{'reason' if finding.outcome == 'not checked' else 'wrong'}: {finding.problem}"
    yield f"{margin}fix: {finding.fix} ({contract}: {finding.section})"
