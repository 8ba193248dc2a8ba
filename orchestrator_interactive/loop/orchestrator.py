"""The orchestrator module: the public interface of an agent loop that accepts messages while it runs."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import structlog

from orchestrator_interactive.config import validate
from orchestrator_interactive.kernel.cancellation import CancellationToken
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.hooks import CONTINUE
from orchestrator_interactive.kernel.interop import to_local_coordinator, to_local_hooks, to_local_tool
from orchestrator_interactive.loop.injection_queue import NO_TALK, Injection, InjectionQueue
from orchestrator_interactive.loop.loop import Loop
from orchestrator_interactive.loop.outcome import SUSPENDED, RunOutcome, SessionState, usage_from_dict
from orchestrator_interactive.loop.resume import logged_run, resume_run
from orchestrator_interactive.loop.run import LoopOptions, Run
from orchestrator_interactive.loop.tasks import CancellableTask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from orchestrator_interactive.kernel.contracts.models import HookResult
    from orchestrator_interactive.kernel.contracts.protocols import ContextManager, ProgressCallback, Provider, Tool
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.kernel.hooks import HookRegistry
    from orchestrator_interactive.loop.injection_queue import Receipt, Talk

log = structlog.get_logger(__name__)

NAME = "loop-interactive"

# Status in `execution:end` of runs that did not complete; the contract has none for a suspension.
_ENDED = {"cancelled": "cancelled", "suspended": "cancelled", "error": "error"}
# Time for a run to end after a stop and the grace period of its tools, in seconds.
_DEADLINE_S = 2.0
# How long a stop waits for the log of a resumed run, whose texts would be lost.
_LOG_WITHIN_S = 30.0
# Hook priority.
_FIRST = -1000


class InteractiveOrchestrator:
    """An agent loop that accepts messages while it runs and can be stopped at any time.

    One `execute` or `resume` runs at a time. The queue outlives it: messages that a stopped run did not read lead the
    next one.
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self._options = validate(LoopOptions, config or {}, NAME)
        self._queue = InjectionQueue(self._options.max_waiting)
        self._session_state = SessionState()
        self._running: Run | None = None
        self._unconfirmed: tuple[ContextManager, int] | None = None

    def inject_message(self, content: str | Injection) -> Receipt:
        """Inject a message into the running loop; the model reads it after the next of the three injection points.

        A message whose id is already known is not injected again; its receipt is returned. A message that begins with
        `!` interrupts the model call in flight; running tools continue. Call this on the loop's event loop: other
        threads use `loop.call_soon_threadsafe`.

        Raises:
            RunFinished: the run has drained its queue for the last time.
            InjectionQueueFull: the bound of pending messages is reached.
            ValueError: the text is blank.
        """
        return self._queue.offer(Injection.of(content))

    def edit_message(self, message_id: str, text: str) -> bool:
        """Replace the text of a pending message. Returns False if it is delivered or unknown.

        Raises:
            ValueError: the text is blank.
        """
        return self._queue.edit(message_id, text)

    def withdraw_message(self, message_id: str) -> bool:
        """Withdraw a pending message, which may be injected again. Returns False if it is delivered or unknown."""
        return self._queue.withdraw(message_id)

    def receipts(self) -> tuple[Receipt, ...]:
        """Return the state of each message injected into the current or the last run, in order."""
        return tuple(self._queue.receipts.values())

    def notify(self, content: str) -> None:
        """Keep a notice for the next run; it never reaches the running one."""
        self._session_state.notices.append(content)

    def stop(self, immediate: bool = False, run_id: str | None = None) -> bool:
        """Stop the running loop. Returns whether that changed anything; False without a run.

        `run_id` (from the progress event `executing`) fences a late stop: other runs are not affected.
        """
        if self._running is None or run_id not in (None, self._running.id):
            return False
        token = self._running.session_stop
        return token.request_immediate() if immediate else token.request_graceful()

    def suspend(self) -> bool:
        """End the running loop at its next boundary, so that another process can `resume` it.

        The model call in flight is discarded. Running tools finish; a stop cancels them as usual. Pending messages stay
        in the queue. Returns False without a run, or if the run is already ending.
        """
        return self._running is not None and self._queue.is_open and self._running.suspend()

    async def unconfirmed_text(self) -> str:
        """Return the final text of a stopped run that the log had not confirmed when the run returned; else "".

        Reads the log. The run itself returned only the confirmed text.
        """
        if self._unconfirmed is None:
            return ""
        (context, number), self._unconfirmed = self._unconfirmed, None
        return logged_run(await context.get_messages()).text_since(number)

    async def execute(  # noqa: PLR0913, PLR0917 - the signature is the contract's
        self,
        prompt: str,
        context: ContextManager,
        providers: dict[str, Provider],
        tools: dict[str, Tool],
        hooks: HookRegistry,
        coordinator: ModuleCoordinator | None = None,
        on_progress: ProgressCallback | None = None,
        message_id: str | None = None,
        author: str | None = None,
        order: float | None = None,
        notices: Mapping[str, str] | None = None,
        talk: Talk = NO_TALK,
        provider: str | None = None,
        images: Sequence[Mapping[str, Any]] = (),
        **_: Any,
    ) -> str:
        """Run the loop on a prompt and return the answer; after a stop, the text produced until then.

        `message_id` is the id of the prompt's message, and `author` that of its author. The log keeps both: the message
        is delivered. `order` is when it was written, as in `Injection`: older pending messages are read before it.
        `notices` are events, by id, that the run reads first; the log keeps their ids, too. `talk` is read right before
        the prompt, and committed in one step with it. `provider` is the name of the provider to call first in this run.
        `images` are image blocks, which the model sees after the prompt.

        Raises:
            LLMError: the provider failed.
            RuntimeError: a run is already active, or no provider of that name is mounted.
        """
        run = self._new_run(context, tools, hooks, coordinator, on_progress)
        left_pending = frozenset(self._queue.pending)
        return await self._run_loop(
            run,
            providers,
            provider,
            lambda loop: loop.start(prompt, message_id, author, order, notices or {}, talk, images, left_pending),
        )

    async def resume(  # noqa: PLR0913, PLR0917 - as `execute`
        self,
        context: ContextManager,
        providers: dict[str, Provider],
        tools: dict[str, Tool],
        hooks: HookRegistry,
        coordinator: ModuleCoordinator | None = None,
        on_progress: ProgressCallback | None = None,
        provider: str | None = None,
        **_: Any,
    ) -> str:
        """Resume the last run of the conversation from its log, and return the answer.

        Its texts are emitted again with the same numbers. A tool call without a result is repeated if the tool is
        `side_effect_free`; otherwise its result is "outcome unknown". A run that has its answer is not run again.

        Raises:
            LLMError: the provider failed.
            RuntimeError: a run is already active, the conversation has none, or no such provider is mounted.
        """
        run = self._new_run(context, tools, hooks, coordinator, on_progress)
        run.has_shown_texts = False
        return await self._run_loop(run, providers, provider, resume_run)

    def _new_run(
        self,
        context: ContextManager,
        tools: Mapping[str, Tool],
        hooks: HookRegistry,
        coordinator: ModuleCoordinator | None,
        on_progress: ProgressCallback | None,
    ) -> Run:
        if self._running is not None:
            raise RuntimeError("This orchestrator is running; inject the message instead.")
        home = to_local_coordinator(coordinator) if coordinator else None
        run = Run(
            context,
            _by_name(tools),
            to_local_hooks(hooks),
            home,
            home.cancellation if home else CancellationToken(),
            on_progress,
            self._options,
            self._queue,
            self._session_state,
            uuid4().hex,
            home.get_capability("secrets.filter") if home else None,
            ephemeral=getattr(home, "ephemeral", self._session_state.ephemeral),
        )
        run.stop.register_child(run.ending)
        return run

    async def _run_loop(
        self,
        run: Run,
        providers: Mapping[str, Provider],
        provider: str | None,
        begin: Callable[[Loop], Awaitable[None]],
    ) -> str:
        """Run the loop with this start, report its end, and become free for the next run."""
        if provider is not None:
            if provider not in providers:
                raise RuntimeError(f"There is no provider '{provider}'. Mounted: {', '.join(providers) or 'none'}.")
            run.options = run.options.model_copy(update={"default_provider": provider})
        self._running, self._unconfirmed = run, None
        self._queue.open()
        self._session_state.cancel_release()
        loop = Loop(run)
        self._queue.on_change = loop.on_injection
        # A separate task: cancelling the caller stops the loop in order, and interrupts no step of it.
        task = CancellableTask(loop.execute(begin, providers))

        def enforce_deadline() -> None:
            # After a stop, so that a log that hangs cannot block the caller of the stop.
            grace_s = 0 if run.stop.is_immediate else self._options.stop_grace_s
            loop = asyncio.get_running_loop()
            loop.call_later(grace_s + _DEADLINE_S, _cancel, task, run, loop.time() + _LOG_WITHIN_S)

        outcome, is_cancelled = RunOutcome("", "error"), True
        with run.session_stop.watch(run.follow):
            try:
                with run.stop.watch(enforce_deadline), _observe_compaction(run):
                    await task.wait(run.stop.request_immediate)
                is_cancelled = False
            finally:
                if not task.is_finished:
                    text = run.interim_texts.pending_text
                    outcome = SUSPENDED if run.is_suspended else RunOutcome(text, "cancelled")
                elif task.error is None:
                    outcome = task.result()
                if is_cancelled and outcome.status != "suspended":  # the caller gets CancelledError, no answer
                    outcome = RunOutcome(outcome.text, "cancelled")
                await self._end_run(run, loop, outcome, is_finished=task.is_finished)
        if task.is_finished:
            task.result()  # raises what the loop raised
        return outcome.text

    async def _end_run(self, run: Run, loop: Loop, outcome: RunOutcome, *, is_finished: bool) -> None:
        self._queue.is_open = False
        reporting = CancellableTask(self._report_end(run, loop, outcome))
        # The announced outcome stays: a later stop, or a cancellation of the caller, does not change it.
        is_final = outcome.status not in {"cancelled", "suspended"}
        try:
            await reporting.wait(run.stop.request_immediate)
        except asyncio.CancelledError:
            if not is_final:
                raise
        finally:
            if is_final:
                run.session_stop.reset()
            if reporting.error is not None:
                log.error("run.end_not_reported", loop_run=run.id, exc_info=reporting.error)
            home = run.coordinator
            if not is_finished:
                if run.is_in_doubt and outcome.status == "cancelled":
                    self._unconfirmed = run.context, run.interim_texts.next_number
                run.detach()
            self._running = self._queue.on_change = None
            self._session_state.schedule_release(home.get_capability("context.compress") if home else None)

    def close(self) -> None:
        """Cancel the timer that would keep the cached conversation in memory."""
        self._session_state.cancel_release()

    async def _report_end(self, run: Run, loop: Loop, outcome: RunOutcome) -> None:
        state = self._session_state
        if state.usage is not None:
            state.usage = state.usage.plus(run.usage)
        # After any other outcome, the log may differ from the state.
        state.knows_log = state.knows_log and outcome.status in ("success", "incomplete")
        ended = _ENDED.get(outcome.status, "completed")
        response = outcome.text if ended == "completed" else ""
        status = "incomplete" if outcome.status in ("error", "suspended") else outcome.status
        complete = {"orchestrator": NAME, "turn_count": run.iterations, "status": status}
        suspended = {"suspended": True} if outcome.status == "suspended" else {}
        await run.announce(events.EXECUTION_END, {"response": response, "status": ended, **suspended})
        await run.announce(events.ORCHESTRATOR_COMPLETE, complete)
        why = {"reason": outcome.reason, "detail": outcome.detail}
        await run.progress(
            "complete",
            iterations=run.iterations,
            status=outcome.status,
            part=run.interim_texts.next_number,
            **{key: value for key, value in why.items() if value is not None},
            waiting=len(self._queue.pending),
            messages=[asdict(receipt) for receipt in self._queue.receipts.values()],
            tools=loop.calls.to_event(),
            usage=run.usage.to_dict(),
            conversation_usage=(state.usage or run.usage).to_dict(),
        )


