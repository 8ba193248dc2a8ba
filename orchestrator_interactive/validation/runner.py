"""Run a module's code within time limits, and check the rules of `rules.md`."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.loading.location import line_in
from orchestrator_interactive.validation.report import ValidatedModule, ValidationFinding

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from orchestrator_interactive.kernel.loading.location import ModuleLocation
    from orchestrator_interactive.validation.report import ModuleType, Outcome, Part

# How long to wait for cancelled code to end before it is abandoned.
CANCEL_GRACE_S = 1.0
_LONGEST_SENTENCE = 400
_MOST_PROBLEMS = 3
# Outcome of a violation, and the part of the report.
_LEVELS: Mapping[str, tuple[Outcome, Part]] = {
    "structure": ("failed", "structure"),
    "required": ("failed", "behaviour"),
    "recommended": ("warning", "behaviour"),
}


def read_rules() -> dict[str, dict[str, ValidationFinding]]:
    """Return the rules of each table of `rules.md` by their key, as findings of their violation."""
    rules: dict[str, dict[str, ValidationFinding]] = {}
    for line in files(__package__).joinpath("rules.md").read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            table = rules.setdefault(line.removeprefix("## "), {})
        elif line.startswith("| `"):
            key, level, rule, fix, section = (cell.strip(" `") for cell in line.strip("|").split(" | "))
            outcome, part = _LEVELS[level]
            table[key] = ValidationFinding(rule, outcome, "", fix, section, part, key=key)
    return rules


RULES = read_rules()


@dataclass(frozen=True, slots=True)
class CallResult:
    """How a call of the module's code ended. `problem` says how, as in "raises OSError"; blank if it returned."""

    value: Any = None
    error: BaseException | None = None
    hung: bool = False
    problem: str = ""

    @property
    def cancelled(self) -> bool:
        return isinstance(self.error, asyncio.CancelledError)


class NotCheckedError(Exception):
    """A rule cannot be checked. The message is the reason, `fix` the remedy; by default the one of the rule."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.fix = fix


class ToleratedError(Exception):
    """A violation of a required rule that may be justified: reported as a warning."""


class AbortedError(Exception):
    """No further rules of the module can be checked. The message is the reason."""


@dataclass(frozen=True, slots=True)
class ValidationStep:
    """Start of a step, or of a rule. It ends within `limit_s` seconds unless it blocks the process."""

    doing: str
    limit_s: float
    rule: ValidationFinding | None = None


Message = ValidationStep | ValidationFinding | ValidatedModule


class Validator:
    """Check the rules of one module: emit each step when it starts, and each finding immediately.

    If the module blocks the process, the listener knows the last step. `module_type` is the type being checked; each
    finding contains it.
    """

    def __init__(self, location: ModuleLocation, emit: Callable[[Message], None], limit_s: float) -> None:
        self.location = location
        self.limit_s = limit_s
        self.emit = emit
        self.module_type: ModuleType | None = None

    def check(self, key: str, problems: Iterable[str], otherwise: str = "", **texts: str) -> None:
        """Check a rule. Its problems are sentences; an error that their iterator raises is a problem, too.

        Args:
            key: key of the rule in `rules.md`.
            problems: violations of the rule.
            otherwise: if given, a violation aborts the validation for this reason.
            texts: values of the placeholders in the rule.
        """
        rule = self._start(key, texts)
        try:
            ended = CallResult(list(problems))
        except (Exception, SystemExit, KeyboardInterrupt) as e:  # noqa: BLE001 - third-party code: reported, not handled
            ended = CallResult(error=e, problem=self._ended(e))
        self._finish(rule, ended, otherwise)

    async def scenario(self, key: str, problems: Coroutine[Any, Any, list[str]], otherwise: str = "") -> bool:
        """Check a rule whose problems show while the module's code runs. Returns whether it passed."""
        rule = self._start(key, {})
        return self._finish(rule, await self._run(problems, self.limit_s), otherwise)

    async def perform(
        self, doing: str, coroutine: Coroutine[Any, Any, Any], limit_s: float | None = None
    ) -> CallResult:
        """Run code whose outcome the rules check later. After the limit it is cancelled, then abandoned."""
        self.emit(ValidationStep(doing, limit_s or self.limit_s))
        return await self._run(coroutine, limit_s or self.limit_s)

    async def caught(self, coroutine: Coroutine[Any, Any, Any]) -> CallResult:
        """Await third-party code in a task of its own; a SystemExit would end the event loop."""
        try:
            return CallResult(await coroutine)
        except (Exception, SystemExit, KeyboardInterrupt) as e:  # noqa: BLE001 - third-party code: reported, not handled
            return CallResult(error=e, problem=self._ended(e))

    async def ending(self, task: asyncio.Task[CallResult]) -> CallResult:
        """Return how a task of `caught` ended; if it has not ended, cancel it."""
        if not task.done():
            stopped = "" if await cancel_in_time(task) else ", and continues after its cancellation"
            return CallResult(hung=True, problem=f"does not end within {self.limit_s:g} seconds{stopped}")
        error = asyncio.CancelledError()
        return CallResult(error=error, problem=self._ended(error)) if task.cancelled() else task.result()

    def error_text(self, error: BaseException) -> str:
        """Return an error as one line, with the line of the module that raised it."""
        text = " ".join(str(error).split()).rstrip(".")
        where = line_in(error, self.location)
        return shortened(f"{type(error).__name__}{f': {text}' if text else ''}{f' ({where})' if where else ''}")

    async def _run(self, coroutine: Coroutine[Any, Any, Any], limit_s: float) -> CallResult:
        task = asyncio.create_task(self.caught(coroutine))
        await asyncio.wait({task}, timeout=limit_s)
        return await self.ending(task)

    def _ended(self, error: BaseException) -> str:
        if isinstance(error, asyncio.CancelledError):
            return "ends with a CancelledError although it was not cancelled"
        return f"raises {self.error_text(error)}"

    def _start(self, key: str, texts: dict[str, str]) -> ValidationFinding:
        rule = replace(RULES[self.module_type or "every module"][key], module_type=self.module_type)
        if texts:
            rule = replace(rule, rule=rule.rule.format(**texts), fix=rule.fix.format(**texts))
        self.emit(ValidationStep(rule.rule, self.limit_s, rule))
        return rule

    def _finish(self, rule: ValidationFinding, ended: CallResult, otherwise: str) -> bool:
        match ended.error:
            case NotCheckedError() as e:
                finding = replace(rule, outcome="not checked", problem=str(e), fix=e.fix or rule.fix)
            case ToleratedError() as e:
                finding = replace(rule, outcome="warning", problem=str(e))
            case _ if ended.problem or ended.value:
                finding = replace(rule, problem=f"It {ended.problem}." if ended.problem else summarize(ended.value))
            case _:
                finding = replace(rule, outcome="passed", fix="")
        self.emit(finding)
        if otherwise and finding.outcome in ("failed", "not checked"):
            raise AbortedError(otherwise)
        return finding.outcome == "passed"


async def cancel_in_time(task: asyncio.Task[Any]) -> bool:
    """Cancel a task and return whether it ends within `CANCEL_GRACE_S` seconds."""
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=CANCEL_GRACE_S)
    return bool(done)


async def called(function: Callable[[], Any]) -> Any:
    """Call a function that may be async, and return its result."""
    value = function()
    return await value if inspect.isawaitable(value) else value


def summarize(problems: list[str]) -> str:
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
