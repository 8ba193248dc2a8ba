"""`amplifier-slack doctor --store`."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import aclosing, closing

import pytest
from anthropic_server import Gate, text
from service_process import run_command
from stored_conversations import run

from connector.protocols import InboxEntry, StateChanges
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.states import UserMessageState
from orchestrator_interactive.interactions.stores import open_store
from service.store import open_run_store

HERE = "T:C:1.0"


def fill(url, *delivered, log=()):
    """Store two messages; close some as delivered, and write these texts to the log."""

    async def write():
        async with aclosing(await open_store(url)) as logs, aclosing(await open_run_store(url)) as runs:
            stack = InteractionStack(logs, HERE, "alpha")
            await stack.restart()
            for each in log:
                await stack.push(UserMessageState(each))
            for name in ("a", "b"):
                await runs.admit(HERE, InboxEntry(name, "message", {}), "alpha")
            claim = await runs.claim(HERE, "owner", 10)
            closed = {entry.seq: "" for entry in claim.entries if entry.id in delivered}
            await runs.write(HERE, claim.token, StateChanges(closed=closed))
            await runs.release(HERE, claim.token, 2)

    asyncio.run(write())


def test_a_consistent_store_is_reported_in_a_table(sqlite_url):
    fill(sqlite_url)
    result = run("doctor", "--store", sqlite_url)
    assert result.exit_code == 0, result.output
    _, *rows, last = result.output.splitlines()
    counts = dict(row.rsplit(maxsplit=1) for row in rows)
    assert (counts["conversations"], counts["accepted"], counts["waiting"]) == ("1", "2", "2")
    assert last == "Every message is delivered, withdrawn or refused exactly once, or pending."


def test_a_violation_is_reported_in_a_sentence_and_by_exit_code_1(sqlite_url):
    fill(sqlite_url, "b", log=["hello"])
    result = run("doctor", "--store", sqlite_url)
    assert result.exit_code == 1, result.output
    assert f"- {HERE}: message b left the inbox as delivered, but is not in the log." in result.output
    report = json.loads(run("doctor", "--store", sqlite_url, "--json").output)
    assert (report["holds"], report["accepted"], len(report["violations"])) == (False, 2, 1)


def test_without_a_url_it_checks_the_store_of_the_service(sqlite_url, config_file):
    fill(sqlite_url)
    assert run("doctor", "--store", AMPLIFIER_SLACK_STORE=sqlite_url).exit_code == 0
    config = str(config_file("store: sqlite:kept.db"))
    assert run("doctor", "--store", "--config", config).exit_code == 0
    assert run("doctor", "--store", "--json", "--config", config).exit_code == 0


@pytest.mark.parametrize("store", ["sqlite:nowhere/kept.db", "redis://127.0.0.1:1/0", "memory:", "hunter2-hunter2"])
def test_a_store_that_cannot_be_used_exits_with_code_2(store):
    result = run("doctor", "--store", store)
    assert result.exit_code == 2
    assert "hunter2" not in result.output


async def test_the_store_of_a_running_service_can_be_checked(slack, environment, url, model, model_env):
    gate = Gate()
    model.reply(gate, text("fine"))
    async with environment.serving(**model_env, AMPLIFIER_SLACK_STORE=url) as service:
        await service.says("service.ready")
        ts = await slack.as_person("ana").say("general", "@alpha look")
        await gate.reached.wait()
        ended = await run_command("doctor", "--store", url, "--json")
        assert ended.code == 0, ended.output
        report = json.loads(ended.output[ended.output.index("{") :])
        gate.open()
        await slack.until(lambda _: environment.found(ts, "fine"), 30)
        await slack.until(lambda ws: not ws.message("general", ts).reacted("hourglass_flowing_sand"))
    assert [report[name] for name in ("runs_on", "leases", "accepted", "delivered")] == [1, 1, 1, 1]


@pytest.mark.parametrize("change", ["PRAGMA user_version = 0", "DROP TABLE run_conversations"])
def test_a_file_that_no_service_has_prepared_is_refused_and_left_unchanged(sqlite_url, change):
    def schema():
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:"))) as file:
            return [*file.execute("PRAGMA user_version"), *file.execute("SELECT sql FROM sqlite_master")]

    fill(sqlite_url)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:"))) as file, file:
        file.execute(change)
    before = schema()
    result = run("doctor", "--store", sqlite_url)
    assert (result.exit_code, "Start the service once" in result.output) == (2, True)
    assert schema() == before


def test_conversations_that_wait_for_an_owner_are_counted_by_workspace(url):
    async def admit():
        async with aclosing(await open_run_store(url)) as runs:
            for conversation_id, owner in (("T1:C:1.0", "one"), ("T1:C:2.0", "one"), ("T2:C:1.0", None)):
                await runs.admit(conversation_id, InboxEntry("a", "message", {}), "alpha")
                if owner:
                    await runs.claim(conversation_id, owner, 1000)

    asyncio.run(admit())
    result, json_result = run("doctor", "--store", url), run("doctor", "--store", url, "--json")
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert ["T1", "2", "2", "2", "0", "2", "0"] in rows
    assert ["T2", "1", "1", "1", "0", "0", "1"] in rows
    assert "1 conversation of T2 waits for a service that serves this workspace." in result.output
    report = json.loads(json_result.output)
    assert (report["unowned"], report["workspaces"]["T2"]["unowned"]) == (1, 1)
    assert report["workspaces"]["T1"]["leases"] == 2
