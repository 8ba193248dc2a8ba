"""A session with a scripted provider, ready to run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator_interactive import Injection, Receipt
from orchestrator_interactive.kernel import (
    AmplifierSession,
    CancellationToken,
    HookRegistry,
    HookResult,
    ModuleCoordinator,
)
from orchestrator_interactive.kernel.contracts.protocols import ApprovalSystem, DisplaySystem, Tool

from .milestones import soon
from .provider import ScriptedProvider
from .recorders import ObservedContext, Recorder, StaticLoader, mount_observed_context
from .rows import Row, Step, told
from .tools import ScriptedTool

PROGRESS_EVENTS = {"executing", "thinking", "tool:start", "tool:end", "tool:progress", "text", "retrying", "complete"}


@dataclass
class Agent:
    """A session with the interactive loop, and everything in it within a test's reach."""

    session: AmplifierSession
    provider: ScriptedProvider
    context: ObservedContext
    progress: Recorder = field(default_factory=Recorder)
    events: Recorder = field(default_factory=Recorder)

    @property
    def coordinator(self) -> ModuleCoordinator:
        return self.session.coordinator

    @property
    def hooks(self) -> HookRegistry:
        return self.session.coordinator.hooks

    @property
    def token(self) -> CancellationToken:
        return self.session.coordinator.cancellation

    def inject(self, content: str | Injection) -> Receipt:
        receipt: Receipt = self.coordinator.get_capability("orchestrator.inject_message")(content)
        return receipt

    def edit(self, message_id: str, text: str) -> bool:
        edited: bool = self.coordinator.get_capability("orchestrator.edit_message")(message_id, text)
        return edited

    def withdraw(self, message_id: str) -> bool:
        withdrawn: bool = self.coordinator.get_capability("orchestrator.withdraw_message")(message_id)
        return withdrawn

    def receipts(self) -> tuple[Receipt, ...]:
        receipts: tuple[Receipt, ...] = self.coordinator.get_capability("orchestrator.receipts")()
        return receipts

    def notify(self, content: str) -> None:
        self.coordinator.get_capability("orchestrator.notify")(content)

    def stop(self, *, immediate: bool = False, run_id: str | None = None) -> bool:
        stopped: bool = self.coordinator.get_capability("orchestrator.stop")(immediate, run_id)
        return stopped

    async def run(self, prompt: str = "go") -> str:
        return await soon(self.session.execute(prompt, on_progress=self.progress))

    def start(self, prompt: str = "go") -> asyncio.Task[str]:
        return asyncio.create_task(self.session.execute(prompt, on_progress=self.progress))

    async def asked(self, number: int = 1, prompt: str = "go") -> asyncio.Task[str]:
        """Start a run and wait until the model has been asked this many times."""
        run = self.start(prompt)
        await self.provider.asked(number)
        return run

    async def steered(self, *messages: str | Injection, asked: int = 1) -> asyncio.Task[str]:
        """Start a run and inject messages while the model is asked."""
        run = await self.asked(asked)
        for message in messages:
            self.inject(message)
        return run

    async def in_tool(self, tool: ScriptedTool, count: int = 1) -> asyncio.Task[str]:
        """Start a run and wait until the tool has been started this many times."""
        run = self.start()
        await tool.started(count)
        return run

    async def held_at(self, event: str) -> asyncio.Task[str]:
        """Start a run and hold it at the first progress event or hook event of this name, until `release`."""
        watched = self.progress if event in PROGRESS_EVENTS else self.events.listen(self.hooks, event)
        watched.hold(event, asyncio.Event())
        run = self.start()
        await watched.reached(event)
        return run

    def release(self) -> None:
        """Hold no event any more."""
        self.events.release()
        self.progress.release()

    async def stopped(self, run: asyncio.Task[str], *, immediate: bool = False) -> str:
        """Stop the run and wait for its end."""
        self.stop(immediate=immediate)
        return await soon(run)

    def shown(self) -> list[str]:
        """The texts that were shown during the runs."""
        return [data["text"] for data in self.progress.of("text")]

    def complete(self) -> dict[str, Any]:
        """The last `complete` event."""
        return self.progress.of("complete")[-1]

    def outcomes(self) -> dict[str, str]:
        """The outcome of each call, as the last `complete` event has it."""
        return {each["id"]: each["outcome"] for each in self.complete()["tools"]}

    async def history(self) -> list[Row]:
        return await self.context.get_messages()

    async def told(self) -> list[tuple[str, str]]:
        return told(await self.history())

    def on_hook(self, event: str, result: HookResult | Callable[[dict[str, Any]], object]) -> Callable[[], None]:
        """Answer every event of this name with a hook result, or with what a function makes of its data."""

        async def handler(_event: str, data: dict[str, Any]) -> Any:
            return result(data) if callable(result) else result

        return self.hooks.register(event, handler)


async def make_agent(
    *steps: Step,
    provider: ScriptedProvider | None = None,
    tools: Sequence[Tool] = (),
    plan: dict[str, Any] | None = None,
    approvals: ApprovalSystem | None = None,
    display: DisplaySystem | None = None,
    **loop_config: Any,
) -> Agent:
    """An initialised session; `plan` is laid over the `session` section, `loop_config` goes to the loop."""
    provider = provider or ScriptedProvider(*steps)
    config = {
        "session": {
            "orchestrator": {"module": "loop-interactive", "config": loop_config},
            "context": "watched",
            **(plan or {}),
        }
    }
    shelf = StaticLoader(watched=mount_observed_context)
    session = AmplifierSession(config, loader=shelf, approval_system=approvals, display_system=display)  # type: ignore[arg-type]
    await session.initialize()
    await session.coordinator.mount("providers", provider)
    for tool in tools:
        await session.coordinator.mount("tools", tool)
    return Agent(session, provider, session.coordinator.get("context"))
