"""Systematically damaged stores: commands and the service report an error or continue, without a traceback."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import aclosing, closing, suppress

import pytest
import store_corruption
from store_corruption import HERE, populate
from stored_conversations import run

from connector.protocols import InboxEntry, StateChanges
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.storage.errors import StoreError
from service.runs import StoredRuns
from service.store import open_run_store

COMMANDS = (
    ("doctor",),
    ("conversations", "list"),
    ("conversations", "show", HERE),
    ("conversations", "export", HERE),
    ("conversations", "prune", "--keep-days", "0", "--whole"),
)


async def serve(url):
    """Use a store as the service does; raise any error other than a StoreError."""
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


def assert_usable(url, restore):
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
def content(tmp_path_factory):
    """The bytes of a file with conversations."""
    path = tmp_path_factory.mktemp("whole") / "kept.db"
    asyncio.run(populate(f"sqlite:{path}"))
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.read_bytes()


@pytest.fixture
def path(tmp_path, content):
    (tmp_path / "kept.db").write_bytes(content)
    return tmp_path / "kept.db"


def overwrite(path, content):
    for each in list(path.parent.glob(f"{path.name}*")):
        each.unlink(missing_ok=True)
    path.write_bytes(content)


def execute(path, statement):
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute(statement)
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def test_damaged_bytes_of_a_file_cause_no_traceback(path):
    for _, damaged in list(store_corruption.corrupted_files(path))[::3]:
        assert_usable(f"sqlite:{path}", lambda damaged=damaged: overwrite(path, damaged))


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
def test_a_value_of_a_wrong_type_in_a_file_causes_no_traceback(path, statement):
    execute(path, statement)
    damaged = path.read_bytes()
    assert_usable(f"sqlite:{path}", lambda: overwrite(path, damaged))


def test_a_version_that_is_not_a_number_exits_with_code_2(path):
    execute(path, "INSERT INTO run_version VALUES ('text')")
    result = run("doctor", "--store", f"sqlite:{path}")
    assert (result.exit_code, "it is damaged. Restore it from a backup" in result.output) == (2, True), result.output


def test_damaged_keys_of_a_server_cause_no_traceback(redis, redis_url):
    asyncio.run(populate(redis_url))
    dumped = {key: redis.ask("DUMP", key) for key in redis.ask("KEYS", "*")}
    commands = list(store_corruption.corrupting_commands(redis))
    of_index = [each for each in commands if any(b"{index}" in part for part in each if isinstance(part, bytes))]
    assert of_index

    def restore(command):
        redis.ask("FLUSHALL")
        for key, value in dumped.items():
            redis.ask("RESTORE", key, "0", value)
        redis.ask(*command)

    for each in of_index[::10] + commands[::25]:
        assert_usable(redis_url, lambda each=each: restore(each))


@pytest.mark.parametrize("score", [None, "0", "inf", "-inf"])
def test_an_unreadable_conversation_does_not_block_the_others(redis, redis_url, score):
    async def due():
        async with aclosing(await open_run_store(redis_url)) as runs:
            for number in (1, 2):
                claim = await runs.claim(f"T:C:{number}.0", "owner", 1000)
                await runs.write(f"T:C:{number}.0", claim.token, StateChanges(run={"id": "r"}))
                await runs.release(f"T:C:{number}.0", claim.token, None)
            redis.ask("DEL", "runs:{T:C:1.0}")
            redis.ask("SET", "runs:{T:C:1.0}", "text")
            redis.ask("ZADD", "runs:{index}:due:T", "0", b"\xff\xfe")
            if score is not None:
                redis.ask("ZADD", "runs:{index}:due:T", score, "T:C:1.0")
            return await runs.due("T", 10)

    assert asyncio.run(due()) == ["T:C:2.0"]
    next_look_s = float(redis.ask("ZSCORE", "runs:{index}:due:T", "T:C:1.0")) / 1000 - int(redis.ask("TIME")[0])
    assert 50 < next_look_s <= 61
    assert run("doctor", "--store", redis_url, "--json").exit_code in (1, 2)
