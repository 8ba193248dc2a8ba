"""Validate the order of states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.errors import ConversationFinished, InvalidTransition
from orchestrator_interactive.interactions.records import Flow, OpenCall
from orchestrator_interactive.interactions.states import (
    START,
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    UserResponseState,
    may_follow,
)

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.states import BaseState

_END = "FinishedState"
_SAID = {UserMessageState.__name__, UserResponseState.__name__}


def after(flow: Flow, state: BaseState, place: str) -> Flow:
    """Return the flow after this state at `place` (`segment/index`).

    Raises:
        InvalidTransition: the state is not allowed here; the message names the allowed states.
    """
    name = type(state).__name__
    if flow.last == _END:
        raise ConversationFinished(
            f"The conversation is finished: no {name} can be pushed to it. Continue in a fork, or rewind it."
        )
    if state.follows is None:
        return flow
    if flow.last not in state.follows:
        raise _refused(flow, f"{name} is not allowed {_at(flow.last)}")
    return Flow(name, _open_after(flow, state, place))


def answers(flow: Flow, state: BaseState) -> OpenCall | None:
    """Return the open call that this result answers."""
    match state:
        case ToolResultState():
            return _find(flow, state.tool_call_id, "declared", "tool")
        case AgentResultState():
            return _find(flow, state.correlation_id, "agent")
    return None


def _open_after(flow: Flow, state: BaseState, place: str) -> tuple[OpenCall, ...]:
    match state:
        case AssistantMessageState():
            if flow.open and flow.last not in _SAID:
                raise _refused(
                    flow,
                    f"AssistantMessageState is not allowed while {_named(flow.open)} has no result: push that first",
                )
            return tuple(OpenCall(call["id"], place, "declared") for call in state.tool_calls or () if call.get("id"))
        case ToolCallState():
            return _opened(flow, OpenCall(state.id, place, "tool"))
        case AgentCallState():
            return _opened(flow, OpenCall(state.correlation_id, place, "agent"))
        case ToolResultState() | AgentResultState():
            call = answers(flow, state)
            if call is None:
                raise _refused(flow, _unasked(flow, state))
            return tuple(each for each in flow.open if each is not call)
    return flow.open


def _opened(flow: Flow, call: OpenCall) -> tuple[OpenCall, ...]:
    same = next((each for each in flow.open if each.id == call.id), None)
    if same is not None and same.kind != "declared":
        raise _refused(flow, f"the call {call.id!r} is already open: use a unique id")
    return (*(each for each in flow.open if each is not same), call)


def _find(flow: Flow, call_id: str, *kinds: str) -> OpenCall | None:
    return next((each for each in flow.open if each.id == call_id and each.kind in kinds), None)


def _unasked(flow: Flow, state: ToolResultState | AgentResultState) -> str:
    call_id = state.tool_call_id if isinstance(state, ToolResultState) else state.correlation_id
    open_calls = f"open: {_named(flow.open)}" if flow.open else "no call is open"
    return f"{type(state).__name__} answers {call_id!r}, which is not an open call ({open_calls})"


def _named(calls: tuple[OpenCall, ...]) -> str:
    return ", ".join(repr(call.id) for call in calls)


def _at(last: str) -> str:
    return "at the beginning" if last == START else f"after {last}"


def _refused(flow: Flow, problem: str) -> InvalidTransition:
    allowed = may_follow(flow.last)
    return InvalidTransition(f"{problem}. Allowed {_at(flow.last)}: {', '.join(allowed)}.", allowed)
