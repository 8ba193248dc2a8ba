from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import ClassVar

import pytest

from orchestrator_interactive.interactions import states
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    BaseState,
    ToolCallState,
    UserMessageState,
    WaitingState,
)


def test_a_state_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        UserMessageState(text="Hello!").text = "Bye"  # type: ignore[misc]


@pytest.mark.parametrize("name", [name for name in states.__all__ if name != "BaseState"])
def test_every_state_is_slotted_and_versioned(name: str) -> None:
    kind: type[BaseState] = getattr(states, name)
    assert kind.__version__ == 1
    assert not any("__dict__" in vars(each) for each in kind.__mro__)


def test_two_agent_calls_have_ids_of_their_own() -> None:
    assert AgentCallState("helper", "Look").correlation_id != AgentCallState("helper", "Look").correlation_id


def test_a_call_without_arguments_has_none() -> None:
    assert ToolCallState("1", "look").arguments == {}


class TestWaiting:
    def test_it_is_over_at_its_deadline(self) -> None:
        waiting = WaitingState(kind="tool", deadline=100.0)
        assert [waiting.is_over(99.9), waiting.is_over(100.0)] == [False, True]

    def test_without_a_deadline_it_waits_for_as_long_as_it_takes(self) -> None:
        assert not WaitingState(kind="agent").is_over()

    def test_a_deadline_in_the_past_is_over_now(self) -> None:
        assert WaitingState(kind="llm", deadline=1.0).is_over()

    def test_it_waits_for_nobody_else(self) -> None:
        with pytest.raises(ValueError, match="not for 'godot'"):
            WaitingState(kind="godot")  # type: ignore[arg-type]


class TestCustomStates:
    def test_the_same_definition_once_more_is_no_problem(self) -> None:
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

    def test_a_state_may_say_after_which_others_it_comes(self) -> None:
        @dataclass(slots=True, frozen=True)
        class ReviewState(BaseState):
            follows: ClassVar[frozenset[str] | None] = frozenset({"AssistantMessageState"})

        assert "ReviewState" in states.base.may_follow("AssistantMessageState")
