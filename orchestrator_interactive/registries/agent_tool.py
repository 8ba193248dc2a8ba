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
    from orchestrator_interactive.interactions import InteractionStack
    from orchestrator_interactive.kernel.contracts.models import ToolResult
    from orchestrator_interactive.registries.agents import Agent, AgentRegistry
    from orchestrator_interactive.registries.function_tool import ToolContext
    from orchestrator_interactive.registries.reflection import Reflection, Verdict

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
    return await _ask(agent, AgentCallState(agent_id, message), context)


async def _ask(agent: Agent, call: AgentCallState, context: ToolContext) -> ToolResult | str:
    ref: str | None = None
    run: CancellableTask[str] | None = None
    result: dict[str, Any] = {"status": "cancelled"}
    verdict: Verdict | None = None
    try:
        if context.stack is not None:
            waiting = WaitingState("agent", correlation_id=call.correlation_id)
            ref = (await context.stack.push(call, waiting))[0]
        run = CancellableTask(_run(agent, call.message, f"{context.conversation_id}/{call.correlation_id}", ref))
        with ErrorBoundary(log, "agent.failed", agent=call.agent_id) as boundary:
            result = {"status": "success", "content": await run.shared()}
        if boundary.error is not None:
            result = {"status": "error", "content": error_text(boundary.error)}
            return failure(f"Agent '{call.agent_id}' failed: {result['content']}")
        reflection: Reflection | None = context.coordinator.get_capability("agents.reflection")
        if reflection is not None:
            verdict = await reflection.judge(call.agent_id, call.message, result["content"], ref)
    finally:
        # Log first: the called agent may end slowly.
        await _log_result(context.stack, call, result, verdict)
        if run is not None:
            run.cancel()
            await run.wait()
    return f"{result['content']}\n\n{verdict.as_note(call.agent_id)}" if verdict else str(result["content"])


async def _run(agent: Agent, message: str, conversation_id: str, asked_by: str | None) -> str:
    _depth.set(_depth.get() + 1)  # in this task and its children only
    return await agent.run(message, conversation_id, asked_by=asked_by)


async def _log_result(
    stack: InteractionStack | None, call: AgentCallState, result: dict[str, Any], verdict: Verdict | None
) -> None:
    if stack is None:
        return
    try:
        await stack.push(AgentResultState(call.correlation_id, result, verdict.score if verdict else None))
    except (InteractionError, StoreError) as e:  # the conversation continues without it
        log.warning("agent.result_not_logged", agent=call.agent_id, error=str(e))
