"""An SQLite file of runs, and the processes that use it."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
import time
from contextlib import aclosing, closing

import pytest
from run_store_cases import LONG_S, T1, C, D, admitted, entry, is_lost, names_of

from connector.protocols import StateChanges
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.errors import DamagedLog
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.states import UserMessageState
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.storage.errors import StoreError
from service.store import inspect_run_store, open_run_store
from service.store.base import KEPT_ENTRIES
from service.store.sqlite import record_of

# Owns a conversation; admits and delivers entries, and prints the number of each.
SERVICE = """
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
IN_USE = r"Another service uses .*kept\.db\. Stop it, or use Redis to run several services\.$"


async def opened(url):
    return aclosing(await open_run_store(url))


@pytest.fixture
async def store(sqlite_url):
    async with await opened(sqlite_url) as store:
        yield store


@pytest.fixture
def file(tmp_path, sqlite_url):
    """Connect to the file as another program."""
    return lambda: closing(sqlite3.connect(tmp_path / "kept.db", isolation_level=None))


@pytest.mark.parametrize("steps", [1, 200])
async def test_a_killed_process_leaves_all_reported_entries_and_no_lock(sqlite_url, steps):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVICE, sqlite_url), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    for _ in range(steps):
        await process.stdout.readline()
    with pytest.raises(StoreError, match=IN_USE):
        await open_run_store(sqlite_url)
    process.send_signal(signal.SIGKILL)
    rest = (await process.stdout.read()).splitlines(keepends=True)
    last = max([steps, *(int(line) for line in rest if line.endswith(b"\n"))])  # the last line may be incomplete
    await process.wait()
    async with await opened(sqlite_url) as store:
        assert await store.due(T1, 9) == ["T1:c"]
        claim = await store.claim("T1:c", "us", LONG_S)
        known = await store.record("T1:c")
    assert claim.run["id"] in (last, last + 1)
    assert claim.posts == {"1": f"{claim.run['id']}"}
    assert len(known.ends) == min(claim.run["id"], KEPT_ENTRIES)
    assert len(known.order) - len(known.ends) == len(claim.entries) <= 1


async def test_the_next_process_may_claim_every_conversation_immediately(sqlite_url):
    async with await opened(sqlite_url) as store:
        await admitted(store, C, 1)
        await admitted(store, D, 1)
        claim = await store.claim(C, "a", LONG_S)
        await store.write(C, claim.token, StateChanges(run={"id": 1}))
        assert await store.due(T1, 9) == []
    async with await opened(sqlite_url) as store:
        assert set(await store.due(T1, 9)) == {C, D}
        assert (await store.record(C)).owner == "a"
        again = await store.claim(C, "b", LONG_S)
        assert (again.run, again.token > claim.token) == ({"id": 1}, True)
        assert await is_lost(store.renew(C, claim.token, LONG_S))


async def test_a_file_has_one_service_and_any_number_of_inspectors(tmp_path, sqlite_url):
    async with await opened(sqlite_url) as store:
        with pytest.raises(StoreError, match=IN_USE):
            await open_run_store(sqlite_url)
        await admitted(store, C, 1)
        claim = await store.claim(C, "a", LONG_S)
        async with aclosing(await inspect_run_store(sqlite_url)) as inspecting:
            assert (await inspecting.record(C)).owner == "a"
            assert await inspecting.conversations() == [C]
            assert not await inspecting.forget(C)
        assert await store.renew(C, claim.token, LONG_S) == 1
    assert (tmp_path / "kept.db.lock").stat().st_mode & 0o777 == 0o600
    await (await open_run_store(sqlite_url)).aclose()


async def test_processes_agree_about_a_lease_after_the_machine_was_suspended(sqlite_url, store, monkeypatch):
    running_s = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: running_s() - 3600)  # it does not count an hour of suspension
    async with aclosing(await inspect_run_store(sqlite_url)) as command:
        assert await store.claim(C, "a", LONG_S) is not None
        assert await command.claim(C, "b", LONG_S) is None


