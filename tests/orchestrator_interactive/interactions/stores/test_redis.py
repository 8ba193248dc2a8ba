"""Redis: refused connections, outages, lost replies, expiry and damaged data."""

import asyncio
import os
import signal
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import redis
from fault_injecting_proxy import fault_injecting_proxy
from redis.asyncio import Redis
from redis_server import redis_server
from stored_logs import KEY, indices, plant, state, states

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.errors import WriteConflict
from orchestrator_interactive.interactions.records import Key, damaged
from orchestrator_interactive.interactions.states import UserMessageState
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.interactions.stores.base import Change
from orchestrator_interactive.interactions.tree import Piece
from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable

LOG = "interactions:{T1:C1:1700000000.000100}/alpha"
OTHER = Key("other", "beta")
_HEAD = b'[1,"Said",%s,false,true]\n{"e":1}\n'


@asynccontextmanager
async def opened(url):
    store = await open_store(url)
    try:
        yield store
    finally:
        await store.aclose()


async def test_a_stack_uses_a_client_of_the_application_and_leaves_it_open(redis_url):
    client = Redis.from_url(redis_url)
    await InteractionStack(client, "c", "a").push(UserMessageState("Hello!"))
    async with opened(redis_url) as store:
        assert await InteractionStack(store, "c", "a").current() == UserMessageState("Hello!")
    assert await client.ping()
    await client.aclose()


@pytest.mark.parametrize(
    ("create", "sentence"),
    [
        (redis.Redis, "needs an asynchronous Redis client, and this one is synchronous: import Redis from `redis.asy"),
        (partial(Redis, decode_responses=True), "create the Redis client without `decode_responses=True`"),
    ],
    ids=["synchronous", "decoding"],
)
def test_a_client_that_the_log_cannot_use_is_refused_with_a_remedy(create, sentence):
    with pytest.raises(TypeError) as refused:
        InteractionStack(create(), "c", "a")
    assert sentence in str(refused.value)


async def test_the_error_of_a_client_without_a_server_names_its_place():
    client = Redis(port=1)
    with pytest.raises(StoreUnavailable, match="in Redis at localhost:1/0 cannot be used"):
        await InteractionStack(client, "c", "a").length()
    await client.aclose()


def text_of(refused):
    """Return the text of an error and its causes, as a log shows it."""
    text, error = "", refused.value
    while error is not None:
        text += f"{error!r} {error}\n"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return text


@pytest.mark.parametrize(
    "url",
    [
        *(
            f"redis://:hunter2@{place}"
            for place in ("127.0.0.1:port/0", "127.0.0.1:99999/0", "127.0.0.1/zero", "[::1/0")
        ),
        *(
            f"redis://:hunter2@127.0.0.1/0?ttl_days{days}"
            for days in ("=soon", "=0", "=-1", "=nan", "=inf", "=1e9", "")
        ),
        *(f"redis://:hunter2@127.0.0.1/0?{option}" for option in ("ttl_day=30", "password=x")),
        "redis://:hunter2/extra@127.0.0.1/0",
    ],
)
async def test_the_error_of_an_invalid_url_does_not_have_the_password(url):
    with pytest.raises(StoreError, match="is invalid: use redis") as refused:
        await open_store(url)
    assert "hunter2" not in text_of(refused)


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
async def test_an_unreachable_server_is_an_error_without_the_password(scheme):
    with redis_server() as server:
        port = server.port
    with pytest.raises(
        StoreError, match=f"in Redis at 127.0.0.1:{port}/3 cannot be used: Error .* Check that it runs"
    ) as refused:
        await open_store(f"{scheme}://:hunter2@127.0.0.1:{port}/3")
    assert "hunter2" not in text_of(refused)


@pytest.mark.parametrize("login", ["", ":wrong-hunter3@", "nobody:hunter2@", "default:wrong-hunter3@"])
async def test_a_wrong_login_is_an_error_without_the_password(login):
    with redis_server("--requirepass", "hunter2") as server:
        with pytest.raises(StoreError, match=r"another user or password. Name the right ones in the URL") as refused:
            await open_store(f"redis://{login}127.0.0.1:{server.port}/0")
        assert not isinstance(refused.value, StoreUnavailable)
        assert "hunter" not in text_of(refused)
        async with opened(f"redis://:hunter2@127.0.0.1:{server.port}/0") as store:
            await plant(store, KEY)


