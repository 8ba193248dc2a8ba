"""Errors of URLs and SQLite files: a sentence with the remedy, and the file stays unchanged."""

import asyncio
import json
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
from stored_logs import KEY, indices, plant, state, states
from structlog.testing import capture_logs

from orchestrator_interactive.interactions.records import Key, damaged
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.interactions.stores.base import Change
from orchestrator_interactive.interactions.tree import Tree, to_json
from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable
from orchestrator_interactive.storage.sqlite import Database

OTHER = Key("other", "beta")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.sampled_from("eolp01"), inner, max_size=4),
    max_leaves=12,
)


async def make_file(path, nodes=()):
    """Write a log file and close it."""
    store = await open_store(f"sqlite:{path}")
    await plant(store, KEY, nodes)
    await store.aclose()


def change_file(path, *statement):
    with closing(sqlite3.connect(path)) as file, file:
        file.execute(*statement)


@pytest.mark.parametrize(
    "url",
    ["", "hunter2", "logs.db", "memory:x", "memory", "postgres://me:hunter2@host/db", "SQLITE:x.db", "://", "redis"],
)
async def test_an_invalid_url_is_refused_and_not_repeated(url):
    with pytest.raises(StoreError, match="known are `memory:`, `sqlite:PATH`") as refused:
        await open_store(url)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("url", ["sqlite:", "sqlite://", "sqlite://logs.db", "sqlite:a\0b"])
async def test_an_sqlite_url_needs_a_file(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError, match="An SQLite URL"):
        await open_store(url)
    assert list(tmp_path.iterdir()) == []


async def test_the_path_in_a_url_is_not_decoded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["logs.db", "new/folder/a%20b?c#d.db", ":memory:"]
    for name in names:
        await (await open_store(f"sqlite:{name}")).aclose()
    await (await open_store(f"sqlite://{tmp_path}/rooted.db")).aclose()
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == {*names, "rooted.db"}


async def test_only_the_owner_may_read_the_file(tmp_path):
    await make_file(tmp_path / "logs.db")
    assert (tmp_path / "logs.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("place", ["", "file/logs.db"])
async def test_a_path_that_cannot_be_a_file_is_refused(tmp_path, place):
    (tmp_path / "file").write_text("a file")
    with pytest.raises(StoreError, match=f"The conversation log {tmp_path}"):
        await open_store(f"sqlite:{tmp_path}/{place}")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (None, r"letter\.txt cannot be used: it is not an SQLite file\. Name another file\.$"),
        (["PRAGMA user_version = 1", "CREATE TABLE logs (id)"], "belongs to another application: name another file"),
        (["PRAGMA user_version = 1", "PRAGMA application_id = 7"], "belongs to another application"),
        (["PRAGMA application_id = 0x61736C67", "PRAGMA user_version = 3"], "has version 3; this installation knows"),
    ],
    ids=["text", "another schema", "another application", "newer version"],
)
async def test_a_file_of_another_kind_is_refused(tmp_path, statements, said):
    path = tmp_path / "letter.txt"
    for statement in statements or ():
        change_file(path, statement)
    if statements is None:
        path.write_bytes(b"Dear all,\n" * 1000)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=said):
        await open_store(f"sqlite:{path}")
    assert path.read_bytes() == before


async def test_a_file_replaced_while_open_is_an_error(tmp_path):
    path, copy = tmp_path / "logs.db", tmp_path / "copy.db"
    await make_file(path, states(0, 1))
    store = await open_store(f"sqlite:{path}")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
    with pytest.raises(StoreError, match="was removed or replaced while it was open: nothing is saved"):
        await store.commit(KEY, Change(1, 2, 1000.0, nodes=states(1, 2)))
    path.unlink()
    with pytest.raises(StoreError, match="was removed or replaced"):
        await store.load(KEY)
    await store.aclose()


async def test_a_write_waits_for_the_write_of_another_process(tmp_path):
    path = tmp_path / "logs.db"
    await make_file(path, states(0, 1))
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


