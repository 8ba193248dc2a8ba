"""One execution of the loop: its options, its dependencies, its log, its progress events and its hooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal  # noqa: TC003 - pydantic reads the annotation at run time
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import structlog
from pydantic import BaseModel, Field, ValidationError

from orchestrator_interactive.config import Options
from orchestrator_interactive.json_limits import MAX_ROW_NESTING, bounded, nesting
from orchestrator_interactive.kernel.cancellation import CancellationToken
from orchestrator_interactive.kernel.contracts.errors import InjectionTooLargeError
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary, without_input
from orchestrator_interactive.kernel.hooks import CONTINUE, HookRegistry, without_denial
from orchestrator_interactive.kernel.interop import to_local
from orchestrator_interactive.kernel.timeout import with_timeout
from orchestrator_interactive.loop.outcome import NO_USAGE, UsageTotals
from orchestrator_interactive.loop.tasks import CancellableTask, Deadlines
from orchestrator_interactive.transcript.answer_parts import InterimTexts
from orchestrator_interactive.transcript.rows import joined, marked

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from orchestrator_interactive.kernel.contracts.models import ContextInjection, HookResult
    from orchestrator_interactive.kernel.contracts.protocols import ContextManager, ProgressCallback, Tool
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.loop.injection_queue import InjectionQueue
    from orchestrator_interactive.loop.outcome import SessionState
    from orchestrator_interactive.loop.tool_results import SecretFilter
    from orchestrator_interactive.transcript.answer_parts import InterimText

log = structlog.get_logger(__name__)

T = TypeVar("T")

# Time limit of a progress callback, in seconds: one that hangs must not block the run.
_PROGRESS_TIMEOUT_S = 10.0
# Time limit of all hooks of one event, in seconds; each hook has its own, shorter limit.
_HOOKS_TIMEOUT_S = 3600.0


class LoopOptions(Options):
    """Options of the loop in a mount plan.

    Args:
        max_iterations: turns with tool calls in one run; the model call after them offers no tools.
        max_cost_usd: cost limit of one run, in US dollars; applies if the provider reports costs.
        max_tokens: limit of input plus output tokens of one run.
        max_duration_s: duration of one run, in seconds, after which the next answer is the last; it has 60 s more.
        force_respond_tools: tools after which the model must answer in text.
        tool_timeout_s: time limit of a tool call, in seconds, if the tool has no `timeout_s`.
        max_parallel_tools: tool calls of one answer that run in parallel; the others wait in order.
        max_calls_per_answer: tool calls of one answer that run; the others fail with a reason for the model.
        max_result_chars: characters of a tool result that the model reads; the log keeps more.
        stop_grace_s: time for running tools to finish after a graceful stop, in seconds.
        stall_timeout_s: longest time without data from a model call, in seconds.
        max_retries: retries of a failed model call before the fallback to another provider.
        retry_base_delay_s: delay before the first retry, in seconds; it doubles each time.
        max_waiting: limit of pending injections.
        extended_thinking: passed to the provider with each model call, as the keyword argument of this name.
        default_provider: name of the provider to call first; default: the first mounted one.
    """

    max_iterations: int = Field(default=100, ge=1)
    max_cost_usd: Decimal | None = Field(default=None, gt=0)
    max_tokens: int | None = Field(default=None, ge=1)
    max_duration_s: float | None = Field(default=None, gt=0)
    force_respond_tools: frozenset[str] = frozenset({"dispatch_worker"})
    tool_timeout_s: float = Field(default=600, gt=0)
    max_parallel_tools: int = Field(default=8, ge=1)
    max_calls_per_answer: int = Field(default=64, ge=1)
    max_result_chars: int = Field(default=100_000, ge=100)
    stop_grace_s: float = Field(default=0.5, ge=0)
    stall_timeout_s: float = Field(default=120, gt=0)
    max_retries: int = Field(default=3, ge=0)
    retry_base_delay_s: float = Field(default=1.0, ge=0)
    max_waiting: int = Field(default=100, ge=1)
    extended_thinking: bool = False
    default_provider: str | None = None


class RunStopped(Exception):  # noqa: N818 - a stop is no error
    """The run was stopped. `hook_result` is the result of the hooks that were running, if they finished."""

    def __init__(self, hook_result: HookResult | None = None) -> None:
        super().__init__()
        self.hook_result = hook_result


class _NoContext:
    """Replaces the context of an abandoned run: any access raises RunStopped."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RunStopped


