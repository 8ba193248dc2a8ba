"""What a model is shown of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.interactions.records import place_of
from orchestrator_interactive.interactions.rendering.openai_format import (
    call,
    declared_calls,
    result_text,
    said_by_agent,
    said_by_person,
    sendable,
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

# How many entries more are read when the window grows: the calls of one answer, mostly.
_MARGIN = 32
# What an answer with several calls looks like before the last of them.
_BEFORE_A_CALL = (AssistantMessageState, ToolCallState, WaitingState)


async def render_for_llm(
    stack: InteractionStack,
    last_n: int | None = None,
    policy_name: str = "default",
    exclude_types: Collection[type[BaseState]] = (),
    **kwargs: Any,
) -> list[Message]:
    """The conversation as messages in OpenAI's format.

    Each call has its result right behind its message; whatever came between them follows. A call without a result gets
    one that says so. Waiting and finished states are not shown, nor are judgements of a reflection agent. A state of
    your own is shown when it has a method `message() -> dict | None`, which gives a message of the role user,
    assistant, system, developer or tool. What cannot be read is left out, and a line in the log says so.

    Args:
        stack: the conversation; its current branch is rendered.
        last_n: how many states, by default all; a few more where a call would be parted from its result.
        policy_name: what makes the messages look as they are to look; see `render_policies`.
        exclude_types: states that are not shown. Where that is a call or a result, the whole pair is not.
        kwargs: for the policy.

    Raises:
        UnknownPolicy: there is no such policy.
        PolicyError: the policy gave back what cannot be sent.
        ValueError: `last_n` is negative.
        TypeError: `message()` of a state gives no message.
    """
    policy_named(policy_name)
    length = await stack.length()
    entries = await _window(stack, length if last_n is None else last_n)
    return apply_policy(policy_name, _rendered(entries, tuple(exclude_types)), **kwargs)


async def _window(stack: InteractionStack, last_n: int) -> list[StackEntry]:
    """The last entries, and those before them in which the calls of their results stand."""
    if last_n < 0:
        raise ValueError("`last_n` is a number of states: 0 or more.")
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
    """The place in `read` where entries begin that cut no pair; below 0 it has not been read so far."""
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
    """The messages, those between agents among them."""
    pairing, asked = Pairing(), dict[str, str]()
    for entry in entries:
        if entry.state is None:
            log.warning("render.state_left_out", ref=entry.ref, problem=entry.problem)
            pairing.said(None)
        else:
            _add(pairing, asked, entry, shown=not isinstance(entry.state, excluded))
    return pairing.messages()


def _add(pairing: Pairing, asked: dict[str, str], entry: StackEntry, *, shown: bool) -> None:
    """Take a state in; one that is not shown counts, too, where it is a part of a pair."""
    match entry.state:
        case UserMessageState(text=content) | UserResponseState(text=content):
            pairing.said(_from_person(content) if shown else None)
        case AssistantMessageState(is_reflection=True):
            return
        case AssistantMessageState(content=content, tool_calls=calls):
            pairing.answered(said_by_agent(content), declared_calls(content, calls), shown=shown)
        case ToolCallState() as state:
            pairing.called(call(state.id, state.function_name, state.arguments), shown=shown)
        case ToolResultState() as state:
            _add_result(pairing, entry, state.tool_call_id, state.result, shown=shown)
        case AgentCallState() | AgentResultState() as state if shown:
            pairing.aside(_between_agents(state, asked))
        case state if shown and callable(message := getattr(state, "message", None)):
            _add_message(pairing, entry, message())


def _add_result(pairing: Pairing, entry: StackEntry, call_id: str, result: Any, *, shown: bool) -> None:
    if not pairing.resulted(sendable(str(call_id)), result_text(result), shown=shown):
        log.warning("render.result_left_out", ref=entry.ref, problem="Its call is not there.")


def _add_message(pairing: Pairing, entry: StackEntry, message: Any) -> None:
    """Take in what a state of somebody else's says that it looks like."""
    match message:
        case None:
            return
        case {"role": "assistant"}:
            content = message.get("content")
            calls = declared_calls(content, message.get("tool_calls"))
            pairing.answered(said_by_agent(content), calls, shown=True)
        case {"role": "tool", "tool_call_id": str(call_id)}:
            _add_result(pairing, entry, call_id, message.get("content"), shown=True)
        case {"role": "user" | "system" | "developer" as role}:
            pairing.said(_from_person(message.get("content"), role))
        case _:
            raise TypeError(
                f"message() of {entry.kind} is to give None or a message: a dict with the role user, assistant, "
                "system, developer, or tool with its tool_call_id."
            )


def _from_person(content: Any, role: str = "user") -> Message | None:
    said = said_by_person(content)
    return None if said is None else {"role": role, "content": said}


def _between_agents(state: AgentCallState | AgentResultState, asked: dict[str, str]) -> Message:
    """What only some policies show; `asked` are the agents by correlation id."""
    told: dict[str, Any] = {"correlation_id": state.correlation_id}
    if isinstance(state, AgentCallState):
        asked[state.correlation_id] = sendable(state.agent_id).strip()
        told |= {"kind": "call", "agent_id": asked[state.correlation_id]}
        return {"role": "assistant", "content": result_text(state.message), AGENT: told}
    told |= {"kind": "result", "agent_id": asked.get(state.correlation_id), "score": state.score}
    return {"role": "user", "content": result_text(state.result), AGENT: told}
