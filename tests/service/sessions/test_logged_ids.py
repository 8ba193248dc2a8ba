"""Which message ids are in the log: read without a session, from the end, and only as much as necessary."""

from __future__ import annotations

import asyncio
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.protocols import LeaseLost, RunFailed
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.errors import DamagedLog
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.states import AssistantMessageState, UserMessageState
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable
from service.sessions.logged_ids import DeliveredIds

KEY = Key("T:C:1.0", "alpha")
HERE = KEY.conversation_id


class RecordingStore(MemoryStore):
    """Records all reads, and raises `problem` when a log is loaded."""

    def __init__(self):
        super().__init__()
        self.reads = []
        self.problem = None

    async def load(self, key):
        if self.problem is not None:
            raise self.problem
        return await super().load(key)

    async def read(self, key, segment, start, stop):
        self.reads.append((start, stop))
        return await super().read(key, segment, start, stop)


async def deliver(stack, *ids):
    for id_ in ids:
        await stack.push(UserMessageState("hello", {"message": id_}), AssistantMessageState("fine"))


@pytest.mark.parametrize(("ids", "pages"), [({"m699"}, 1), ({"m699", "m0"}, 3), ({"never"}, 3), (set(), 0)])
async def test_a_log_is_read_backwards_until_all_ids_are_found(ids, pages):
    store = RecordingStore()
    await deliver(InteractionStack(store, HERE, "alpha"), *(f"m{n}" for n in range(700)))
    store.reads.clear()
    assert await DeliveredIds(store).of(KEY, ids) == ids - {"never"}
    assert store.reads == [(900, 1400), (400, 900), (0, 400)][:pages]


@pytest.mark.parametrize("ids", [{"never"}, {"m699"}, {"m699", "m0", "never"}])
async def test_no_page_of_a_log_is_read_twice(ids):
    store = RecordingStore()
    stack = InteractionStack(store, HERE, "alpha")
    await deliver(stack, *(f"m{n}" for n in range(700)))
    delivered_ids = DeliveredIds(store)
    first = await delivered_ids.of(KEY, ids)
    store.reads.clear()
    assert await delivered_ids.of(KEY, ids) == first
    assert store.reads == []
    await deliver(stack, "new")
    assert await delivered_ids.of(KEY, {"new"}) == {"new"}
    assert await delivered_ids.of(KEY, first) == first
    assert store.reads == [(1400, 1402)]
    assert await delivered_ids.of(KEY, {"m350", "never"}) == {"m350"}
    assert len(set(store.reads)) == len(store.reads)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["push", "rewind", "fork", "remove"]), max_size=20), st.integers(0, 9))
def test_after_any_changes_of_the_log_messages_on_all_branches_are_delivered(steps, number):
    async def test():
        store, delivered = MemoryStore(), set()
        stack, delivered_ids = InteractionStack(store, HERE, "alpha"), DeliveredIds(store)
        for at, step in enumerate(steps):
            match step:
                case "push":
                    delivered.add(f"m{at}")
                    await deliver(stack, f"m{at}")
                case "rewind" if await stack.length() > 1:
                    await stack.rewind(await stack.length() // 2)
                case "fork" if await stack.length() > 2:
                    await stack.checkout(await stack.fork(await stack.length() - 2))
                case "remove" if (log := await store.load(KEY)) is not None:
                    await store.remove(KEY, log.version)
                    stack = InteractionStack(store, HERE, "alpha")
                    delivered.clear()
            asked = {f"m{n}" for n in range(at + 1) if (n + number) % 3}
            assert await delivered_ids.of(KEY, asked) == asked & delivered

    asyncio.run(test())


async def test_logs_that_were_not_asked_for_recently_leave_memory():
    store = RecordingStore()
    keys = [Key(f"T:C:{n}", "alpha") for n in range(101)]
    delivered_ids = DeliveredIds(store)
    for key in keys:
        await deliver(InteractionStack(store, key.conversation_id, "alpha"), "one")
    for key in keys:
        await delivered_ids.of(key, {"one"})
    store.reads.clear()
    for key in (keys[-1], keys[0]):
        await delivered_ids.of(key, {"one"})
    assert store.reads == [(0, 2)]


async def test_delivered_ids_need_no_session_and_an_earlier_fence_is_refused(started, tmp_path):
    async with started(provider="provider-demo") as sessions:
        await sessions.execute("alpha", HERE, "hello", message_id="m1", fence=1)
    async with started(provider="provider-demo") as sessions:
        shutil.rmtree(tmp_path / "files")
        assert await sessions.delivered("alpha", HERE, ["m1", "m2"], fence=2) == {"m1"}
        assert not (tmp_path / "files").exists()
        with pytest.raises(LeaseLost):
            await sessions.delivered("alpha", HERE, ["m1"], fence=1)


async def test_a_fence_also_protects_a_conversation_without_a_log(manager):
    async with manager(provider="provider-demo") as sessions:
        assert await sessions.delivered("alpha", HERE, ["m1"], fence=2) == frozenset()
        with pytest.raises(LeaseLost):
            await sessions.execute("alpha", HERE, "late", fence=1)


@pytest.mark.parametrize(
    ("problem", "raised"),
    [(StoreError("Full."), StoreError), (StoreUnavailable("Away."), StoreUnavailable), (DamagedLog("X"), RunFailed)],
)
async def test_only_a_damaged_log_is_a_permanent_failure(manager, problem, raised):
    store = RecordingStore()
    async with manager(store=store, provider="provider-demo") as sessions:
        store.problem = problem
        with pytest.raises(raised):
            await sessions.delivered("alpha", HERE, ["m1"], fence=1)
        store.problem = None
        assert await sessions.delivered("alpha", HERE, ["m1"], fence=1) == frozenset()
