"""`tool-delegate`: the model lets a sub-agent carry out a task in a child session, and reads its answer."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import nullcontext
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from uuid import uuid4

from pydantic import Field

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.delegation.child_sessions import ChildSessions
from orchestrator_interactive.interactions.states import AgentCallState, AgentResultState, BaseState, WaitingState
from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts.models import ToolResult
from orchestrator_interactive.kernel.coordinator import announce
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.kernel.tool_support import current_call
from orchestrator_interactive.loop.tasks import CancellableTask
from orchestrator_interactive.transcript.rows import text_of
from orchestrator_interactive.validated_tool import ValidatedTool

if TYPE_CHECKING:
    from orchestrator_interactive.interactions import InteractionStack
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

_ID_CHARS = 8
_NOTE = re.compile(r"(?:\n\n\[Reflection on (?:(?!\n\n).)*\])?\n\n\[\S+, session_id \S+, \w+\]\Z", re.DOTALL)
_SPEAKERS, _RECENT = ("user", "assistant"), 10
# Events of amplifier-foundation.
_SPAWNED, _RESUMED, _COMPLETED, _ERROR = (
    f"delegate:{name}" for name in ("agent_spawned", "agent_resumed", "agent_completed", "error")
)


class DelegateOptions(Options):
    """Options of `tool-delegate`; `timeout_s` is the time limit of one task, in seconds."""

    timeout_s: float = Field(default=3600.0, gt=0)


class _Input(Options):
    instruction: str = Field(
        min_length=1, description="The task. The agent does not see this conversation: include all that it needs."
    )
    agent: str = Field(
        "self", min_length=1, description="Which agent; 'self': a copy of you without this conversation."
    )
    session_id: str | None = Field(
        None, description="Of an earlier result: the same agent continues, and remembers its work."
    )
    context: Literal["none", "recent", "all"] = Field(
        "none", description="How much of this conversation the agent reads: nothing, the last ten messages, or all."
    )


class DelegateTool(ValidatedTool[_Input]):
    """Delegates a task to a sub-agent. Several calls in one answer work in parallel.

    A call survives the process: a repeated one continues the child from its log.
    """

    name = "delegate"
    input_kind = _Input
    resumable: ClassVar[bool] = True
    destructive: ClassVar[bool] = False

    def __init__(self, coordinator: ModuleCoordinator, options: DelegateOptions) -> None:
        self._coordinator = coordinator
        self._limit_s = options.timeout_s
        # The task has its own limit, with an answer that names it.
        self.timeout_s = 2 * options.timeout_s

    @property
    def description(self) -> str:
        """The tool's purpose, and the agents of the mount plan."""
        agents: dict[str, Any] = self._coordinator.config.get("agents") or {}
        known = "".join(f"\n- {name}: {(each or {}).get('description', '')}" for name, each in agents.items())
        return (
            "Let another agent carry out a task on its own, and get its answer. Use several calls at once for "
            f"independent tasks. Agents:{known}\n- self: a copy of you without this conversation."
        )

    def label(self, input: dict[str, Any]) -> str:  # noqa: A002 - the name is the contract's
        agent = input.get("agent") or str(input.get("session_id") or "self").rpartition("-")[0]
        return f"{agent}: {input.get('instruction', '')}"

    async def _work(self, wanted: _Input) -> ToolResult:
        call = current_call.get()
        with nullcontext() if call is None else call.awaiting_others():
            return await self._delegate_as(wanted, uuid4().hex if call is None else call.id)

    async def _delegate_as(self, wanted: _Input, call_id: str) -> ToolResult:
        agent = wanted.agent if wanted.session_id is None else wanted.session_id.rpartition("-")[0]
        child_id = wanted.session_id or f"{agent}-{sha256(call_id.encode()).hexdigest()[:_ID_CHARS]}"
        stack: InteractionStack | None = self._coordinator.get_capability("interactions.stack")
        instruction = await self._with_context(wanted)
        request = f"{child_id}/{sha256(call_id.encode()).hexdigest()[:_ID_CHARS]}"
        ref = await _log_request(stack, AgentCallState(agent, wanted.instruction, request), self._limit_s)
        facts = {"agent": agent, "sub_session_id": child_id, "parent_session_id": self._coordinator.session_id}
        await announce(self._coordinator, _SPAWNED if wanted.session_id is None else _RESUMED, facts)
        result: dict[str, Any] = {}
        spawn: Any = self._coordinator.get_capability("session.spawn")
        try:
            async with asyncio.timeout(self._limit_s):
                result = await spawn(
                    agent_name=agent,
                    instruction=instruction,
                    parent_session=self._coordinator.session,
                    agent_configs=self._coordinator.config.get("agents") or {},
                    sub_session_id=child_id,
                    message_id=call_id,
                    asked_by=ref,
                )
        except TimeoutError:
            result = {"status": "timeout", "output": f"It did not end within {self._limit_s:g} seconds."}
        except ValueError as e:
            if stack is not None:
                refused = {"status": "error", "content": str(e), "session_id": child_id}
                await _push(stack, AgentResultState(request, refused))
            raise
        except Exception as e:  # noqa: BLE001 - the sub-agent failed: its parent handles that
            result = {"status": "error", "output": f"{type(e).__name__}: {e}"}
            await announce(self._coordinator, _ERROR, {**facts, "error": str(e)})
        except asyncio.CancelledError:
            if stack is not None and self._coordinator.cancellation.is_cancelled:  # else it is continued elsewhere
                await _push(stack, AgentResultState(request, {"status": "cancelled", "session_id": child_id}))
            raise
        if result["status"] == "suspended":  # the next owner of the run repeats the call
            await asyncio.Event().wait()
        verdict = None
        if result["status"] == "success" and (judges := self._coordinator.get_capability("agents.reflection")):
            verdict = await judges.judge(agent, wanted.instruction, result["output"], ref)
        if stack is not None:
            logged = {"status": result["status"], "content": result["output"], "session_id": child_id}
            logged |= {"delivered": read} if (read := (result.get("metadata") or {}).get("read")) else {}
            await _push(stack, AgentResultState(request, logged, verdict.score if verdict else None))
        await announce(self._coordinator, _COMPLETED, {**facts, "success": result["status"] == "success"})
        return _as_result(child_id, agent, result, verdict.as_note(agent) if verdict else "")

    async def _with_context(self, wanted: _Input) -> str:
        if wanted.context == "none":
            return wanted.instruction
        rows = await self._coordinator.get("context").get_messages()
        said = [f"{row['role']}: {text}" for row in rows if row["role"] in _SPEAKERS and (text := text_of(row))]
        recent = said[-_RECENT:] if wanted.context == "recent" else said
        return "\n\n".join(["The conversation so far:", *recent, "Your task:", wanted.instruction])