async def test_a_user_without_write_permission_is_an_error(redis, redis_url):
    redis.ask("ACL", "SETUSER", "reader", "on", ">hunter2", "~*", "+@read", "+@connection")
    with pytest.raises(StoreError, match="no permissions") as refused:
        await open_store(f"redis://reader:hunter2@127.0.0.1:{redis.port}/0")
    redis.ask("ACL", "DELUSER", "reader")
    assert "hunter2" not in text_of(refused)


async def test_a_replica_is_an_error(redis, redis_url):
    async with opened(redis_url) as store:
        await plant(store, KEY, states(0, 1))
        redis.ask("REPLICAOF", "127.0.0.1", "1")
        try:
            with pytest.raises(StoreUnavailable, match=r"it is a replica.*Name the primary"):
                await store.commit(KEY, Change(1, 2, 1000.0, nodes=states(1, 2)))
            with pytest.raises(StoreError, match=r"it is a replica.*Name the primary"):
                await open_store(redis_url)
        finally:
            redis.ask("REPLICAOF", "NO", "ONE")
        assert await indices(store, KEY) == [0]
        await store.commit(KEY, Change(1, 2, 1000.0, nodes=states(1, 2)))


async def test_a_server_with_full_memory_refuses_writes_but_not_removals(redis, redis_url):
    async with opened(redis_url) as store:
        await plant(store, KEY, states(0, 3))
        await plant(store, OTHER, states(0, 3))
        redis.ask("CONFIG", "SET", "maxmemory", "1")
        try:
            for refused in (
                store.commit(KEY, Change(1, 4, 1000.0, nodes=states(3, 4), cuts=[Piece(0, 0, 2)])),
                plant(store, Key("new", "alpha")),
                store.save_agent("a", "{}"),
            ):
                with pytest.raises(StoreUnavailable, match=r"its memory is full\. Raise its `maxmemory`, or prune"):
                    await refused
            await store.remove(OTHER, 1)
        finally:
            redis.ask("CONFIG", "SET", "maxmemory", "0")
        assert (await store.load(KEY)).version == 1
        assert await indices(store, KEY) == [0, 1, 2]
        assert await store.keys() == [KEY]


async def test_the_store_works_again_after_an_outage():
    with redis_server() as server:
        async with opened(server.url) as store:
            await asyncio.gather(*[plant(store, Key(f"c{number}", "a")) for number in range(20)])
            server.kill()
            with pytest.raises(
                StoreUnavailable, match=r"Check that it runs.*It is unknown whether the change was written"
            ):
                await plant(store, KEY)
            with pytest.raises(StoreError, match="Check that it runs"):
                await store.load(KEY)
            server.start()
            await asyncio.gather(*[plant(store, Key(f"c{number}", "a")) for number in range(20)])
            assert len(await store.keys()) == 20


async def test_a_server_that_does_not_answer_is_an_error_after_five_seconds():
    with redis_server() as server:
        async with opened(server.url) as store:
            await plant(store, KEY)
            os.kill(server.pid, signal.SIGSTOP)
            async with asyncio.timeout(9):
                with pytest.raises(StoreUnavailable, match="does not answer within 5 seconds"):
                    await store.load(KEY)
            os.kill(server.pid, signal.SIGCONT)
            assert (await store.load(KEY)).version == 1


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_commit_whose_reply_is_lost_is_written_once(redis, redis_url, times):
    async with fault_injecting_proxy(redis.port) as proxy, opened(proxy.url) as store:
        await plant(store, KEY, states(0, 1))
        proxy.lose(b"EVALSHA", times)
        await store.commit(KEY, Change(1, 2, 1000.0, nodes=states(1, 2)))
        assert proxy.lost == times
        assert (await store.load(KEY)).version == 2
        proxy.lose(b"EVALSHA", times)
        await plant(store, OTHER, states(0, 2))
        assert (await store.load(OTHER)).version == 1


async def test_a_commit_whose_reply_is_lost_does_not_conflict_with_later_writers(redis, redis_url):
    async with fault_injecting_proxy(redis.port) as proxy, opened(proxy.url) as store, opened(redis_url) as other:
        await plant(store, KEY)

        async def go_on():
            for version in (2, 3, 4):
                await other.commit(KEY, Change(version, version, 1000.0, nodes=[state(version - 1)]))

        proxy.lose(b"EVALSHA", 1, go_on)
        await store.commit(KEY, Change(1, 1, 1000.0, nodes=[state(0)]))
        assert await indices(store, KEY) == [0, 1, 2, 3]


