"""What the log says of a message: it is read without a session, and no further than it must be."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connector.protocols import LeaseLost, RunFailed
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.errors import DamagedLog
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.states import AssistantMessageState, UserMessageState
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable
from service.config.config import InstanceConfig, PersonaConfig, WorkspaceConfig
from service.sessions.delivered_ids import DeliveredIds
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orchestrator_interactive.interactions.records import Node
    from orchestrator_interactive.interactions.stores.base import Log, LogStore

HERE = Key("T:C:1.0", "alpha")


class Watched(MemoryStore):
    """A store that remembers what was read, and fails where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[tuple[int, int]] = []
        self.problem: StoreError | None = None

    async def load(self, key: Key) -> Log | None:
        if self.problem is not None:
            raise self.problem
        return await super().load(key)

    async def read(self, key: Key, segment: int, start: int, stop: int) -> list[Node]:
        self.reads.append((start, stop))
        return await super().read(key, segment, start, stop)


@asynccontextmanager
async def manager(store: LogStore, root: Any) -> AsyncIterator[InProcessSessionManager]:
    instance = InstanceConfig(persona=PersonaConfig(name="Alpha", emoji=":owl:"))
    workspaces = Workspaces(WorkspaceConfig(root=root))
    async with InProcessSessionManager({"alpha": instance}, "provider-demo", workspaces, store) as sessions:
        yield sessions


async def _said(stack: InteractionStack, *ids: str) -> None:
    for id_ in ids:
        await stack.push(UserMessageState("hello", {"message": id_}), AssistantMessageState("fine"))


@pytest.mark.parametrize(("ids", "pages"), [({"m699"}, 1), ({"m699", "m0"}, 3), ({"never"}, 3), (set(), 0)])
async def test_a_log_is_read_from_its_end_and_no_further_than_until_all_are_found(ids, pages):
    store = Watched()
    await _said(InteractionStack(store, HERE.conversation_id, HERE.agent_id), *(f"m{n}" for n in range(700)))
    store.reads.clear()
    assert await DeliveredIds(store).of(HERE, ids) == ids - {"never"}
    assert store.reads == [(900, 1400), (400, 900), (0, 400)][:pages]


@pytest.mark.parametrize("ids", [{"never"}, {"m699"}, {"m699", "m0", "never"}])
async def test_what_was_read_of_it_is_not_read_again(ids):
    store = Watched()
    stack = InteractionStack(store, HERE.conversation_id, HERE.agent_id)
    await _said(stack, *(f"m{n}" for n in range(700)))
    deliveries = DeliveredIds(store)
    first = await deliveries.of(HERE, ids)
    store.reads.clear()
    assert await deliveries.of(HERE, ids) == first
    assert store.reads == []
    await _said(stack, "new")
    assert await deliveries.of(HERE, {"new"}) == {"new"}
    assert await deliveries.of(HERE, first) == first
    assert store.reads == [(1400, 1402)]
    assert await deliveries.of(HERE, {"m350", "never"}) == {"m350"}
    assert len(set(store.reads)) == len(store.reads)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from(["say", "rewind", "fork", "ask", "remove"]), max_size=20), st.integers(0, 9))
def test_it_knows_what_whoever_reads_all_of_the_log_knows(steps, number):
    asyncio.run(_as_one_who_reads_all(steps, number))


async def _as_one_who_reads_all(steps: list[str], number: int) -> None:
    store, said = MemoryStore(), set()
    stack, deliveries = InteractionStack(store, HERE.conversation_id, HERE.agent_id), DeliveredIds(store)
    for at, step in enumerate(steps):
        match step:
            case "say":
                said.add(f"m{at}")
                await _said(stack, f"m{at}")
            case "rewind" if await stack.length() > 1:
                await stack.rewind(await stack.length() // 2)
            case "fork" if await stack.length() > 2:
                await stack.checkout(await stack.fork(await stack.length() - 2))
            case "remove" if (log := await store.load(HERE)) is not None:
                await store.remove(HERE, log.version)
                stack = InteractionStack(store, HERE.conversation_id, HERE.agent_id)
                said.clear()
        asked = {f"m{n}" for n in range(at + 1) if (n + number) % 3}
        assert await deliveries.of(HERE, asked) == asked & said


async def test_logs_that_nobody_asked_for_lately_take_up_no_memory():
    store = Watched()
    places = [Key(f"T:C:{n}", "alpha") for n in range(101)]
    for place in places:
        await _said(InteractionStack(store, place.conversation_id, place.agent_id), "one")
    deliveries = DeliveredIds(store)
    for place in places:
        await deliveries.of(place, {"one"})
    store.reads.clear()
    for place in (places[-1], places[0]):
        await deliveries.of(place, {"one"})
    assert store.reads == [(0, 2)]


async def test_what_stands_on_a_branch_that_was_left_behind_was_delivered_too():
    store = MemoryStore()
    stack = InteractionStack(store, HERE.conversation_id, HERE.agent_id)
    await _said(stack, "one", "two", "three")
    await stack.rewind(1)
    await _said(stack, "four")
    assert await DeliveredIds(store).of(HERE, {"one", "two", "four", "five"}) == {"one", "two", "four"}


async def test_to_be_asked_sets_no_session_up(tmp_path):
    async with aclosing(await open_store(f"sqlite:{tmp_path}/kept.db")) as store:
        root = tmp_path / "files"
        async with manager(store, root) as sessions:
            await sessions.execute("alpha", HERE.conversation_id, "hello", message_id="m1", fence=1)
        shutil.rmtree(root)
        async with manager(store, root) as sessions:
            shutil.rmtree(root, ignore_errors=True)
            assert await sessions.delivered("alpha", HERE.conversation_id, ["m1", "m2"], fence=2) == {"m1"}
            assert not root.exists()
            with pytest.raises(LeaseLost):
                await sessions.delivered("alpha", HERE.conversation_id, ["m1"], fence=1)


async def test_a_conversation_that_has_no_log_yet_is_kept_from_an_earlier_owner(tmp_path):
    async with manager(MemoryStore(), tmp_path) as sessions:
        assert await sessions.delivered("alpha", HERE.conversation_id, ["m1"], fence=2) == frozenset()
        with pytest.raises(LeaseLost):
            await sessions.execute("alpha", HERE.conversation_id, "late", fence=1)


@pytest.mark.parametrize(
    ("problem", "told"),
    [(StoreError("Full."), StoreError), (StoreUnavailable("Away."), StoreUnavailable), (DamagedLog("X"), RunFailed)],
)
async def test_a_fault_that_may_pass_is_told_from_a_log_that_is_damaged(tmp_path, problem, told):
    store = Watched()
    async with manager(store, tmp_path) as sessions:
        store.problem = problem
        with pytest.raises(told):
            await sessions.delivered("alpha", HERE.conversation_id, ["m1"], fence=1)
        store.problem = None
        assert await sessions.delivered("alpha", HERE.conversation_id, ["m1"], fence=1) == frozenset()
