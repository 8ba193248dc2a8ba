"""A report as a person reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator_interactive.kernel.validation.report import Finding, Outcome, Part, Report, Subject

    Paint = Callable[[Outcome, str], str]

_WIDTH = len("not checked")
_PARTS: tuple[tuple[Part, str], ...] = (("structure", "Structure"), ("behaviour", "Behaviour"))


def rendered(report: Report, paint: Paint = lambda _outcome, text: text) -> str:
    """The report, line by line; `paint` may colour the word that says what became of a check."""
    return "\n".join(_lines(report, paint))


def _lines(report: Report, paint: Paint) -> Iterator[str]:
    yield from _heading(report.subject)
    for part, title in _PARTS:
        if findings := report.part(part):
            yield ""
            yield title
        for finding in findings:
            yield from _entry(finding, report.subject, paint)
    yield ""
    verdict, _, counts = report.summary().partition(":")
    outcome: Outcome = "failed" if not report.passed else "passed" if report.complete else "not checked"
    yield f"{paint(outcome, verdict)}:{counts}"


def _heading(subject: Subject) -> Iterator[str]:
    yield f"Module {subject.name} in {subject.path}"
    if subject.module_type is None:
        yield "Type: unknown."
    else:
        yield f"Type: {subject.module_type} ({subject.recognised_by})."


def _entry(finding: Finding, subject: Subject, paint: Paint) -> Iterator[str]:
    margin = " " * (_WIDTH + 4)
    yield f"  {paint(finding.outcome, finding.outcome.ljust(_WIDTH))}  {finding.check.rule}"
    if finding.outcome == "passed":
        return
    yield f"{margin}{'reason' if finding.outcome == 'not checked' else 'wrong'}: {finding.problem}"
    yield f"{margin}fix: {finding.fix} ({contract(subject)}: {finding.check.section})"


def contract(subject: Subject) -> str:
    """The name of the document that a module of this type is held to."""
    return f"{subject.module_type.title()} Contract" if subject.module_type else "Module Contracts"
