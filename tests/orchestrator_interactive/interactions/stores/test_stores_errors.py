"""What is wrong with a place is said in a sentence, and nothing in it is changed."""

from __future__ import annotations

import asyncio
import json
import math
import os
import resource
import shutil
import sqlite3
import tempfile
from contextlib import aclosing, closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stored_logs import KEY, TREE, indices, plant, state, states
from structlog.testing import capture_logs

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.errors import Fenced, UnreadableState
from orchestrator_interactive.interactions.records import Key, damaged
from orchestrator_interactive.interactions.states import UserMessageState
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.interactions.stores.base import Change
from orchestrator_interactive.interactions.tree import Piece, to_dict
from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable
from orchestrator_interactive.storage.sqlite import Database

OTHER = Key("other", "beta")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.sampled_from("eolp01"), inner, max_size=4),
    max_leaves=12,
)


# As it was written by the version that had no fences.
_VERSION_1 = f"""
CREATE TABLE logs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, conversation TEXT NOT NULL, agent TEXT NOT NULL,
    version INTEGER NOT NULL, end INTEGER NOT NULL, written REAL NOT NULL, UNIQUE (conversation, agent));
CREATE TABLE trees (log INTEGER PRIMARY KEY, tree TEXT NOT NULL);
CREATE TABLE nodes (
    log INTEGER NOT NULL, segment INTEGER NOT NULL, idx INTEGER NOT NULL,
    v INTEGER NOT NULL, t TEXT NOT NULL, ts REAL NOT NULL, compressed INTEGER NOT NULL, data NOT NULL,
    about TEXT NOT NULL, PRIMARY KEY (log, segment, idx));
CREATE TABLE agents (id TEXT PRIMARY KEY, config TEXT NOT NULL) WITHOUT ROWID;
PRAGMA application_id = 0x61736C67;
PRAGMA user_version = 1;
INSERT INTO logs VALUES (7, '{KEY.conversation_id}', 'alpha', 1, 1, 1000.0);
INSERT INTO trees VALUES (7, '{json.dumps(to_dict(TREE))}');
INSERT INTO nodes VALUES (7, 0, 0, 1, 'Said', 1000.0, 0, '{{}}', '{{"e": 1}}');
INSERT INTO agents VALUES ('a', '{{}}');
"""  # noqa: S608 - all of it stands in these tests


async def _made(path, nodes=()):
    """A log's file that is closed."""
    store = await open_store(f"sqlite:{path}")
    await plant(store, KEY, nodes)
    await store.aclose()


def _changed(path, *statement):
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(*statement)


@pytest.mark.parametrize(
    "url",
    ["", "hunter2", "logs.db", "memory:x", "memory", "postgres://me:hunter2@host/db", "SQLITE:x.db", "://", "redis"],
)
async def test_a_url_that_names_no_store_is_refused_and_not_repeated(url):
    with pytest.raises(StoreError, match="known are `memory:`, `sqlite:PATH`") as refused:
        await open_store(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("url", ["sqlite:", "sqlite://", "sqlite://logs.db", "sqlite:a\0b"])
async def test_an_sqlite_url_names_a_file(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="An SQLite URL"):
        await open_store(url)
    assert list(tmp_path.iterdir()) == []


async def test_a_path_stands_in_the_url_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["logs.db", "new/folder/a%20b?c#d.db", ":memory:"]
    for name in names:
        await (await open_store(f"sqlite:{name}")).aclose()
    await (await open_store(f"sqlite://{tmp_path}/rooted.db")).aclose()
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {*names, "rooted.db"}


async def test_a_log_is_for_its_owner_alone(tmp_path):
    await _made(tmp_path / "logs.db")
    assert (tmp_path / "logs.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("place", ["", "file/logs.db"])
async def test_a_place_that_cannot_be_a_file_is_refused(tmp_path, place):
    (tmp_path / "file").write_text("a file")
    with pytest.raises(StoreError, match=f"The conversation log {tmp_path}"):
        await open_store(f"sqlite:{tmp_path}/{place}")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


async def test_what_is_no_sqlite_file_is_refused(tmp_path):
    path = tmp_path / "letter.txt"
    path.write_bytes(b"Dear all,\n" * 1000)
    with pytest.raises(
        StoreError, match=r"letter\.txt cannot be used: it is not an SQLite file\. Name another file\.$"
    ):
        await open_store(f"sqlite:{path}")
    assert path.read_bytes() == b"Dear all,\n" * 1000


@pytest.mark.parametrize("statements", [["CREATE TABLE logs (id)"], ["PRAGMA application_id = 7"]])
async def test_a_file_of_another_application_is_refused(tmp_path, statements):
    path = tmp_path / "theirs.db"
    for statement in ["PRAGMA user_version = 1", *statements]:
        _changed(path, statement)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="belongs to another application: name another file"):
        await open_store(f"sqlite:{path}")
    assert path.read_bytes() == before


async def test_a_file_of_a_newer_version_is_refused(tmp_path):
    path = tmp_path / "logs.db"
    await _made(path)
    _changed(path, "PRAGMA user_version = 3")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="has version 3; this installation knows version 2: update it"):
        await open_store(f"sqlite:{path}")
    assert path.read_bytes() == before