async def test_a_late_commit_is_a_conflict_even_if_replies_are_lost(redis, redis_url):
    async with fault_injecting_proxy(redis.port) as proxy, opened(proxy.url) as store:
        await plant(store, KEY)
        await store.commit(KEY, Change(1, 1, 1000.0, nodes=[state(0)]))
        proxy.lose(b"EVALSHA", 2)
        with pytest.raises(WriteConflict):
            await store.commit(KEY, Change(1, 1, 1000.0, nodes=[state(0, kind="Late")]))
        assert await store.read(KEY, 0, 0, 1) == [state(0)]


async def test_a_removal_whose_reply_is_lost_is_done_once(redis, redis_url):
    async with fault_injecting_proxy(redis.port) as proxy, opened(proxy.url) as store:
        await plant(store, KEY)
        proxy.lose(b"EVALSHA", 2)
        await store.remove(KEY, 1)
        assert await store.load(KEY) is None
        with pytest.raises(WriteConflict):
            await store.remove(KEY, 1)


async def test_a_change_whose_reply_is_lost_for_good_has_an_unknown_outcome_and_may_be_repeated(redis, redis_url):
    async with fault_injecting_proxy(redis.port) as proxy, opened(proxy.url) as store:
        await plant(store, KEY)
        change = Change(1, 1, 1000.0, nodes=[state(0)])
        proxy.lose(b"EVALSHA", 9)
        with pytest.raises(StoreUnavailable, match="It is unknown whether the change was written: read"):
            await store.commit(KEY, change)
        assert await indices(store, KEY) == [0]
        proxy.lose(b"", 0)
        await store.commit(KEY, change)
        assert (await store.load(KEY)).version == 2


async def test_a_server_that_cannot_save_is_unavailable_until_it_can(redis, redis_url):
    (folder,) = redis.ask("CONFIG", "GET", "dir").values()
    in_the_way = Path(os.fsdecode(folder)) / "dump.rdb"
    in_the_way.mkdir()
    redis.ask("CONFIG", "SET", "save", "3600 100000")
    async with opened(redis_url) as store:
        try:
            redis.ask("BGSAVE")
            async with asyncio.timeout(10):
                while redis.ask("INFO", "persistence")["rdb_last_bgsave_status"] == "ok":  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.02)
            with pytest.raises(StoreUnavailable, match=r"it cannot save to its disk\. Free space there"):
                await store.save_agent("a", "{}")
        finally:
            redis.ask("CONFIG", "SET", "save", "")
            in_the_way.rmdir()
        await store.save_agent("a", "{}")
        await store.forget_agent("a")


async def test_the_fence_of_a_missing_log_expires_after_a_week(redis, redis_url):
    async with opened(redis_url) as store:
        await store.fence(KEY, 5)
        assert redis.ask("TTL", LOG) == 7 * 86400
        await plant(store, KEY)
        await store.fence(KEY, 6)
        assert redis.ask("TTL", LOG) == -1
        await store.remove(KEY, 1)
        assert redis.ask("TTL", LOG) == 7 * 86400


async def test_a_script_missing_on_the_server_is_loaded_again(redis, redis_url):
    async with opened(redis_url) as store:
        await plant(store, KEY)
        redis.ask("SCRIPT", "FLUSH")
        await store.commit(KEY, Change(1, 1, 1000.0, nodes=[state(0)]))
        assert (await store.load(KEY)).version == 2


async def test_every_commit_renews_the_expiry_of_a_log(redis, redis_url):
    async with opened(f"{redis_url}?ttl_days=30") as store:
        await plant(store, KEY, states(0, 2))
        assert redis.ask("TTL", LOG) == 30 * 86400
        redis.ask("EXPIRE", LOG, "100")
        await store.commit(KEY, Change(1, 3, 1000.0, nodes=states(2, 3)))
        assert redis.ask("TTL", LOG) == 30 * 86400
    async with opened(redis_url) as store:
        await store.commit(KEY, Change(2, 4, 1000.0, nodes=states(3, 4)))
        assert redis.ask("TTL", LOG) == -1


async def test_an_expired_log_is_gone_with_all_its_states(redis, redis_url):
    async with opened(f"{redis_url}?ttl_days=0.5") as store:
        await plant(store, KEY, states(0, 2))
        await plant(store, OTHER, states(0, 2))
        redis.ask("EXPIRE", LOG, "0")
        assert await store.load(KEY) is None
        assert await store.keys() == [OTHER]
        with pytest.raises(WriteConflict):
            await store.commit(KEY, Change(1, 3, 1000.0, nodes=states(2, 3)))
        await plant(store, KEY)
        assert set(await store.keys()) == {KEY, OTHER}


