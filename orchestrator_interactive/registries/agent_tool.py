"""The tool `call_agent`, with which an agent calls another agent."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import Field

from orchestrator_interactive.config import Options
from orchestrator_interactive.interactions.errors import InteractionError
from orchestrator_interactive.interactions.states import AgentCallState, AgentResultState, WaitingState
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary, error_text
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

# Limit of nested agent calls.
_MAX_DEPTH = 5

_depth: ContextVar[int] = ContextVar("depth of asking agents", default=0)


class _Question(Options):
    agent_id: str = Field(min_length=1, description="Which agent to ask.")
    message: str = Field(min_length=1, description="The task, with all information that the agent needs.")


@tool(
    ToolConfig(
        name="call_agent",
        description=(
            "Ask another agent and get its answer. The agent does not see this conversation: include everything that "
            "it needs. If the agent does not exist, the error lists the available agents."
        ),
        input_schema=_Question,
        requires_context=True,
    )
)
async def call_agent(agent_id: str, message: str, context: ToolContext) -> ToolResult | str:
    """Return the answer of another agent; the log of the calling agent gets the question and the answer."""
    registry: AgentRegistry | None = context.coordinator.get_capability("agents.registry")
    if registry is None:
        return failure("There are no agents to ask: the session has no capability 'agents.registry'.")
    if _depth.get() >= _MAX_DEPTH:
        return failure(f"The agent was not asked: agents may call each other at most {_MAX_DEPTH} levels deep.")
    try:
        agent = await registry.get_agent(agent_id)
    except RegistryError as e:
        return failure(str(e))
    return await _AgentCall(agent, AgentCallState(agent_id, message), context).answer()


class _AgentCall:
    """One question to another agent, with its log entries for the question and the answer."""

    def __init__(self, agent: Agent, call: AgentCallState, context: ToolContext) -> None:
        self._agent = agent
        self._call = call
        self._context = context
        self._ref: str | None = None
        self._child: CancellableTask[str] | None = None
        self._result: dict[str, Any] = {"status": "cancelled"}
        self._verdict: Verdict | None = None

    async def answer(self) -> ToolResult | str:
        try:
            await self._log_call()
            self._result = await self._run_logged()
            await self._reflect()
        finally:
            # Log first: the called agent may end slowly.
            await self._log_result()
            await self._end()
        content: str = self._result["content"]
        if self._result["status"] == "error":
            return failure(f"Agent '{self._call.agent_id}' failed: {content}")
        return f"{content}\n\n{self._verdict.as_note(self._call.agent_id)}" if self._verdict else content

    async def _run_logged(self) -> dict[str, Any]:
        """Run the other agent, and return the result for the log."""
        self._child = CancellableTask(self._run())
        with ErrorBoundary(log, "agent.failed", agent=self._call.agent_id) as boundary:
            content = await self._child.shared()
        if boundary.error is not None:
            return {"status": "error", "content": error_text(boundary.error)}
        return {"status": "success", "content": content}

    async def _run(self) -> str:
        _depth.set(_depth.get() + 1)  # in this task and its children only
        conversation_id = f"{self._context.conversation_id}/{self._call.correlation_id}"
        return await self._agent.run(self._call.message, conversation_id, asked_by=self._ref)

    async def _end(self) -> None:
        if self._child is not None:
            self._child.cancel()
            await self._child.wait()

    async def _reflect(self) -> None:
        reflection: Reflection | None = self._context.coordinator.get_capability("agents.reflection")
        if reflection is not None and self._result["status"] == "success":
            call, content = self._call, self._result["content"]
            self._verdict = await reflection.judge(call.agent_id, call.message, content, self._ref)

    async def _log_call(self) -> None:
        if self._context.stack is not None:
            waiting = WaitingState("agent", correlation_id=self._call.correlation_id)
            self._ref = (await self._context.stack.push(self._call, waiting))[0]

    async def _log_result(self) -> None:
        if self._context.stack is None:
            return
        score = self._verdict.score if self._verdict else None
        try:
            await self._context.stack.push(AgentResultState(self._call.correlation_id, self._result, score))
        except (InteractionError, StoreError) as e:  # the conversation continues without it
            log.warning("agent.result_not_logged", agent=self._call.agent_id, error=str(e))