def _by_name(tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """Return the tools by their own names; a tool whose name another one has, under the name of its mount."""
    offered: dict[str, Tool] = {}
    own = {key: str(getattr(tool, "name", None) or key) for key, tool in tools.items()}
    holders = {name: key for key, name in own.items() if name == key}  # mounted under their own names
    for key, tool in tools.items():
        name = next((each for each in (own[key], key) if holders.setdefault(each, key) == key), None)
        if name is None:
            holder = holders[own[key]]
            log.warning("tool.name_taken", tool=own[key], mounted_as=key, offered_instead=holder)
        else:
            offered[name] = to_local_tool(tool)
    return offered


def _cancel(task: CancellableTask[RunOutcome], run: Run, latest_s: float) -> None:
    """Cancel the loop of a stopped run; a resumed one before this time only if the texts in its log are shown."""
    loop = asyncio.get_running_loop()
    if run.has_shown_texts or loop.time() >= latest_s:
        task.cancel()
    elif not task.is_finished:
        loop.call_later(_DEADLINE_S, _cancel, task, run, latest_s)


@contextmanager
def _observe_compaction(run: Run) -> Iterator[None]:
    """Report compaction as progress, and add its usage to that of the run."""

    async def observe(event: str, data: dict[str, Any]) -> HookResult:
        if event == events.CONTEXT_PRE_COMPACT:
            await run.progress("compacting")
        else:
            run.usage = run.usage.plus(usage_from_dict(data.get("usage")))  # of the model's summary
        return CONTINUE

    with ExitStack() as registrations:
        if hasattr(run.hooks, "register"):  # amplifier-core's recorder for tests can only emit
            for event in (events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT):
                # First: another handler may deny the event, which ends its dispatch.
                registrations.callback(run.hooks.register(event, observe, priority=_FIRST, name=NAME))
        yield