async def test_a_file_of_version_1_is_brought_up_to_date_and_has_what_it_had(tmp_path):
    path = tmp_path / "logs.db"
    with closing(sqlite3.connect(path)) as file, file:
        file.executescript(_VERSION_1)
    first, second = await asyncio.gather(*[open_store(f"sqlite:{path}") for _ in range(2)])
    assert (await first.load(KEY)).tree.head.end == 1
    await first.fence(KEY, 2)
    with pytest.raises(Fenced):
        await second.commit(KEY, Change(1, 2, 1000.0, nodes=states(1, 2), fence=1))
    await second.commit(KEY, Change(1, 2, 1000.0, nodes=states(1, 2), fence=2))
    assert await indices(first, KEY) == [0, 1]
    assert await first.agents() == {"a": "{}"}
    for store in (first, second):
        await store.aclose()


async def test_a_file_that_was_replaced_while_it_was_open_is_told(tmp_path):
    path, copy = tmp_path / "logs.db", tmp_path / "copy.db"
    await _made(path, states(0, 1))
    store = await open_store(f"sqlite:{path}")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    with pytest.raises(StoreError, match="was removed or replaced while it was open: nothing is saved"):
        await store.commit(KEY, Change(1, 2, 1000.0, nodes=states(1, 2)))
    path.unlink()
    with pytest.raises(StoreError, match="was removed or replaced"):
        await store.load(KEY)
    await store.aclose()


async def test_a_write_waits_for_that_of_another_process(tmp_path):
    path = tmp_path / "logs.db"
    await _made(path, states(0, 1))
    store = await open_store(f"sqlite:{path}")
    with closing(sqlite3.connect(path, isolation_level=None)) as somebody:
        somebody.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(store.commit(KEY, Change(1, 2, 1000.0, nodes=states(1, 2))))
        await asyncio.sleep(0)
        assert not writing.done()
        somebody.execute("COMMIT")
        await writing
    assert await indices(store, KEY) == [0, 1]
    await store.aclose()


async def test_a_file_that_somebody_keeps_locked_is_told(tmp_path):
    path = tmp_path / "logs.db"
    await _made(path, states(0, 1))
    store = await open_store(f"sqlite:{path}")
    with closing(sqlite3.connect(path, isolation_level=None)) as somebody:
        somebody.execute("BEGIN IMMEDIATE")
        assert await indices(store, KEY) == [0]
        writing = store.commit(KEY, Change(1, 2, 1000.0, nodes=states(1, 2)))
        refused = await asyncio.gather(writing, open_store(f"sqlite:{path}"), return_exceptions=True)
    for each in refused:
        assert isinstance(each, StoreUnavailable)
        assert "another process has held it locked for 5 seconds. Try again" in str(each)
    assert await indices(store, KEY) == [0]
    await store.commit(KEY, Change(1, 2, 1000.0, nodes=states(1, 2)))
    await store.aclose()


@pytest.fixture
def anybodys_folder():
    """A folder that every user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="logs-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def _as_an_ordinary_user():
    """Nobody may write everywhere meanwhile, not even root."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


@pytest.mark.parametrize(("file", "folder"), [(0o444, 0o777), (0o444, 0o555), (0o666, 0o555), (0o000, 0o777)])
async def test_a_file_that_may_not_be_written_is_told(anybodys_folder, file, folder):
    path = anybodys_folder / "logs.db"
    await _made(path, states(0, 2))
    before = path.read_bytes()
    path.chmod(file)
    anybodys_folder.chmod(folder)
    with _as_an_ordinary_user(), pytest.raises(StoreError, match=r"Grant this user"):
        await open_store(f"sqlite:{path}")
    anybodys_folder.chmod(0o777)
    assert path.read_bytes() == before
    assert [each.name for each in anybodys_folder.iterdir()] == ["logs.db"]


async def test_a_folder_that_may_not_be_written_is_told(anybodys_folder):
    anybodys_folder.chmod(0o555)
    with (
        _as_an_ordinary_user(),
        pytest.raises(StoreError, match="Grant this user read and write access to the file and its folder"),
    ):
        await open_store(f"sqlite:{anybodys_folder}/logs.db")
    assert list(anybodys_folder.iterdir()) == []


