"""States of conversations, and valid sequences."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from orchestrator_interactive.interactions.errors import InvalidTransition
from orchestrator_interactive.interactions.flow import after
from orchestrator_interactive.interactions.records import Flow
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    BaseState,
    FinishedState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    UserResponseState,
    WaitingState,
)

said = UserMessageState
answered = AssistantMessageState


def called(call_id: str, name: str = "look", **arguments: Any) -> ToolCallState:
    return ToolCallState(call_id, name, arguments)


def brought(call_id: str, result: Any = "found", name: str = "look") -> ToolResultState:
    return ToolResultState(call_id, name, result)


# Any value that JSON knows, odd texts among them.
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_ids = st.sampled_from(["a", "b", "c"])
_texts = st.text(max_size=40)
_objects = st.dictionaries(st.text(max_size=5), json_values, max_size=3)

any_state: st.SearchStrategy[BaseState] = st.one_of(
    st.builds(UserMessageState, text=_texts, meta=json_values),
    st.builds(UserResponseState, text=_texts),
    st.builds(
        AssistantMessageState,
        content=st.none() | _texts,
        tool_calls=st.none() | st.lists(_ids.map(lambda call_id: {"id": call_id}), max_size=2, unique_by=str),
    ),
    st.builds(ToolCallState, id=_ids, function_name=_texts, arguments=_objects),
    st.builds(ToolResultState, tool_call_id=_ids, tool_name=st.none() | _texts, result=json_values),
    st.builds(AgentCallState, agent_id=_texts, message=_texts, correlation_id=_ids),
    st.builds(AgentResultState, correlation_id=_ids, result=json_values, score=st.none() | st.floats(0, 1)),
    st.builds(WaitingState, kind=st.sampled_from(["tool", "agent", "llm", "user_input"]), correlation_id=_ids),
    st.just(FinishedState()),
)


def valid(states: list[BaseState]) -> list[BaseState]:
    """Return the states that are valid in their order, without the others."""
    flow, fitting = Flow(), []
    for state in states:
        try:
            flow, _ = after(flow, state, "")
        except InvalidTransition:
            continue
        fitting.append(state)
    return fitting


# A conversation that is not finished yet, but for its last state perhaps.
conversations = st.lists(any_state, max_size=25).map(valid)
