"""Render a conversation for a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.interactions.records import place_of
from orchestrator_interactive.interactions.rendering.openai_format import (
    agent_text,
    call,
    declared_calls,
    result_text,
    sendable,
    user_content,
)
from orchestrator_interactive.interactions.rendering.pairing import Pairing
from orchestrator_interactive.interactions.rendering.policies import AGENT, apply_policy, policy_named
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    UserResponseState,
    WaitingState,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from orchestrator_interactive.interactions.rendering.openai_format import Message
    from orchestrator_interactive.interactions.stack import InteractionStack, StackEntry
    from orchestrator_interactive.interactions.states import BaseState

log = structlog.get_logger(__name__)

# Additional entries to read when the window grows; usually covers the calls of one answer.
_MARGIN = 32
# States that may precede a further call of the same answer.
_BEFORE_A_CALL = (AssistantMessageState, ToolCallState, WaitingState)


async def render_for_llm(
    stack: InteractionStack,
    last_n: int | None = None,
    policy_name: str = "default",
    exclude_types: Collection[type[BaseState]] = (),
    **kwargs: Any,
) -> list[Message]:
    """Render the conversation as messages in OpenAI's format.

    Each result directly follows the message with its call; entries between them come afterwards. A call without a
    result gets a placeholder result. Waiting states, finished states and reflections are not shown. A custom state is
    shown if its method `message() -> dict | None` returns a message with the role user, assistant, system, developer or
    tool. Unreadable states are left out and logged.

    Args:
        stack: the conversation; its current branch is rendered.
        last_n: number of states, by default all; more if a call would be separated from its result.
        policy_name: render policy to apply; see `policies`.
        exclude_types: state types to leave out. An excluded call or result excludes the whole pair.
        kwargs: arguments for the policy.

    Raises:
        UnknownPolicy: there is no such policy.
        PolicyError: the policy returned messages that cannot be sent.
        ValueError: `last_n` is negative.
        TypeError: `message()` of a state did not return a message.
    """
    policy_named(policy_name)
    length = await stack.length()
    entries = await _window(stack, length if last_n is None else last_n)
    return apply_policy(policy_name, _rendered(entries, tuple(exclude_types)), **kwargs)


async def _window(stack: InteractionStack, last_n: int) -> list[StackEntry]:
    """Return the last entries, and as many before them as their results need for their calls."""
    if last_n < 0:
        raise ValueError("`last_n` must be 0 or more.")
    read = [entry async for entry in stack.iter_last_n(last_n + _MARGIN)]
    start = max(len(read) - last_n, 0)
    while (since := _whole_since(read, start)) < start:
        start = since
        if start <= 0 < read[0].index:
            first = max(read[0].index + start - _MARGIN, 0)
            start += read[0].index - first
            read = [entry async for entry in stack.iter_last_n(await stack.length() - first)]
    return read[start:]


def _whole_since(read: list[StackEntry], start: int) -> int:
    """Return the start of the window that separates no pair; negative if more entries have to be read."""
    window = read[start:]
    first = read[0].index if read else 0
    called = [place_of(entry.parents[0])[2] - first for entry in window if _is_result(entry)]
    since = min([start, *called])
    if since < start or start == 0:
        return since
    begins = next((entry.state for entry in window if not isinstance(entry.state, WaitingState)), None)
    is_amid_calls = isinstance(begins, ToolCallState) and isinstance(read[start - 1].state, _BEFORE_A_CALL)
    return start - is_amid_calls


def _is_result(entry: StackEntry) -> bool:
    return isinstance(entry.state, ToolResultState) and bool(entry.parents)


def _rendered(entries: Iterable[StackEntry], excluded: tuple[type[BaseState], ...]) -> list[Message]:
    """Return all messages, including those between agents."""
    pairing, agent_ids = Pairing(), dict[str, str]()
    for entry in entries:
        if entry.state is None:
            log.warning("render.state_skipped", ref=entry.ref, problem=entry.problem)
            pairing.add_message(None)
        else:
            _add(pairing, agent_ids, entry, shown=not isinstance(entry.state, excluded))
    return pairing.messages()


def _add(pairing: Pairing, agent_ids: dict[str, str], entry: StackEntry, *, shown: bool) -> None:
    """Add a state; excluded calls and results are added, too, so that pairs stay complete."""
    match entry.state:
        case UserMessageState(text=content) | UserResponseState(text=content):
            pairing.add_message(_user_message(content) if shown else None)
        case AssistantMessageState(is_reflection=True):
            return
        case AssistantMessageState(content=content, tool_calls=calls):
            pairing.add_answer(agent_text(content), declared_calls(content, calls), shown=shown)
        case ToolCallState() as state:
            pairing.add_call(call(state.id, state.function_name, state.arguments), shown=shown)
        case ToolResultState() as state:
            _add_result(pairing, entry, state.tool_call_id, state.result, shown=shown)
        case AgentCallState() | AgentResultState() as state if shown:
            pairing.add_aside(_between_agents(state, agent_ids))
        case state if shown and callable(message := getattr(state, "message", None)):
            _add_custom_message(pairing, entry, message())


def _add_result(pairing: Pairing, entry: StackEntry, call_id: str, result: Any, *, shown: bool) -> None:
    if not pairing.add_result(sendable(str(call_id)), result_text(result), shown=shown):
        log.warning("render.result_skipped", ref=entry.ref, problem="Its call is missing.")


def _add_custom_message(pairing: Pairing, entry: StackEntry, message: Any) -> None:
    """Add the message of a custom state."""
    match message:
        case None:
            return
        case {"role": "assistant"}:
            content = message.get("content")
            calls = declared_calls(content, message.get("tool_calls"))
            pairing.add_answer(agent_text(content), calls, shown=True)
        case {"role": "tool", "tool_call_id": str(call_id)}:
            _add_result(pairing, entry, call_id, message.get("content"), shown=True)
        case {"role": "user" | "system" | "developer" as role}:
            pairing.add_message(_user_message(message.get("content"), role))
        case _:
            raise TypeError(
                f"message() of {entry.kind} must return None or a message: a dict with the role user, assistant, "
                "system, developer, or tool with its tool_call_id."
            )


def _user_message(content: Any, role: str = "user") -> Message | None:
    converted = user_content(content)
    return None if converted is None else {"role": role, "content": converted}


def _between_agents(state: AgentCallState | AgentResultState, agent_ids: dict[str, str]) -> Message:
    """Build a message between agents; `agent_ids` maps correlation ids to agents."""
    info: dict[str, Any] = {"correlation_id": state.correlation_id}
    if isinstance(state, AgentCallState):
        agent_ids[state.correlation_id] = sendable(state.agent_id).strip()
        info |= {"kind": "call", "agent_id": agent_ids[state.correlation_id]}
        return {"role": "assistant", "content": result_text(state.message), AGENT: info}
    info |= {"kind": "result", "agent_id": agent_ids.get(state.correlation_id), "score": state.score}
    return {"role": "user", "content": result_text(state.result), AGENT: info}
