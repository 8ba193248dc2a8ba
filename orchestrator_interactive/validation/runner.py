"""Run a module's code in sessions and within time limits, and turn the verdicts of its scenarios into findings.

Each session, a `Sandbox`, has the module mounted, an empty folder, and a recording of all events.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import tempfile
from contextlib import asynccontextmanager, chdir
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator_interactive.kernel.loading.location import line_in
from orchestrator_interactive.testing import EventRecorder, TestCoordinator
from orchestrator_interactive.validation.report import RULES, ValidatedModule, ValidationFinding, article

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping

    from orchestrator_interactive.kernel.hooks import Handler
    from orchestrator_interactive.kernel.loading.location import ModuleLocation
    from orchestrator_interactive.validation.report import ModuleType

# How long to wait for cancelled code to end before it is abandoned.
CANCEL_GRACE_S = 1.0
MOUNT_POINTS: Mapping[ModuleType, str] = {
    "orchestrator": "orchestrator",
    "context": "context",
    "provider": "providers",
    "tool": "tools",
}
# Methods that identify the type of an unmounted instance; the first match wins.
_METHODS: Mapping[ModuleType, tuple[str, ...]] = {
    "provider": ("complete", "parse_tool_calls"),
    "context": ("add_message", "get_messages"),
    "tool": ("execute", "description"),
    "orchestrator": ("execute",),
}
_LONGEST_SENTENCE = 400
_MOST_PROBLEMS = 3


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

    @property
    def problems(self) -> list[str]:
        """The problem as a sentence; empty if the call returned."""
        return [f"It {self.problem}."] if self.problem else []


class NotCheckedError(Exception):
    """Verdict that a rule cannot be checked. The message is the reason, `fix` the remedy; by default the rule's."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.fix = fix


class ToleratedError(Exception):
    """Verdict of a violation of a required rule that may be justified: reported as a warning."""


# A text is a violation, as a sentence.
Verdict = str | NotCheckedError | ToleratedError


@dataclass(frozen=True, slots=True)
class ValidationStep:
    """Start of a step. It ends within `limit_s` seconds unless it blocks the process."""

    doing: str
    limit_s: float


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

    def check(self, key: str, verdicts: Iterable[Verdict]) -> bool:
        """Check a rule of `rules.md`; an error that the iterator of its verdicts raises is a verdict, too.

        Returns whether the rule is not violated, and was checked.
        """
        rule = replace(RULES[self.module_type or "every module"][key], module_type=self.module_type)
        self.emit(ValidationStep(rule.rule, self.limit_s))
        found: list[Verdict] = []
        try:
            found.extend(verdicts)
        except (NotCheckedError, ToleratedError) as e:
            found.append(e)
        except (Exception, SystemExit, KeyboardInterrupt) as e:  # noqa: BLE001 - third-party code: reported, not handled
            found.extend(self._ended(e).problems)
        problems = [verdict for verdict in found if isinstance(verdict, str)]
        tolerated = [str(verdict) for verdict in found if isinstance(verdict, ToleratedError)]
        if problems:
            finding = replace(rule, problem=summarize(problems))
        elif tolerated:
            finding = replace(rule, outcome="warning", problem=summarize(tolerated))
        elif found:
            fix = next((e.fix for e in found if isinstance(e, NotCheckedError)), "") or rule.fix
            finding = replace(rule, outcome="not checked", problem=summarize(list(map(str, found))), fix=fix)
        else:
            finding = replace(rule, outcome="passed", fix="")
        self.emit(finding)
        return finding.outcome in ("passed", "warning")

    async def scenario(self, keys: str, verdicts: AsyncIterator[tuple[str, Verdict]]) -> None:
        """Run a scenario, and check the rules of its `keys`, separated by blanks, by the verdicts that it yields.

        If it raises or hangs, that violates the first rule without a verdict; the later ones are not checked.
        """
        found: dict[str, list[Verdict]] = {key: [] for key in keys.split()}

        async def collect() -> None:
            async for key, verdict in verdicts:
                found[key].append(verdict)

        rules = RULES[self.module_type or "every module"]
        ended = await self.perform(f"the rule: {rules[next(iter(found))].rule}", collect())
        if ended.problem:
            first, *later = [key for key, each in found.items() if not each] or [list(found)[-1]]
            found[first].extend(ended.problems)
            for key in later:
                found[key].append(NotCheckedError("The scenario did not end.", "Fix the problem above first."))
        for key, each in found.items():
            self.check(key, each)

    async def perform(
        self, doing: str, coroutine: Coroutine[Any, Any, Any], limit_s: float | None = None
    ) -> CallResult:
        """Run code whose outcome the rules check later. After the limit it is cancelled, then abandoned."""
        self.emit(ValidationStep(doing, limit_s or self.limit_s))
        task = asyncio.create_task(self.caught(coroutine))
        await asyncio.wait({task}, timeout=limit_s or self.limit_s)
        return await self.ending(task)

    async def caught(self, coroutine: Coroutine[Any, Any, Any]) -> CallResult:
        """Await third-party code in a task of its own; a SystemExit would end the event loop."""
        try:
            return CallResult(await coroutine)
        except (Exception, SystemExit, KeyboardInterrupt) as e:  # noqa: BLE001 - third-party code: reported, not handled
            return self._ended(e)

    async def ending(self, task: asyncio.Task[CallResult]) -> CallResult:
        """Return how a task of `caught` ended; if it has not ended, cancel it."""
        if not task.done():
            stopped = "" if await cancel_in_time(task) else ", and continues after its cancellation"
            return CallResult(hung=True, problem=f"does not end within {self.limit_s:g} seconds{stopped}")
        return self._ended(asyncio.CancelledError()) if task.cancelled() else task.result()

    def error_text(self, error: BaseException) -> str:
        """Return an error as one line, with the line of the module that raised it."""
        text = " ".join(str(error).split()).rstrip(".")
        where = line_in(error, self.location)
        return shortened(f"{type(error).__name__}{f': {text}' if text else ''}{f' ({where})' if where else ''}")

    def _ended(self, error: BaseException) -> CallResult:
        if isinstance(error, asyncio.CancelledError):
            return CallResult(error=error, problem="ends with a CancelledError although it was not cancelled")
        return CallResult(error=error, problem=f"raises {self.error_text(error)}")