async def _log_request(stack: InteractionStack | None, request: AgentCallState, limit_s: float) -> str | None:
    """Log a request to an agent, unless it is logged, and return its ref; `None`: there is no log, or it was logged."""
    if stack is None or any(each.id == request.correlation_id for each in await stack.open_calls()):
        return None
    waiting = WaitingState("agent", time.time() + limit_s, request.correlation_id)
    return (await _push(stack, request, waiting))[0]


async def _push(stack: InteractionStack, *states: BaseState) -> tuple[str, ...]:
    """Push states to the end: a push that is cancelled halfway would look like that of another writer."""
    return await CancellableTask(stack.push(*states)).shared()


def answer_in(output: str) -> str:
    """Return the answer of an agent in the tool's output, without the notes that name its session and its score."""
    return _NOTE.sub("", output)


def _as_result(child_id: str, agent: str, result: dict[str, Any], judged: str) -> ToolResult:
    """Return the answer of an agent, with the id by which it continues, and how it was judged."""
    note = f"[{agent}, session_id {child_id}, {result['status']}]"
    if result["status"] in {"success", "incomplete"}:
        return ToolResult(output="\n\n".join(filter(None, (result["output"], judged, note))))
    return ToolResult(success=False, error={"message": f"{note} {result['output']}".strip()})


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Mount `delegate`, and the capabilities of child sessions unless the session has them.

    Raises:
        ValueError: an unknown option, or a value out of range.
    """
    coordinator = to_local_coordinator(coordinator)
    options = validate(DelegateOptions, config, "tool-delegate")
    if coordinator.get_capability("session.spawn") is None:
        if not isinstance(coordinator.session, AmplifierSession):
            raise ValueError("tool-delegate: the session has no capability 'session.spawn'; register it first.")
        ChildSessions(coordinator.session).register()
    tool = DelegateTool(coordinator, options)
    await coordinator.mount("tools", tool, name=tool.name)