async def test_links_to_a_file_do_not_evade_the_lock(tmp_path, sqlite_url):
    (tmp_path / "elsewhere").mkdir()
    link = f"sqlite:{tmp_path}/elsewhere/linked.db"
    async with await opened(sqlite_url):
        (tmp_path / "elsewhere" / "linked.db").symlink_to(tmp_path / "kept.db")
        with pytest.raises(StoreError, match=IN_USE):
            await open_run_store(link)
    (tmp_path / "twin.db").hardlink_to(tmp_path / "kept.db")
    for name in ("kept.db", "twin.db"):
        with pytest.raises(StoreError, match=r"has a second hard link, which can corrupt the file\. Remove one"):
            await open_run_store(f"sqlite:{tmp_path}/{name}")
    (tmp_path / "twin.db").unlink()
    await (await open_run_store(link)).aclose()


async def test_runs_and_logs_share_a_file(sqlite_url, store):
    async with aclosing(await open_store(sqlite_url)) as logs:
        stack = InteractionStack(logs, C, "owl")

        async def write(number):
            await admitted(store, C, number)
            await stack.push(UserMessageState(f"{number}"))

        await asyncio.gather(*map(write, range(50)))
        assert await stack.length() == 50
        assert len((await store.record(C)).waiting) == 50


async def test_steps_that_wait_for_another_process_keep_their_order(store, file):
    claim = await store.claim(C, "a", LONG_S)
    with file() as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = [asyncio.create_task(store.admit(C, entry(number), None)) for number in range(3)]
        await asyncio.sleep(0)
        other.execute("COMMIT")
        await asyncio.gather(*waiting, *[store.admit(C, entry(number), None) for number in range(3, 6)])
    assert names_of(await store.fetch(C, claim.token, 0)) == ["0", "1", "2", "3", "4", "5"]


async def test_pending_entries_and_the_newest_ten_thousand_are_recognised_as_duplicates(store):
    claim = await store.claim(C, "a", LONG_S)
    await admitted(store, C, *range(1, 10_011))
    await store.write(C, claim.token, StateChanges(closed=dict.fromkeys(range(2, 10_010), "")))
    assert [(await store.admit(C, entry(number), None)).is_new for number in (1, 11, 10)] == [False, False, True]


async def test_ids_expire_a_week_after_the_last_change(sqlite_url, file):
    async with await opened(sqlite_url) as store:
        for conversation_id in (C, D):
            await admitted(store, conversation_id, 1, 2)
            claim = await store.claim(conversation_id, "a", LONG_S)
            await store.write(conversation_id, claim.token, StateChanges(closed={1: ""}))
    with file() as other:
        other.execute("UPDATE run_conversations SET changed = changed - 7.1 * 86400 WHERE conversation = ?", (C,))
    async with await opened(sqlite_url) as store:
        assert [list((await store.record(each)).order) for each in (C, D)] == [["m2"], ["m1", "m2"]]


async def test_a_folder_that_is_not_writable_is_an_error(tmp_path, sqlite_url):
    (tmp_path / "file").write_text("a file")
    (tmp_path / "kept.db.lock").mkdir()
    for url in (f"sqlite:{tmp_path}/file/kept.db", sqlite_url):
        with pytest.raises(StoreError, match="cannot be used"):
            await open_run_store(url)
    (tmp_path / "kept.db.lock").rmdir()
    await (await open_run_store(sqlite_url)).aclose()


async def test_a_record_is_read_in_one_transaction(store, file):
    await admitted(store, C, 1)
    with file() as reading, file() as owner:
        reading.set_trace_callback(
            lambda statement: (
                "run_posts" in statement and owner.execute("UPDATE run_entries SET \"end\" = 'refused', data = NULL")
            )
        )
        known = record_of(reading, 0, C)
        assert (names_of(known.waiting), known.ends, known.damaged) == (["1"], {}, ())
        assert record_of(reading, 0, C).ends == {"m1": "refused"}


