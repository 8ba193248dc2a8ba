"""The stack over a store in memory. `test_stack_stateful.py` compares its operations with a model."""

import asyncio
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
from orchestrator_interactive.interactions.records import fields_of
from orchestrator_interactive.interactions.states import BaseState, FinishedState, RunFinishedState, WaitingState
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
    async def test_states_are_pushed_all_or_none(self, stack: InteractionStack, store: MemoryStore) -> None:
        assert await stack.push() == ()
        with pytest.raises(ValueError, match="contains a value that JSON cannot represent"):
            await stack.push(HELLO, said("x", meta={1, 2}))
        assert await store.keys() == []
        await stack.push(HELLO)
        with pytest.raises(InvalidTransition, match="is not an open call"):
            await stack.push(HI, brought("1"))
        assert await states_of(stack) == [HELLO]

    async def test_concurrent_tasks_may_push_through_one_stack(self, stack: InteractionStack) -> None:
        await asyncio.gather(*(stack.push(said(str(number))) for number in range(50)))
        assert await states_of(stack) == [said(str(number)) for number in range(50)]

    async def test_a_finished_conversation_continues_only_in_a_fork(self, stack: InteractionStack) -> None:
        await stack.push(HELLO, HI, FinishedState())
        with pytest.raises(ConversationFinished, match="Continue in a fork, or rewind it"):
            await stack.push(HELLO)
        assert await stack.length() == 3
        await stack.checkout(await stack.fork(1))
        await stack.push(HELLO)
        assert await states_of(stack) == [HELLO, HI, HELLO]

    @pytest.mark.parametrize("ids", [("", "a"), ("c", ""), ("c\ud800", "a")])
    def test_ids_must_be_valid_text(self, store: MemoryStore, ids: tuple[str, str]) -> None:
        with pytest.raises(ValueError, match=r"must not be blank|half of a character"):
            InteractionStack(store, *ids)


class TestReading:
    @pytest.mark.parametrize("index", [7, -8, 10**9])
    async def test_the_error_of_a_wrong_index_names_the_range(self, stack: InteractionStack, index: int) -> None:
        with pytest.raises(NoSuchState, match="branch main is empty"):
            await stack.at(0)
        await stack.push(*TALK)
        with pytest.raises(NoSuchState, match=f"no state {index}: branch main has the states 0 to 6"):
            await stack.at(index)

    async def test_a_negative_number_of_entries_is_refused(self, stack: InteractionStack) -> None:
        with pytest.raises(ValueError, match="0 or more"):
            [entry async for entry in stack.iter_last_n(-1)]


class TestBranches:
    async def test_a_fork_leaves_the_current_branch_unchanged(self, stack: InteractionStack) -> None:
        await stack.push(*TALK)
        name = await stack.fork(1)
        assert await stack.length() == len(TALK)
        await stack.checkout(name)
        assert await states_of(stack) == TALK[:2]

    async def test_a_checkout_is_stored_in_the_log(self, stack: InteractionStack, store: MemoryStore) -> None:
        await stack.push(HELLO, HI)
        await stack.checkout(await stack.fork(0))
        assert await another(stack, store).length() == 1

    async def test_the_branch_info_has_length_and_origin(self, stack: InteractionStack) -> None:
        await stack.push(*TALK)
        await stack.fork(1, "short")
        await stack.rewind(3)
        info = [(each.name, each.length, each.is_current, each.origin) for each in await stack.get_branch_info()]
        assert info == [
            ("main", 4, True, ""),
            ("short", 2, False, "forked from main with 2 states"),
            ("branch-2", 7, False, "left behind when main was rewound to 4 states"),
        ]

    @pytest.mark.parametrize(
        ("name", "kind", "said_"),
        [
            ("main", BranchExists, "already a branch 'main'"),
            *(
                (name, BadBranchName, "is not a valid branch name")
                for name in ("", " ", " idea", "-idea", "two\nlines", "\x1b[31mred", "half\ud800")
            ),
        ],
    )
    async def test_a_fork_needs_a_new_valid_name(self, stack, name, kind, said_) -> None:
        await stack.push(HELLO)
        with pytest.raises(kind, match=said_):
            await stack.fork(name=name)

    async def test_the_error_of_an_unknown_branch_names_the_existing_ones(self, stack: InteractionStack) -> None:
        await stack.push(HELLO)
        with pytest.raises(NoSuchBranch, match="no branch 'mian'; existing branches: main") as raised:
            await stack.checkout("mian")
        assert isinstance(raised.value, InteractionError)


class TestGoingBack:
    async def test_a_rewind_keeps_the_removed_states_on_a_branch(self, stack: InteractionStack) -> None:
        await stack.push(*TALK)
        left = await stack.rewind(0)
        await stack.push(answered("Something else"))
        assert await states_of(stack) == [HELLO, answered("Something else")]
        assert left is not None
        await stack.checkout(left)
        assert await states_of(stack) == TALK

    async def test_pop_returns_the_last_state_and_keeps_it_reachable(self, stack: InteractionStack) -> None:
        await stack.push(*TALK)
        assert [await stack.pop() for _ in TALK] == TALK[::-1]
        assert [(each.name, each.length) for each in await stack.get_branch_info()] == [("main", 0), ("branch-1", 7)]
        with pytest.raises(NoSuchState, match="nothing to pop"):
            await stack.pop()

    async def test_a_restart_is_one_write(self, stack: InteractionStack, store: MemoryStore) -> None:
        await stack.push(*TALK)
        with pytest.raises(InvalidTransition):
            await stack.restart(HELLO, brought("1"))
        assert await states_of(another(stack, store)) == TALK
        assert await stack.restart(said("Anew"), HI) == "branch-1"
        assert await states_of(stack) == [said("Anew"), HI]


