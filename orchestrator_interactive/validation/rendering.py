"""Render a report as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.validation.report import WITH_ARTICLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator_interactive.validation.report import Outcome, Part, Report, ValidatedModule, ValidationFinding

    Paint = Callable[[Outcome, str], str]

_WIDTH = len("not checked")
_PARTS: tuple[tuple[Part, str], ...] = (("structure", "Structure"), ("behaviour", "Behaviour"))


def rendered(report: Report, paint: Paint = lambda _outcome, text: text) -> str:
    """Return the report as text; `paint` may colour the outcome of a check."""
    return "\n".join(_lines(report, paint))


def _lines(report: Report, paint: Paint) -> Iterator[str]:
    yield from _heading(report.subject)
    for title, findings in _groups(report):
        yield ""
        yield title
        for finding in findings:
            yield from _entry(finding, report.subject, paint)
    yield ""
    verdict, _, counts = report.summary().partition(":")
    outcome: Outcome = "failed" if not report.passed else "passed" if report.complete else "not checked"
    yield f"{paint(outcome, verdict)}:{counts}"


def _groups(report: Report) -> Iterator[tuple[str, list[ValidationFinding]]]:
    """Yield titles with their findings: behaviour is grouped by type if the module has several."""
    groups: dict[str, list[ValidationFinding]] = {}
    several = len({finding.module_type for finding in report.findings if finding.module_type}) > 1
    for part, title in _PARTS:
        for finding in report.part(part):
            of_type = f" as {WITH_ARTICLE[finding.module_type]}" if several and finding.module_type else ""
            groups.setdefault(title + (of_type if part == "behaviour" else ""), []).append(finding)
    yield from groups.items()


def _heading(subject: ValidatedModule) -> Iterator[str]:
    yield f"Module {subject.name} in {subject.path}"
    if subject.module_type is None:
        yield "Type: unknown."
    else:
        yield f"Type: {subject.module_type} ({subject.detected_by})."
    for module_type, by in subject.others:
        yield f"Also: {module_type} ({by})."


def _entry(finding: ValidationFinding, subject: ValidatedModule, paint: Paint) -> Iterator[str]:
    margin = " " * (_WIDTH + 4)
    yield f"  {paint(finding.outcome, finding.outcome.ljust(_WIDTH))}  {finding.check.rule}"
    if finding.outcome == "passed":
        return
    yield f"{margin}{'reason' if finding.outcome == 'not checked' else 'wrong'}: {finding.problem}"
    yield f"{margin}fix: {finding.fix} ({_contract(finding, subject)}: {finding.check.section})"


def _contract(finding: ValidationFinding, subject: ValidatedModule) -> str:
    """Return the name of the contract document."""
    module_type = finding.module_type or subject.module_type
    return f"{module_type.title()} Contract" if module_type else "Module Contracts"
