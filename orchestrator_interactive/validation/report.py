"""Report of a validation: the rules of `rules.md`, the finding of each, and its rendering as text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ModuleType = Literal["orchestrator", "context", "provider", "tool", "hook"]
MODULE_TYPES: tuple[ModuleType, ...] = get_args(ModuleType)
Part = Literal["structure", "behaviour"]
Outcome = Literal["passed", "failed", "warning", "not checked"]
# Outcome of a violation, and the part of the report.
_LEVELS: Mapping[str, tuple[Outcome, Part]] = {
    "structure": ("failed", "structure"),
    "required": ("failed", "behaviour"),
    "recommended": ("warning", "behaviour"),
}


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


def _read_rules() -> dict[str, dict[str, ValidationFinding]]:
    rules: dict[str, dict[str, ValidationFinding]] = {}
    for line in files(__package__).joinpath("rules.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            table = rules.setdefault(line.removeprefix("## "), {})
        elif line.startswith("| `"):
            key, level, rule, fix, section = (cell.strip(" `") for cell in line.strip("|").split(" | "))
            outcome, part = _LEVELS[level]
            table[key] = ValidationFinding(rule, outcome, "", fix, section, part, key=key)
    return rules


# The rules of each table of `rules.md` by their key, as findings of their violation.
RULES = _read_rules()


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
        return not any(each.part == "structure" for each in self.of("not checked"))

    def of(self, outcome: Outcome) -> tuple[ValidationFinding, ...]:
        return tuple(finding for finding in self.findings if finding.outcome == outcome)


def rendered(report: Report, paint: Callable[[Outcome, str], str] = lambda _outcome, text: text) -> str:
    """Return the report as text; `paint` may colour the outcome of a rule."""
    subject = report.subject
    lines = [f"Module {subject.name} in {subject.path}"]
    lines.append(f"Type: {subject.module_type} ({subject.detected_by})." if subject.module_type else "Type: unknown.")
    lines += [f"Also: {module_type} ({by})." for module_type, by in subject.others]
    several_types, title = len({each.module_type for each in report.findings if each.module_type}) > 1, ""
    margin = " " * (len("not checked") + 4)
    for finding in sorted(report.findings, key=lambda finding: finding.part != "structure"):
        as_type = finding.part == "behaviour" and finding.module_type and several_types
        previous, title = title, f"Behaviour as {article(finding.module_type)}" if as_type else finding.part.title()
        lines += ["", title] if title != previous else []
        lines.append(f"  {paint(finding.outcome, finding.outcome.ljust(len('not checked')))}  {finding.rule}")
        if finding.outcome != "passed":
            module_type = finding.module_type or subject.module_type
            contract = f"{module_type.title()} Contract" if module_type else "Module Contracts"
            lines.append(f"{margin}{'reason' if finding.outcome == 'not checked' else 'wrong'}: {finding.problem}")
            lines.append(f"{margin}fix: {finding.fix} ({contract}: {finding.section})")
    return "\n".join([*lines, "", _summary(report, paint)])


def _summary(report: Report, paint: Callable[[Outcome, str], str]) -> str:
    """Return the verdict and the counts in one line."""
    counts, total = Counter(finding.outcome for finding in report.findings), len(report.findings)
    parts = [f"{counts['passed']} of {total} check{'s' * (total != 1)} passed"]
    parts += [f"{counts['failed']} failed"] if counts["failed"] else []
    parts += [f"{counts['warning']} warning{'s' * (counts['warning'] != 1)}"] if counts["warning"] else []
    parts += [f"{counts['not checked']} not checked"] if counts["not checked"] else []
    verdict = paint("not checked", "Not validated") if not report.complete else paint("passed", "Passed")
    return f"{verdict if report.passed else paint('failed', 'Failed')}: {', '.join(parts)}."


def article(name: str | None) -> str:
    """Return a name with its indefinite article."""
    return f"{'an' if name and name[0] in 'aeiouAEIOU' else 'a'} {name}"
