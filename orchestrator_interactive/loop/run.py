"""One execution of the loop: what it works with, and how it talks to the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar
from uuid import uuid4

import structlog
from pydantic import BaseModel, ValidationError

from orchestrator_interactive.kernel.cancellation import CancellationToken
from orchestrator_interactive.kernel.contracts.errors import InjectionTooLargeError
from orchestrator_interactive.kernel.error_boundary import contained
from orchestrator_interactive.kernel.hooks import CONTINUE, HookRegistry, too_late_for_a_no
from orchestrator_interactive.kernel.interop import to_local
from orchestrator_interactive.kernel.timeout import within
from orchestrator_interactive.loop.conversation_cache import MessageCache
from orchestrator_interactive.loop.tasks import CancellableTask
from orchestrator_interactive.loop.usage import NOTHING, UsageTotals
from orchestrator_interactive.outside_json import MAX_ROW_NESTING, bounded, nesting
from orchestrator_interactive.transcript.answer_parts import InterimTexts, has_words
from orchestrator_interactive.transcript.rows import marked

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from orchestrator_interactive.kernel.contracts.models import ContextInjection, HookResult
    from orchestrator_interactive.kernel.contracts.protocols import ContextManager, ProgressCallback, Tool
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.transcript.answer_parts import InterimText

log = structlog.get_logger(__name__)

T = TypeVar("T")

# Longer than any watcher should take; one that hangs may not hold the run.
_WATCHER_S = 10.0
# Several hooks may each use up their own time.
_LONGEST_S = 3600.0


class SecretFilter(Protocol):
    """The capability `secrets.filter`: replaces secrets in a text; with `known_only` not what merely looks like one."""

    def __call__(self, text: str, *, known_only: bool = False) -> str: ...


class RunStopped(Exception):  # noqa: N818 - a stop is no error
    """Somebody stopped the run. `wish` is what hooks had wished that were being asked, if they had come to an end."""

    def __init__(self, wish: HookResult | None = None) -> None:
        super().__init__()
        self.wish = wish


class _NoContext:
    """In the place of the context of a run that is over."""

    def __getattr__(self, name: str) -> NoReturn:
        raise RunStopped


class RunSuspended(Exception):  # noqa: N818 - nor is a suspension
    """The run ends where it is, for another process to resume it."""


class RunDenied(Exception):  # noqa: N818 - named after the hooks' action
    """A hook forbade it; the message says why."""


@dataclass(slots=True)
class Run:
    """The surroundings of one execution, and what it counts.

    `stop` is the run's own: it follows `session_stop`, and a cancellation of the caller requests it, too. `ending`
    follows that and a suspension: it is what cuts all that is not a tool's. `secret_filter` takes secrets out of what
    tools say. `token_budgets` holds the providers that have said that a request was too long for them. `iterations` are
    the answers of the model so far, `spent` is what they used up, `parts` what people read of them; it `is_in_doubt`
    where such a row was cut on its way to the log.
    """

    context: ContextManager
    tools: dict[str, Tool]
    hooks: HookRegistry
    coordinator: ModuleCoordinator | None
    session_stop: CancellationToken
    on_progress: ProgressCallback | None
    id: str = field(default_factory=lambda: uuid4().hex)
    secret_filter: SecretFilter | None = None
    token_budgets: dict[str, int] = field(default_factory=dict)
    seen: MessageCache = field(default_factory=MessageCache)
    iterations: int = 0
    spent: UsageTotals = NOTHING
    parts: InterimTexts = field(default_factory=InterimTexts)
    is_suspended: bool = False
    is_in_doubt: bool = False
    stop: CancellationToken = field(default_factory=CancellationToken)
    ending: CancellationToken = field(default_factory=CancellationToken)
    _remarks: list[ContextInjection] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stop.register_child(self.ending)

    def follow(self) -> None:
        """Go as far as the session's stop has gone."""
        if self.session_stop.is_immediate:
            self.stop.request_immediate()
        else:
            self.stop.request_graceful()

    def cancel(self) -> None:
        """Whoever awaits the run was cancelled."""
        self.stop.request_immediate()

    def suspend(self) -> bool:
        """Have it end at its next boundary, for another process to resume it. False: it is to end anyway."""
        if self.is_ending:
            return False
        self.is_suspended = True
        return self.ending.request_graceful()

    @property
    def is_stopped(self) -> bool:
        """Whether it is to end."""
        if self.session_stop.is_cancelled:  # amplifier-core's token tells of it a little later
            self.follow()
        return self.stop.is_cancelled

    @property
    def is_ending(self) -> bool:
        """Whether it is to end, in whatever way."""
        return self.is_suspended or self.is_stopped

    def give_up(self) -> None:
        """Go without whatever of it still hangs: should that go on some day, it finds nobody to write or to talk to."""
        self.context, self.coordinator, self.hooks, self.on_progress = _NoContext(), None, HookRegistry(), None

    def check_end(self) -> None:
        """Raise RunSuspended or RunStopped where the run is to end. A stop that comes later changes no suspension."""
        if self.is_suspended:
            raise RunSuspended
        if self.is_stopped:
            raise RunStopped

    def without_secrets(self, text: str, *, known_only: bool = False) -> str:
        """Return the text without the secrets of the host, before a model or a person reads it."""
        return text if self.secret_filter is None else self.secret_filter(text, known_only=known_only)

    def take_remarks(self) -> list[ContextInjection]:
        """The ephemeral injections for the next request."""
        remarks, self._remarks = self._remarks, []
        return remarks

    def put_back(self, remarks: list[ContextInjection]) -> None:
        """The request that had these failed: they are for the one after it."""
        self._remarks = remarks + self._remarks

    async def commit(self, row: dict[str, Any]) -> None:
        """Add a row to the log; what is complete with it, people read."""
        await self.write(row)
        await self.tell(row)

    async def write(self, row: dict[str, Any]) -> None:
        """Add a row to the log."""
        try:
            await self.context.add_message(bounded(row, MAX_ROW_NESTING))
        except BaseException:
            self.is_in_doubt = self.is_in_doubt or has_words(row)
            raise

    async def tell(self, row: dict[str, Any]) -> None:
        """Let people read what is complete with this row, which stands in the log."""
        await self.show(self.parts.add(row))

    async def show(self, part: InterimText | None) -> None:
        """Let people read a part, as a message of its own."""
        if part is not None:
            torn = {"cut": True} if part.is_torn else {}
            await self.progress("text", text=part.text, part=part.number, **torn)

    async def progress(self, event: str, **data: Any) -> None:
        """Tell whoever watches; a watcher that fails does not disturb the run."""
        if self.on_progress is None:
            return
        try:
            with contained():
                await within(_WATCHER_S, self.on_progress(event, data), self.stop)
        except Exception:  # an event sink may not break the run
            log.exception("progress.failed", progress_event=event)

    async def consult(self, event: str, data: dict[str, Any]) -> HookResult:
        """Ask the hooks and route what they want; what the caller must honour comes back.

        Raises:
            RunDenied: the hooks said no, or a person did when they asked.
            RunStopped, RunSuspended: the run was, meanwhile.
        """
        if not self.hooks.listens(event):
            return CONTINUE
        work = CancellableTask(self._consult(event, data))
        with self.ending.watch(work.cut):
            await work.end()
        if self.is_suspended:
            raise RunSuspended
        if self.is_stopped:
            answered = work.finished() and work.task.exception() is None
            raise RunStopped(wish=work.task.result() if answered else None)
        return work.task.result()

    async def announce(self, event: str, data: dict[str, Any]) -> None:
        """Tell the hooks what has happened. They may inject and show something; for a no it is too late.

        A stop is not held up by them: they get a moment, and are cut.
        """
        if self.hooks.listens(event):
            await self.give_way(self._announce(event, data), event)

    async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
        """Tell the hooks what has happened, as `announce` does; what they wish is for later."""
        if not self.hooks.listens(event):
            return CONTINUE
        return await self.give_way(self._emitted(event, data), event) or CONTINUE

    async def give_way(self, telling: Awaitable[T], event: str) -> T | None:
        """Await what hooks do at an event; a stop gives them a moment, and cuts them. `None`: they were cut."""
        try:
            return await within(_LONGEST_S, telling, self.stop)
        except TimeoutError:
            log.warning("hook.cut", hook_event=event)
            return None

    async def _announce(self, event: str, data: dict[str, Any]) -> None:
        await self.route(await self._emitted(event, data), event)

    async def _emitted(self, event: str, data: dict[str, Any]) -> HookResult:
        return too_late_for_a_no(await self.hooks.emit(event, data), event)

    async def _consult(self, event: str, data: dict[str, Any]) -> HookResult:
        return await self.route(await self.hooks.emit(event, data), event)

    async def route(self, result: HookResult, event: str) -> HookResult:
        """Send a hook's wish where it belongs; an ephemeral injection waits for the next request.

        Without a coordinator nobody can be asked, and injections go straight into the context.

        Raises:
            RunDenied: the answer is no.
        """
        if result is CONTINUE:
            return result
        if result.action == "ask_user" and self.is_stopped:
            raise RunDenied("The run was stopped before anybody could be asked.")
        wished = result.injections()
        try:
            result = await self._process(result, event)
        except InjectionTooLargeError as e:
            log.warning("hook.injection_refused", hook=result.hook_name, hook_event=event, error=str(e))
            result = e.rest
            wished = result.injections()
        if result.action == "deny":
            raise RunDenied(result.reason or "A hook denied it.")
        self._remarks += [injection for injection in wished if injection.ephemeral]
        return result

    async def _process(self, result: HookResult, event: str) -> HookResult:
        if self.coordinator is not None:
            return await self.coordinator.process_hook_result(result, event, result.hook_name)
        if result.action == "ask_user":
            raise RunDenied("Nobody can be asked here.")
        for row in lasting_rows(result):
            try:
                with contained():
                    await self.context.add_message(marked(row, source="hook", hook_name=result.hook_name, event=event))
            except Exception:  # as the coordinator does
                log.exception("hook.injection_lost", hook=result.hook_name, hook_event=event)
        return result


def lasting_rows(wish: HookResult) -> list[dict[str, Any]]:
    """The rows that a wish to inject adds to the conversation."""
    return [injected_row(injection) for injection in wish.injections() if not injection.ephemeral]


def injected_row(injection: ContextInjection) -> dict[str, Any]:
    return {"role": injection.role, "content": injection.content}


def changed(wish: HookResult, key: str, given: T) -> T:
    """What the hooks made of a part of an event; what has the wrong form is logged and left as it was."""
    value = (wish.data or {}).get(key, given)
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
        problem = str(e)
    log.warning("hook.modified_to_nonsense", hook=wish.hook_name, part=key, problem=problem)
    return given
