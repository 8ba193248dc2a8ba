"""What people write is kept, and told to whoever owns the conversation."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from redis_server import redis_server

from connector.protocols import InboxEntry, LeaseLost, StateChanges
from orchestrator_interactive.storage.errors import StoreUnavailable
from service.runs.runs import StoredRuns
from service.store import open_run_store
from service.store.retry import StoreRetryPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from service.store.base import RunStore

HERE, THERE = "T:C:1.0", "T:C:2.0"


class Process:
    """A process that notes which conversations it is to look after."""

    def __init__(self, runs: StoredRuns) -> None:
        self.runs = runs
        self.news: list[str] = []
        self._changed = asyncio.Event()
        runs.watch("T", self._notify_listeners)

    def _notify_listeners(self, conversation_id: str) -> None:
        self.news.append(conversation_id)
        self._changed.set()

    async def told(self, conversation_id: str = HERE, within_s: float = 5) -> None:
        """Wait until it is told of this conversation; what it was told before counts."""
        async with asyncio.timeout(within_s):
            while conversation_id not in self.news:
                self._changed.clear()
                await self._changed.wait()

    async def owns(self, conversation_id: str = HERE):
        """Claim until it is ours."""
        async with asyncio.timeout(10):
            while (lease := await self.runs.claim(conversation_id)) is None:
                await self.told(conversation_id)
                self.news.clear()
        return lease


@pytest.fixture(params=["sqlite", "redis"])
def url(request, tmp_path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path}/kept.db"
        return
    with redis_server() as server:
        yield server.url


@pytest.fixture
async def store(url) -> AsyncIterator[RunStore]:
    async with aclosing(await open_run_store(url)) as store:
        yield store


@pytest.fixture
async def process(store, url) -> AsyncIterator[Callable[..., AbstractAsyncContextManager[Process]]]:
    """Make processes over the store; with Redis, each has a connection of its own."""
    names = iter(("one", "two", "three"))

    @asynccontextmanager
    async def process(lease_s: float = 10) -> AsyncIterator[Process]:
        async with AsyncExitStack() as stack:
            own = store
            if url.startswith("redis:"):
                own = await stack.enter_async_context(aclosing(await open_run_store(url)))
            yield Process(await stack.enter_async_context(StoredRuns(own, next(names), lease_s)))

    return process


def message(number: int) -> InboxEntry:
    return InboxEntry(f"T:C:{number}", "message", {"text": f"message {number}"})


async def test_what_is_written_side_by_side_is_kept_in_its_order(process):
    async with process() as one:
        kept = await asyncio.gather(*(one.runs.admit(HERE, message(n), "alpha") for n in range(20)))
        assert kept == [True] * 20
        lease = await one.owns()
    assert [(entry.id, entry.seq) for entry in lease.claim.entries] == [(f"T:C:{n}", n + 1) for n in range(20)]
    assert lease.claim.entries[3].data == {"text": "message 3"}


async def test_a_message_that_comes_twice_is_kept_once(process):
    async with process() as one:
        assert [await one.runs.admit(HERE, message(1)) for _ in range(2)] == [True, False]
        lease = await one.owns()
    assert len(lease.claim.entries) == 1


async def test_whoever_keeps_a_message_that_nobody_looks_after_is_told_of_it(process):
    async with process() as one, process() as two:
        await one.runs.admit(HERE, message(1), "alpha")
        assert one.news == [HERE]
        assert await two.runs.agent_of(HERE) == "alpha"
        assert await two.runs.agent_of(THERE) is None


async def test_news_reach_the_owner_in_another_process_within_a_second_and_nobody_else(process):
    async with process() as one, process() as two:
        lease = await one.owns()
        two.news.clear()
        await two.runs.admit(HERE, message(1))
        await one.told(within_s=1)
        assert [entry.id for entry in await lease.fetch(0)] == ["T:C:1"]
        assert two.news == []


async def test_a_wake_that_is_lost_is_made_good_by_the_next_renewal(process, store):
    async with process() as one:
        lease = await one.owns()
        news = asyncio.create_task(_taken(store, "one"))  # somebody takes its news away
        await store.admit(HERE, message(1), None)
        await one.told(within_s=2.5)
        assert await lease.fetch(0)
        news.cancel()


async def _taken(store: RunStore, owner: str) -> None:
    while True:
        await store.wait_for_notifications(owner)


async def test_a_conversation_is_owned_by_one_process_and_for_as_long_as_it_likes(process):
    async with process(lease_s=0.5) as one, process(lease_s=0.5) as two:
        lease = await one.owns()
        losing = asyncio.create_task(lease.lost())
        await lease.write(StateChanges(run={"id": "r"}))
        for _ in range(8):
            assert await two.runs.claim(HERE) is None
            await asyncio.sleep(0.2)  # as time goes by
        assert not losing.done()
        assert two.news == []
        losing.cancel()


async def test_what_is_given_up_is_given_up_unless_there_is_news(process):
    async with process() as one, process() as two:
        await one.runs.admit(HERE, message(1))
        lease = await one.owns()
        seen = lease.claim.entries[-1].seq
        await two.runs.admit(HERE, message(2))
        assert not await lease.release(seen)
        (newer,) = await lease.fetch(seen)
        assert await two.runs.claim(HERE) is None
        await lease.write(StateChanges(closed={seen: "", newer.seq: "withdrawn"}))
        assert await lease.release(newer.seq)
        other = await two.owns()
        assert other.claim.entries == ()
        assert other.claim.token > lease.claim.token


async def test_what_is_handed_over_goes_on_in_another_process_as_it_was(process):
    async with process() as one, process() as two:
        await one.runs.admit(HERE, message(1))
        lease = await one.owns()
        await lease.write(StateChanges(run={"id": "r"}, posts={"1": {"text": "one"}}))
        two.news.clear()
        await lease.hand_over()
        await two.told(within_s=2.5)
        claim = (await two.owns()).claim
    assert (claim.run, claim.posts, len(claim.entries)) == ({"id": "r"}, {"1": {"text": "one"}}, 1)


async def test_what_a_process_still_owns_at_its_end_is_handed_over(process):
    async with process() as two:
        async with process() as one:
            lease = await one.owns()
            await lease.write(StateChanges(run={"id": "r"}))
        async with asyncio.timeout(1):
            await lease.lost()
        await two.told(within_s=2.5)
        assert (await two.owns()).claim.run == {"id": "r"}
    with pytest.raises(LeaseLost):
        await lease.write(StateChanges(run={}))


async def test_what_a_process_that_is_gone_had_goes_on_when_its_lease_has_run_out(process, store):
    gone = await store.claim(HERE, "gone", 2)
    await store.write(HERE, gone.token, StateChanges(run={"id": "r"}))
    async with process() as one:
        assert await one.runs.claim(HERE) is None
        lease = await one.owns()
    assert lease.claim.run == {"id": "r"}
    assert lease.claim.token > gone.token


async def test_a_lease_that_somebody_else_took_is_lost_and_says_so(process, store):
    async with process() as one, process(lease_s=0.2) as two:
        stolen = await store.claim(HERE, "one", 0.01)
        lease = await one.owns()
        assert lease.claim.token > stolen.token
        again = await one.owns()  # nobody else may come between
        async with asyncio.timeout(1):
            await lease.lost()
        for step in (lease.fetch(0), lease.write(StateChanges(run={})), lease.release(0), lease.hand_over()):
            with pytest.raises(LeaseLost):
                await step
        assert await two.runs.claim(HERE) is None
        await again.write(StateChanges(run={}))


async def test_a_lease_that_is_being_handed_over_is_not_confirmed_any_more(process):
    async with process() as one:
        lease = await one.owns()
        await lease.confirm()
        handing_over = asyncio.create_task(lease.hand_over())
        await asyncio.sleep(0)  # it is on its way
        with pytest.raises(LeaseLost):
            await lease.confirm()
        await handing_over
        with pytest.raises(LeaseLost):
            await lease.confirm()


async def test_many_conversations_that_nobody_owns_are_all_told_of_soon(process, store):
    places = [f"T:C:{number}.5" for number in range(120)]
    for place in places:
        claim = await store.claim(place, "gone", 10)
        await store.write(place, claim.token, StateChanges(run={"id": place}))
        await store.hand_over(place, claim.token)
    async with process() as one:
        claims: list[asyncio.Task] = []
        one.runs.watch("T", lambda place: claims.append(asyncio.create_task(one.runs.claim(place))))
        for place in places:
            await one.told(place, within_s=3)
        leases = [lease for lease in await asyncio.gather(*claims) if lease is not None]
    assert {lease.conversation_id for lease in leases} == set(places)


async def test_while_very_many_are_owned_here_no_more_are_looked_for(store):
    places = [f"T:C:{number}.5" for number in range(5)]
    for place in places:
        claim = await store.claim(place, "gone", 10)
        await store.write(place, claim.token, StateChanges(run={"id": place}))
        await store.hand_over(place, claim.token)
    async with StoredRuns(store, "here", 10, most_owned=3) as runs:
        one = Process(runs)
        leases = [await runs.claim(place) for place in places[:3]]
        await asyncio.sleep(0.3)  # it looks at once, perhaps before they are claimed
        one.news.clear()
        await asyncio.sleep(1.3)  # it looks again
        assert one.news == []
        await leases[0].write(StateChanges(run={}))
        await leases[0].release(0)
        await one.told(places[3])
        assert places[4] not in one.news


async def test_while_a_part_of_the_store_is_away_what_a_dead_process_had_goes_on_a_lease_later(store):
    gone = await store.claim(HERE, "gone", 0.05)
    await store.write(HERE, gone.token, StateChanges(run={"id": "r"}))
    patience = StoreRetryPolicy()

    async def never() -> None:
        raise StoreUnavailable

    async with StoredRuns(store, "here", 0.3, patience) as runs:
        runs.watch("T", lambda _: None)
        waiting = asyncio.create_task(patience.call(never))
        await asyncio.sleep(0)
        assert patience.is_unavailable
        await asyncio.sleep(0.1)  # its lease has run out
        assert await runs.claim(HERE) is None
        async with asyncio.timeout(5):
            while (lease := await runs.claim(HERE)) is None:  # noqa: ASYNC110 - time is what is waited for
                await asyncio.sleep(0.02)
        assert patience.is_unavailable
        assert lease.claim.run == {"id": "r"}
        waiting.cancel()


async def test_writes_come_to_be_in_the_order_in_which_they_are_written(process):
    async with process() as one:
        lease = await one.owns()
        await asyncio.gather(*(lease.write(StateChanges(run={"step": n})) for n in range(30)))
        await lease.hand_over()
        assert (await one.owns()).claim.run == {"step": 29}


async def test_giving_up_while_the_lease_is_being_renewed_gives_it_up(process):
    async with process(lease_s=0.02) as one, process() as two:
        for number in range(20):
            lease = await one.owns(f"T:C:{number}")
            await asyncio.sleep(0.003 * (number % 4))  # somewhere in a renewal
            assert await lease.release(0)
            assert await two.runs.claim(f"T:C:{number}") is not None


async def test_a_conversation_of_a_workspace_that_nobody_here_watches_waits_untouched(process, store):
    """It also hides no conversation that is served, and new entries only wait in its inbox."""
    foreign = [f"T2:C:{number}.5" for number in range(120)]
    for place in [*foreign, HERE]:
        claim = await store.claim(place, "gone", 10)
        await store.write(place, claim.token, StateChanges(run={"id": place}))
        await store.hand_over(place, claim.token)
    before = [await store.record(place) for place in foreign]
    async with process() as one:
        await one.told(HERE)
        assert await one.runs.admit(foreign[0], InboxEntry("m", "message", {}))
        assert await one.runs.claim(foreign[0]) is None
        assert set(one.news) == {HERE}
        assert [await store.record(place) for place in foreign[1:]] == before[1:]
        one.runs.watch("T2", lambda _: None)
        lease = await one.runs.claim(foreign[0])
        assert (lease.claim.run, len(lease.claim.entries)) == ({"id": foreign[0]}, 1)
