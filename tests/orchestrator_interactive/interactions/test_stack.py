"""The stack over a store in memory; what differs between stores is in the conformance suite."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from interaction_states import answered, brought, called, said
from structlog.testing import capture_logs

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.errors import (
    BadBranchName,
    BranchExists,
    ConversationFinished,
    DamagedLog,
    InteractionError,
    InvalidTransition,
    NoSuchBranch,
    NoSuchState,
    UnreadableState,
    WriteConflict,
)
from orchestrator_interactive.interactions.records import about
from orchestrator_interactive.interactions.states import AgentCallState, AgentResultState, BaseState, FinishedState
from orchestrator_interactive.interactions.stores.memory import MemoryStore

HELLO, HI = said("Hello!"), answered("Hi")
STEP = [called("1"), called("2"), brought("1"), brought("2")]
TALK = [HELLO, HI, *STEP, answered("Done.")]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def stack(store: MemoryStore) -> InteractionStack:
    return InteractionStack(store, "conversation", "agent")


def another(stack: InteractionStack, store: MemoryStore) -> InteractionStack:
    return InteractionStack(store, stack.key.conversation_id, stack.key.agent_id)


async def states_of(stack: InteractionStack) -> list[BaseState | None]:
    return [entry.state async for entry in stack.iter_last_n(await stack.length())]


class TestPushing:
    async def test_an_empty_conversation_has_no_current_state(self, stack: InteractionStack) -> None:
        assert (await stack.current(), await stack.length()) == (None, 0)
        assert [entry async for entry in stack.iter_last_n(10)] == []

    async def test_states_come_in_the_order_of_their_push(self, stack: InteractionStack) -> None:
        for state in TALK:
            await stack.push(state)
        assert await states_of(stack) == TALK
        assert await stack.current() == TALK[-1]

    async def test_several_states_are_all_pushed_or_none(self, stack: InteractionStack) -> None:
        await stack.push(HELLO)
        with pytest.raises(InvalidTransition, match="is not an open call"):
            await stack.push(HI, brought("1"))
        assert await states_of(stack) == [HELLO]

    async def test_nothing_is_written_of_what_cannot_be_written(
        self, stack: InteractionStack, store: MemoryStore
    ) -> None:
        with pytest.raises(ValueError, match="contains a value that JSON cannot represent"):
            await stack.push(HELLO, said("x", meta={1, 2}))
        assert await store.keys() == []

    async def test_pushing_nothing_writes_nothing(self, stack: InteractionStack, store: MemoryStore) -> None:
        assert await stack.push() == ()
        assert await store.keys() == []

    async def test_many_tasks_may_push_through_one_stack(self, stack: InteractionStack) -> None:
        await asyncio.gather(*(stack.push(said(str(number))) for number in range(50)))
        assert await states_of(stack) == [said(str(number)) for number in range(50)]

    async def test_nothing_is_pushed_to_a_finished_conversation(self, stack: InteractionStack) -> None:
        await stack.push(HELLO, HI, FinishedState())
        with pytest.raises(ConversationFinished, match="Continue in a fork, or rewind it"):
            await stack.push(HELLO)
        assert await stack.length() == 3

    async def test_a_finished_conversation_goes_on_in_a_fork(self, stack: InteractionStack) -> None:
        await stack.push(HELLO, HI, FinishedState())
        await stack.checkout(await stack.fork(1))
        await stack.push(HELLO)
        assert await states_of(stack) == [HELLO, HI, HELLO]

    @pytest.mark.parametrize("ids", [("", "a"), ("c", ""), ("c\ud800", "a")])
    def test_ids_are_texts_that_can_be_written(self, store: MemoryStore, ids: tuple[str, str]) -> None:
        with pytest.raises(ValueError, match=r"must not be blank|half of a character"):
            InteractionStack(store, *ids)


class TestReading:
    @pytest.mark.parametrize("index", [0, 3, 6, -1, -7])
    async def test_an_index_is_that_of_a_list(self, stack: InteractionStack, index: int) -> None:
        await stack.push(*TALK)
        assert await stack.at(index) == TALK[index]

    @pytest.mark.parametrize("index", [7, -8, 10**9])
    async def test_an_index_that_does_not_exist_is_told(self, stack: InteractionStack, index: int) -> None:
        await stack.push(*TALK)
        with pytest.raises(NoSuchState, match=f"no state {index}: branch main has the states 0 to 6"):
            await stack.at(index)

    async def test_an_empty_conversation_has_none(self, stack: InteractionStack) -> None:
        with pytest.raises(NoSuchState, match="branch main is empty"):
            await stack.at(0)

    @pytest.mark.parametrize("n", [0, 3, 7, 100])
    async def test_the_last_entries_are_those_of_a_list(self, stack: InteractionStack, n: int) -> None:
        await stack.push(*TALK)
        entries = [(entry.index, entry.state) async for entry in stack.iter_last_n(n)]
        assert entries == [*enumerate(TALK)][max(len(TALK) - n, 0) :]

    async def test_a_negative_number_of_entries_is_refused(self, stack: InteractionStack) -> None:
        with pytest.raises(ValueError, match="0 or more"):
            [entry async for entry in stack.iter_last_n(-1)]

    async def test_a_long_conversation_is_read_in_pages(self, stack: InteractionStack) -> None:
        for begin in range(0, 1200, 400):
            await stack.push(*(said(str(number)) for number in range(begin, begin + 400)))
        assert await states_of(stack) == [said(str(number)) for number in range(1200)]

    async def test_a_reader_sees_what_others_wrote_once_it_looks_again(
        self, stack: InteractionStack, store: MemoryStore
    ) -> None:
        await stack.push(HELLO)
        await another(stack, store).push(HI)
        assert await stack.length() == 1
        await stack.refresh()
        assert await stack.length() == 2


class TestBranches:
    async def test_a_fork_does_not_leave_the_branch(self, stack: InteractionStack) -> None:
        await stack.push(*TALK)
        name = await stack.fork(1)
        assert await stack.length() == len(TALK)
        await stack.checkout(name)
        assert await states_of(stack) == TALK[:2]

    async def test_without_an_index_it_has_everything(self, stack: InteractionStack) -> None:
        await stack.push(*TALK)
        await stack.checkout(await stack.fork(name="copy"))
        assert await states_of(stack) == TALK

    async def test_branches_go_on_by_themselves(self, stack: InteractionStack) -> None:
        await stack.push(HELLO, HI)
        await stack.fork(name="other")
        await stack.push(said("Here"))
        await stack.checkout("other")
        await stack.push(said("There"))
        assert (await states_of(stack))[-1] == said("There")
        await stack.checkout("main")
        assert (await states_of(stack))[-1] == said("Here")

    async def test_what_is_checked_out_is_so_for_everybody(self, stack: InteractionStack, store: MemoryStore) -> None:
        await stack.push(HELLO, HI)
        await stack.checkout(await stack.fork(0))
        assert await another(stack, store).length() == 1

    async def test_the_info_tells_of_every_branch(self, stack: InteractionStack) -> None:
        await stack.push(*TALK)
        await stack.fork(1, "short")
        await stack.rewind(3)
        info = [(each.name, each.length, each.is_current, each.origin) for each in await stack.get_branch_info()]
        assert info == [
            ("main", 4, True, ""),
            ("short", 2, False, "forked from main with 2 states"),
            ("branch-2", 7, False, "left behind when main was rewound to 4 states"),
        ]

    async def test_a_fork_of_a_name_that_is_taken_is_refused(self, stack: InteractionStack) -> None:
        await stack.push(HELLO)
        with pytest.raises(BranchExists, match="already a branch 'main'"):
            await stack.fork(name="main")

    @pytest.mark.parametrize("name", ["", " ", " idea", "-idea", "two\nlines", "\x1b[31mred", "half\ud800"])
    async def test_a_name_can_be_seen_and_written(self, stack: InteractionStack, name: str) -> None:
        await stack.push(HELLO)
        with pytest.raises(BadBranchName, match="is not a valid branch name"):
            await stack.fork(name=name)

    async def test_a_branch_that_does_not_exist_is_told(self, stack: InteractionStack) -> None:
        await stack.push(HELLO)
        with pytest.raises(NoSuchBranch, match="no branch 'mian'; existing branches: main"):
            await stack.checkout("mian")

    async def test_a_call_open_at_the_fork_is_open_in_it(self, stack: InteractionStack) -> None:
        await stack.push(*TALK)
        await stack.checkout(await stack.fork(4))
        with pytest.raises(InvalidTransition, match="is not an open call"):
            await stack.push(brought("1"))
        await stack.push(brought("2", "another result"))
        assert await stack.length() == 6


class TestGoingBack:
    async def test_a_rewind_leaves_a_branch_behind(self, stack: InteractionStack) -> None:
        await stack.push(*TALK)
        left = await stack.rewind(0)
        await stack.push(answered("Something else"))
        assert await states_of(stack) == [HELLO, answered("Something else")]
        assert left is not None
        await stack.checkout(left)
        assert await states_of(stack) == TALK

    async def test_to_the_last_state_it_changes_nothing(self, stack: InteractionStack, store: MemoryStore) -> None:
        await stack.push(*TALK)
        before = await store.load(stack.key)
        assert await stack.rewind(-1) is None
        assert await store.load(stack.key) == before

    async def test_pop_gives_the_last_state_and_keeps_it_reachable(self, stack: InteractionStack) -> None:
        await stack.push(*TALK)
        assert [await stack.pop() for _ in TALK] == TALK[::-1]
        assert await stack.length() == 0
        assert [(each.name, each.length) for each in await stack.get_branch_info()] == [("main", 0), ("branch-1", 7)]

    async def test_there_is_nothing_to_pop_of_an_empty_one(self, stack: InteractionStack) -> None:
        with pytest.raises(NoSuchState, match="nothing to pop"):
            await stack.pop()

    async def test_a_restart_is_one_step(self, stack: InteractionStack, store: MemoryStore) -> None:
        await stack.push(*TALK)
        with pytest.raises(InvalidTransition):
            await stack.restart(HELLO, brought("1"))
        assert await states_of(another(stack, store)) == TALK
        left = await stack.restart(said("Anew"), HI)
        assert await states_of(stack) == [said("Anew"), HI]
        assert left == "branch-1"

    async def test_pruned_states_are_gone(self, stack: InteractionStack, store: MemoryStore) -> None:
        await stack.push(*TALK)
        left = await stack.rewind(2)
        assert left is not None
        assert await stack.prune([left, "main"]) == 4
        assert await states_of(stack) == TALK[:3]
        assert len(await store.read(stack.key, 0, 0, 100)) == 3


class TestTwoWriters:
    Change = Callable[[InteractionStack], Awaitable[object]]

    @pytest.mark.parametrize(
        "change",
        [
            lambda stack: stack.push(said("Too late")),
            lambda stack: stack.pop(),
            lambda stack: stack.rewind(0),
            lambda stack: stack.restart(HELLO),
            lambda stack: stack.fork(0),
            lambda stack: stack.checkout("other"),
            lambda stack: stack.prune(["other"]),
        ],
        ids=["push", "pop", "rewind", "restart", "fork", "checkout", "prune"],
    )
    async def test_one_wins_and_nothing_of_the_other_is_written(
        self, stack: InteractionStack, store: MemoryStore, change: Change
    ) -> None:
        await stack.push(HELLO, HI)
        await stack.fork(0, "other")
        late = another(stack, store)
        await late.refresh()
        await stack.push(said("In time"))
        before = await store.load(stack.key)
        with pytest.raises(WriteConflict, match="Another writer changed conversation conversation of agent"):
            await change(late)
        assert await store.load(stack.key) == before
        assert await late.current() == said("In time")

    @pytest.mark.parametrize("change", [lambda stack: stack.fork(0), lambda stack: stack.prune(["other"])])
    async def test_who_pushes_is_not_held_up_by_forks_and_prunes(
        self, stack: InteractionStack, store: MemoryStore, change: Change
    ) -> None:
        await stack.push(HELLO, HI)
        await stack.fork(0, "other")
        await change(another(stack, store))
        await stack.push(said("Go on"))
        assert await states_of(another(stack, store)) == [HELLO, HI, said("Go on")]

    async def test_the_same_length_is_not_the_same_conversation(
        self, stack: InteractionStack, store: MemoryStore
    ) -> None:
        await stack.push(HELLO, HI)
        await stack.rewind(0)
        late = another(stack, store)
        await late.refresh()
        await stack.restart(said("Anew"))
        with pytest.raises(WriteConflict):
            await late.push(HI)

    async def test_two_who_begin_a_conversation_are_two_writers(
        self, stack: InteractionStack, store: MemoryStore
    ) -> None:
        late = another(stack, store)
        await late.length()
        await stack.push(HELLO)
        with pytest.raises(WriteConflict):
            await late.push(HELLO)


class TestArtifactsOfAPush:
    async def test_a_push_tells_their_refs(self, stack: InteractionStack) -> None:
        refs = [*await stack.push(HELLO), *await stack.push(HI, *STEP)]
        assert refs == [entry.ref async for entry in stack.iter_last_n(10)]
        assert len(set(refs)) == 6

    async def test_a_result_comes_from_its_call(self, stack: InteractionStack) -> None:
        refs = await stack.push(HELLO, HI, *STEP)
        assert [entry.parents async for entry in stack.iter_last_n(2)] == [(refs[2],), (refs[3],)]

    async def test_a_call_that_is_only_declared_is_that_of_the_message(self, stack: InteractionStack) -> None:
        refs = await stack.push(HELLO, answered("Let me see.", tool_calls=[{"id": "1"}]), brought("1"))
        assert [entry.parents async for entry in stack.iter_last_n(1)] == [(refs[1],)]

    async def test_the_task_of_a_child_agent_comes_from_the_request(
        self, stack: InteractionStack, store: MemoryStore
    ) -> None:
        (ref,) = (await stack.push(HELLO, AgentCallState("helper", "Look", correlation_id="7")))[1:]
        child = InteractionStack(store, "conversation/7", "helper", asked_by=ref)
        await child.push(said("Look"), answered("Found"))
        assert [entry.parents async for entry in child.iter_last_n(2)] == [(ref,), ()]
        await stack.push(AgentResultState("7", "Found"))
        assert [entry.parents async for entry in stack.iter_last_n(1)] == [(ref,)]

    async def test_a_task_is_an_episode(self, stack: InteractionStack) -> None:
        await stack.push(HELLO, said("And"), HI, *STEP, said("Faster"), answered("Done."), said("Now this"), HI)
        episodes = [entry.episode async for entry in stack.iter_last_n(20)]
        assert episodes == [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2]


class TestDamage:
    @pytest.fixture
    async def damaged(self, stack: InteractionStack, store: MemoryStore) -> InteractionStack:
        """The fourth state has unreadable data, and the fifth is gone."""
        await stack.push(*TALK)
        nodes = store._nodes[stack.key]
        nodes[0, 3].envelope["data"] = "{"
        del nodes[0, 4]
        return another(stack, store)

    async def test_the_rest_is_there(self, damaged: InteractionStack) -> None:
        assert await states_of(damaged) == [*TALK[:3], None, None, *TALK[5:]]

    async def test_it_is_told_what_is_wrong(self, damaged: InteractionStack) -> None:
        entries = [entry async for entry in damaged.iter_last_n(10)]
        assert [(entry.index, entry.kind) for entry in entries if entry.problem] == [
            (3, "ToolCallState"),
            (4, "(damaged)"),
        ]
        assert "The data of ToolCallState are damaged" in str(entries[3].problem)

    @pytest.mark.parametrize("index", [3, 4])
    async def test_who_asks_for_it_learns_where_it_is(self, damaged: InteractionStack, index: int) -> None:
        with pytest.raises(UnreadableState, match=rf"[Ss]tate {index} of branch main"):
            await damaged.at(index)

    async def test_the_conversation_goes_on(self, damaged: InteractionStack) -> None:
        await damaged.push(said("Go on"))
        assert await damaged.length() == 8

    async def test_a_number_of_states_that_is_none_is_told_before_all_of_them_are_looked_for(
        self, stack: InteractionStack, store: MemoryStore
    ) -> None:
        await stack.push(HELLO)
        log = store._logs[stack.key]
        store._logs[stack.key] = replace(log, tree=log.tree.with_end(50_000_000, 0.0))
        late = another(stack, store)
        with pytest.raises(DamagedLog, match="consecutive states of conversation are missing"):
            [entry async for entry in late.iter_last_n(10_000)]

    async def test_a_log_that_is_gone_is_told_to_the_operator(
        self, stack: InteractionStack, store: MemoryStore
    ) -> None:
        await stack.push(HELLO)
        await store.remove(stack.key, 1)
        with capture_logs() as logs:
            await stack.refresh()
        assert [(each["event"], each["had"], each["has"]) for each in logs] == [("log.expired", 1, 0)]

    async def test_the_tasks_are_counted_on(self, stack: InteractionStack, store: MemoryStore) -> None:
        await stack.push(HELLO, HI, HELLO, HI)
        del store._nodes[stack.key][0, 3]
        late = another(stack, store)
        await late.push(answered("And"), HELLO)
        assert [entry.episode async for entry in late.iter_last_n(2)] == [2, 3]

    async def test_it_goes_on_after_a_state_that_is_gone(self, damaged: InteractionStack) -> None:
        await damaged.rewind(4)
        with pytest.raises(UnreadableState):
            await damaged.pop()
        await damaged.push(said("Go on"), HI)
        assert (await states_of(damaged))[-2:] == [said("Go on"), HI]


def test_all_errors_are_of_one_family() -> None:
    assert all(issubclass(kind, InteractionError) for kind in (NoSuchState, NoSuchBranch, BranchExists, WriteConflict))


async def test_an_answer_with_many_calls_can_be_left_at_any_state_and_gone_on_with(stack, store):
    ids = [str(number) for number in range(100)]
    await stack.push(HELLO, HI, *map(called, ids))
    for call_id in ids[:50]:
        await stack.push(brought(call_id))
    for index in (1 + 40, 1 + 100, 1 + 100 + 30):
        after = another(stack, store)
        await after.fork(index, f"at-{index}")
        await after.checkout(f"at-{index}")
        fresh = another(stack, store)
        asked, done = min(index - 1, 100), max(index - 1 - 100, 0)
        with pytest.raises(InvalidTransition, match="is not an open call"):
            await fresh.push(brought("unknown"))
        for call_id in ids[done:asked]:
            await another(stack, store).push(brought(call_id))
        await fresh.refresh()
        await fresh.push(answered("Done."))
        await another(stack, store).checkout("main")


async def test_what_is_written_of_an_answer_with_many_calls_grows_with_their_number_only(stack, store):
    async def size_of(count):
        ids = [f"{count}-{number}" for number in range(count)]
        await stack.push(HELLO, HI, *map(called, ids))
        for call_id in ids:
            await stack.push(brought(call_id))
        await stack.push(answered("Done."))
        length = await stack.length()
        nodes = await store.read(stack.key, 0, length - 2 * count - 3, length)
        return sum(len(json.dumps(about(node))) for node in nodes)

    assert await size_of(200) < 3 * await size_of(100)