async def test_the_index_drops_only_entries_of_logs_that_are_gone(redis, redis_url):
    async with opened(redis_url) as store:
        await plant(store, KEY)
        redis.ask("ZADD", "interactions:logs", "1000", "long/gone", "1000", KEY.path, "99999999999", "on/its-way")
        redis.ask("ZADD", "interactions:logs", "1000", "no key", "1000", b"\xff")
        assert await store.keys() == [KEY]
        await store.delete_expired()
        entries = redis.ask("ZRANGE", "interactions:logs", "0", "-1")
        assert set(entries) == {KEY.path.encode(), b"on/its-way"}


async def test_the_values_of_a_log_are_readable_in_redis(redis, redis_url):
    async with opened(redis_url) as store:
        await plant(store, KEY, [state(0, data='{"text":"grüße"}'), state(1, data=b"packed")])
        assert redis.ask("HGET", LOG, "0/0").decode() == '[1,"Said",1000.0,false,true]\n{"e":1}\n{"text":"grüße"}'
        assert redis.ask("HGET", LOG, "0/1") == b'[1,"Said",1000.0,true,false]\n{"e":1}\npacked'
        assert redis.ask("HMGET", LOG, "version", "end", "written") == [b"1", b"2", b"1000.0"]


async def test_all_keys_of_a_conversation_are_in_one_slot(redis, redis_url):
    async with opened(redis_url) as store:
        key = Key("{a}", "b}{c")
        await plant(store, key, states(0, 3))
        await plant(store, Key("{a}", "other"))
        await store.remove(key, 1)
        keys = [name for name in redis.ask("KEYS", "*") if b"%7Ba%7D" in name]
        assert len(keys) == 2
        assert {name[name.index(b"{") : name.index(b"}")] for name in keys} == {b"{%7Ba%7D"}
        assert {name.count(b"{") for name in keys} == {1}


@pytest.mark.parametrize(
    "value", [b"", b"[]\n{}", b"\xff\xfe", _HEAD % b"now", _HEAD % b"1.0" + b"\xff", b"[" * 100_000]
)
async def test_a_damaged_state_does_not_affect_the_others(redis, redis_url, value):
    async with opened(redis_url) as store:
        await plant(store, KEY, states(0, 3))
        redis.ask("HSET", LOG, "0/1", value)
        expected = [states(0, 1)[0], damaged(0, 1), states(2, 3)[0]]
        assert await store.read(KEY, 0, 0, 9) == expected


@pytest.mark.parametrize(
    ("field", "value"),
    [("tree", "{"), ("tree", '{"current": 0}'), ("version", "x"), ("end", ""), ("written", "[]"), ("end", b"\xff")],
)
async def test_the_error_of_damaged_branches_names_the_conversation(redis, redis_url, field, value):
    async with opened(redis_url) as store:
        await plant(store, KEY, states(0, 3))
        await plant(store, OTHER)
        redis.ask("HSET", LOG, field, value)
        with pytest.raises(StoreError, match=f"branches of conversation {KEY.conversation_id} of alpha are damaged"):
            await store.load(KEY)
        assert set(await store.keys()) == {KEY, OTHER}
        assert (await store.load(OTHER)).version == 1


async def test_keys_of_another_application_are_an_error_and_stay_unchanged(redis, redis_url):
    redis.ask("SET", "interactions:logs", "theirs")
    with pytest.raises(StoreError, match="wrong kind of value"):
        await open_store(redis_url)
    redis.ask("DEL", "interactions:logs")
    redis.ask("SET", LOG, "theirs")
    async with opened(redis_url) as store:
        for work in (store.load(KEY), plant(store, KEY)):
            with pytest.raises(StoreError, match="wrong kind of value") as refused:
                await work
            assert not isinstance(refused.value, StoreUnavailable)
    assert redis.ask("GET", LOG) == b"theirs"


async def test_a_lost_index_is_rebuilt_from_the_logs_in_use(redis, redis_url):
    async with opened(redis_url) as store:
        await plant(store, KEY, states(0, 1))
        redis.ask("DEL", "interactions:logs")
        assert await store.keys() == []
        await store.fence(KEY, 1)
        assert await store.keys() == [KEY]
        await store.fence(OTHER, 1)  # it has no log
        assert await store.keys() == [KEY]


async def test_cancelling_a_caller_ends_its_calls(redis_url):
    async with opened(redis_url) as store:

        async def ask() -> None:
            while True:
                await store.load(KEY)

        for moment in range(40):
            asking = asyncio.create_task(ask())
            await asyncio.sleep(0.001 + moment / 10_000)
            asking.cancel()
            done, _ = await asyncio.wait([asking], timeout=5)
            assert done
