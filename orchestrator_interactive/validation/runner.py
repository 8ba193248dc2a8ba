"""Run third-party code within a time limit, and turn every outcome into a finding."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from orchestrator_interactive.kernel.loading.importing import line_in
from orchestrator_interactive.validation.report import Check, ValidationFinding

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from orchestrator_interactive.kernel.loading.location import ModuleLocation
    from orchestrator_interactive.validation.report import ModuleType, ValidatedModule

S = TypeVar("S")

# How long to wait for cancelled code to end before it is abandoned.
CANCEL_GRACE_S = 1.0
UNREQUESTED_CANCEL = "ends with a CancelledError although it was not cancelled"
_LONGEST_SENTENCE = 400
_MOST_PROBLEMS = 3

Problems = list[str]
"""Problems as sentences; empty if there are none."""


@dataclass(frozen=True, slots=True)
class Returned:
    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    error: BaseException


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The code ended with a CancelledError."""


@dataclass(frozen=True, slots=True)
class Hung:
    """The code did not end within the limit, in seconds. `stopped`: whether it ended after its cancellation."""

    limit_s: float
    stopped: bool = True


Ending = Returned | Raised | Cancelled | Hung


class ValidationCall(Protocol):
    """A call of the module's code; `str()` describes it."""

    @property
    def ended(self) -> Ending: ...


@dataclass(frozen=True, slots=True)
class ValidationRule(Generic[S]):
    """A check and the function that finds its violations."""

    check: Check
    find_problems: Callable[[S], Problems | Awaitable[Problems]]


def rule(check: Check) -> Callable[[Callable[[S], Problems | Awaitable[Problems]]], ValidationRule[S]]:
    """Decorate a function as a rule: `@rule(Check(…))`."""

    def made(find_problems: Callable[[S], Problems | Awaitable[Problems]]) -> ValidationRule[S]:
        return ValidationRule(check, find_problems)

    return made


class NotChecked(Exception):  # noqa: N818 - not an error: the rule does not apply
    """A rule cannot be checked. The message is the reason, `fix` the remedy."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.fix = fix


class Tolerated(Exception):  # noqa: N818 - a remark
    """A violation of a required rule that may be justified: reported as a warning."""


@dataclass(frozen=True, slots=True)
class ValidationStep:
    """Start of a step. It ends within `limit_s` seconds unless it blocks the process."""

    doing: str
    limit_s: float
    check: Check | None = None


class Validator:
    """Run the checks of one module; emit each step when it starts and each finding immediately.

    If the module hangs the process, the listener knows the last step. `module_type` is the type being checked; each
    finding contains it.
    """

    def __init__(
        self,
        location: ModuleLocation,
        emit: Callable[[ValidationStep | ValidationFinding | ValidatedModule], None],
        limit_s: float,
    ) -> None:
        self.location = location
        self.limit_s = limit_s
        self.emit = emit
        self.module_type: ModuleType | None = None

    async def check(self, rule: ValidationRule[S], subject: S, limit_s: float | None = None) -> ValidationFinding:
        """Check one rule and emit the finding."""
        limit_s = limit_s or self.limit_s
        self.emit(ValidationStep(rule.check.rule, limit_s, rule.check))
        judged = self._finding(rule.check, await ending(_evaluate(rule, subject), limit_s))
        finding = replace(judged, module_type=self.module_type)
        self.emit(finding)
        return finding

    async def check_all(self, rules: Iterable[ValidationRule[S]], subject: S) -> None:
        for each in rules:
            await self.check(each, subject)

    async def perform(self, doing: str, coroutine: Coroutine[Any, Any, Any], limit_s: float | None = None) -> Ending:
        """Run code whose outcome the rules check later."""
        limit_s = limit_s or self.limit_s
        self.emit(ValidationStep(doing, limit_s))
        return await ending(coroutine, limit_s)

    def _finding(self, check: Check, ended: Ending) -> ValidationFinding:
        match ended:
            case Returned(value=problems):
                return (
                    ValidationFinding.broken(check, summarize(problems))
                    if problems
                    else ValidationFinding.passed(check)
                )
            case Raised(error=NotChecked() as e):
                return ValidationFinding.not_checked(check, str(e), e.fix)
            case Raised(error=Tolerated() as e):
                return ValidationFinding(check, "warning", str(e), check.fix)
            case Raised(error=e):
                return ValidationFinding.broken(check, f"It raises {error_text(e, self.location)}.")
            case Cancelled():
                return ValidationFinding.broken(check, f"It {UNREQUESTED_CANCEL}.")
            case Hung(limit_s=limit_s):
                return ValidationFinding.broken(check, f"It does not end within {limit_s:g} seconds.")


async def ending(coroutine: Coroutine[Any, Any, Any], limit_s: float) -> Ending:
    """Run a coroutine and return how it ends. After the limit it is cancelled, and abandoned if it continues."""
    task = asyncio.get_running_loop().create_task(_contained(coroutine))
    done, _ = await asyncio.wait({task}, timeout=limit_s)
    if done:
        return Cancelled() if task.cancelled() else task.result()
    return Hung(limit_s, stopped=await cancel_in_time(task))


async def cancel_in_time(task: asyncio.Task[Any]) -> bool:
    """Cancel a task and return whether it ends within `CANCEL_GRACE_S` seconds."""
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=CANCEL_GRACE_S)
    return bool(done)


async def _contained(coroutine: Coroutine[Any, Any, Any]) -> Ending:
    try:
        return Returned(await coroutine)
    except (Exception, SystemExit, KeyboardInterrupt) as e:  # noqa: BLE001 - third-party code: reported, not handled
        return Raised(e)


async def _evaluate(rule: ValidationRule[S], subject: S) -> Problems:
    found = rule.find_problems(subject)
    return await found if inspect.isawaitable(found) else found


def raising(calls: Iterable[ValidationCall], location: ModuleLocation) -> Problems:
    """Return a sentence for each call that raised or ended with a CancelledError."""
    problems = []
    for call in calls:
        match call.ended:
            case Raised(error=error):
                problems.append(f"{call} raises {error_text(error, location)}.")
            case Cancelled():
                problems.append(f"{call} {UNREQUESTED_CANCEL}.")
    return problems


def error_text(error: BaseException, location: ModuleLocation) -> str:
    """Return an error as one line, with the line of the module that raised it."""
    text = " ".join(str(error).split()).rstrip(".")
    where = line_in(error, location)
    return shortened(f"{type(error).__name__}{f': {text}' if text else ''}{f' ({where})' if where else ''}")


def summarize(problems: Problems) -> str:
    """Return the first problems as one line, with the number of further ones."""
    distinct = list(dict.fromkeys(problems))
    more = len(distinct) - _MOST_PROBLEMS
    return " ".join([*map(shortened, distinct[:_MOST_PROBLEMS]), *([f"({more} more like this.)"] if more > 0 else [])])


def shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SENTENCE else f"{text[:_LONGEST_SENTENCE]}…"


def kind(value: Any) -> str:
    """Return the class of a value with its article, or `None`."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
