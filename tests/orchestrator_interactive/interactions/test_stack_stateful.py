"""Compare random operations of two stacks on one conversation with a model."""

import asyncio
from itertools import count
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from stack_model import Model, NoteState
from stored_logs import every_node

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.errors import InteractionError, NoSuchState, WriteConflict
from orchestrator_interactive.interactions.states import (
    AssistantMessageState,
    FinishedState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
)
from orchestrator_interactive.interactions.stores import open_store

WHO = st.sampled_from([0, 0, 0, 1])
INDEX = st.integers(-9, 9)
KINDS = st.lists(
    st.sampled_from(["user", "user", "assistant", "asking", "call", "result", "result", "note", "finished"]),
    min_size=1,
    max_size=5,
)
EXAMPLES = {"memory": 100, "sqlite": 25, "redis": 15}


class TwoStacks(RuleBasedStateMachine):
    """`truth` is the expected content of the store; `views` is what each stack has loaded of it."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.name = uuid4().hex
        self.serial = count()
        self.refs: dict[str, object] = {}
        self.truth = Model.empty()
        self.views: list[Model | None] = [None, None]
        self.pruned_at = 0
        first = self.run(open_store(self.url))
        self.stores = [first, first if self.url == "memory:" else self.run(open_store(self.url))]
        self.stacks = [InteractionStack(store, self.name, "alpha") for store in self.stores]

    def teardown(self) -> None:
        for store in self.stores:
            self.run(store.aclose())
        self.runner.close()

    def run(self, work):
        return self.runner.run(work)

    @rule(who=WHO, kinds=KINDS)
    def push(self, who, kinds):
        states = self._states(self._seen(who).states, kinds)
        # Forks and prunes by others do not conflict.
        on = self.truth if self._seen(who).ends_like(self.truth) else None
        refs = self._do(who, self.stacks[who].push(*states), lambda seen: seen.pushed(states), on=on)
        if refs is not None:
            self._know(zip(refs, states, strict=True))

    @rule(who=WHO, kinds=KINDS)
    def restart(self, who, kinds):
        before, states = self._seen(who).states, self._states((), kinds)
        self._leave(who, self.stacks[who].restart(*states), before, lambda seen: seen.cut(0).pushed(states))

    @rule(who=WHO, index=INDEX)
    def rewind(self, who, index):
        before = self._seen(who).states
        self._leave(who, self.stacks[who].rewind(index), before, lambda seen: seen.cut(seen.place(index) + 1))

    @rule(who=WHO)
    def pop(self, who):
        before = self._seen(who).states
        popped = self._do(who, self.stacks[who].pop(), lambda seen: seen.cut(seen.place(-1)))
        if popped is not None:
            assert popped == before[-1]
            names = {branch.name for branch in self.run(self.stacks[who].get_branch_info())} - set(self.truth.names)
            assert len(names) <= 1
            self._left(who, next(iter(names), None), before)

    @rule(who=WHO, index=st.none() | INDEX, name=st.none() | st.sampled_from(["main", "side", "branch-1", "branch-2"]))
    def fork(self, who, index, name):
        def forked(seen):
            return seen.forked(len(seen.states) if index is None else seen.place(index) + 1, name)

        made = self._do(who, self.stacks[who].fork(index, name), forked)
        if made is not None and name is None:
            assert made not in self.truth.branches
            self._is_now(who, self.truth.renamed("(new)", made))
        assert made is None or name in (None, made)

    @rule(who=WHO, data=st.data())
    def checkout(self, who, data):
        name = data.draw(st.sampled_from([*self.truth.names, "nowhere"]))
        self._do(who, self.stacks[who].checkout(name), lambda seen: seen.checked_out(name))

    @rule(who=WHO, data=st.data())
    def prune(self, who, data):
        names = data.draw(st.lists(st.sampled_from([*self.truth.names, *self.truth.names, "nowhere"]), max_size=4))
        before = self.truth
        gone = self._do(who, self.stacks[who].prune(names), lambda seen: seen.pruned(names))
        if gone is not None:
            assert gone == len(before.all_states - self.truth.all_states)
            self.pruned_at = self.truth.version
            self._nothing_else_is_kept()

    @rule(who=WHO)
    def open_again(self, who):
        if self.url != "memory:":
            self.run(self.stores[who].aclose())
            self.stores[who] = self.run(open_store(self.url))
        self.stacks[who] = InteractionStack(self.stores[who], self.name, "alpha")
        self.views[who] = None

    @rule(who=WHO)
    def refresh(self, who):
        self.run(self.stacks[who].refresh())
        self.views[who] = self.truth

    @rule(who=WHO, index=INDEX, n=st.integers(0, 30))
    def look(self, who, index, n):
        self.run(self._look(self.stacks[who], self._seen(who), index, n))

    @invariant()
    def the_store_equals_the_model(self):
        stack = InteractionStack(self.stores[0], self.name, "alpha")
        self.run(self._look(stack, self.truth, -1, 1000))

    def _seen(self, who):
        """Return what a stack has loaded, or loads now."""
        if self.views[who] is None:
            self.views[who] = self.truth
        return self.views[who]

    def _do(self, who, work, change, *, on=None):
        """Run an operation and check its outcome; return its result, or None if it failed as expected.

        Args:
            on: the model that the change applies to, if it is not what the stack has loaded.
        """
        seen = on or self._seen(who)
        expected, after = None, None
        try:
            after = change(seen)
        except InteractionError as e:
            expected = type(e)
        if after not in (None, seen) and seen is not self.truth:
            expected = WriteConflict
        try:
            given = self.run(work)
        except InteractionError as e:
            assert type(e) is expected, f"{e!r}, not {expected}"  # noqa: PT017 - so is its absence
            if expected is WriteConflict:
                self.views[who] = None
            return None
        assert expected is None
        if after is not seen:
            self._is_now(who, after)
        return True if given is None else given

    def _leave(self, who, work, before, change):
        left = self._do(who, _boxed(work), change)
        if left is not None:
            self._left(who, left[0], before)

    def _left(self, who, name, before):
        """Check that the states from before are on the new branch or on another one."""
        assert name not in self.truth.branches
        if name is not None:
            self._is_now(who, self.truth.left(name, before))
        assert self.truth.keeps(before) or not before or self._seen(who) is not self.truth

    def _is_now(self, who, truth):
        self.truth = self.views[who] = truth

    async def _look(self, stack, seen, index, n):
        if seen.version < self.pruned_at:  # its states may be pruned
            return
        assert await stack.length() == len(seen.states)
        assert await stack.current() == (seen.states[-1] if seen.states else None)
        try:
            assert await stack.at(index) == seen.states[seen.place(index)]
        except NoSuchState:
            assert not -len(seen.states) <= index < len(seen.states)
        branches = await stack.get_branch_info()
        lengths = {name: len(states) for name, states in seen.branches.items()}
        assert {branch.name: branch.length for branch in branches} == lengths
        assert [branch.name for branch in branches if branch.is_current] == [seen.current]
        self._compare([entry async for entry in stack.iter_last_n(n)], seen, n)

    def _compare(self, entries, seen, n):
        first = max(len(seen.states) - n, 0)
        assert [entry.state for entry in entries] == list(seen.states[first:])
        assert [entry.index for entry in entries] == list(range(first, len(seen.states)))
        self._know((entry.ref, entry.state) for entry in entries)
        refs = [entry.ref for entry in entries]
        for entry, (parent, episode) in zip(entries, seen.progress()[1][first:], strict=True):
            assert entry.episode == episode
            assert (parent is None) == (not entry.parents)
            assert parent is None or parent < first or entry.parents == (refs[parent - first],)

    def _know(self, places):
        """Check that a ref always names the same state."""
        for ref, state in places:
            assert self.refs.setdefault(ref, state) == state

    def _nothing_else_is_kept(self):
        kept = self.run(every_node(self.stores[0], self.stacks[0].key, len(self.refs) + 1))
        assert len(kept) == len(self.truth.all_states)

    def _states(self, before, kinds):
        """Build unique states of these kinds; results answer an open call if there is one."""
        states = []
        for kind in kinds:
            states.append(self._state(kind, (*before, *states)))
        return states

    def _state(self, kind, before):
        serial = str(next(self.serial))
        made = {
            "user": UserMessageState(serial),
            "assistant": AssistantMessageState(serial),
            "asking": AssistantMessageState(serial, [{"id": f"asked {serial}"}]),
            "call": ToolCallState(f"call {serial}", "look", {"at": serial * 2000}),
            "result": ToolResultState(_open_call(before) or "unknown", "look", serial),
            "note": NoteState(serial),
            "finished": FinishedState(),
        }
        return made[kind]


async def _boxed(work):
    return (await work,)


def _open_call(states):
    """Return the id of an open call."""
    calls = []
    for state in states:
        match state:
            case AssistantMessageState():
                calls = [call["id"] for call in state.tool_calls or ()]
            case ToolCallState():
                calls.append(state.id)
            case ToolResultState() if state.tool_call_id in calls:
                calls.remove(state.tool_call_id)
    return calls[-1] if calls else None


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", EXAMPLES)  # a cluster behaves like a server here, and opens slowly
def test_two_stacks_behave_like_the_model(kind, request):
    class Here(TwoStacks):
        url = "memory:" if kind == "memory" else request.getfixturevalue(f"{kind}_url")

    run_state_machine_as_test(
        Here,
        settings=settings(
            max_examples=EXAMPLES[kind],
            stateful_step_count=30,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