class RunSuspended(Exception):  # noqa: N818 - a suspension is no error
    """The run is suspended: another process resumes it."""


class RunDenied(Exception):  # noqa: N818 - named after the hooks' action
    """A hook denied the operation; the message is the reason."""


@dataclass(slots=True)
class Run:
    """The dependencies, counters and state of one execution.

    Args:
        stop: stop of this run; follows `session_stop` and the cancellation of the caller.
        ending: follows `stop` and a suspension; cancels everything except tools.
        secret_filter: removes secrets from tool texts.
        inbox: pending messages.
        session_state: what the orchestrator keeps between runs.
        deadlines: one timer for the time limits of its model call and its tools.
        iterations: answers of the model so far.
        usage: usage of the model calls so far.
        interim_texts: texts for people so far.
        is_in_doubt: a row with text was interrupted on its way to the log.
        has_shown_texts: people have the texts in the log of a resumed run; until then, a stop waits for the log.
        ephemeral: hook injections for the next request only; the list outlives the run.
    """

    context: ContextManager
    tools: dict[str, Tool]
    hooks: HookRegistry
    coordinator: ModuleCoordinator | None
    session_stop: CancellationToken
    on_progress: ProgressCallback | None
    options: LoopOptions
    inbox: InjectionQueue
    session_state: SessionState
    id: str
    secret_filter: SecretFilter | None
    deadlines: Deadlines = field(default_factory=Deadlines)
    iterations: int = 0
    usage: UsageTotals = NO_USAGE
    interim_texts: InterimTexts = field(default_factory=InterimTexts)
    is_suspended: bool = False
    is_in_doubt: bool = False
    has_shown_texts: bool = True
    stop: CancellationToken = field(default_factory=CancellationToken)
    ending: CancellationToken = field(default_factory=CancellationToken)
    ephemeral: list[ContextInjection] = field(default_factory=list)

    def follow(self) -> None:
        """Apply the session's stop to the run, at the same stage."""
        if self.session_stop.is_immediate:
            self.stop.request_immediate()
        else:
            self.stop.request_graceful()

    def suspend(self) -> bool:
        """End the run at its next boundary, so that another process can resume it. Returns False if it is ending."""
        if self.is_ending:
            return False
        self.is_suspended = True
        return self.ending.request_graceful()

    @property
    def is_stopped(self) -> bool:
        """Whether a stop was requested."""
        if self.session_stop.is_cancelled:  # amplifier-core's token notifies its watchers later
            self.follow()
        return self.stop.is_cancelled

    @property
    def is_ending(self) -> bool:
        """Whether a stop or a suspension was requested."""
        return self.is_suspended or self.is_stopped

    def detach(self) -> None:
        """Detach the run, so that a step which still hangs can no longer write, emit or call hooks."""
        self.context, self.coordinator, self.hooks, self.on_progress = _NoContext(), None, HookRegistry(), None
        self.ephemeral = []

    def check_end(self) -> None:
        """Raise RunSuspended or RunStopped if the run is to end. A suspension takes precedence over a later stop."""
        if self.is_suspended:
            raise RunSuspended
        if self.is_stopped:
            raise RunStopped

    def without_secrets(self, text: str, *, known_only: bool = False) -> str:
        """Return the text without the host's secrets, for a model or a person."""
        return text if self.secret_filter is None else self.secret_filter(text, known_only=known_only)

    async def commit(self, *rows: dict[str, Any]) -> None:
        """Add rows to the log in one step, and show the texts that they complete."""
        await self.write(*rows)
        for row in rows:
            await self.emit_text(row)

    async def write(self, *rows: dict[str, Any]) -> None:
        """Add rows to the log in one step; a context that cannot do that gets one row for user rows with talk."""
        try:
            given = [bounded(row, MAX_ROW_NESTING) for row in rows]
            if len(given) > 1 and (add := getattr(self.context, "add_messages", None)) is not None:
                await add(given)
            else:
                await self.context.add_message(given[0] if len(given) == 1 else joined(given))
        except BaseException:
            self.is_in_doubt = self.is_in_doubt or any(map(self.interim_texts.is_visible, rows))
            raise

    async def emit_text(self, row: dict[str, Any]) -> None:
        """Show the text that a committed row completes, if any."""
        if (part := self.interim_texts.add(row)) is not None:
            await self.show(part)

    async def show(self, part: InterimText | None) -> None:
        """Emit a part as a separate text for people."""
        if part is not None:
            partial = {"partial": True} if part.is_partial else {}
            await self.progress("text", text=part.text, part=part.number, **partial)

    async def progress(self, event: str, **data: Any) -> None:
        """Emit a progress event; errors of the callback are logged."""
        if self.on_progress is None:
            return
        with ErrorBoundary(log, "progress.failed", progress_event=event):
            await with_timeout(_PROGRESS_TIMEOUT_S, self.on_progress(event, data), self.stop)

    async def consult(self, event: str, data: dict[str, Any]) -> HookResult:
        """Emit an event whose hooks may deny or modify it, process their result, and return it.

        Raises:
            RunDenied: a hook denied it, or a person whom a hook asked.
            RunStopped, RunSuspended: the run was stopped or suspended in the meantime.
        """
        if not self.hooks.listens(event):
            return CONTINUE
        work = CancellableTask(self._emit(event, data, may_deny=True))
        with self.ending.watch(work.cancel):
            await work.wait()
        if self.is_suspended:
            raise RunSuspended
        if self.is_stopped:
            answered = work.is_finished and work.error is None
            raise RunStopped(hook_result=work.result() if answered else None)
        return work.result()

    async def announce(self, event: str, data: dict[str, Any]) -> None:
        """Emit an event about something that has happened. Hooks may inject and show something, but not deny it.

        A stop cancels the hooks after a short grace period.
        """
        if self.hooks.listens(event):
            await self.await_hooks(self._emit(event, data, may_deny=False), event)

    async def _emit(self, event: str, data: dict[str, Any], *, may_deny: bool) -> HookResult:
        result = await self.hooks.emit(event, data)
        return await self.route(result if may_deny else without_denial(result, event), event)

    async def await_hooks(self, hooks: Awaitable[T], event: str) -> T | None:
        """Await hooks; a stop cancels them after a short grace period. Returns None if they were cancelled."""
        try:
            return await with_timeout(_HOOKS_TIMEOUT_S, hooks, self.stop)
        except TimeoutError:
            log.warning("hook.cancelled", hook_event=event)
            return None

    async def route(self, result: HookResult, event: str) -> HookResult:
        """Process a hook's result; ephemeral injections are kept for the next request.

        Without a coordinator, questions are denied, and injections are added to the context directly.

        Raises:
            RunDenied: the hook or the person that it asked denied it.
        """
        if result is CONTINUE:
            return result
        if result.action == "ask_user" and self.is_stopped:
            raise RunDenied("The run was stopped before a user could be asked for approval.")
        injections = result.injections()
        try:
            result = await self._process(result, event)
        except InjectionTooLargeError as e:
            log.warning("hook.injection_refused", hook=result.hook_name, hook_event=event, error=str(e))
            result = e.rest
            injections = result.injections()
        if result.action == "deny":
            raise RunDenied(result.reason or "A hook denied it.")
        self.ephemeral += [injection for injection in injections if injection.ephemeral]
        return result

    async def _process(self, result: HookResult, event: str) -> HookResult:
        if self.coordinator is not None:
            return await self.coordinator.process_hook_result(result, event, result.hook_name)
        if result.action == "ask_user":
            raise RunDenied("No approval system is available, so the operation was denied.")
        for row in lasting_rows(result):
            with ErrorBoundary(log, "hook.injection_failed", hook=result.hook_name, hook_event=event):
                await self.context.add_message(marked(row, source="hook", hook_name=result.hook_name, event=event))
        return result


def lasting_rows(hook_result: HookResult) -> list[dict[str, Any]]:
    """Return the rows of a hook result's lasting injections."""
    return [injected_row(injection) for injection in hook_result.injections() if not injection.ephemeral]


def injected_row(injection: ContextInjection) -> dict[str, Any]:
    return {"role": injection.role, "content": injection.content}


def changed(hook_result: HookResult, key: str, given: T) -> T:
    """Return a part of an event as the hooks modified it; an invalid modification is logged and ignored."""
    value = (hook_result.data or {}).get(key, given)
    if value is given:
        return given
    kind, value = type(given), to_local(value)
    try:
        if issubclass(kind, BaseModel) and isinstance(value, dict):
            value = kind.model_validate(value)
        if not isinstance(value, kind):
            problem = f"{type(value).__name__} in place of {kind.__name__}"
        elif nesting(value, MAX_ROW_NESTING) > MAX_ROW_NESTING:
            problem = f"nested more than {MAX_ROW_NESTING} levels deep"
        else:
            return value
    except ValidationError as e:
        problem = without_input(e)
    log.warning("hook.modification_invalid", hook=hook_result.hook_name, part=key, problem=problem)
    return given
