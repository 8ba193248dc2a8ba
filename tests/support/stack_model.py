"""A model of an interaction stack: a branch is a list of states."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator_interactive.interactions.errors import (
    BranchExists,
    ConversationFinished,
    InvalidTransition,
    NoSuchBranch,
    NoSuchState,
)
from orchestrator_interactive.interactions.states import (
    AssistantMessageState,
    BaseState,
    FinishedState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
)


@dataclass(slots=True, frozen=True)
class NoteState(BaseState):
    """A state outside of the flow."""

    text: str


@dataclass
class Progress:
    """The progress of a conversation: the last state, the open calls, and the task."""

    last: BaseState | None = None
    open: dict[str, int] | None = None
    episode: int = 0

    def go_on(self, index: int, state: BaseState) -> int | None:
        """The place of the state's parent, if it has one.

        Raises:
            InvalidTransition: it may not come here.
        """
        calls = self.open or {}
        parent = None
        if isinstance(self.last, FinishedState):
            raise ConversationFinished("finished")
        if isinstance(state, NoteState):
            return None
        if self.last is None and not isinstance(state, UserMessageState):
            raise InvalidTransition("at the beginning")
        match state:
            case UserMessageState():
                self.episode += self.last is None or isinstance(self.last, AssistantMessageState)
            case AssistantMessageState():
                if calls and not isinstance(self.last, UserMessageState):
                    raise InvalidTransition("open calls")
                calls = {call["id"]: index for call in state.tool_calls or ()}
            case ToolCallState():
                calls = {**calls, state.id: index}
            case ToolResultState():
                if state.tool_call_id not in calls:
                    raise InvalidTransition("no question before it")
                parent = calls[state.tool_call_id]
                calls = {call: place for call, place in calls.items() if call != state.tool_call_id}
        self.last, self.open = state, calls
        return parent


@dataclass(frozen=True)
class Model:
    """A conversation: its branches by name, and the name of the current one.

    Args:
        marks: tell, by name, which branch it is; the name can become another one's.
    """

    version: int
    branches: dict[str, tuple[BaseState, ...]]
    current: str
    marks: dict[str, object]

    @classmethod
    def empty(cls) -> Model:
        return cls(0, {"main": ()}, "main", {"main": object()})

    @property
    def names(self) -> list[str]:
        return sorted(self.branches)

    @property
    def states(self) -> tuple[BaseState, ...]:
        return self.branches[self.current]

    @property
    def all_states(self) -> set[int]:
        """The states of all branches, each once, compared by identity."""
        return {id(state) for states in self.branches.values() for state in states}

    def progress(self) -> tuple[Progress, list[tuple[int | None, int]]]:
        """How far the current branch is, and for each of its states the place of its parent and its task."""
        progress, told = Progress(), []
        for index, state in enumerate(self.states):
            parent = progress.go_on(index, state)
            told.append((parent, progress.episode))
        return progress, told

    def place(self, index: int) -> int:
        place = index + len(self.states) if index < 0 else index
        if not 0 <= place < len(self.states):
            raise NoSuchState("none")
        return place

    def ends_like(self, other: Model) -> bool:
        """Return whether both have the same current branch with the same states, under any name."""
        return self.marks[self.current] is other.marks[other.current] and self.states == other.states

    def pushed(self, states: Sequence[BaseState]) -> Model:
        progress = self.progress()[0]
        for index, state in enumerate(states, len(self.states)):
            progress.go_on(index, state)
        return self._with(self.current, (*self.states, *states))

    def cut(self, length: int) -> Model:
        if length == len(self.states):
            return self
        return self._with(self.current, self.states[:length])

    def forked(self, length: int, name: str | None) -> Model:
        if name in self.branches:
            raise BranchExists("taken")
        return self._with("(new)", self.states[:length]).renamed("(new)", name or "(new)")

    def renamed(self, old: str, new: str) -> Model:
        branches, marks = dict(self.branches), dict(self.marks)
        branches[new], marks[new] = branches.pop(old), marks.pop(old, object())
        return replace(self, branches=branches, marks=marks)

    def checked_out(self, name: str) -> Model:
        if name not in self.branches:
            raise NoSuchBranch("none")
        return replace(self, version=self.version + 1, current=name)

    def pruned(self, names: Sequence[str]) -> Model:
        if not set(names) <= set(self.branches):
            raise NoSuchBranch("none")
        gone = set(names) - {self.current}
        kept = {name: states for name, states in self.branches.items() if name not in gone}
        return replace(self, version=self.version + 1, branches=kept)

    def left(self, name: str | None, states: Sequence[BaseState]) -> Model:
        """Return the model after a rewind; `name` is the branch with the remaining states. None: an older one."""
        if name is None:
            return self
        branches = {**self.branches, name: tuple(states)}
        marks = {**self.marks, name: self.marks[self.current], self.current: object()}
        return replace(self, branches=branches, marks=marks)

    def keeps(self, states: Sequence[BaseState]) -> bool:
        """Whether these states are on a branch still."""
        return any(each[: len(states)] == tuple(states) for each in self.branches.values())

    def _with(self, name: str, states: tuple[BaseState, ...]) -> Model:
        return replace(self, version=self.version + 1, branches={**self.branches, name: states})