class Registration(NamedTuple):
    """A handler that was registered for an event."""

    event: str
    handler: Handler
    priority: int
    name: str


class Mounted(NamedTuple):
    """An instance that a module mounted, or that its `mount` returned to be mounted."""

    module_type: ModuleType
    name: str
    instance: Any


class RecordingHooks(EventRecorder):
    """Records events and registrations."""

    def __init__(self) -> None:
        super().__init__()
        self.registrations: list[Registration] = []

    def register(self, event: str, handler: Handler, priority: int = 0, name: str | None = None) -> Callable[[], None]:
        unregister = super().register(event, handler, priority, name)
        known_as = name or getattr(handler, "__name__", None) or type(handler).__name__
        self.registrations.append(Registration(event, handler, priority, known_as))
        return unregister

    on = register


class Sandbox(TestCoordinator):
    """A session with the module mounted, which records events, registrations and clean-ups.

    `returned` is the return value of the module's `mount`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hooks = self.recorded = RecordingHooks()
        self.hooks.set_default_fields(session_id=self.session_id, parent_id=self.parent_id)
        self.registered_cleanups: list[Callable[[], Any]] = []
        self.mounted: list[Mounted] = []
        self.returned: Any = None
        self.register_capability("session.working_dir", str(Path.cwd()))

    def register_cleanup(self, cleanup_fn: Callable[[], Any]) -> None:
        self.registered_cleanups.append(cleanup_fn)
        super().register_cleanup(cleanup_fn)

    def record_mount(self, returned: Any) -> None:
        """Record the mounted instances and the return value of `mount`, which may be an instance to be mounted."""
        self.returned = returned
        for module_type, point in MOUNT_POINTS.items():
            there = self.get(point)
            named = there if isinstance(there, dict) else {point: there} if there is not None else {}
            self.mounted += [Mounted(module_type, name, instance) for name, instance in named.items()]
        is_instance = not (self.mounted or inspect.isroutine(returned) or inspect.isclass(returned))
        by_methods = (each for each, names in _METHODS.items() if all(hasattr(returned, name) for name in names))
        if is_instance and (returned_type := next(by_methods, None)):
            name = getattr(returned, "name", None) or returned_type
            self.mount(MOUNT_POINTS[returned_type], returned, name=name)
            self.mounted.append(Mounted(returned_type, name, returned))

    @property
    def types(self) -> set[ModuleType]:
        """Types of the mounted instances; "hook" if handlers are registered."""
        handlers: set[ModuleType] = {"hook"} if self.recorded.registrations else set()
        return handlers | {mounted.module_type for mounted in self.mounted}

    def all(self, module_type: ModuleType) -> list[Mounted]:
        return [mounted for mounted in self.mounted if mounted.module_type == module_type]

    def cleanups(self) -> list[Callable[[], Any]]:
        """Return the clean-ups: the one that `mount` returned, then the registered ones, latest first."""
        is_instance = any(self.returned is mounted.instance for mounted in self.mounted)
        returned = [] if is_instance or not callable(self.returned) else [self.returned]
        return [*returned, *reversed(self.registered_cleanups)]

    async def clean_up(self) -> None:
        for clean_up in self.cleanups():
            await called(clean_up)

    async def contributed_events(self) -> set[str]:
        """Return the event names that the module contributes to `observability.events`."""
        collected = await self.collect_contributions("observability.events")
        return {name for names in collected for name in ([names] if isinstance(names, str) else names)}


@dataclass(frozen=True, slots=True)
class Sandboxes:
    """Mounts a module in sandboxes, each a new session in a new empty folder under `home`.

    `ready` is the module's `on_session_ready`, if a session can call it.
    """

    mount: Callable[..., Coroutine[Any, Any, Any]]
    ready: Callable[..., Coroutine[Any, Any, None]] | None
    home: Path
    config: dict[str, Any] = field(default_factory=dict)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Sandbox]:
        """Mount the module in a new session; afterwards run its clean-ups, each with a time limit."""
        # The folder is not deleted: abandoned tasks may still use it.
        with chdir(tempfile.mkdtemp(dir=self.home)):
            sandbox = Sandbox()
            sandbox.record_mount(await self.mount(sandbox, copy.deepcopy(self.config)))
            try:
                if self.ready is not None:
                    await _attempt(self.ready(sandbox))
                yield sandbox
            finally:
                for clean_up in sandbox.cleanups():
                    await _attempt(called(clean_up))


async def _attempt(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run code whose errors other rules report."""
    task = asyncio.create_task(coroutine)
    await asyncio.wait({task}, timeout=CANCEL_GRACE_S)
    if task.done() or await cancel_in_time(task):
        _ = task.cancelled() or task.exception()


