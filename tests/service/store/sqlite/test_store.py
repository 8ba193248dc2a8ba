"""An SQLite file of runs, and the processes that use it."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
from contextlib import asynccontextmanager, closing

import pytest
from run_store_cases import LONG_S, T1, C, D, admitted, entry, is_lost, names_of

from connector.protocols import StateChanges
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.states import UserMessageState
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.storage.errors import StoreError
from service.store import inspect_run_store, open_run_store
from service.store.serialization import KEPT_ENTRIES
from service.store.sqlite import records as sqlite_records

_SERVICE = """
import asyncio, sys
from connector.protocols import StateChanges, InboxEntry
from service.store import open_run_store

async def main(url):
    store = await open_run_store(url)
    claim = await store.claim("T1:c", "them", 1000)
    for number in range(1, 1_000_000):
        await store.admit("T1:c", InboxEntry(f"m{number}", "message", {"text": "x" * 500}), "owl")
        changes = StateChanges(run={"id": number}, posts={"1": f"{number}"}, closed={number: ""})
        await store.write("T1:c", claim.token, changes)
        print(number, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@asynccontextmanager
async def _service(url):
    """A process that owns a conversation, and names each entry that it has admitted and delivered."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _SERVICE, url), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("steps", [1, 200])
async def test_a_process_that_was_killed_leaves_all_it_had_reported_and_no_lease(sqlite_url, steps):
    async with _service(sqlite_url) as process:
        for _ in range(steps):
            await process.stdout.readline()
        with pytest.raises(
            StoreError, match=r"Another service uses .*logs\.db\. Stop it, or use Redis to run several services\.$"
        ):
            await open_run_store(sqlite_url)
        process.send_signal(signal.SIGKILL)
        rest = (await process.stdout.read()).splitlines(keepends=True)
        # A line that was cut off was not reported.
        last = max([steps, *(int(line) for line in rest if line.endswith(b"\n"))])
        await process.wait()
    store = await open_run_store(sqlite_url)
    assert await store.due(T1, 9) == ["T1:c"]
    claim = await store.claim("T1:c", "us", LONG_S)
    known = await store.record("T1:c")
    assert claim.run["id"] in (last, last + 1)
    assert claim.posts == {"1": f"{claim.run['id']}"}
    assert len(known.ends) == min(claim.run["id"], KEPT_ENTRIES)
    assert len(known.order) - len(known.ends) == len(claim.entries) <= 1
    await store.aclose()


async def test_the_next_process_goes_on_at_once(sqlite_url):
    store = await open_run_store(sqlite_url)
    await admitted(store, C, 1)
    await admitted(store, D, 1)
    claim = await store.claim(C, "a", LONG_S)
    await store.write(C, claim.token, StateChanges(run={"id": 1}))
    assert await store.due(T1, 9) == []
    await store.aclose()
    store = await open_run_store(sqlite_url)
    assert set(await store.due(T1, 9)) == {C, D}
    assert (await store.record(C)).owner == "a"
    again = await store.claim(C, "b", LONG_S)
    assert (again.run, again.token > claim.token) == ({"id": 1}, True)
    assert await is_lost(store.renew(C, claim.token, LONG_S))
    await store.aclose()


async def test_one_service_at_a_time_uses_a_file_and_visitors_come_and_go(tmp_path, sqlite_url):
    store = await open_run_store(sqlite_url)
    with pytest.raises(StoreError, match="Another service uses"):
        await open_run_store(sqlite_url)
    await admitted(store, C, 1)
    claim = await store.claim(C, "a", LONG_S)
    visitor = await inspect_run_store(sqlite_url)
    assert (await visitor.record(C)).owner == "a"
    assert await visitor.conversations() == [C]
    assert not await visitor.forget(C)
    await visitor.aclose()
    assert await store.renew(C, claim.token, LONG_S) == 1
    await store.aclose()
    assert (tmp_path / "logs.db.lock").stat().st_mode & 0o777 == 0o600
    await (await open_run_store(sqlite_url)).aclose()


async def test_a_file_is_the_same_one_whatever_it_is_called(tmp_path, sqlite_url):
    store = await open_run_store(sqlite_url)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "linked.db").symlink_to(tmp_path / "logs.db")
    with pytest.raises(StoreError, match=r"Another service uses .*logs\.db\. Stop it"):
        await open_run_store(f"sqlite:{tmp_path}/elsewhere/linked.db")
    await store.aclose()
    (tmp_path / "twin.db").hardlink_to(tmp_path / "logs.db")
    for name in ("logs.db", "twin.db"):
        with pytest.raises(
            StoreError, match=r"has a second hard link, which can corrupt the file\. Remove one of them"
        ):
            await open_run_store(f"sqlite:{tmp_path}/{name}")
    (tmp_path / "twin.db").unlink()
    await (await open_run_store(f"sqlite:{tmp_path}/elsewhere/linked.db")).aclose()


async def test_runs_and_logs_share_a_file(sqlite_url):
    logs, runs = await open_store(sqlite_url), await open_run_store(sqlite_url)
    stack = InteractionStack(logs, C, "owl")

    async def write(number):
        await admitted(runs, C, number)
        await stack.push(UserMessageState(f"{number}"))

    await asyncio.gather(*map(write, range(50)))
    assert await stack.length() == 50
    assert len((await runs.record(C)).waiting) == 50
    await runs.aclose()
    await logs.aclose()


async def test_what_has_to_wait_for_another_process_keeps_its_order(tmp_path, sqlite_url):
    store = await open_run_store(sqlite_url)
    claim = await store.claim(C, "a", LONG_S)
    with closing(sqlite3.connect(tmp_path / "logs.db", isolation_level=None)) as somebody:
        somebody.execute("BEGIN IMMEDIATE")
        waiting = [asyncio.create_task(store.admit(C, entry(number), None)) for number in range(3)]
        await asyncio.sleep(0)
        somebody.execute("COMMIT")
        await asyncio.gather(*waiting, *[store.admit(C, entry(number), None) for number in range(3, 6)])
    assert names_of(await store.fetch(C, claim.token, 0)) == ["0", "1", "2", "3", "4", "5"]
    await store.aclose()


async def test_the_newest_ten_thousand_entries_are_known_again(sqlite_url):
    store = await open_run_store(sqlite_url)
    claim = await store.claim(C, "a", LONG_S)
    await admitted(store, C, *range(1, 10_011))
    await store.write(C, claim.token, StateChanges(closed=dict.fromkeys(range(2, 10_010), "")))
    assert not (await store.admit(C, entry(1), None)).is_new  # it waits
    assert not (await store.admit(C, entry(11), None)).is_new
    assert (await store.admit(C, entry(10), None)).is_new
    await store.aclose()


async def test_ids_are_forgotten_a_week_after_the_last_change(tmp_path, sqlite_url):
    store = await open_run_store(sqlite_url)
    for conversation_id in (C, D):
        await admitted(store, conversation_id, 1, 2)
        claim = await store.claim(conversation_id, "a", LONG_S)
        await store.write(conversation_id, claim.token, StateChanges(closed={1: ""}))
    await store.aclose()
    with closing(sqlite3.connect(tmp_path / "logs.db")) as file, file:
        file.execute("UPDATE run_conversations SET changed = changed - 7.1 * 86400 WHERE conversation = ?", (C,))
    store = await open_run_store(sqlite_url)
    assert (list((await store.record(C)).order), list((await store.record(D)).order)) == (["m2"], ["m1", "m2"])
    await store.aclose()


async def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("a file")
    with pytest.raises(StoreError, match="cannot be used"):
        await open_run_store(f"sqlite:{tmp_path}/file/logs.db")
    (tmp_path / "logs.db.lock").mkdir()
    with pytest.raises(StoreError, match="cannot be used"):
        await open_run_store(f"sqlite:{tmp_path}/logs.db")
    (tmp_path / "logs.db.lock").rmdir()
    await (await open_run_store(f"sqlite:{tmp_path}/logs.db")).aclose()


@pytest.mark.parametrize("url", ["memory:", "memory", "sqlite", "postgres://me:hunter2@host/db", ""])
async def test_a_url_that_names_no_store_that_lasts_is_refused(url):
    for transport in (open_run_store, inspect_run_store):
        with pytest.raises(StoreError, match=r"`sqlite:PATH`, `redis://HOST:PORT/DB` or") as refused:
            await transport(url)
        assert "hunter2" not in str(refused.value)


async def test_a_store_that_was_closed_says_so(sqlite_url):
    store = await open_run_store(sqlite_url)
    await store.aclose()
    await store.aclose()
    with pytest.raises(StoreError, match="has been closed"):
        await store.admit(C, entry(1), None)
    with pytest.raises(StoreError, match="has been closed"):
        await store.record(C)


async def test_what_is_known_is_of_one_moment_whoever_writes_meanwhile(tmp_path, sqlite_url):
    store = await open_run_store(sqlite_url)
    await admitted(store, C, 1)
    with (
        closing(sqlite3.connect(tmp_path / "logs.db", isolation_level=None)) as looking,
        closing(sqlite3.connect(tmp_path / "logs.db", isolation_level=None)) as owner,
    ):
        looking.set_trace_callback(
            lambda asked: (
                "run_posts" in asked and owner.execute("UPDATE run_entries SET \"end\" = 'refused', data = NULL")
            )
        )
        known = sqlite_records.record_of(looking, 0, C)
        assert (names_of(known.waiting), known.ends, known.damaged) == (["1"], {}, ())
        assert sqlite_records.record_of(looking, 0, C).ends == {"m1": "refused"}
    await store.aclose()


async def test_tidying_forgets_ids_and_the_next_service_the_fences_of_logs_that_are_gone(tmp_path, sqlite_url):
    store, logs = await open_run_store(sqlite_url), await open_store(sqlite_url)
    await admitted(store, C, 1, 2)
    claim = await store.claim(C, "a", LONG_S)
    await store.write(C, claim.token, StateChanges(closed={1: ""}))
    for conversation_id in (C, D):
        await logs.fence(Key(conversation_id, "alpha"), claim.token)
    await InteractionStack(logs, C, "alpha").push(UserMessageState("hello"))
    with closing(sqlite3.connect(tmp_path / "logs.db", isolation_level=None)) as file:
        file.execute("UPDATE run_conversations SET changed = changed - 7.1 * 86400")
        await store.delete_expired()
        assert list((await store.record(C)).order) == ["m2"]
        await store.aclose()
        await logs.aclose()
        assert len(file.execute("SELECT * FROM fences").fetchall()) == 2
        await (await open_run_store(sqlite_url)).aclose()
        assert file.execute("SELECT conversation FROM fences").fetchall() == [(C,)]


async def test_damaged_entries_keep_nobody_from_claiming_their_conversations(tmp_path, sqlite_url):
    store = await open_run_store(sqlite_url)
    for number in range(51):
        claim = await store.claim(f"T1:c{number}", "a", LONG_S)
        await admitted(store, f"T1:c{number}", 1)
        await store.write(f"T1:c{number}", claim.token, StateChanges(run={"id": 1}, posts={"1": "x", "2": "y"}))
        await store.hand_over(f"T1:c{number}", claim.token)
    with closing(sqlite3.connect(tmp_path / "logs.db", isolation_level=None)) as file:
        file.execute("UPDATE run_entries SET data = '{{' WHERE conversation <= 50")
        file.execute("UPDATE run_conversations SET run = '{{' WHERE id <= 50")
        file.execute("UPDATE run_posts SET content = '{{' WHERE conversation <= 50 AND part = '1'")
    for name in await store.due(T1, 50):
        claim = await store.claim(name, "b", LONG_S)
        assert [(each.id, each.data) for each in claim.entries] == [("m1", {})]
        assert await store.fetch(name, claim.token, 0) == claim.entries
        assert (claim.run, claim.posts) == ({"id": "unreadable"}, {"2": "y"})
    assert await store.due(T1, 50) == ["T1:c50"]
    await store.aclose()
