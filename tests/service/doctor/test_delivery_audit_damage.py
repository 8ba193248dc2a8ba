"""What `amplifier-slack doctor --store` says of stores that were damaged."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any

import pytest
from redis_server import redis_server
from store_corruption import HERE, populate
from stored_conversations import run

from connector.protocols import InboxEntry, StateChanges
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.states import AssistantMessageState
from orchestrator_interactive.interactions.stores import open_store
from service.store import open_run_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redis_server import RedisServer

RUNS = f"runs:{{{HERE}}}"


def told_of(url: str) -> dict[str, Any]:
    result = run("doctor", "--store", url, "--json")
    assert result.exit_code in (0, 1), result.output
    told = json.loads(result.output[result.output.index("{") :])
    assert result.exit_code == (1 if told["violations"] else 0)
    return told


def ends(told: dict[str, Any]) -> list[int]:
    """How many messages were accepted, delivered and refused, and wait."""
    assert told["violations"] == []
    return [told[name] for name in ("accepted", "delivered", "refused", "waiting")]


def found(url: str) -> list[str]:
    """What should not be."""
    told = told_of(url)
    return [each.removeprefix(f"{HERE}: ") for each in told["violations"]]


LOST = "message m2 left the inbox as delivered, but is not in the log."
SHORT = "its inbox has accepted 6 entries, but 5 are pending or finished."


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("SELECT 1", []),
        (
            "DELETE FROM nodes WHERE idx = 2",
            [LOST, "in the log of alpha, branch main, 1 state cannot be read: 2."],
        ),
        (
            "UPDATE nodes SET data = '' WHERE idx = 2",
            [LOST, "in the log of alpha, branch main, 1 state cannot be read: 2."],
        ),
        ("DELETE FROM nodes WHERE idx = 3", ["in the log of alpha, branch main, 1 state cannot be read: 3."]),
        ("DELETE FROM run_entries WHERE seq = 5", [SHORT]),
        ("DELETE FROM run_entries WHERE seq = 6", [SHORT]),
        ("DELETE FROM run_entries WHERE seq = 2", [SHORT]),
        ("UPDATE run_conversations SET seq = 3", ["its inbox has accepted 3 entries, but 6 are pending or finished."]),
        (
            "DELETE FROM run_conversations",
            [f"entry m{number} is in the inbox of a conversation that does not exist." for number in range(1, 7)],
        ),
        ("UPDATE run_entries SET data = '{{' WHERE seq = 5", ["entry m5 of its inbox cannot be read."]),
        ("UPDATE run_conversations SET run = '{{'", ["the record of its run cannot be read."]),
        ("UPDATE run_posts SET content = '{{'", ["the text 1 of its run cannot be read."]),
        (
            "UPDATE run_conversations SET todo = 0",
            ["it has pending work, but is missing from the index of due conversations: no process will resume it."],
        ),
        (
            "UPDATE run_conversations SET held_seq = 99",
            ["messages up to number 99 are held back, but only 6 were accepted: new messages start no run."],
        ),
        ("UPDATE run_conversations SET run = NULL", ["1 post pending in the outbox without a run."]),
    ],
)
def test_of_a_file(tmp_path, damage, said):
    url = f"sqlite:{tmp_path}/populate.db"
    asyncio.run(populate(url))
    with closing(sqlite3.connect(tmp_path / "populate.db", isolation_level=None)) as file:
        file.execute(damage)
    assert found(url) == said


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


ORDER = "the ids of its entries and their order do not match."


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (("PING",), []),
        (
            ("HDEL", f"interactions:{{{HERE}}}/alpha", "0/2"),
            [LOST, "in the log of alpha, branch main, 1 state cannot be read: 2."],
        ),
        (
            ("ZREMRANGEBYRANK", f"{RUNS}:order", "0", "1"),
            ["its inbox has accepted 6 entries, but it has the ids of", ORDER],
        ),
        (("HDEL", f"{RUNS}:ids", "m1"), [ORDER]),
        (("DEL", f"{RUNS}:order", f"{RUNS}:ids"), ["its inbox has accepted 6 entries, but it has the ids of"]),
        (("ZREMRANGEBYRANK", f"{RUNS}:inbox", "0", "0"), ["message m5 was accepted and is lost", SHORT]),
        (("HSET", RUNS, "seq", "7"), ["its inbox has accepted 7 entries, but 6 are pending or finished."]),
        (("DEL", RUNS), ["its inbox has accepted 0 entries, but 2 are pending or finished."]),
        (("HSET", RUNS, "run", "{{"), ["the record of its run cannot be read."]),
        (
            ("ZREM", "runs:{index}:due:T", HERE),
            ["it has pending work, but is missing from the index of due conversations"],
        ),
    ],
)
def test_of_a_server(redis, damage, said):
    redis.ask("FLUSHALL")
    asyncio.run(populate(redis.url))
    redis.ask(*damage)
    assert [one.startswith(other) for one, other in zip(found(redis.url), said, strict=True)] == [True] * len(said)


def closed(url: str) -> None:
    """All that waits is refused."""

    async def close() -> None:
        async with aclosing(await open_run_store(url)) as runs:
            claim = await runs.claim(HERE, "owner", 1000)
            await runs.write(
                HERE, claim.token, StateChanges(run={}, closed={each.seq: "refused" for each in claim.entries})
            )
            await runs.release(HERE, claim.token, 10**6)

    asyncio.run(close())


def test_in_a_file_messages_whose_ids_were_forgotten_are_counted_all_the_same(tmp_path):
    url = f"sqlite:{tmp_path}/populate.db"
    asyncio.run(populate(url))
    with closing(sqlite3.connect(tmp_path / "populate.db", isolation_level=None)) as file:
        file.execute("UPDATE run_conversations SET changed = changed - 7.1 * 86400")
    asyncio.run(_opened_once(url))
    assert ends(told_of(url)) == [6, 3, 1, 2]
    closed(url)
    assert ends(told_of(url)) == [6, 3, 3, 0]


def test_a_file_of_a_newer_version_is_refused(tmp_path):
    url = f"sqlite:{tmp_path}/populate.db"
    asyncio.run(populate(url))
    with closing(sqlite3.connect(tmp_path / "populate.db", isolation_level=None)) as file:
        file.execute("UPDATE run_version SET version = 2")
    result = run("doctor", "--store", url)
    assert (result.exit_code, "have version 2; this installation supports up to version 1" in result.output) == (
        2,
        True,
    )


async def _opened_once(url: str) -> None:
    await (await open_run_store(url)).aclose()


def test_in_a_server_messages_whose_ids_were_forgotten_are_counted_all_the_same(redis):
    redis.ask("FLUSHALL")
    asyncio.run(populate(redis.url))
    closed(redis.url)
    redis.ask("DEL", f"{RUNS}:ids", f"{RUNS}:order")  # a week later
    assert ends(told_of(redis.url)) == [6, 3, 3, 0]
    asyncio.run(_admitted(redis.url, "m7"))
    assert ends(told_of(redis.url)) == [7, 3, 3, 1]


def test_in_a_server_the_ids_before_the_newest_ten_thousand_are_forgotten_and_counted(redis):
    redis.ask("FLUSHALL")
    asyncio.run(populate(redis.url))
    redis.ask("HINCRBY", RUNS, "seq", "10000")
    redis.ask("HINCRBY", RUNS, "n:refused", "10000")
    closed(redis.url)
    assert redis.ask("ZRANGE", f"{RUNS}:order", "0", "-1") == []
    assert ends(told_of(redis.url)) == [10_006, 3, 10_003, 0]


async def _admitted(url: str, name: str) -> None:
    async with aclosing(await open_run_store(url)) as runs:
        assert (await runs.admit(HERE, InboxEntry(name, "message", {}), "alpha")).is_new


def test_of_a_server_whose_memory_is_full_the_conversations_can_be_looked_at_and_pruned(redis):
    redis.ask("FLUSHALL")
    asyncio.run(populate(redis.url))
    closed(redis.url)
    redis.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        assert ends(told_of(redis.url)) == [6, 3, 3, 0]
        shown = run("conversations", "show", HERE, "--store", redis.url)
        assert (shown.exit_code, "fine" in shown.output) == (0, True), shown.output
        pruned = run("conversations", "prune", "--keep-days", "0", "--whole", "--store", redis.url)
        assert (pruned.exit_code, pruned.output.splitlines()[-1]) == (0, "Deleted 1 conversation (6 states)."), (
            pruned.output
        )
    finally:
        redis.ask("CONFIG", "SET", "maxmemory", "0")
    assert told_of(redis.url)["conversations"] == 0


def test_of_a_server_whose_memory_is_full_a_branch_can_be_pruned(redis):
    redis.ask("FLUSHALL")

    async def keep_a_branch() -> None:
        await populate(redis.url)
        async with aclosing(await open_store(redis.url)) as logs:
            stack = InteractionStack(logs, HERE, "alpha")
            await stack.rewind(1)
            await stack.push(AssistantMessageState("instead"))

    asyncio.run(keep_a_branch())
    redis.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        pruned = run("conversations", "prune", "--keep-days", "0", "--store", redis.url)
        assert (pruned.exit_code, pruned.output.splitlines()[-1]) == (0, "Deleted 1 branch (4 states)."), pruned.output
    finally:
        redis.ask("CONFIG", "SET", "maxmemory", "0")


def test_a_look_changes_nothing_in_a_server(redis):
    redis.ask("FLUSHALL")
    asyncio.run(populate(redis.url))
    redis.ask("CONFIG", "RESETSTAT")
    assert found(redis.url) == []
    asked = redis.ask("INFO", "commandstats")
    assert not {"cmdstat_hset", "cmdstat_zadd", "cmdstat_expire", "cmdstat_hincrby"} & asked.keys()
