"""The states of a conversation and their allowed order."""

import itertools
from dataclasses import FrozenInstanceError, dataclass
from functools import reduce
from typing import ClassVar

import pytest
from hypothesis import given
from interaction_states import any_state, brought, called, conversations, said

from orchestrator_interactive.interactions import states
from orchestrator_interactive.interactions.errors import ConversationFinished, InvalidTransition
from orchestrator_interactive.interactions.flow import after
from orchestrator_interactive.interactions.records import Flow
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    BaseState,
    FinishedState,
    ToolResultState,
    UserMessageState,
    UserResponseState,
    WaitingState,
)


def test_a_state_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        UserMessageState(text="Hello!").text = "Bye"  # type: ignore[misc]


@pytest.mark.parametrize("name", [name for name in vars(states) if name.endswith("State") and name != "BaseState"])
def test_every_state_is_slotted_and_versioned(name: str) -> None:
    kind: type[BaseState] = getattr(states, name)
    assert kind.__version__ == 1
    assert not any("__dict__" in vars(each) for each in kind.__mro__)


def test_every_agent_call_has_its_own_id() -> None:
    assert AgentCallState("helper", "Look").correlation_id != AgentCallState("helper", "Look").correlation_id


class TestWaiting:
    @pytest.mark.parametrize(
        ("deadline", "now", "is_over"),
        [(100.0, 99.9, False), (100.0, 100.0, True), (1.0, None, True), (None, None, False)],
    )
    def test_it_is_over_at_its_deadline(self, deadline: float | None, now: float | None, *, is_over: bool) -> None:
        waiting = WaitingState(kind="tool", deadline=deadline)
        assert (waiting.is_over() if now is None else waiting.is_over(now)) is is_over

    def test_other_kinds_are_refused(self) -> None:
        with pytest.raises(ValueError, match="not for 'godot'"):
            WaitingState(kind="godot")  # type: ignore[arg-type]


class TestCustomStates:
    def test_the_same_definition_may_be_loaded_again(self) -> None:
        for _ in range(2):

            @dataclass(slots=True, frozen=True)
            class ReloadedState(BaseState):
                note: str

            assert ReloadedState("x").note == "x"

    def test_another_class_of_the_same_name_is_refused(self) -> None:
        @dataclass(slots=True, frozen=True)
        class TakenState(BaseState):
            note: str

        with pytest.raises(TypeError, match="called TakenState already"):
            type("TakenState", (BaseState,), {"__module__": "elsewhere", "__slots__": ()})


HELLO = UserMessageState("Hello!")
HI = AssistantMessageState("Hi")
DECLARING = AssistantMessageState("Let me see.", tool_calls=[{"id": "1"}, {"id": "2"}])
ASK = AgentCallState("helper", "Look", correlation_id="7")


def flow_of(*states: BaseState) -> Flow:
    numbers = itertools.count()
    return reduce(lambda flow, state: after(flow, state, f"ref-{next(numbers)}")[0], states, Flow())


# The transitions of the diagram, and the additional ones that people and models make.
@pytest.mark.parametrize(
    "states",
    [
        [HELLO, HI],
        [HELLO, HI, FinishedState()],
        [HELLO, HI, HELLO],
        [HELLO, HELLO, HI],
        [HELLO, HI, HI],
        [HELLO, HI, called("1"), WaitingState("tool", correlation_id="1"), brought("1"), HI],
        [HELLO, HI, called("1"), called("2"), brought("2"), brought("1"), HI],
        [HELLO, DECLARING, brought("1"), brought("2"), HI],
        [HELLO, DECLARING, called("1"), called("2"), brought("1"), brought("2"), HI],
        [HELLO, HI, ASK, WaitingState("agent", correlation_id="7"), AgentResultState("7", "Done"), HI],
        [HELLO, called("1"), ASK, AgentResultState("7", "Done"), brought("1"), HI],
        [HELLO, HI, WaitingState("user_input"), UserResponseState("Yes"), HI],
        [HELLO, WaitingState("llm"), HI],
        [HELLO, HI, called("1"), HELLO, HI],
        [HELLO, HI, called("1"), HELLO, brought("1"), HI],
        [HELLO, HI, called("1"), brought("1"), called("1"), brought("1")],
    ],
    ids=lambda states: "-".join(type(each).__name__.removesuffix("State") for each in states),
)
def test_a_transition_is_allowed(states: list[BaseState]) -> None:
    assert flow_of(*states).last == type(states[-1]).__name__