async def test_a_locked_file_is_an_error_after_five_seconds(tmp_path):
    path = tmp_path / "logs.db"
    await make_file(path, states(0, 1))
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
def shared_folder():
    """Make a folder with access for every user."""
    folder = Path(tempfile.mkdtemp(prefix="logs-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def ordinary_user():
    """Drop the rights of root."""
    was_root = os.geteuid() == 0
    if was_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if was_root:
            os.seteuid(0)


@pytest.mark.parametrize(
    ("file", "folder"), [(0o444, 0o777), (0o444, 0o555), (0o666, 0o555), (0o000, 0o777), (None, 0o555)]
)
async def test_a_file_without_write_permission_is_an_error(shared_folder, file, folder):
    path = shared_folder / "logs.db"
    if file is not None:
        await make_file(path, states(0, 2))
        path.chmod(file)
    before = [(each.name, each.read_bytes()) for each in shared_folder.iterdir()]
    shared_folder.chmod(folder)
    with (
        ordinary_user(),
        pytest.raises(StoreError, match=r"Grant this user (read and )?write access to the file and its folder"),
    ):
        await open_store(f"sqlite:{path}")
    shared_folder.chmod(0o777)
    assert [(each.name, each.read_bytes()) for each in shared_folder.iterdir()] == before


@contextmanager
def file_size_limit(size):
    """Limit the size of files to so many bytes, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_full_disk_changes_nothing_and_the_change_may_be_repeated(tmp_path):
    path = tmp_path / "logs.db"
    await make_file(path, states(0, 3))
    store = await open_store(f"sqlite:{path}")
    change = Change(1, 4, 1000.0, nodes=[state(3, data="x" * 2_000_000)])
    with file_size_limit(500_000), pytest.raises(StoreUnavailable, match=r"Check whether it is full|its disk is full"):
        await store.commit(KEY, change)
    assert (await store.load(KEY)).version == 1
    assert await indices(store, KEY) == [0, 1, 2]
    await store.commit(KEY, change)
    assert await indices(store, KEY) == [0, 1, 2, 3]
    await store.aclose()


async def test_a_damaged_file_is_an_error(tmp_path):
    path = tmp_path / "logs.db"
    await make_file(path, [state(index, data="x" * 2000) for index in range(200)])
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
async def test_a_damaged_state_does_not_affect_the_others(tmp_path, column, value):
    path = tmp_path / "logs.db"
    await make_file(path, states(0, 5))
    change_file(path, f"UPDATE nodes SET {column} = ? WHERE idx = 2", (value,))  # noqa: S608 - a column of the list above
    store = await open_store(f"sqlite:{path}")
    healthy = states(0, 5)
    expected = [*healthy[:2], damaged(0, 2), *healthy[3:]]
    assert await store.read(KEY, 0, 0, 5) == expected
    await store.aclose()


async def test_invalid_text_is_a_damaged_state(tmp_path):
    path = tmp_path / "logs.db"
    await make_file(path, states(0, 3))
    change_file(path, "UPDATE nodes SET data = CAST(x'ff' AS TEXT) WHERE idx = 0")
    change_file(path, "UPDATE nodes SET t = CAST(x'c328' AS TEXT) WHERE idx = 2")
    store = await open_store(f"sqlite:{path}")
    assert await store.read(KEY, 0, 0, 5) == [damaged(0, 0), states(1, 2)[0], damaged(0, 2)]
    await store.aclose()


TREE = json.loads(to_json(Tree.empty(1.0)))


def tree(*, next_segment=1, asked_by=None, **segment):
    """Return the stored tree of one segment with changed fields."""
    changed = {**TREE["segments"]["0"], **segment}
    return json.dumps({**TREE, "segments": {"0": changed}, "next_segment": next_segment, "asked_by": asked_by})


@pytest.mark.parametrize(
    "tree",
    [
        *["", "{", "[]", "7", '"tree"', '{"current": 0}', b"\xff"],
        *(json.dumps({**TREE, "segments": segments}) for segments in ({}, [], 7, {"0": []})),
        *(tree(parent=parent) for parent in (0, 7)),
        *(tree(base=base) for base in (-1, "0", 9)),
        *(tree(name=None), tree(origin=None), tree(next_segment=0), tree(asked_by=7)),
    ],
)
async def test_the_error_of_damaged_branches_names_the_conversation(tmp_path, tree):
    path = tmp_path / "logs.db"
    await make_file(path, states(0, 5))
    change_file(path, "UPDATE trees SET tree = ?", (tree,))
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
async def test_a_log_with_damaged_numbers_is_an_error(tmp_path, statement):
    await make_file(tmp_path / "logs.db", states(0, 5))
    change_file(tmp_path / "logs.db", statement)
    store = await open_store(f"sqlite:{tmp_path}/logs.db")
    with pytest.raises(StoreError, match="are damaged: restore it from a backup"):
        await store.load(KEY)
    await store.aclose()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(about=JSON, tree=JSON)
def test_any_json_in_a_file_is_read_or_an_error(about, tree):
    async def check(path):
        await make_file(path, states(0, 2))
        change_file(path, "UPDATE nodes SET about = ? WHERE idx = 0", (json.dumps(about),))
        change_file(path, "UPDATE trees SET tree = ?", (json.dumps(tree),))
        store = await open_store(f"sqlite:{path}")
        first, second = await store.read(KEY, 0, 0, 2)
        assert (first.index, second) == (0, states(1, 2)[0])
        with pytest.raises(StoreError):
            await store.load(KEY)
        await store.aclose()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(Path(folder) / "logs.db"))


@pytest.mark.parametrize("how", ["read", "read_in_thread", "write", "write_in_thread"])
async def test_a_programming_error_is_logged_unchanged(tmp_path, how):
    def use(_file):
        raise AttributeError("an error in this program")

    async with aclosing(await Database.open(tmp_path / "kept.db", "of the test", lambda _: None)) as database:
        with capture_logs() as logs, pytest.raises(StoreError, match="damaged"):
            await getattr(database, how)(use)
    assert [each["error"] for each in logs] == ["AttributeError('an error in this program')"]


@pytest.mark.parametrize("how", ["read", "read_in_thread", "write", "write_in_thread"])
async def test_an_encoding_error_is_raised_unchanged(tmp_path, how):
    async with aclosing(await Database.open(tmp_path / "kept.db", "of the test", lambda _: None)) as database:
        with pytest.raises(UnicodeEncodeError) as raised:
            await getattr(database, how)(lambda file: file.execute("SELECT ?", ("\ud800",)))
    assert raised.value.__cause__ is None
