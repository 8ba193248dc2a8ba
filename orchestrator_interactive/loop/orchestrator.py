"""The orchestrator module: the doors to an agent loop that takes messages in while it runs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.config import read
from orchestrator_interactive.kernel.cancellation import CancellationToken
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.interop import to_local_coordinator, to_local_hooks, to_local_tool
from orchestrator_interactive.loop.compaction import heard_compaction
from orchestrator_interactive.loop.injection_queue import Injection, InjectionQueue
from orchestrator_interactive.loop.loop import Loop
from orchestrator_interactive.loop.options import LoopOptions
from orchestrator_interactive.loop.outcome import SUSPENDED, RunOutcome
from orchestrator_interactive.loop.receipts import Receipts
from orchestrator_interactive.loop.resume import said_since
from orchestrator_interactive.loop.run import Run
from orchestrator_interactive.loop.run_start import RunStart
from orchestrator_interactive.loop.session_state import SessionState
from orchestrator_interactive.loop.tasks import CancellableTask

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from orchestrator_interactive.kernel.contracts.protocols import ContextManager, ProgressCallback, Provider, Tool
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.kernel.hooks import HookRegistry
    from orchestrator_interactive.loop.receipts import Receipt

log = structlog.get_logger(__name__)

NAME = "loop-interactive"

# What the hooks hear of an end that is none of completion; for a suspension the contract has no word of its own.
_ENDED = {"cancelled": "cancelled", "suspended": "cancelled", "error": "error"}
# How long a run may take over its end, once it is to end and the grace period of its tools is over.
_ENDED_WITHIN_S = 2.0


class InteractiveOrchestrator:
    """An agent loop that takes messages in while it runs, and can be stopped at any instant.

    One `execute` or `resume` at a time; the queue outlives it, so what a stopped run did not read leads the next one.
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self._options = read(LoopOptions, config or {}, NAME)
        self._queue = InjectionQueue(self._options.max_waiting)
        self._receipts = Receipts()
        self._memory = SessionState()
        self._running: Run | None = None
        self._in_doubt: tuple[ContextManager, int] | None = None

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
        injection = Injection.of(content)
        if known := self._receipts.of(injection.id):
            return known
        self._queue.offer(injection)
        return self._receipts.accept(injection.id)

    def edit_message(self, message_id: str, text: str) -> bool:
        """Replace the text of a message that waits. False: the model has it already, or nobody knows it.

        Raises:
            ValueError: the text is blank.
        """
        return self._queue.edit(message_id, text)

    def withdraw_message(self, message_id: str) -> bool:
        """Take a message back that waits. False: the model has it already, or nobody knows it.

        One that is taken back once its run is over may be given to another run.
        """
        if not self._queue.withdraw(message_id):
            return False
        if self._running is None:
            self._receipts.forget(message_id)
        else:
            self._receipts.withdraw(message_id)
        return True

    def receipts(self) -> tuple[Receipt, ...]:
        """Where each message stands that was written to the current or the last run, in order."""
        return self._receipts.all()

    def notify(self, content: str) -> None:
        """Keep a notice for the next run; it never reaches the running one."""
        self._memory.notices.append(content)

    def stop(self, immediate: bool = False, run_id: str | None = None) -> bool:
        """Stop the running loop. Returns whether that changed anything; without a run it does nothing.

        `run_id` (told by the progress event `executing`) fences a late stop: it does nothing to any other run.
        """
        if self._running is None or run_id not in (None, self._running.id):
            return False
        token = self._running.session_stop
        return token.request_immediate() if immediate else token.request_graceful()

    def suspend(self) -> bool:
        """Have the running loop end at its next boundary, for another process to `resume` it.

        The model call in flight is given up, and nothing of it stays; tools finish, and a stop cuts them as ever. What
        waits to be read stays in the queue. False: no run is on, or it is ending anyway.
        """
        return self._running is not None and self._queue.is_open and self._running.suspend()

    async def unsaid(self) -> str:
        """What the last run said last, where a stop has cut it before it knew whether its log has that; else nothing.

        Waits for the log. The run has returned what it was certain of.
        """
        if self._in_doubt is None:
            return ""
        (context, number), self._in_doubt = self._in_doubt, None
        return said_since(await context.get_messages(), number)

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
        **_: Any,
    ) -> str:
        """Run the loop on a prompt and return the answer; after a stop, what the model had said until then.

        `message_id` is the identity of the message that the prompt is: in the log it tells that it was delivered.

        Raises:
            LLMError: the provider failed.
            RuntimeError: a run is on already.
        """
        run = self._new_run(context, tools, hooks, coordinator, on_progress)
        left_behind = frozenset(each.id for each in self._queue.waiting())
        return await self._go(run, providers, lambda beginning: beginning.anew(prompt, message_id, left_behind))

    async def resume(  # noqa: PLR0913, PLR0917 - as `execute`
        self,
        context: ContextManager,
        providers: dict[str, Provider],
        tools: dict[str, Tool],
        hooks: HookRegistry,
        coordinator: ModuleCoordinator | None = None,
        on_progress: ProgressCallback | None = None,
        **_: Any,
    ) -> str:
        """Go on with the last run of the conversation from where its log stands, and return the answer.

        Its texts are told again with the numbers that they had. A tool call without a result is made again where the
        tool is `side_effect_free`; else the model reads that its outcome is unknown. A run that has its answer is not
        run again.

        Raises:
            LLMError: the provider failed.
            RuntimeError: a run is on already, or the conversation has none.
        """
        run = self._new_run(context, tools, hooks, coordinator, on_progress)
        return await self._go(run, providers, RunStart.again)

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
        return Run(
            context,
            {name: to_local_tool(tool) for name, tool in tools.items()},
            to_local_hooks(hooks),
            home,
            home.cancellation if home else CancellationToken(),
            on_progress,
            secret_filter=home.get_capability("secrets.filter") if home else None,
            token_budgets=self._memory.token_budgets,
            seen=self._memory.remembered(),
        )

    async def _go(
        self, run: Run, providers: Mapping[str, Provider], begin: Callable[[RunStart], Awaitable[None]]
    ) -> str:
        """Run the loop from this beginning to its end."""
        loop = self._prepared(run)
        beginning = RunStart(run, loop, self._queue, self._receipts, self._memory)
        # A task of its own: whoever cancels this stops the loop, and nothing in it is torn in the middle.
        working = CancellableTask(loop.go(partial(begin, beginning), providers))
        with run.session_stop.watch(run.follow):
            outcome = await self._to_its_end(run, loop, working)
        if working.finished():
            working.task.result()  # raises what the loop raised
        return outcome.text

    def let_go(self) -> None:
        """Leave nothing behind that would keep what was read of the conversation in memory."""
        self._memory.stay_awake()

    def _prepared(self, run: Run) -> Loop:
        """The loop for a run, which is the one that is on from here."""
        self._running, self._in_doubt = run, None
        self._queue.open()
        self._receipts.begin()
        self._memory.stay_awake()
        return Loop(run, self._queue, self._receipts, self._options)

    async def _to_its_end(self, run: Run, loop: Loop, working: CancellableTask[RunOutcome]) -> RunOutcome:
        """Wait for the run, tell how it ended, and be free for the next one."""
        try:
            with run.stop.watch(partial(self._hurry, run, working)), heard_compaction(run, NAME):
                await working.end(run.cancel)
        finally:
            self._queue.close()
            outcome, home = _outcome_of(working, run), run.coordinator
            try:
                await self._tell_end(run, loop, outcome)
            finally:
                if not working.finished():
                    if run.is_in_doubt and outcome.status == "cancelled":
                        self._in_doubt = run.context, run.parts.next_number
                    run.give_up()
                self._running = None
                self._memory.rest_soon(home.get_capability("context.rest") if home else None)
        return outcome

    async def _tell_end(self, run: Run, loop: Loop, outcome: RunOutcome) -> None:
        reporting = CancellableTask(self._report_end(run, loop, outcome))
        try:
            await reporting.end(run.cancel)
        finally:
            error = reporting.task.exception() if reporting.finished() else None
            if error is not None:
                log.error("run.end_not_told", run_id=run.id, exc_info=error)

    def _hurry(self, run: Run, working: CancellableTask[RunOutcome]) -> None:
        """Not even a log that hangs may hold whoever stops a run."""
        grace_s = 0 if run.stop.is_immediate else self._options.stop_grace_s
        asyncio.get_running_loop().call_later(grace_s + _ENDED_WITHIN_S, working.cut)

    async def _report_end(self, run: Run, loop: Loop, outcome: RunOutcome) -> None:
        self._memory.note_end(run.spent, outcome)
        ended = _ENDED.get(outcome.status, "completed")
        response = outcome.text if ended == "completed" else ""
        status = "incomplete" if outcome.status in ("error", "suspended") else outcome.status
        complete = {"orchestrator": NAME, "turn_count": run.iterations, "status": status}
        await run.announce(events.EXECUTION_END, {"response": response, "status": ended})
        await run.announce(events.ORCHESTRATOR_COMPLETE, complete)
        await run.progress("complete", **self._told(run, loop, outcome))

    def _told(self, run: Run, loop: Loop, outcome: RunOutcome) -> dict[str, Any]:
        why = {"reason": outcome.reason, "detail": outcome.detail}
        return {
            "iterations": run.iterations,
            "status": outcome.status,
            "part": run.parts.next_number,
            **{key: value for key, value in why.items() if value is not None},
            "waiting": len(self._queue),
            "messages": self._receipts.told(),
            "tools": loop.calls.told(),
            "usage": run.spent.told(),
            "conversation_usage": (self._memory.spent or run.spent).told(),
        }


def _outcome_of(working: CancellableTask[RunOutcome], run: Run) -> RunOutcome:
    if not working.finished():
        return SUSPENDED if run.is_suspended else RunOutcome(run.parts.unshown, "cancelled")
    return RunOutcome("", "error") if working.task.exception() else working.task.result()
