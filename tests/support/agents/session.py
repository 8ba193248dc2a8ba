"""A session with a scripted provider, ready to run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator_interactive import Injection, Receipt
from orchestrator_interactive.kernel import (
    AmplifierSession,
    CancellationToken,
    HookRegistry,
    HookResult,
    ModuleCoordinator,
    ResponseStream,
)
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse
from orchestrator_interactive.kernel.contracts.protocols import ApprovalSystem, DisplaySystem, Tool

from .milestones import soon
from .provider import ScriptedProvider
from .recorders import ObservedContext, Recorder, StaticLoader, mount_observed_context
from .rows import told

Row = dict[str, Any]
Step = Callable[[ChatRequest, ResponseStream], Awaitable[ChatResponse]]
OnRow = Callable[[Row], Awaitable[None]]


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

    async def history(self) -> list[Row]:
        return await self.context.get_messages()

    async def told(self) -> list[tuple[str, str]]:
        return told(await self.history())

    def on_hook(self, event: str, result: HookResult) -> Callable[[], None]:
        """Answer every event of this name with a hook result."""

        async def handler(_event: str, _data: dict[str, Any]) -> HookResult:
            return result

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