@contextmanager
def _room_for(size):
    """No file can become larger than this many bytes meanwhile, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_disk_that_is_full_takes_nothing_along(tmp_path):
    path = tmp_path / "logs.db"
    await _made(path, states(0, 3))
    store = await open_store(f"sqlite:{path}")
    change = Change(1, 4, 1000.0, nodes=[state(3, data="x" * 2_000_000)])
    with _room_for(500_000), pytest.raises(StoreUnavailable, match=r"Check whether it is full|its disk is full"):
        await store.commit(KEY, change)
    assert (await store.load(KEY)).version == 1
    assert await indices(store, KEY) == [0, 1, 2]
    await store.commit(KEY, change)
    assert await indices(store, KEY) == [0, 1, 2, 3]
    await store.aclose()


async def test_a_change_that_cannot_be_written_takes_nothing_along(tmp_path):
    store = await open_store(f"sqlite:{tmp_path}/logs.db")
    await plant(store, KEY, states(0, 1))
    huge = state(2)
    huge.envelope["v"] = 2**64
    with pytest.raises(OverflowError):
        await store.commit(KEY, Change(1, 3, 1000.0, nodes=[state(1), huge], cuts=[Piece(0, 0, 1)]))
    assert (await store.load(KEY)).version == 1
    await store.commit(KEY, Change(1, 2, 1000.0, nodes=[state(1)]))
    assert await indices(store, KEY) == [0, 1]
    await store.aclose()


async def test_a_damaged_file_is_told(tmp_path):
    path = tmp_path / "logs.db"
    await _made(path, [state(index, data="x" * 2000) for index in range(200)])
    with path.open("r+b") as file:
        file.seek(8 * 4096)
        file.write(b"\xaa" * (path.stat().st_size - 8 * 4096))
    store = await open_store(f"sqlite:{path}")
    with pytest.raises(StoreError, match=r"it is damaged\. Restore it from a backup"):
        await store.read(KEY, 0, 0, 200)
    await store.aclose()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *[("about", value) for value in ["", "{", "[]", "null", "{}", '{"e": "1"}', '{"e": 1, "l": 2}', b"\xff"]],
        *[("about", f'{{"e": 1, "o": {calls}}}') for calls in ["{}", '["abc"]', '[["a", "b"]]', '[["a", "b", 3]]']],
        *[("about", f'{{"e": 1, "p": {parents}}}') for parents in ['"ref"', "[1]", "null"]],
        ("about", "[" * 100_000),
        ("about", '{"e": 1, "e": true}'),
        ("v", "one"),
        ("t", b"\x00\xff"),
        ("ts", "yesterday"),
        ("data", 7),
    ],
)
async def test_a_damaged_state_comes_out_as_one_and_harms_no_other(tmp_path, column, value):
    path = tmp_path / "logs.db"
    await _made(path, states(0, 5))
    _changed(path, f"UPDATE nodes SET {column} = ? WHERE idx = 2", (value,))  # noqa: S608 - a column of the list above
    store = await open_store(f"sqlite:{path}")
    healthy = states(0, 5)
    expected = [*healthy[:2], damaged(0, 2), *healthy[3:]]
    assert await store.read(KEY, 0, 0, 5) == expected
    assert [node async for _, node in store.scan(0.0, math.inf, ())] == expected
    assert [node.index async for _, node in store.scan(0.0, math.inf, ["Said"])] == [0, 1, 3, 4]
    assert [node.index async for _, node in store.scan(1.0, math.inf, ())] == [0, 1, 3, 4]
    assert [node.index async for _, node in store.scan(0.0, math.inf, ["(damaged)"])] == [2]
    await store.aclose()


async def test_text_that_is_no_text_any_more_is_damage(tmp_path):
    path = tmp_path / "logs.db"
    await _made(path, states(0, 3))
    _changed(path, "UPDATE nodes SET data = CAST(x'ff' AS TEXT) WHERE idx = 0")
    _changed(path, "UPDATE nodes SET t = CAST(x'c328' AS TEXT) WHERE idx = 2")
    store = await open_store(f"sqlite:{path}")
    assert await store.read(KEY, 0, 0, 5) == [damaged(0, 0), states(1, 2)[0], damaged(0, 2)]
    await store.aclose()


async def test_a_conversation_goes_on_after_a_damaged_state(tmp_path):
    store = await open_store(f"sqlite:{tmp_path}/logs.db")
    await InteractionStack(store, "c", "a").push(*[UserMessageState(str(number)) for number in range(3)])
    _changed(tmp_path / "logs.db", "UPDATE nodes SET about = 'x' WHERE idx = 2")
    stack = InteractionStack(store, "c", "a")
    with pytest.raises(UnreadableState, match="State 2 of branch main, conversation c"):
        await stack.current()
    await stack.push(UserMessageState("go on"))
    entries = [entry async for entry in stack.iter_last_n(4)]
    assert [entry.state and entry.state.text for entry in entries] == ["0", "1", None, "go on"]
    assert await stack.rewind(1) == "branch-1"
    assert await stack.current() == UserMessageState("1")
    await store.aclose()


@pytest.mark.parametrize(
    "tree",
    [
        *["", "{", "[]", "7", '"tree"', '{"current": 0}', b"\xff"],
        *[f'{{"current": 0, "next": 1, "asked_by": null, "segments": {segments}}}' for segments in ("{}", "[]", "7")],
        *[
            f'{{"current": 0, "next": {after}, "asked_by": {asked}, "segments": {{"0": {segment}}}}}'
            for after, asked, segment in [
                (1, "null", "[]"),
                (1, "null", "[null, null, 0, 0, 1.0, 1.0, null]"),
                (1, "null", '[null, null, 0, 0, 1.0, 1.0, ""]'),
                (1, "null", '["main", 0, 0, 0, 1.0, 1.0, ""]'),
                (1, "null", '["main", 7, 0, 0, 1.0, 1.0, ""]'),
                (1, "null", '["main", null, -1, 0, 1.0, 1.0, ""]'),
                (1, "null", '["main", null, "0", 0, 1.0, 1.0, ""]'),
                (1, "null", '["main", null, 9, 0, 1.0, 1.0, ""]'),
                (0, "null", '["main", null, 0, 0, 1.0, 1.0, ""]'),
                (1, "7", '["main", null, 0, 0, 1.0, 1.0, ""]'),
            ]
        ],
    ],
)
async def test_damaged_branches_are_told_with_their_conversation(tmp_path, tree):
    path = tmp_path / "logs.db"
    await _made(path, states(0, 5))
    _changed(path, "UPDATE trees SET tree = ?", (tree,))
    store = await open_store(f"sqlite:{path}")
    await plant(store, OTHER)
    with pytest.raises(StoreError, match=f"branches of conversation {KEY.conversation_id} of alpha are damaged"):
        await store.load(KEY)
    assert (await store.load(OTHER)).version == 1
    assert set(await store.keys()) == {KEY, OTHER}
    await store.aclose()


@pytest.mark.parametrize(
    "statement", ["DELETE FROM trees", "UPDATE logs SET version = 'x'", "UPDATE logs SET end = 'x'"]
)
async def test_a_log_with_damaged_numbers_is_told(tmp_path, statement):
    await _made(tmp_path / "logs.db", states(0, 5))
    _changed(tmp_path / "logs.db", statement)
    store = await open_store(f"sqlite:{tmp_path}/logs.db")
    with pytest.raises(StoreError, match="are damaged: restore it from a backup"):
        await store.load(KEY)
    await store.aclose()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(about=JSON, tree=JSON)
def test_whatever_stands_in_a_file_it_is_read_or_told(about, tree):
    async def check(path):
        await _made(path, states(0, 2))
        _changed(path, "UPDATE nodes SET about = ? WHERE idx = 0", (json.dumps(about),))
        _changed(path, "UPDATE trees SET tree = ?", (json.dumps(tree),))
        store = await open_store(f"sqlite:{path}")
        first, second = await store.read(KEY, 0, 0, 2)
        assert (first.index, second) == (0, states(1, 2)[0])
        with pytest.raises(StoreError):
            await store.load(KEY)
        await store.aclose()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(Path(folder) / "logs.db"))


@pytest.mark.parametrize("how", ["run", "read", "write"])
async def test_an_error_in_the_use_of_a_file_is_in_the_log_as_it_was(tmp_path, how):
    def use(_file):
        raise AttributeError("an error in this program")

    async with aclosing(await Database.open(tmp_path / "kept.db", "of the test")) as database:
        with capture_logs() as logs, pytest.raises(StoreError, match="damaged"):
            await getattr(database, how)(use)
    assert [each["error"] for each in logs] == ["AttributeError('an error in this program')"]


@pytest.mark.parametrize("how", ["run", "read", "write"])
async def test_an_error_about_a_value_is_raised_as_it_is(tmp_path, how):
    async with aclosing(await Database.open(tmp_path / "kept.db", "of the test")) as database:
        with pytest.raises(UnicodeEncodeError) as raised:
            await getattr(database, how)(lambda file: file.execute("SELECT ?", ("\ud800",)))
    assert raised.value.__cause__ is None
