"""The tool by which an agent asks another one."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import Field

from orchestrator_interactive.config import Options
from orchestrator_interactive.interactions.errors import InteractionError
from orchestrator_interactive.interactions.states import AgentCallState, AgentResultState, WaitingState
from orchestrator_interactive.kernel.error_boundary import contained, told
from orchestrator_interactive.loop.tasks import CancellableTask
from orchestrator_interactive.loop.tool_results import failure
from orchestrator_interactive.registries.errors import RegistryError
from orchestrator_interactive.registries.function_tool import tool
from orchestrator_interactive.registries.schemas import ToolConfig
from orchestrator_interactive.storage.errors import StoreError

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.models import ToolResult
    from orchestrator_interactive.registries.agents import Agent, AgentRegistry
    from orchestrator_interactive.registries.reflection import Reflection
    from orchestrator_interactive.registries.tool_context import ToolContext
    from orchestrator_interactive.registries.verdict import Verdict

log = structlog.get_logger(__name__)

# An agent asks one that asks one…
_DEEPEST = 5

_depth: ContextVar[int] = ContextVar("depth of asking agents", default=0)


class _Question(Options):
    agent_id: str = Field(min_length=1, description="Which agent to ask.")
    message: str = Field(min_length=1, description="What it is to do, with all that it needs to know for it.")


@tool(
    ToolConfig(
        name="ask_agent",
        description=(
            "Ask another agent, and get its answer. It does not see this conversation: tell it all that it needs. "
            "Of an agent that does not exist you are told which there are."
        ),
        input_schema=_Question,
        requires_context=True,
    )
)
async def ask_agent(agent_id: str, message: str, context: ToolContext) -> ToolResult | str:
    """The answer of another agent; the question and the answer stand in the log of who asks."""
    registry: AgentRegistry | None = context.coordinator.get_capability("agents.registry")
    if registry is None:
        return failure("There are no agents to ask: the session has no capability 'agents.registry'.")
    if _depth.get() >= _DEEPEST:
        return failure(f"Nobody was asked: this is the {_DEEPEST}th agent in a row that was asked by another already.")
    try:
        agent = await registry.get_agent(agent_id)
    except RegistryError as e:
        return failure(str(e))
    return await _Asking(agent, AgentCallState(agent_id, message), context).answer()


class _Asking:
    """One question, from its entry in the log to that of its answer."""

    def __init__(self, agent: Agent, call: AgentCallState, context: ToolContext) -> None:
        self._agent = agent
        self._call = call
        self._context = context
        self._ref: str | None = None
        self._child: CancellableTask[str] | None = None
        self._result: dict[str, Any] = {"status": "cancelled"}
        self._judgement: Verdict | None = None

    async def answer(self) -> ToolResult | str:
        try:
            await self._log_call()
            self._result = await self._asked()
            await self._reflect()
        finally:
            # First the log, which the asking agent goes on with: another one may take its time to end.
            await self._log_result()
            await self._end()
        content: str = self._result["content"]
        if self._result["status"] == "error":
            return failure(f"Agent '{self._call.agent_id}' failed: {content}")
        return f"{content}\n\n{self._judgement.told(self._call.agent_id)}" if self._judgement else content

    async def _asked(self) -> dict[str, Any]:
        """What came of the other agent's run."""
        self._child = CancellableTask(self._run())
        try:
            with contained():
                return {"status": "success", "content": await asyncio.shield(self._child.task)}
        except Exception as e:  # another agent's failure is a failed call
            log.exception("agent.failed", agent=self._call.agent_id)
            return {"status": "error", "content": told(e)}

    async def _run(self) -> str:
        _depth.set(_depth.get() + 1)  # in this task alone, and in what it starts
        conversation_id = f"{self._context.conversation_id}/{self._call.correlation_id}"
        return await self._agent.run(self._call.message, conversation_id, asked_by=self._ref)

    async def _end(self) -> None:
        if self._child is not None:
            self._child.cut()
            await self._child.end()

    async def _reflect(self) -> None:
        reflection: Reflection | None = self._context.coordinator.get_capability("agents.reflection")
        if reflection is not None and self._result["status"] == "success":
            call, content = self._call, self._result["content"]
            self._judgement = await reflection.judge(call.agent_id, call.message, content, self._ref)

    async def _log_call(self) -> None:
        if self._context.stack is not None:
            waiting = WaitingState("agent", correlation_id=self._call.correlation_id)
            self._ref = (await self._context.stack.push(self._call, waiting))[0]

    async def _log_result(self) -> None:
        if self._context.stack is None:
            return
        score = self._judgement.score if self._judgement else None
        try:
            await self._context.stack.push(AgentResultState(self._call.correlation_id, self._result, score))
        except (InteractionError, StoreError) as e:  # the conversation has gone on without it
            log.warning("agent.result_not_logged", agent=self._call.agent_id, error=str(e))
