"""Running other people's code: within a time limit, and so that whatever it does is one finding."""

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

# How long code that was cancelled may take to heed it before it is left behind.
HEED_WITHIN_S = 1.0
UNASKED = "ends with a CancelledError though nobody cancelled it"
_LONGEST_SENTENCE = 400
_MOST_PROBLEMS = 3

Problems = list[str]
"""What is wrong, as sentences; empty where nothing is."""


@dataclass(frozen=True, slots=True)
class Returned:
    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    error: BaseException


@dataclass(frozen=True, slots=True)
class Cancelled:
    """It ended with a CancelledError, as what is cancelled should."""


@dataclass(frozen=True, slots=True)
class Hung:
    """It did not end within the limit, in seconds. `heeded` says whether it ended once it was cancelled."""

    limit_s: float
    heeded: bool = True


Ending = Returned | Raised | Cancelled | Hung


class ValidationCall(Protocol):
    """A call of the module's code; as text, what was called."""

    @property
    def ended(self) -> Ending: ...


@dataclass(frozen=True, slots=True)
class ValidationRule(Generic[S]):
    """A check, and the function that looks whether it holds of something."""

    check: Check
    look: Callable[[S], Problems | Awaitable[Problems]]


def rule(check: Check) -> Callable[[Callable[[S], Problems | Awaitable[Problems]]], ValidationRule[S]]:
    """Make a rule of a function: `@rule(Check(…))`."""

    def made(look: Callable[[S], Problems | Awaitable[Problems]]) -> ValidationRule[S]:
        return ValidationRule(check, look)

    return made


class NotChecked(Exception):  # noqa: N818 - no error: there is nothing to look at
    """A rule cannot be looked at here; the message says why, `fix` what would allow it."""

    def __init__(self, reason: str, fix: str) -> None:
        super().__init__(reason)
        self.fix = fix


class Tolerated(Exception):  # noqa: N818 - a remark
    """Something that a required rule forbids, and that may have a good reason here: a warning."""


@dataclass(frozen=True, slots=True)
class ValidationStep:
    """Something that begins now and ends within `limit_s` seconds, or else blocks the process."""

    doing: str
    limit_s: float
    check: Check | None = None


class Validator:
    """One validation as it proceeds: what is begun and what is found is told at once.

    A module may hang the whole process; whoever listens then knows what it did last. `module_type` is what is being
    examined; each finding says so.
    """

    def __init__(
        self,
        location: ModuleLocation,
        tell: Callable[[ValidationStep | ValidationFinding | ValidatedModule], None],
        limit_s: float,
    ) -> None:
        self.location = location
        self.limit_s = limit_s
        self.tell = tell
        self.module_type: ModuleType | None = None

    async def check(self, rule: ValidationRule[S], subject: S, limit_s: float | None = None) -> ValidationFinding:
        """Look at one rule, and tell what was found."""
        limit_s = limit_s or self.limit_s
        self.tell(ValidationStep(rule.check.rule, limit_s, rule.check))
        judged = self._judged(rule.check, await ending(_looked(rule, subject), limit_s))
        finding = replace(judged, module_type=self.module_type)
        self.tell(finding)
        return finding

    async def check_all(self, rules: Iterable[ValidationRule[S]], subject: S) -> None:
        for each in rules:
            await self.check(each, subject)

    async def perform(self, doing: str, coroutine: Coroutine[Any, Any, Any], limit_s: float | None = None) -> Ending:
        """Do something to see what becomes of it; the rules look at that later."""
        limit_s = limit_s or self.limit_s
        self.tell(ValidationStep(doing, limit_s))
        return await ending(coroutine, limit_s)

    def _judged(self, check: Check, ended: Ending) -> ValidationFinding:
        match ended:
            case Returned(value=problems):
                return (
                    ValidationFinding.broken(check, in_short(problems)) if problems else ValidationFinding.passed(check)
                )
            case Raised(error=NotChecked() as e):
                return ValidationFinding.not_checked(check, str(e), e.fix)
            case Raised(error=Tolerated() as e):
                return ValidationFinding(check, "warning", str(e), check.fix)
            case Raised(error=e):
                return ValidationFinding.broken(check, f"It raises {told(e, self.location)}.")
            case Cancelled():
                return ValidationFinding.broken(check, f"It {UNASKED}.")
            case Hung(limit_s=limit_s):
                return ValidationFinding.broken(check, f"It does not end within {limit_s:g} seconds.")


async def ending(coroutine: Coroutine[Any, Any, Any], limit_s: float) -> Ending:
    """How something ends. What does not end within the limit is cancelled, and left behind if it does not heed that."""
    task = asyncio.get_running_loop().create_task(_contained(coroutine))
    done, _ = await asyncio.wait({task}, timeout=limit_s)
    if done:
        return Cancelled() if task.cancelled() else task.result()
    return Hung(limit_s, heeded=await heeds_cancel(task))


async def heeds_cancel(task: asyncio.Task[Any]) -> bool:
    """Cancel a task, and say whether it ends soon."""
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=HEED_WITHIN_S)
    return bool(done)


async def _contained(coroutine: Coroutine[Any, Any, Any]) -> Ending:
    try:
        return Returned(await coroutine)
    except (Exception, SystemExit, KeyboardInterrupt) as e:  # noqa: BLE001 - foreign code: it is told, not handled
        return Raised(e)


async def _looked(rule: ValidationRule[S], subject: S) -> Problems:
    found = rule.look(subject)
    return await found if inspect.isawaitable(found) else found


def raising(calls: Iterable[ValidationCall], location: ModuleLocation) -> Problems:
    """A sentence for each call that raised, or was cancelled by itself."""
    problems = []
    for call in calls:
        match call.ended:
            case Raised(error=error):
                problems.append(f"{call} raises {told(error, location)}.")
            case Cancelled():
                problems.append(f"{call} {UNASKED}.")
    return problems


def told(error: BaseException, location: ModuleLocation) -> str:
    """An error in one line, with the place in the module that it came from."""
    said = " ".join(str(error).split()).rstrip(".")
    where = line_in(error, location)
    return shortened(f"{type(error).__name__}{f': {said}' if said else ''}{f' ({where})' if where else ''}")


def in_short(problems: Problems) -> str:
    """Problems as one line: the first of them, and how many more there are."""
    distinct = list(dict.fromkeys(problems))
    more = len(distinct) - _MOST_PROBLEMS
    return " ".join([*map(shortened, distinct[:_MOST_PROBLEMS]), *([f"({more} more like this.)"] if more > 0 else [])])


def shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SENTENCE else f"{text[:_LONGEST_SENTENCE]}…"


def kind(value: Any) -> str:
    """What a value is, for a sentence: `None`, or its class."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
