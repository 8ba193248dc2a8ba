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


def after(flow: Flow, state: BaseState, place: str) -> tuple[Flow, OpenCall | None]:
    """Return the flow after this state at `place` (`segment/index`), and the open call that the state answers.

    Raises:
        InvalidTransition: the state is not allowed here; the message names the allowed states.
    """
    name, calls = type(state).__name__, flow.open
    if flow.last == _END:
        raise ConversationFinished(
            f"The conversation is finished: no {name} can be pushed to it. Continue in a fork, or rewind it."
        )
    if state.follows is None:
        return flow, None
    if flow.last not in state.follows:
        raise _refused(flow, f"{name} is not allowed {_at(flow.last)}")
    match state:
        case AssistantMessageState(tool_calls=declared):
            if calls and flow.last not in _SAID:
                raise _refused(flow, f"{name} is not allowed while {_named(calls)} has no result: push that first")
            calls = tuple([OpenCall(call["id"], place, "declared") for call in declared or () if call.get("id")])
        case ToolCallState(id=call_id) | AgentCallState(correlation_id=call_id):
            if any(each.id == call_id and each.kind != "declared" for each in calls):
                raise _refused(flow, f"the call {call_id!r} is already open: use a unique id")
            kind = "tool" if isinstance(state, ToolCallState) else "agent"
            calls = (*[each for each in calls if each.id != call_id], OpenCall(call_id, place, kind))
        case ToolResultState(tool_call_id=call_id) | AgentResultState(correlation_id=call_id):
            return _answered(flow, name, call_id, of_agent=isinstance(state, AgentResultState))
    return Flow(name, calls), None


def _answered(flow: Flow, name: str, call_id: str, *, of_agent: bool) -> tuple[Flow, OpenCall]:
    """Return the flow after a result, and its call."""
    for call in flow.open:
        if call.id == call_id and (call.kind == "agent") is of_agent:
            return Flow(name, tuple([each for each in flow.open if each is not call])), call
    open_calls = f"open: {_named(flow.open)}" if flow.open else "no call is open"
    raise _refused(flow, f"{name} answers {call_id!r}, which is not an open call ({open_calls})")


def _named(calls: tuple[OpenCall, ...]) -> str:
    return ", ".join(repr(call.id) for call in calls)


def _at(last: str) -> str:
    return "at the beginning" if last == START else f"after {last}"


def _refused(flow: Flow, problem: str) -> InvalidTransition:
    allowed = may_follow(flow.last)
    return InvalidTransition(f"{problem}. Allowed {_at(flow.last)}: {', '.join(allowed)}.", allowed)
