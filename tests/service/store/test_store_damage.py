"""Stores that were damaged, systematically: whoever uses one is told so in a sentence, or goes on with the rest."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import aclosing, closing, suppress
from typing import TYPE_CHECKING

import pytest
import store_corruption
from redis_server import redis_server
from store_corruption import HERE, populate
from stored_conversations import run

from connector.protocols import InboxEntry, StateChanges
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.storage.errors import StoreError
from service.runs.runs import StoredRuns
from service.store import open_run_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redis_server import RedisServer

COMMANDS = (
    ("doctor",),
    ("conversations", "list"),
    ("conversations", "show", HERE),
    ("conversations", "export", HERE),
    ("conversations", "prune", "--keep-days", "0", "--whole"),
)


async def serve(url: str) -> None:
    """What a service does with its store, for a moment: nothing but a StoreError may end it."""
    async with (
        aclosing(await open_run_store(url)) as store,
        aclosing(await open_store(url)) as logs,
        StoredRuns(store, "owner", 5.0) as runs,
    ):
        runs.watch("T", lambda _: None)
        entry = InboxEntry("new", "message", {})
        for step in (
            lambda: runs.claim(HERE),
            lambda: runs.admit("T:C:2.0", entry, "alpha"),
            store.delete_expired,
            logs.delete_expired,
        ):
            with suppress(StoreError):
                await step()
        with suppress(StoreError):
            await store.due("T", 10)


def survives(url: str, restore: Callable[[], object]) -> None:
    for words in COMMANDS:
        restore()
        result = run(*words, "--store", url)
        assert result.exception is None or isinstance(result.exception, SystemExit), (words, result.exception)
        assert result.exit_code in (0, 1, 2)
        assert "Traceback" not in result.output
    restore()
    with suppress(StoreError):
        asyncio.run(serve(url))


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "populate.db"
    asyncio.run(populate(f"sqlite:{path}"))
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


def laid(path, data: bytes) -> None:
    for each in list(path.parent.glob(f"{path.name}*")):
        each.unlink(missing_ok=True)
    path.write_bytes(data)


def test_a_file_whose_bytes_were_damaged_ends_in_no_traceback(tmp_path, whole):
    path = tmp_path / "populate.db"
    laid(path, whole)
    for _, data in list(store_corruption.corrupted_files(path))[::3]:
        survives(f"sqlite:{path}", lambda data=data: laid(path, data))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE run_version SET version = 'text'",
        "UPDATE run_conversations SET seq = 'text'",
        "UPDATE run_conversations SET token = X'ff00'",
        "UPDATE run_conversations SET until = 'text', owner = 'x'",
        "UPDATE run_entries SET id = CAST(X'ff41' AS TEXT) WHERE seq = 5",
        "UPDATE run_forgotten SET count = 'text'",
        'UPDATE logs SET "end" = 4611686018427387904',
        "DROP TABLE nodes",
    ],
)
def test_a_file_with_a_value_of_a_wrong_type_ends_in_no_traceback(tmp_path, whole, statement):
    path = tmp_path / "populate.db"
    laid(path, whole)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute(statement)
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = path.read_bytes()
    survives(f"sqlite:{path}", lambda: laid(path, data))


def test_a_version_that_is_no_number_is_a_sentence_and_exit_code_2(tmp_path, whole):
    path = tmp_path / "populate.db"
    laid(path, whole)
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("INSERT INTO run_version VALUES ('text')")
    result = run("doctor", "--store", f"sqlite:{path}")
    assert (result.exit_code, "it is damaged. Restore it from a backup" in result.output) == (2, True), result.output


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


def restored(redis: RedisServer, dumped: dict[bytes, bytes], damage: tuple[str, ...]) -> None:
    redis.ask("FLUSHALL")
    for key, value in dumped.items():
        redis.ask("RESTORE", key, "0", value)
    redis.ask(*damage)


def test_a_server_whose_keys_were_damaged_ends_in_no_traceback(redis):
    redis.ask("FLUSHALL")
    asyncio.run(populate(redis.url))
    dumped = {key: redis.ask("DUMP", key) for key in redis.ask("KEYS", "*")}
    every = list(store_corruption.corrupting_commands(redis))
    of_index = [each for each in every if any(b"{index}" in part for part in each if isinstance(part, bytes))]
    assert of_index
    for each in of_index[::10] + every[::25]:
        survives(redis.url, lambda each=each: restored(redis, dumped, each))


@pytest.mark.parametrize("score", [None, "0", "inf", "-inf"])
def test_a_conversation_that_cannot_be_read_keeps_no_other_one_from_being_looked_after(redis, score):
    redis.ask("FLUSHALL")

    async def due() -> list[str]:
        async with aclosing(await open_run_store(redis.url)) as runs:
            for number in (1, 2):
                claim = await runs.claim(f"T:C:{number}.0", "owner", 1000)
                await runs.write(f"T:C:{number}.0", claim.token, StateChanges(run={"id": "r"}))
                await runs.hand_over(f"T:C:{number}.0", claim.token)
            redis.ask("DEL", "runs:{T:C:1.0}")
            redis.ask("SET", "runs:{T:C:1.0}", "text")
            redis.ask("ZADD", "runs:{index}:due:T", "0", b"\xff\xfe")
            if score is not None:
                redis.ask("ZADD", "runs:{index}:due:T", score, "T:C:1.0")
            return await runs.due("T", 10)

    assert asyncio.run(due()) == ["T:C:2.0"]
    again_s = float(redis.ask("ZSCORE", "runs:{index}:due:T", "T:C:1.0")) / 1000 - int(redis.ask("TIME")[0])
    assert 50 < again_s <= 61, "it is looked at again a minute later"
    result = run("doctor", "--store", redis.url, "--json")
    assert result.exit_code in (1, 2)