Change = Callable[[InteractionStack], Awaitable[object]]


class TestTwoWriters:
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
    async def test_the_second_writer_gets_a_conflict_and_writes_nothing(self, stack, store, change: Change) -> None:
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
    async def test_forks_and_prunes_by_others_do_not_conflict_with_a_push(self, stack, store, change: Change) -> None:
        await stack.push(HELLO, HI)
        await stack.fork(0, "other")
        await change(another(stack, store))
        await stack.push(said("Go on"))
        assert await states_of(another(stack, store)) == [HELLO, HI, said("Go on")]


class TestPendingWaits:
    async def test_those_of_open_calls_and_one_at_the_end_are_pending(self, stack: InteractionStack) -> None:
        for_call, at_end = WaitingState("tool", 9.0, "1"), WaitingState("user_input", 8.0)
        await stack.push(HELLO, called("1"), for_call, at_end)
        assert await stack.pending_waits() == [for_call, at_end]
        await stack.push(RunFinishedState())
        assert await stack.pending_waits() == [for_call, at_end]
        await stack.push(brought("1"))
        assert await stack.pending_waits() == []


class TestDamage:
    @pytest.fixture
    async def damaged(self, stack: InteractionStack, store: MemoryStore) -> InteractionStack:
        """A log whose fourth state has unreadable data, and whose fifth state is missing."""
        await stack.push(*TALK)
        nodes = store._nodes[stack.key]
        nodes[0, 3].envelope["data"] = "{"
        del nodes[0, 4]
        return another(stack, store)

    async def test_a_damaged_state_does_not_affect_the_others(self, damaged: InteractionStack) -> None:
        entries = [entry async for entry in damaged.iter_last_n(10)]
        assert [entry.state for entry in entries] == [*TALK[:3], None, None, *TALK[5:]]
        assert [(entry.index, entry.kind) for entry in entries if entry.problem] == [
            (3, "ToolCallState"),
            (4, "(damaged)"),
        ]
        assert "The data of ToolCallState are damaged" in str(entries[3].problem)
        await damaged.push(said("Go on"))
        assert await damaged.length() == 8

    @pytest.mark.parametrize("index", [3, 4])
    async def test_the_error_of_a_damaged_state_names_its_index(self, damaged: InteractionStack, index: int) -> None:
        with pytest.raises(UnreadableState, match=rf"[Ss]tate {index} of branch main"):
            await damaged.at(index)

    async def test_the_conversation_continues_after_a_missing_last_state(self, damaged: InteractionStack) -> None:
        await damaged.rewind(4)
        with pytest.raises(UnreadableState):
            await damaged.pop()
        await damaged.push(said("Go on"), HI)
        assert (await states_of(damaged))[-2:] == [said("Go on"), HI]

    async def test_a_log_with_too_many_missing_states_is_an_error(self, stack, store) -> None:
        await stack.push(HELLO)
        log = store._logs[stack.key]
        store._logs[stack.key] = replace(log, tree=log.tree.with_end(50_000_000, 0.0))
        with pytest.raises(DamagedLog, match="consecutive states of conversation are missing"):
            [entry async for entry in another(stack, store).iter_last_n(10_000)]

    async def test_an_expired_log_is_logged(self, stack: InteractionStack, store: MemoryStore) -> None:
        await stack.push(HELLO)
        await store.remove(stack.key, 1)
        with capture_logs() as logs:
            await stack.refresh()
        assert [(each["event"], each["had"], each["has"]) for each in logs] == [("log.expired", 1, 0)]

    async def test_episodes_are_counted_across_a_missing_state(self, stack, store) -> None:
        await stack.push(HELLO, HI, HELLO, HI)
        del store._nodes[stack.key][0, 3]
        late = another(stack, store)
        await late.push(answered("And"), HELLO)
        assert [entry.episode async for entry in late.iter_last_n(2)] == [2, 3]


async def test_an_answer_with_many_calls_continues_from_any_of_its_states(stack, store):
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


async def test_the_size_of_an_answer_in_the_log_grows_linearly_with_its_calls(stack, store):
    async def size_of(count):
        ids = [f"{count}-{number}" for number in range(count)]
        await stack.push(HELLO, HI, *map(called, ids))
        for call_id in ids:
            await stack.push(brought(call_id))
        await stack.push(answered("Done."))
        length = await stack.length()
        nodes = await store.read(stack.key, 0, length - 2 * count - 3, length)
        return sum(len(fields_of(node)) for node in nodes)

    assert await size_of(200) < 3 * await size_of(100)


class UnansweredStore(MemoryStore):
    """Takes a commit and does not answer, once `answers` is False."""

    def __init__(self) -> None:
        super().__init__()
        self.answers, self.committed = True, asyncio.Event()

    async def commit(self, key, change) -> None:
        await super().commit(key, change)
        if not self.answers:
            self.committed.set()
            await asyncio.Event().wait()


async def test_a_push_that_was_written_though_it_was_cancelled_is_no_move_of_another_writer() -> None:
    store = UnansweredStore()
    stack, other = InteractionStack(store, "c", "a"), InteractionStack(store, "c", "a")
    await stack.push(HELLO)
    store.answers = False
    push = asyncio.create_task(stack.push(HI))
    await store.committed.wait()
    push.cancel()
    await asyncio.wait({push})
    store.answers = True
    await stack.refresh()
    assert (stack.moves, await stack.length()) == (0, 2)
    await other.push(said("And now?"))
    await stack.refresh()
    assert stack.moves == 1
