"""A store is copied while a service writes to it, and put back."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from contextlib import aclosing, closing

import pytest
from anthropic_server import Gate, message, text
from click.testing import CliRunner
from service_process import run_command
from stored_conversations import StoredConversations

from service.cli.main import main
from service.store import inspect_run_store, open_run_store

FILE = """
instances: {{alpha: {{persona: {{name: Alpha, emoji: ":owl:"}}}}}}
store: sqlite:kept.db
audit: audit.jsonl
limits: {{runs: {runs}}}
"""


def prompts(body) -> str:
    return str(body["messages"][-1])


async def test_after_the_restore_of_an_older_backup_no_answer_is_repeated(  # noqa: PLR0917 - fixtures
    slack, environment, model, model_env, config_file, tmp_path
):
    path, ana, goes_on, waits = config_file(FILE.format(runs=2)), slack.as_person("ana"), Gate(), Gate()
    file, options = str(tmp_path / "a backup.db"), ("--config", str(path))
    answers = {
        "and now": message(text("fine")),
        "goes on": message(text("One: ", goes_on, "done.")),
        "is cut": message(text("Two: ", waits, "done.")),
        "is pending": message(text("Three: done.")),
    }
    model.otherwise = lambda body: next(
        (answer for words, answer in answers.items() if words in prompts(body)), message(text("fine"))
    )
    store = ("--store", f"sqlite:{tmp_path}/kept.db")
    async with environment.serving(*options, **model_env) as service:
        await service.says("service.ready")
        active = await ana.say("general", "@alpha this goes on")
        await goes_on.reached.wait()
        cut = await ana.say("general", "@alpha this is cut")
        await waits.reached.wait()
        pending = await ana.say("general", "@alpha this is pending")
        await slack.until(lambda _: environment.found(pending, "position 1 in the queue"))
        backed_up = await run_command("backup", file, *store)
        assert (backed_up.code, "3 conversations, " in backed_up.output) == (0, True), backed_up.output
        assert f"Store: {store[1]}" in backed_up.output
        again = await run_command("backup", file, *store)
        assert (again.code, "exists already" in again.output) == (2, True)
        goes_on.open()
        await slack.until(lambda _: environment.found(active, "One: done.") and environment.found(pending, "Three"))
        unknown = await ana.say("general", "@alpha after the backup")
        await slack.until(lambda _: environment.found(unknown, "fine"))
        refused = await run_command("restore", file, *store)
        assert (refused.code, "Another service uses" in refused.output) == (2, True), refused.output
        assert await service.ended(signal.SIGKILL) == -signal.SIGKILL
    restored = await run_command("restore", file, *store)
    assert (restored.code, "Restored 3 conversations" in restored.output) == (0, True), restored.output
    assert len(list(tmp_path.glob("kept.db.before-*"))) == 1
    waits.open()
    asked = len(model.bodies)
    async with environment.serving(*options, **model_env) as service:
        await service.says("service.ready")
        for root in (active, pending):
            await slack.until(lambda _, root=root: environment.found(root, "restored from a backup"))
        await slack.until(lambda _: environment.found(cut, "Two: done."))
        assert len(model.bodies) == asked + 1, "only the run without an answer goes on"
        assert [
            sum(end in said for said in environment.said(root))
            for root, end in ((active, "One: done."), (cut, "Two: done."), (pending, "Three: done."), (unknown, "fine"))
        ] == [1, 1, 1, 1]
        await ana.say("general", "and now?", thread=active)
        await slack.until(lambda _: environment.found(active, "fine"))
        assert await service.ended(signal.SIGTERM) == 0
    audit = await run_command("doctor", *store)
    assert audit.code == 0, audit.output


@pytest.fixture
def kept(tmp_path):
    """A store with one conversation."""
    stored = StoredConversations(tmp_path / "kept.db")

    async def prepare() -> None:
        await (await inspect_run_store(stored.url)).aclose()

    asyncio.run(prepare())
    stored.talk("hello")
    return stored


@pytest.fixture
def run(config_file):
    """Run a command at the store of a file."""
    path = config_file(FILE.format(runs=2))
    return lambda *words: CliRunner().invoke(main, [*words, "--config", str(path)])


def test_what_is_no_backup_changes_nothing(run, tmp_path, kept):
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as file:
        file.execute("CREATE TABLE t (a)")
    damaged = tmp_path / "damaged.db"
    assert run("backup", str(damaged)).exit_code == 0
    damaged.write_bytes(damaged.read_bytes()[:-4096] + b"\1" * 4096)
    newer = tmp_path / "newer.db"
    assert run("backup", str(newer)).exit_code == 0
    with closing(sqlite3.connect(newer)) as file:
        file.execute("PRAGMA user_version = 99")
    before = kept.said()
    for source, why in (
        (other, "is not a store of a service"),
        (tmp_path / "missing.db", "missing.db' does not exist"),
        (damaged, "damaged.db"),
        (newer, "has version 99"),
    ):
        result = run("restore", str(source))
        assert (result.exit_code, why in result.output) == (2, True), result.output
    assert kept.said() == before == ["hello"]
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_a_lost_store_is_restored_and_is_private(run, tmp_path, kept):
    backup = tmp_path / "copy.db"
    assert run("backup", str(backup)).exit_code == 0
    for left in tmp_path.glob("kept.db*"):
        left.unlink()
    restored = run("restore", str(backup))
    assert (restored.exit_code, "earlier store" in restored.output) == (0, False), restored.output
    assert [each["kind"] for each in map(json.loads, (tmp_path / "audit.jsonl").read_text().splitlines())] == [
        "store.restored"
    ]
    assert kept.said() == ["hello"]
    assert {each.stat().st_mode & 0o777 for each in (backup, tmp_path / "kept.db")} == {0o600}


def test_a_store_is_replaced_under_its_name_and_kept_under_another_one(run, tmp_path, kept):
    empty = tmp_path / "empty.db"
    assert run("backup", str(empty)).exit_code == 0
    kept.talk("later")
    restored = run("restore", str(empty))
    assert (restored.exit_code, restored.output.count(". ")) == (0, 1), restored.output
    (aside,) = tmp_path.glob("kept.db.before-*")
    assert StoredConversations(aside).said() == ["hello", "later"]
    assert kept.said() == ["hello"]


def test_a_store_that_is_open_elsewhere_stays(run, tmp_path, kept):
    empty = tmp_path / "empty.db"
    assert run("backup", str(empty)).exit_code == 0
    kept.talk("later")

    async def restore_while_it_is_open():
        async with aclosing(await inspect_run_store(kept.url)):
            return await asyncio.to_thread(run, "restore", str(empty))

    refused = asyncio.run(restore_while_it_is_open())
    assert (refused.exit_code, f"Another process has {tmp_path}/kept.db open" in refused.output) == (2, True)
    assert list(tmp_path.glob("kept.db.before-*")) == []
    assert kept.said() == ["hello", "later"]


def test_a_killed_restore_does_not_keep_the_service_from_its_store(run, tmp_path, kept):
    copy, left = tmp_path / "copy.db", tmp_path / "kept.db.before-20260102-030405"
    assert run("backup", str(copy)).exit_code == 0
    left.hardlink_to(tmp_path / "kept.db")
    other = tmp_path / "kept.db.before-20250102-030405"
    other.write_bytes(copy.read_bytes())

    async def start_and_end_a_service():
        await (await open_run_store(kept.url)).aclose()

    asyncio.run(start_and_end_a_service())
    assert list(tmp_path.glob("kept.db.before-*")) == [other]
    left.hardlink_to(tmp_path / "kept.db")
    restored = run("restore", str(copy))
    assert restored.exit_code == 0, restored.output
    assert kept.said() == ["hello"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path, run, kept):
    copy = tmp_path / "copy.db"
    assert run("backup", str(copy)).exit_code == 0
    refused = run("restore", str(copy), "--store", f"sqlite:{copy}/below/kept.db")
    assert (refused.exit_code, f"{copy}/below/kept.db cannot be used" in refused.output) == (2, True), refused.output


def test_redis_has_its_own_backups(redis_url, tmp_path):
    (tmp_path / "x").touch()
    for command in ("backup", "restore"):
        result = CliRunner().invoke(main, [command, str(tmp_path / "x"), "--store", redis_url])
        assert (result.exit_code, "redis-cli --rdb FILE" in result.output) == (2, True)