async def cancel_in_time(task: asyncio.Task[Any]) -> bool:
    """Cancel a task and return whether it ends within `CANCEL_GRACE_S` seconds."""
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=CANCEL_GRACE_S)
    return bool(done)


async def called(function: Callable[[], Any]) -> Any:
    """Call a function that may be async, and return its result."""
    value = function()
    return await value if inspect.isawaitable(value) else value


def form_problems(what: str, function: Any, arguments: str, *, is_async: bool = True) -> list[str]:
    """Return why a function cannot be called, or awaited, with arguments such as "request, stream=…"."""
    if any(map(inspect.iscoroutinefunction, (function, type(function).__call__))) != is_async:
        return [f"{what} is {'a plain function' if is_async else 'async'}."]
    names = [name for name in arguments.split(", ") if name]
    try:
        inspect.signature(function).bind(
            *(name for name in names if not name.endswith("=…")),
            **{name.removesuffix("=…"): None for name in names if name.endswith("=…")},
        )
    except TypeError as e:
        return [f"{what} cannot be called with ({arguments}): {e}."]
    return []


def pair_problems(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence for each tool call without a result and each misplaced result.

    The rows have the forms of the contracts, or those of the APIs of Anthropic and OpenAI.
    """
    waiting: list[str] = []
    for row in rows:
        content = row.get("content")
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        results = [row["tool_call_id"]] if row.get("role") == "tool" and row.get("tool_call_id") else []
        results = results or [
            block.get("tool_call_id") or block.get("tool_use_id") or ""
            for block in blocks
            if block.get("type") == "tool_result"
        ]
        if waiting and not results:
            yield f"Between the call {waiting[0]} and its result is a row of the role '{row.get('role')}'."
            waiting = []
        for result in results:
            if result in waiting:
                waiting.remove(result)
            else:
                yield f"The result of {result} does not follow its call."
        inside = [block.get("id") for block in blocks if block.get("type") in ("tool_call", "tool_use")]
        beside = [call.get("id") if isinstance(call, dict) else call.id for call in row.get("tool_calls") or ()]
        waiting += [call for call in dict.fromkeys([*inside, *beside]) if call is not None]
    yield from (f"The call {call} has no result." for call in waiting)


def summarize(problems: list[str]) -> str:
    """Return the first problems as one line, with the number of further ones."""
    distinct = list(dict.fromkeys(problems))
    more = len(distinct) - _MOST_PROBLEMS
    return " ".join([*map(shortened, distinct[:_MOST_PROBLEMS]), *([f"({more} more like this.)"] if more > 0 else [])])


def shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SENTENCE else f"{text[:_LONGEST_SENTENCE]}…"


def kind(value: Any) -> str:
    """Return the class of a value with its article, or `None`."""
    return "None" if value is None else article(type(value).__name__)