async def test_ids_expire_by_tidying_and_fences_of_deleted_logs_at_the_next_start(sqlite_url, file):
    async with await opened(sqlite_url) as store, aclosing(await open_store(sqlite_url)) as logs:
        await admitted(store, C, 1, 2)
        claim = await store.claim(C, "a", LONG_S)
        await store.write(C, claim.token, StateChanges(closed={1: ""}))
        for conversation_id in (C, D):
            await logs.fence(Key(conversation_id, "alpha"), claim.token)
        await InteractionStack(logs, C, "alpha").push(UserMessageState("hello"))
        with file() as other:
            other.execute("UPDATE run_conversations SET changed = changed - 7.1 * 86400")
        await store.delete_expired()
        assert list((await store.record(C)).order) == ["m2"]
    with file() as other:
        assert len(other.execute("SELECT * FROM fences").fetchall()) == 2
        await (await open_run_store(sqlite_url)).aclose()
        assert other.execute("SELECT conversation FROM fences").fetchall() == [(C,)]


@pytest.mark.parametrize("damaged", [b"{{", b"{\xff}"], ids=["no JSON", "no UTF-8"])
async def test_conversations_with_damaged_entries_can_be_claimed(store, file, damaged):
    for number in range(51):
        name = f"T1:c{number}"
        claim = await store.claim(name, "a", LONG_S)
        await admitted(store, name, 1)
        await store.write(name, claim.token, StateChanges(run={"id": 1}, posts={"1": "x", "2": "y"}))
        await store.release(name, claim.token, None)
    with file() as other:
        other.execute("UPDATE run_entries SET data = CAST(? AS TEXT) WHERE conversation <= 50", (damaged,))
        other.execute("UPDATE run_conversations SET run = CAST(? AS TEXT) WHERE id <= 50", (damaged,))
        other.execute(
            "UPDATE run_posts SET content = CAST(? AS TEXT) WHERE conversation <= 50 AND part = '1'", (damaged,)
        )
    for name in await store.due(T1, 50):
        claim = await store.claim(name, "b", LONG_S)
        assert [(each.id, each.data) for each in claim.entries] == [("m1", {})]
        assert await store.fetch(name, claim.token, 0) == claim.entries
        assert (claim.run, claim.posts) == ({"id": "unreadable"}, {"2": "y"})
        assert (await store.record(name)).has_run
    assert await store.due(T1, 50) == ["T1:c50"]


async def test_a_name_or_text_that_is_not_utf8_hides_nothing_else(store, file):
    invalid = b"T1:\xff"
    for name in (C, D):
        await admitted(store, name, 1)
        await store.learn(name, {"talk": "1.0", "muted": "2.0"})
        await store.release(name, (await store.claim(name, "a", LONG_S)).token, None)
    for name in ("a", "b", "c"):
        await store.put_document("rules", name, {"value": name})
    with file() as other:
        other.execute("UPDATE run_conversations SET conversation = CAST(? AS TEXT) WHERE id = 1", (invalid,))
        other.execute("UPDATE run_facts SET value = CAST(? AS TEXT) WHERE name = 'talk'", (invalid,))
        other.execute("UPDATE run_documents SET name = CAST(? AS TEXT) WHERE name = 'a'", (invalid,))
        other.execute("UPDATE run_documents SET data = CAST(? AS TEXT) WHERE name = 'b'", (invalid,))
    assert await store.due(T1, 9) == [D]
    assert await store.unfinished() == await store.conversations() == await store.idle_since(time.time() + 9) == [D]
    assert (await store.thread_of(D)).latest == {"muted": "2.0"}
    assert await store.documents("rules") == {"c": {"value": "c"}}
    with file() as other:
        other.execute("UPDATE run_entries SET id = CAST(? AS TEXT)", (invalid,))
    with pytest.raises(DamagedLog):
        await store.claim(D, "b", LONG_S)
