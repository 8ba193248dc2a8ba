"""A Redis that loses replies, is killed, comes back, or forgets: nothing that was kept is lost or doubled."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from fault_injecting_proxy import fault_injecting_proxy
from redis_server import redis_server
from run_store_cases import LONG_S, OVER_S, T1, C, D, admitted, entry, is_lost, names_of, until_due, within
from structlog.testing import capture_logs

from connector.protocols import StateChanges
from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable
from service.store import inspect_run_store, open_run_store
from service.store.redis import index_scripts, scripts

STATE = f"runs:{{{C}}}"
DUE = f"runs:{{index}}:due:{T1}"
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


@asynccontextmanager
async def _opened(url):
    store = await open_run_store(url)
    try:
        yield store
    finally:
        await store.aclose()


@pytest.fixture
async def lossy(redis, redis_url):
    """A store whose scripts the server knows, and the proxy before it."""
    async with fault_injecting_proxy(redis.port) as proxy, _opened(proxy.url) as store:
        await admitted(store, D, 1)
        claim = await store.claim(D, "a", LONG_S)
        await store.renew(D, claim.token, LONG_S)
        await store.fetch(D, claim.token, 0)
        await store.write(D, claim.token, StateChanges(closed={1: ""}))
        await store.release(D, claim.token, 0)
        await store.forget(D)
        yield store, proxy


def _lose(proxy, script, times=1, meanwhile=None):
    proxy.lose(script.sha.encode(), times, meanwhile)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_step_whose_reply_was_lost_gives_what_it_gave(lossy, times):
    store, proxy = lossy
    for script in (index_scripts.ENTER, scripts.ADMIT):
        _lose(proxy, script, times)
        assert (await store.admit(C, entry(script.sha), "owl")).is_new
    _lose(proxy, scripts.CLAIM, times)
    claim = await store.claim(C, "a", LONG_S)
    assert [each.seq for each in claim.entries] == [1, 2]
    _lose(proxy, scripts.RENEW, times)
    assert await store.renew(C, claim.token, LONG_S) == 2
    _lose(proxy, scripts.FETCH, times)
    assert len(await store.fetch(C, claim.token, 1)) == 1
    _lose(proxy, scripts.WRITE, times)
    await store.write(C, claim.token, StateChanges(closed={1: "", 2: ""}))
    _lose(proxy, scripts.RELEASE, times)
    assert await store.release(C, claim.token, 0)
    _lose(proxy, scripts.FORGET, times)
    assert await store.forget(C)
    assert await store.record(C) is None
    assert proxy.lost == 8 * times


async def test_an_admission_whose_reply_was_lost_for_good_is_new_when_it_is_asked_for_again(lossy):
    store, proxy = lossy
    _lose(proxy, scripts.ADMIT, 9)
    with pytest.raises(StoreUnavailable):
        await store.admit(C, entry(1), "owl")
    proxy.lose(b"", 0)
    assert (await store.admit(C, entry(1), "owl")).is_new
    assert not (await store.admit(C, entry(1), "owl")).is_new
    assert names_of((await store.record(C)).waiting) == ["1"]


async def test_another_who_admits_the_same_meanwhile_is_told_that_it_is_known(lossy, redis_url):
    store, proxy = lossy
    async with _opened(redis_url) as other:

        async def meanwhile():
            assert not (await other.admit(C, entry(1), "owl")).is_new

        _lose(proxy, scripts.ADMIT, 1, meanwhile)
        assert (await store.admit(C, entry(1), "owl")).is_new


async def test_giving_back_whose_reply_was_lost_has_given_back_whoever_came_meanwhile(lossy, redis_url):
    store, proxy = lossy
    async with _opened(redis_url) as other:
        claim = await store.claim(C, "a", LONG_S)

        async def meanwhile():
            await admitted(other, C, 1)
            assert await other.claim(C, "b", LONG_S) is not None

        _lose(proxy, scripts.RELEASE, 1, meanwhile)
        assert await store.release(C, claim.token, 0)
        assert await is_lost(store.renew(C, claim.token, LONG_S))


async def test_a_write_that_was_long_on_its_way_and_overtaken_does_nothing(redis, redis_url):
    async with _opened(redis_url) as store:
        claim = await store.claim(C, "a", LONG_S)
        await store.write(C, claim.token, StateChanges(run={"id": "new"}))
        process, step = redis.ask("HMGET", STATE, "process", "step")
        places = [STATE, *(f"{STATE}:{part}" for part in ("inbox", "ids", "order"))]
        late = ["0", "9", process, str(int(step) - 1), str(claim.token), "9", '{"id":"old"}', "", "0", "0"]
        redis.ask("EVALSHA", scripts.WRITE.sha, "4", *places, *late)
        assert (await store.claim(C, "a", LONG_S)).run == {"id": "new"}


async def test_a_server_that_is_killed_has_kept_what_it_said_it_had():
    with redis_server(*DURABLE) as server:
        async with _opened(server.url) as store:
            kept = []

            async def admit(number):
                try:
                    await store.admit(C, entry(number), "owl")
                except StoreUnavailable:
                    return
                kept.append(f"{number}")

            admitting = [asyncio.create_task(admit(number)) for number in range(150)]
            async with within(20):
                while len(kept) < 50:  # noqa: ASYNC110 - no event tells how far they are
                    await asyncio.sleep(0.001)
            server.kill()
            await asyncio.gather(*admitting)
            server.start()
            there = names_of((await store.claim(C, "a", LONG_S)).entries)
            assert 50 <= len(kept) <= len(there)
            assert set(kept) <= set(there)
            assert len(there) == len(set(there))


async def test_a_store_that_is_away_says_so_and_leases_and_runs_are_there_when_it_is_back():
    with redis_server(*DURABLE) as server:
        async with _opened(server.url) as store:
            await admitted(store, C, 1)
            claim = await store.claim(C, "a", LONG_S)
            await store.write(C, claim.token, StateChanges(run={"id": 1}, posts={"1": "x"}))
            server.kill()
            steps = (
                store.admit(C, entry(2), None),
                store.claim(C, "a", 1),
                store.renew(C, claim.token, 1),
                store.fetch(C, claim.token, 0),
                store.write(C, claim.token, StateChanges(held_seq=1)),
                store.release(C, claim.token, 1),
                store.hand_over(C, claim.token),
                *(store.due(T1, 9), store.wait_for_notifications("a"), store.agent_of(C), store.conversations()),
                *(store.record(C), store.forget(C), open_run_store(server.url)),
            )
            ended = await asyncio.gather(*steps, return_exceptions=True)
            assert {type(each) for each in ended} == {StoreUnavailable}
            server.start()
            assert await store.renew(C, claim.token, LONG_S) == 1
            assert await store.claim(C, "b", LONG_S) is None
            again = await store.claim(C, "a", LONG_S)
            assert (again.run, again.posts, names_of(again.entries)) == ({"id": 1}, {"1": "x"}, ["1"])


async def test_a_replica_is_away_until_it_is_the_primary_again(redis, redis_url):
    async with _opened(redis_url) as store:
        redis.ask("REPLICAOF", "127.0.0.1", "1")
        try:
            with pytest.raises(StoreUnavailable, match="it is a replica"):
                await store.admit(C, entry(1), None)
        finally:
            redis.ask("REPLICAOF", "NO", "ONE")
        assert (await store.admit(C, entry(1), None)).is_new


async def test_a_wrong_password_does_not_pass_by_itself():
    with redis_server("--requirepass", "hunter2") as server:
        with pytest.raises(StoreError, match="another user or password") as refused:
            await open_run_store(server.url)
        assert not isinstance(refused.value, StoreUnavailable)


async def test_scripts_that_the_server_has_forgotten_are_sent_again(redis, redis_url):
    async with _opened(redis_url) as store:
        await admitted(store, C, 1)
        redis.ask("SCRIPT", "FLUSH")
        await admitted(store, C, 2)
        assert names_of((await store.claim(C, "a", LONG_S)).entries) == ["1", "2"]


async def test_all_keys_of_a_conversation_lie_together(redis, redis_url):
    async with _opened(redis_url) as store:
        await admitted(store, "a}{b", 1)
        claim = await store.claim("a}{b", "owner {x}", LONG_S)
        await store.write("a}{b", claim.token, StateChanges(closed={1: ""}))
        await admitted(store, "a}{b", 2)
        tags = {name[name.index(b"{") : name.index(b"}") + 1] for name in redis.ask("KEYS", "runs:{*")}
        assert tags == {b"{a%7D%7Bb}", b"{index}"}


async def test_a_conversation_that_rests_longer_than_its_days_is_forgotten(redis, redis_url):
    async with _opened(f"{redis_url}?ttl_days=30") as store:
        await admitted(store, C, 1)
        claim = await store.claim(C, "a", LONG_S)
        names = redis.ask("KEYS", f"{STATE.replace('{', '[{]')}*")
        assert len(names) == 4
        for name in names:
            redis.ask("EXPIRE", name, "100")
        await store.renew(C, claim.token, OVER_S)
        assert {redis.ask("TTL", name) for name in names} == {30 * 86400}
        for name in names:
            redis.ask("EXPIRE", name, "0")
        assert await store.record(C) is None
        assert await store.conversations() == []
        assert (await store.claim(C, "b", LONG_S)).token > claim.token


async def test_ids_are_known_for_a_week_after_the_last_change_and_longer_where_something_waits(redis, redis_url):
    async with _opened(redis_url) as store:
        await admitted(store, C, 1, 2)
        claim = await store.claim(C, "a", LONG_S)
        await store.write(C, claim.token, StateChanges(closed={1: ""}))
        assert [redis.ask("TTL", f"{STATE}:{part}") for part in ("inbox", "ids", "order")] == [-1, -1, -1]
        await store.write(C, claim.token, StateChanges(closed={2: ""}))
        assert [redis.ask("TTL", f"{STATE}:{part}") for part in ("ids", "order")] == [7 * 86400, 7 * 86400]
        assert redis.ask("TTL", STATE) == -1
        await admitted(store, C, 3)
        assert [redis.ask("TTL", f"{STATE}:{part}") for part in ("ids", "order")] == [-1, -1]


async def test_the_index_loses_what_has_nothing_to_do_at_the_second_look_only(redis, redis_url):
    async with _opened(redis_url) as store:
        redis.ask("ZADD", DUE, "1", "ghost")
        assert await store.due(T1, 9) == []
        first = float(redis.ask("ZSCORE", DUE, "ghost"))
        assert first % 1 == 0.5
        redis.ask("ZADD", DUE, "1.5", "ghost")
        assert await store.due(T1, 9) == []
        assert redis.ask("ZSCORE", DUE, "ghost") is None


async def test_what_is_admitted_between_two_looks_stays_in_the_index(redis, redis_url):
    async with _opened(redis_url) as store:
        redis.ask("ZADD", DUE, "1.5", C)
        await admitted(store, C, 1)  # whoever saw it at 1.5 does not take it out any more
        assert float(redis.ask("ZSCORE", DUE, C)) < 1.5
        await until_due(store, C)


async def test_an_admission_that_never_came_after_its_entry_is_no_conversation(redis, redis_url):
    async with _opened(redis_url) as store:
        redis.ask("ZADD", "runs:{index}:all", "1000", "long-gone", "99999999999999", "on-its-way")
        await admitted(store, C, 1)
        assert await store.conversations() == [C]
        await store.delete_expired()
        assert set(redis.ask("ZRANGE", "runs:{index}:all", "0", "-1")) == {C.encode(), b"on-its-way"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), ["is not persistent"]),
        (DURABLE, []),
        ((*DURABLE, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"), ["(`maxmemory-policy allkeys-lru`)"]),
        ((*DURABLE, "--maxmemory-policy", "allkeys-lru"), []),
        (("--rename-command", "CONFIG", ""), []),
    ],
)
async def test_a_server_that_may_lose_what_it_was_given_is_told_of_once(options, said):
    with redis_server(*options) as server, capture_logs() as logs:
        async with _opened(server.url) as store:
            await admitted(store, C, 1)
    assert [log["event"] for log in logs] == ["store.not_durable"] * len(said)
    assert all(words in log["reason"] for words, log in zip(said, logs, strict=True))


async def test_a_visitor_reads_and_forgets_and_is_not_told_of_durability(redis_url):
    with capture_logs() as logs:
        visitor = await inspect_run_store(redis_url)
    assert logs == []
    async with _opened(redis_url) as store:
        await admitted(store, C, 1)
        claim = await store.claim(C, "a", LONG_S)
        assert (await visitor.record(C)).owner == "a"
        await store.write(C, claim.token, StateChanges(closed={1: ""}))
        await store.release(C, claim.token, 0)
        assert await visitor.forget(C)
    await visitor.aclose()


async def test_a_store_that_was_closed_says_so(redis_url):
    store = await open_run_store(redis_url)
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match="has been closed"):
        await store.admit(C, entry(1), None)


async def test_a_clock_that_was_set_back_keeps_no_lease_longer_than_it_is_and_nothing_from_being_due(redis, redis_url):
    def later(conversation_id: str, *fields: str) -> None:
        """As it is once the clock was set back by ten minutes."""
        for field in fields:
            redis.ask("HINCRBY", f"runs:{{{conversation_id}}}", field, "600000")
        redis.ask("ZINCRBY", DUE, "600000", conversation_id)

    async with _opened(redis_url) as store:
        await admitted(store, C, 1)
        await admitted(store, D, 1)
        claim = await store.claim(C, "a", 0.3)
        await store.write(C, claim.token, StateChanges(run={"id": 1}))
        later(C, "until", "due")
        later(D, "due")
        assert D in await store.due(T1, 9)
        assert await store.claim(C, "b", LONG_S) is None  # who lives has as long as ever to renew it
        assert await store.renew(C, claim.token, 0.3) == 1
        later(C, "until", "due")
        await until_due(store, C, D)
        assert await store.claim(C, "b", LONG_S) is not None
