"""What a validation says: which rule of a contract was looked at, and what was found."""

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
        rule: what holds in a module that keeps it, as a sentence without its full stop.
        section: where the contract of the module's type says so.
        fix: what to do where it is broken.
        required: whether breaking it fails the module; otherwise it is a warning. (Required and Recommended in the
            contracts' checklists.)
    """

    rule: str
    section: str
    fix: str
    required: bool = True
    part: Part = "behaviour"


@dataclass(frozen=True, slots=True)
class ValidationFinding:
    """What became of a check. `problem` and `fix` are sentences, and blank where it passed.

    `module_type` says which contract was looked at, where the check is about what is of that type.
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
    """What was validated. `recognised_by` says how its type was found; `module_type` is `None` as long as it is not.

    `others` are the types of what it also puts into a session, each with how that was found.
    """

    path: str
    name: str
    module_type: ModuleType | None = None
    recognised_by: str = ""
    others: tuple[tuple[ModuleType, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """All findings about one module, in the order of the checks."""

    subject: ValidatedModule
    findings: tuple[ValidationFinding, ...]

    @property
    def passed(self) -> bool:
        """Whether no required rule is broken; warnings are allowed."""
        return not self.of("failed")

    @property
    def complete(self) -> bool:
        """Whether the module showed itself: one that mounts nothing, for lack of configuration, has not."""
        return not any(finding.outcome == "not checked" for finding in self.part("structure"))

    def of(self, outcome: Outcome) -> tuple[ValidationFinding, ...]:
        return tuple(finding for finding in self.findings if finding.outcome == outcome)

    def part(self, part: Part) -> tuple[ValidationFinding, ...]:
        return tuple(finding for finding in self.findings if finding.check.part == part)

    def summary(self) -> str:
        """One line that sums up."""
        counts = Counter(finding.outcome for finding in self.findings)
        verdict = "Failed" if not self.passed else "Passed" if self.complete else "Not validated"
        told = [f"{counts['passed']} of {_number(len(self.findings), 'check')} passed"]
        told += [f"{counts['failed']} failed"] if counts["failed"] else []
        told += [_number(counts["warning"], "warning")] if counts["warning"] else []
        told += [f"{counts['not checked']} not checked"] if counts["not checked"] else []
        return f"{verdict}: {', '.join(told)}."


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