@pytest.mark.parametrize(
    ("states", "problem"),
    [
        ([HI], "AssistantMessageState is not allowed at the beginning"),
        ([UserResponseState("Yes")], "UserResponseState is not allowed at the beginning"),
        ([FinishedState()], "FinishedState is not allowed at the beginning"),
        ([HELLO, brought("1")], r"answers '1', which is not an open call \(no call is open\)"),
        ([HELLO, HI, called("1"), brought("2")], r"answers '2', which is not an open call \(open: '1'\)"),
        ([HELLO, HI, called("1"), brought("1"), brought("1")], "which is not an open call"),
        ([HELLO, HI, called("1"), HI], "AssistantMessageState is not allowed after ToolCallState"),
        ([HELLO, HI, called("1"), called("2"), brought("1"), HI], "while '2' has no result"),
        ([HELLO, DECLARING, HI], "while '1', '2' has no result"),
        ([HELLO, HI, called("1"), called("1")], "'1' is already open"),
        ([HELLO, HI, ASK, ToolResultState("7", "look", "x")], "answers '7', which is not an open call"),
        ([HELLO, HI, called("1"), AgentResultState("1", "x")], "answers '1', which is not an open call"),
        ([HELLO, HI, called("1"), HELLO, HI, brought("1")], "which is not an open call"),
    ],
)
def test_a_transition_is_not_allowed(states: list[BaseState], problem: str) -> None:
    flow = flow_of(*states[:-1])
    with pytest.raises(InvalidTransition, match=problem):
        after(flow, states[-1], "ref")


def test_the_error_names_the_allowed_states() -> None:
    with pytest.raises(InvalidTransition, match="Allowed at the beginning: UserMessageState") as refused:
        after(Flow(), HI, "ref")
    assert "UserMessageState" in refused.value.allowed


@given(any_state)
def test_no_state_follows_a_finished_one(state: BaseState) -> None:
    with pytest.raises(ConversationFinished, match="Continue in a fork, or rewind it"):
        after(flow_of(HELLO, HI, FinishedState()), state, "ref")


def test_a_call_is_open_until_its_result() -> None:
    assert [(call.id, call.place) for call in flow_of(HELLO, DECLARING, called("1")).open] == [
        ("2", "ref-1"),
        ("1", "ref-2"),
    ]


@given(conversations)
def test_each_open_call_takes_one_result(states: list[BaseState]) -> None:
    flow = flow_of(*states)
    if flow.last == "FinishedState":
        return
    for call in flow.open:
        is_agent = call.kind == "agent"
        result = AgentResultState(call.id, "x") if is_agent else ToolResultState(call.id, "look", "x")
        flow, _ = after(flow, result, "ref")
        with pytest.raises(InvalidTransition, match="is not an open call"):
            after(flow, result, "ref")
    assert flow.open == ()


class TestTransitionsOfCustomStates:
    def test_one_without_predecessors_is_allowed_anywhere(self) -> None:
        @dataclass(slots=True, frozen=True)
        class MarginState(BaseState):
            note: str

        for before in ([], [HELLO], [HELLO, HI, called("1")]):
            assert flow_of(*before, MarginState("x")) == flow_of(*before)
        with pytest.raises(ConversationFinished):
            flow_of(HELLO, HI, FinishedState(), MarginState("x"))

    def test_one_with_predecessors_follows_only_these(self) -> None:
        @dataclass(slots=True, frozen=True)
        class VerdictState(BaseState):
            follows: ClassVar[frozenset[str] | None] = frozenset({"AssistantMessageState"})

        assert flow_of(HELLO, HI, VerdictState()).last == "VerdictState"
        with pytest.raises(InvalidTransition, match="VerdictState is not allowed after UserMessageState"):
            flow_of(said("Hello!"), VerdictState())
