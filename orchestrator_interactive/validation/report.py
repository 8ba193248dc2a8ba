"""Report of a validation: the checked rules of a contract and their outcomes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Mapping

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
class Check:
    """One rule of a contract.

    Args:
        rule: the rule as a sentence without its full stop.
        section: section of the contract that states it.
        fix: remedy for a violation.
        required: whether a violation fails the module; otherwise it is a warning. (Required and Recommended in the
            contracts' checklists.)
    """

    rule: str
    section: str
    fix: str
    required: bool = True
    part: Part = "behaviour"


@dataclass(frozen=True, slots=True)
class ValidationFinding:
    """Outcome of a check. `problem` and `fix` are sentences, blank if it passed.

    `module_type` is the contract that was checked, if the check belongs to one type.
    """

    check: Check
    outcome: Outcome
    problem: str = ""
    fix: str = ""
    module_type: ModuleType | None = None

    @classmethod
    def passed(cls, check: Check) -> ValidationFinding:
        return cls(check, "passed")

    @classmethod
    def broken(cls, check: Check, problem: str) -> ValidationFinding:
        return cls(check, "failed" if check.required else "warning", problem, check.fix)

    @classmethod
    def not_checked(cls, check: Check, reason: str, fix: str) -> ValidationFinding:
        return cls(check, "not checked", reason, fix)


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
        """Whether all structure checks ran; they do not if the module mounts nothing for lack of configuration."""
        return not any(finding.outcome == "not checked" for finding in self.part("structure"))

    def of(self, outcome: Outcome) -> tuple[ValidationFinding, ...]:
        return tuple(finding for finding in self.findings if finding.outcome == outcome)

    def part(self, part: Part) -> tuple[ValidationFinding, ...]:
        return tuple(finding for finding in self.findings if finding.check.part == part)

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
