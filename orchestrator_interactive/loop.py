"""The loop: drain, ask, run tools, append."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from orchestrator_interactive.asking import Model, ask
from orchestrator_interactive.batch import ToolBatch
from orchestrator_interactive.injection import Injection, InjectionQueue, injection_row, notice_row
from orchestrator_interactive.kernel import events
from orchestrator_interactive.kernel.cancellation import CancellationToken
from orchestrator_interactive.kernel.interop import GuestProvider, at_home, own_hooks, own_provider, own_tool
from orchestrator_interactive.kernel.messages import ToolCallBlock
from orchestrator_interactive.options import Options, read
from orchestrator_interactive.requests import RequestBuilder
from orchestrator_interactive.rows import assistant_row, user_row
from orchestrator_interactive.run import Run, RunDenied, RunStopped, changed
from orchestrator_interactive.work import one_by_one, to_the_end

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.kernel.hooks import HookRegistry
    from orchestrator_interactive.kernel.interfaces import ContextManager, ProgressCallback, Provider, Tool
    from orchestrator_interactive.kernel.messages import ChatResponse

NAME = "loop-interactive"
INJECTION_APPLIED = "injection:applied"


class LoopOptions(Options):
    """Options of the loop in a mount plan.

    Args:
        max_iterations: model calls with tools in one run; the call after them is made without.
        force_respond_tools: after one of these the model must answer in words.
        stop_grace_s: how long running tools may go on after a graceful stop, in seconds.
        stall_timeout_s: how long a model call may be silent, in seconds.
        max_waiting: messages that may wait for the running loop.
        default_provider: name of the provider to ask; the first mounted one where it is not set.
    """

    max_iterations: int = Field(default=100, ge=1)
    force_respond_tools: frozenset[str] = frozenset({"dispatch_worker"})
    stop_grace_s: float = Field(default=0.5, ge=0)
    stall_timeout_s: float = Field(default=120, gt=0)
    max_waiting: int = Field(default=100, ge=1)
    default_provider: str | None = None


Status = Literal["success", "incomplete", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class Outcome:
    text: str
    status: Status


class InteractiveOrchestrator:
    """An agent loop that takes messages in while it runs, and can be stopped at any instant.

    One `execute` at a time; the queue outlives it, so what a stopped run did not read leads the next one.
    """

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        self._options = read(LoopOptions, config or {}, NAME)
        self._queue = InjectionQueue(self._options.max_waiting)
        self._notices: list[str] = []
        self._running: Run | None = None

    def inject_message(self, content: str | Injection) -> None:
        """Hand a message to the running loop; it is read at the next of the three injection points.

        Belongs to the loop's event loop: from another thread use `loop.call_soon_threadsafe`.

        Raises:
            RunFinished: the run has taken its last look.
            InjectionQueueFull: too many messages are waiting.
            ValueError: the text is blank.
        """
        self._queue.offer(Injection.of(content))

    def notify(self, content: str) -> None:
        """Keep a notice for the next run; it never reaches the running one."""
        self._notices.append(content)

    def stop(self, immediate: bool = False) -> bool:
        """Stop the running loop. Returns whether that changed anything; without a run it does nothing."""
        if self._running is None:
            return False
        token = self._running.stop
        return token.request_immediate() if immediate else token.request_graceful()

    async def execute(  # noqa: PLR0913, PLR0917 - the signature is the contract's
        self,
        prompt: str,
        context: ContextManager,
        providers: dict[str, Provider],
        tools: dict[str, Tool],
        hooks: HookRegistry,
        coordinator: ModuleCoordinator | None = None,
        on_progress: ProgressCallback | None = None,
        **_: Any,
    ) -> str:
        """Run the loop on a prompt and return the answer; after a stop, what the model had said until then.

        Raises:
            LLMError: the provider failed.
            RuntimeError: a run is on already.
        """
        if self._running is not None:
            raise RuntimeError("This orchestrator is running; inject the message instead.")
        home = at_home(coordinator) if coordinator else None
        token = home.cancellation if home else CancellationToken()
        own_tools = {name: own_tool(tool) for name, tool in tools.items()}
        run = Run(context, own_tools, own_hooks(hooks), home, token, on_progress)
        self._running = run
        self._queue.open()
        outcome = Outcome("", "error")
        try:
            outcome = await self._guarded(run, providers, prompt)
        except asyncio.CancelledError:
            outcome = Outcome("", "cancelled")
            raise
        finally:
            self._queue.close()
            try:
                await self._report_end(run, outcome)
            finally:
                self._running = None
        return outcome.text

    async def _guarded(self, run: Run, providers: dict[str, Provider], prompt: str) -> Outcome:
        try:
            await self._begin(run, prompt)
            text = await self._loop(run, self._model(run, providers))
            exhausted = run.iterations > self._options.max_iterations
            return Outcome(text, "incomplete" if exhausted else "success")
        except RunDenied as e:
            return Outcome(f"Operation denied: {e}", "incomplete")
        except RunStopped as e:
            await run.announce(events.CANCEL_REQUESTED, {"immediate": run.stop.is_immediate})
            return Outcome(e.text, "cancelled")

    async def _loop(self, run: Run, model: Model) -> str:
        must_answer = False
        while True:
            run.check_stop()
            await self._take_in(run, self._queue.drain())  # injection point 1
            tools_allowed = not must_answer and run.iterations < self._options.max_iterations
            run.iterations += 1
            await run.progress("thinking", iteration=run.iterations)
            answer = await ask(run, model, tools_allowed=tools_allowed)
            calls = model.provider.parse_tool_calls(answer) if tools_allowed else []
            if calls:
                row = assistant_row(answer.content, calls)
                await ToolBatch(run, row, calls, self._options.stop_grace_s).go()
                must_answer = any(call.name in self._options.force_respond_tools for call in calls)
                run.check_stop()
                await self._take_in(run, self._queue.drain())  # injection point 3
                continue
            must_answer = False
            await self._say(run, answer)
            late = self._queue.drain_or_close()  # injection point 2
            if not late:
                return answer.text
            await self._take_in(run, late, interim=answer.text)

    async def _say(self, run: Run, answer: ChatResponse) -> None:
        said = [block for block in answer.content if not isinstance(block, ToolCallBlock)]
        if said:
            await run.context.add_message(assistant_row(said))
        if run.stop.is_cancelled:
            raise RunStopped(answer.text)

    async def _begin(self, run: Run, prompt: str) -> None:
        """Announce the run and commit its prompt, after what an earlier run left behind."""
        leading = self._queue.drain()
        try:
            if run.coordinator is not None:
                run.coordinator.reset_turn()
            await run.announce(events.EXECUTION_START, {"prompt": prompt})
            await run.progress("executing", prompt=prompt)
            wish = await run.consult(events.PROMPT_SUBMIT, {"prompt": prompt})
            await self._tell_notices(run)
        except BaseException:
            self._queue.restore(leading)
            raise
        await self._take_in(run, leading)
        await run.context.add_message(user_row(changed(wish, "prompt", prompt)))

    async def _tell_notices(self, run: Run) -> None:
        async def commit() -> None:
            count = len(self._notices)
            await run.context.add_message(notice_row(self._notices[:count]))
            del self._notices[:count]

        if self._notices:
            await to_the_end(commit())

    async def _take_in(self, run: Run, injections: tuple[Injection, ...], interim: str = "") -> None:
        """Commit what was drained as one user row; what is not committed goes back to the front of the queue.

        `interim` is the answer that these messages came after: it is shown first.
        """
        if not injections:
            return
        committed = False

        async def commit() -> None:
            nonlocal committed
            if interim:
                await run.progress("text", text=interim)
            await run.context.add_message(injection_row(injections))
            committed = True

        try:
            # A cancellation cannot leave it open whether the row was committed.
            await to_the_end(commit())
        finally:
            if not committed:
                self._queue.restore(injections)
        data = {
            "messages": [injection.text for injection in injections],
            "count": len(injections),
            "ids": [injection.id for injection in injections],
        }
        await run.announce(INJECTION_APPLIED, data)
        await run.progress(INJECTION_APPLIED, **data)

    def _model(self, run: Run, providers: dict[str, Provider]) -> Model:
        name = self._options.default_provider or next(iter(providers), "")
        if name not in providers:
            asked = (
                f"There is no provider '{name}'. Mounted: {', '.join(providers)}."
                if name
                else "No provider is mounted."
            )
            raise RuntimeError(asked)
        provider = own_provider(providers[name])
        patience_s = None if isinstance(provider, GuestProvider) else self._options.stall_timeout_s
        model = provider.get_info().defaults.get("model")
        return Model(name, provider, model, RequestBuilder(provider, run.tools), patience_s)

    async def _report_end(self, run: Run, outcome: Outcome) -> None:
        ended = {"cancelled": "cancelled", "error": "error"}.get(outcome.status, "completed")
        response = outcome.text if ended == "completed" else ""
        status = "incomplete" if outcome.status == "error" else outcome.status
        complete = {"orchestrator": NAME, "turn_count": run.iterations, "status": status}
        await one_by_one(
            (
                run.announce(events.EXECUTION_END, {"response": response, "status": ended}),
                run.announce(events.ORCHESTRATOR_COMPLETE, complete),
                run.progress("complete", iterations=run.iterations, status=outcome.status, waiting=len(self._queue)),
            )
        )
