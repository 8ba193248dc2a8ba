"""The states of a conversation."""

from dataclasses import FrozenInstanceError, dataclass

import pytest

from orchestrator_interactive.interactions import states
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    BaseState,
    UserMessageState,
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
