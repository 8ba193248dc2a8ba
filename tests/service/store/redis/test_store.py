"""A Redis server that loses replies, is killed or forgets: no stored entry is lost or duplicated."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest
from fault_injecting_proxy import fault_injecting_proxy
from redis_server import redis_server
from run_store_cases import LONG_S, OVER_S, T1, C, D, admitted, entry, is_lost, names_of, until_due, within
from structlog.testing import capture_logs

from connector.protocols import StateChanges
from orchestrator_interactive.storage.errors import StoreUnavailable
from service.store import inspect_run_store, open_run_store
from service.store.redis import index, scripts

STATE = f"runs:{{{C}}}"
DUE = f"runs:{{index}}:due:{T1}"
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
WEEK_S = 7 * 86400


async def opened(url):
    return aclosing(await open_run_store(url))


@pytest.fixture
async def store(redis_url):
    async with await opened(redis_url) as store:
        yield store


@pytest.fixture
async def proxy(redis, redis_url):
    async with fault_injecting_proxy(redis.port) as proxy:
        yield proxy


@pytest.fixture
async def lossy(proxy):
    """A store behind the proxy; the server knows its scripts."""
    async with await opened(proxy.url) as store:
        await admitted(store, D, 1)
        claim = await store.claim(D, "a", LONG_S)
        await store.renew(D, claim.token, LONG_S)
        await store.fetch(D, claim.token, 0)
        await store.write(D, claim.token, StateChanges(closed={1: ""}))
        await store.release(D, claim.token, 0)
        await store.forget(D)
        yield store


@pytest.fixture
def lose_reply(proxy):
    return lambda script, times=1, meanwhile=None: proxy.lose(script.sha.encode(), times, meanwhile)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_step_with_a_lost_reply_returns_its_first_result(lossy, proxy, lose_reply, times):
    for script in (index.ENTER, scripts.ADMIT):
        lose_reply(script, times)
        assert (await lossy.admit(C, entry(script.sha), "owl")).is_new
    lose_reply(scripts.CLAIM, times)
    claim = await lossy.claim(C, "a", LONG_S)
    assert [each.seq for each in claim.entries] == [1, 2]
    lose_reply(scripts.RENEW, times)
    assert await lossy.renew(C, claim.token, LONG_S) == 2
    lose_reply(scripts.FETCH, times)
    assert len(await lossy.fetch(C, claim.token, 1)) == 1
    lose_reply(scripts.WRITE, times)
    await lossy.write(C, claim.token, StateChanges(closed={1: "", 2: ""}))
    lose_reply(scripts.RELEASE, times)
    assert await lossy.release(C, claim.token, 0)
    lose_reply(scripts.FORGET, times)
    assert await lossy.forget(C)
    assert await lossy.record(C) is None
    assert proxy.lost == 8 * times


async def test_an_admission_without_any_reply_is_new_when_it_is_repeated(lossy, proxy, lose_reply):
    lose_reply(scripts.ADMIT, 9)
    with pytest.raises(StoreUnavailable):
        await lossy.admit(C, entry(1), "owl")
    proxy.lose(b"", 0)
    assert [(await lossy.admit(C, entry(1), "owl")).is_new for _ in range(2)] == [True, False]
    assert names_of((await lossy.record(C)).waiting) == ["1"]


async def test_during_the_retry_of_an_admission_the_entry_is_known_to_others(lossy, lose_reply, store):
    async def meanwhile():
        assert not (await store.admit(C, entry(1), "owl")).is_new

    lose_reply(scripts.ADMIT, 1, meanwhile)
    assert (await lossy.admit(C, entry(1), "owl")).is_new


async def test_a_release_with_a_lost_reply_succeeds_although_another_has_claimed(lossy, lose_reply, store):
    claim = await lossy.claim(C, "a", LONG_S)

    async def meanwhile():
        await admitted(store, C, 1)
        assert await store.claim(C, "b", LONG_S) is not None

    lose_reply(scripts.RELEASE, 1, meanwhile)
    assert await lossy.release(C, claim.token, 0)
    assert await is_lost(lossy.renew(C, claim.token, LONG_S))


async def test_a_write_that_arrives_after_a_later_one_has_no_effect(redis, store):
    claim = await store.claim(C, "a", LONG_S)
    await store.write(C, claim.token, StateChanges(run={"id": "new"}))
    process, step = redis.ask("HMGET", STATE, "process", "step")
    keys = [STATE, *(f"{STATE}:{part}" for part in ("inbox", "ids", "order"))]
    late = ["0", "9", process, str(int(step) - 1), str(claim.token), "9", '{"id":"old"}', "", "0", "0"]
    redis.ask("EVALSHA", scripts.WRITE.sha, "4", *keys, *late)
    assert (await store.claim(C, "a", LONG_S)).run == {"id": "new"}


async def test_a_killed_server_keeps_every_acknowledged_entry(durable_redis):
    async with await opened(durable_redis.url) as store:
        acknowledged = []

        async def admit(number):
            try:
                await store.admit(C, entry(number), "owl")
            except StoreUnavailable:
                return
            acknowledged.append(f"{number}")

        admitting = [asyncio.create_task(admit(number)) for number in range(150)]
        async with within(20):
            while len(acknowledged) < 50:  # noqa: ASYNC110 - no event reports the progress
                await asyncio.sleep(0.001)
        durable_redis.kill()
        await asyncio.gather(*admitting)
        durable_redis.start()
        stored = names_of((await store.claim(C, "a", LONG_S)).entries)
        assert 50 <= len(acknowledged) <= len(stored) == len(set(stored))
        assert set(acknowledged) <= set(stored)


async def test_every_step_fails_during_an_outage_and_the_state_survives_it(durable_redis):
    async with await opened(durable_redis.url) as store:
        await admitted(store, C, 1)
        claim = await store.claim(C, "a", LONG_S)
        await store.write(C, claim.token, StateChanges(run={"id": 1}, posts={"1": "x"}))
        durable_redis.kill()
        ended = await asyncio.gather(
            store.admit(C, entry(2), None),
            store.claim(C, "a", 1),
            store.renew(C, claim.token, 1),
            store.fetch(C, claim.token, 0),
            store.write(C, claim.token, StateChanges(held_seq=1)),
            store.release(C, claim.token, 1),
            store.release(C, claim.token, None),
            *(store.due(T1, 9), store.wait_for_notifications("a"), store.thread_of(C), store.conversations()),
            *(store.record(C), store.forget(C), open_run_store(durable_redis.url)),
            return_exceptions=True,
        )
        assert {type(each) for each in ended} == {StoreUnavailable}
        durable_redis.start()
        assert await store.renew(C, claim.token, LONG_S) == 1
        assert await store.claim(C, "b", LONG_S) is None
        again = await store.claim(C, "a", LONG_S)
        assert (again.run, again.posts, names_of(again.entries)) == ({"id": 1}, {"1": "x"}, ["1"])


async def test_all_keys_of_a_conversation_have_the_same_hash_tag(redis, store):
    await admitted(store, "a}{b", 1)
    claim = await store.claim("a}{b", "owner {x}", LONG_S)
    await store.write("a}{b", claim.token, StateChanges(closed={1: ""}))
    await admitted(store, "a}{b", 2)
    tags = {name[name.index(b"{") : name.index(b"}") + 1] for name in redis.ask("KEYS", "runs:{*")}
    assert tags == {b"{a%7D%7Bb}", b"{index}"}


async def test_an_idle_conversation_expires_after_ttl_days(redis, redis_url):
    async with await opened(f"{redis_url}?ttl_days=30") as store:
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


async def test_ids_expire_a_week_after_the_last_change_unless_messages_are_pending(redis, store):
    def ttl(*parts):
        return [redis.ask("TTL", f"{STATE}:{part}") for part in parts]

    await admitted(store, C, 1, 2)
    claim = await store.claim(C, "a", LONG_S)
    await store.write(C, claim.token, StateChanges(closed={1: ""}))
    assert ttl("inbox", "ids", "order") == [-1, -1, -1]
    await store.write(C, claim.token, StateChanges(closed={2: ""}))
    assert ttl("ids", "order") == [WEEK_S, WEEK_S]
    assert redis.ask("TTL", STATE) == -1
    await admitted(store, C, 3)
    assert ttl("ids", "order") == [-1, -1]


async def test_a_conversation_without_work_leaves_the_index_at_the_second_look(redis, store):
    redis.ask("ZADD", DUE, "1", "ghost")
    assert await store.due(T1, 9) == []
    assert float(redis.ask("ZSCORE", DUE, "ghost")) % 1 == 0.5
    redis.ask("ZADD", DUE, "1.5", "ghost")
    assert await store.due(T1, 9) == []
    assert redis.ask("ZSCORE", DUE, "ghost") is None


async def test_long_leases_do_not_hide_what_is_due(redis, store):
    for number in range(100):
        name = f"{T1}:C0:{number}"
        claim = await store.claim(name, "a", LONG_S)
        await store.write(name, claim.token, StateChanges(run={"id": 1}))
        redis.ask("ZADD", DUE, "0", name)
    await admitted(store, C, 1)
    redis.ask("ZADD", DUE, "0", C)
    redis.ask("HSET", STATE, "due", "0")
    async with within(9):
        assert await store.due(T1, 9) == [C]
        assert await store.due(T1, 9) == [C]


async def test_an_entry_admitted_between_two_looks_keeps_the_conversation_in_the_index(redis, store):
    redis.ask("ZADD", DUE, "1.5", C)  # as after the first look
    await admitted(store, C, 1)
    assert float(redis.ask("ZSCORE", DUE, C)) < 1.5
    await until_due(store, C)


async def test_the_leases_of_a_process_end_without_a_look_at_all_conversations(redis, store):
    assert await store.claim(C, "a", LONG_S)
    redis.ask("ZADD", "runs:{index}:all", *(word for at in range(10_000) for word in ("1", f"{T1}:C2:{at}")))
    redis.ask("CONFIG", "RESETSTAT")
    assert await store.end_leases("a", 0.0)
    assert redis.ask("INFO", "stats")["total_net_output_bytes"] < 10_000
    assert await store.claim(C, "b", LONG_S)


async def test_an_index_entry_without_an_admission_is_no_conversation_and_expires(redis, store):
    redis.ask("ZADD", "runs:{index}:all", "1000", "long-gone", "99999999999999", "on-its-way")
    await admitted(store, C, 1)
    assert await store.conversations() == [C]
    await store.delete_expired()
    assert set(redis.ask("ZRANGE", "runs:{index}:all", "0", "-1")) == {C.encode(), b"on-its-way"}


@pytest.mark.parametrize(
    ("options", "reasons"),
    [
        ((), ["is not persistent"]),
        (DURABLE, []),
        ((*DURABLE, "--maxmemory", "1gb", "--maxmemory-policy", "allkeys-lru"), ["(`maxmemory-policy allkeys-lru`)"]),
        ((*DURABLE, "--maxmemory-policy", "allkeys-lru"), []),
        (("--rename-command", "CONFIG", ""), []),
    ],
)
async def test_a_server_that_may_lose_data_is_logged_once(options, reasons):
    with redis_server(*options) as server, capture_logs() as logs:
        async with await opened(server.url) as store:
            await admitted(store, C, 1)
    assert [log["event"] for log in logs] == ["store.not_durable"] * len(reasons)
    assert all(reason in log["reason"] for reason, log in zip(reasons, logs, strict=True))


async def test_an_inspecting_store_reads_and_forgets_and_logs_no_warning(redis_url):
    with capture_logs() as logs:
        inspecting = await inspect_run_store(redis_url)
    assert logs == []
    async with aclosing(inspecting), await opened(redis_url) as store:
        await admitted(store, C, 1)
        claim = await store.claim(C, "a", LONG_S)
        assert (await inspecting.record(C)).owner == "a"
        await store.write(C, claim.token, StateChanges(closed={1: ""}))
        await store.release(C, claim.token, 0)
        assert await inspecting.forget(C)


async def test_after_the_clock_is_set_back_leases_expire_and_work_becomes_due(redis, store):
    def set_clock_back(conversation_id, *fields):
        """Change times as if the clock had been set back by ten minutes."""
        for field in fields:
            redis.ask("HINCRBY", f"runs:{{{conversation_id}}}", field, "600000")
        redis.ask("ZINCRBY", DUE, "600000", conversation_id)

    await admitted(store, C, 1)
    await admitted(store, D, 1)
    claim = await store.claim(C, "a", 0.3)
    await store.write(C, claim.token, StateChanges(run={"id": 1}))
    set_clock_back(C, "until", "due")
    set_clock_back(D, "due")
    assert D in await store.due(T1, 9)
    assert await store.claim(C, "b", LONG_S) is None  # the owner has one lease duration to renew it
    assert await store.renew(C, claim.token, 0.3) == 1
    set_clock_back(C, "until", "due")
    await until_due(store, C, D)
    assert await store.claim(C, "b", LONG_S) is not None
