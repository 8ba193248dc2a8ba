"""The audit of damaged stores: one sentence for each damage."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import aclosing, closing

import pytest
from store_corruption import HERE, populate
from stored_conversations import run

from connector.protocols import InboxEntry, StateChanges
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.states import AssistantMessageState
from orchestrator_interactive.interactions.stores import open_store
from service.store import open_run_store

RUNS = f"runs:{{{HERE}}}"
LOST = "message m2 left the inbox as delivered, but is not in the log."
UNREADABLE = "in the log of alpha, branch main, 1 state cannot be read: {}."
MISSING_ENTRY = "its inbox has accepted 6 entries, but 5 are pending or finished."
ORDER = "the ids of its entries and their order do not match."
NOT_DUE = "it has pending work, but is missing from the index of due conversations"


@pytest.fixture
def file_url(sqlite_url):
    asyncio.run(populate(sqlite_url))
    return sqlite_url


@pytest.fixture
def server(redis, redis_url):
    asyncio.run(populate(redis_url))
    return redis


@pytest.fixture
def full_server(server):
    """Set `maxmemory` to one byte when called."""
    yield lambda: server.ask("CONFIG", "SET", "maxmemory", "1")
    server.ask("CONFIG", "SET", "maxmemory", "0")


def damage_file(url, *statements):
    with closing(sqlite3.connect(url.removeprefix("sqlite:"), isolation_level=None)) as file:
        for statement in statements:
            file.execute(statement)


def report_on(url):
    result = run("doctor", "--store", url, "--json")
    assert result.exit_code in (0, 1), result.output
    report = json.loads(result.output[result.output.index("{") :])
    assert result.exit_code == (1 if report["violations"] else 0)
    return report


def violations_in(url):
    return [each.removeprefix(f"{HERE}: ") for each in report_on(url)["violations"]]


def counts_in(url):
    """Return how many messages are accepted, delivered, refused and pending."""
    report = report_on(url)
    assert report["violations"] == []
    return [report[name] for name in ("accepted", "delivered", "refused", "waiting")]


@pytest.mark.parametrize(
    ("statement", "violations"),
    [
        ("SELECT 1", []),
        ("DELETE FROM nodes WHERE idx = 2", [LOST, UNREADABLE.format(2)]),
        ("UPDATE nodes SET data = '' WHERE idx = 2", [LOST, UNREADABLE.format(2)]),
        ("DELETE FROM nodes WHERE idx = 3", [UNREADABLE.format(3)]),
        ("DELETE FROM run_entries WHERE seq = 5", [MISSING_ENTRY]),
        ("DELETE FROM run_entries WHERE seq = 6", [MISSING_ENTRY]),
        ("DELETE FROM run_entries WHERE seq = 2", [MISSING_ENTRY]),
        ("UPDATE run_conversations SET seq = 3", ["its inbox has accepted 3 entries, but 6 are pending or finished."]),
        (
            "DELETE FROM run_conversations",
            [f"entry m{number} is in the inbox of a conversation that does not exist." for number in range(1, 7)],
        ),
        ("UPDATE run_entries SET data = '{{' WHERE seq = 5", ["entry m5 of its inbox cannot be read."]),
        ("UPDATE run_conversations SET run = '{{'", ["the record of its run cannot be read."]),
        ("UPDATE run_posts SET content = '{{'", ["the text 1 of its run cannot be read."]),
        ("UPDATE run_conversations SET todo = 0", [f"{NOT_DUE}: no process will resume it."]),
        (
            "UPDATE run_conversations SET held_seq = 99",
            ["messages up to number 99 are held back, but only 6 were accepted: new messages start no run."],
        ),
        ("UPDATE run_conversations SET run = NULL", ["1 post pending in the outbox without a run."]),
    ],
)
def test_damage_to_a_file_is_reported(file_url, statement, violations):
    damage_file(file_url, statement)
    assert violations_in(file_url) == violations


@pytest.mark.parametrize(
    ("command", "violations"),
    [
        (("PING",), []),
        (("HDEL", f"interactions:{{{HERE}}}/alpha", "0/2"), [LOST, UNREADABLE.format(2)]),
        (
            ("ZREMRANGEBYRANK", f"{RUNS}:order", "0", "1"),
            ["its inbox has accepted 6 entries, but it has the ids of", ORDER],
        ),
        (("HDEL", f"{RUNS}:ids", "m1"), [ORDER]),
        (("DEL", f"{RUNS}:order", f"{RUNS}:ids"), ["its inbox has accepted 6 entries, but it has the ids of"]),
        (("ZREMRANGEBYRANK", f"{RUNS}:inbox", "0", "0"), ["message m5 was accepted and is lost", MISSING_ENTRY]),
        (("HSET", RUNS, "seq", "7"), ["its inbox has accepted 7 entries, but 6 are pending or finished."]),
        (("DEL", RUNS), ["its inbox has accepted 0 entries, but 2 are pending or finished."]),
        (("HSET", RUNS, "run", "{{"), ["the record of its run cannot be read."]),
        (("ZREM", "runs:{index}:due:T", HERE), [NOT_DUE]),
    ],
)
def test_damage_to_a_server_is_reported(server, command, violations):
    server.ask(*command)
    found = violations_in(server.url)
    assert [each.startswith(start) for each, start in zip(found, violations, strict=True)] == [True] * len(found)


def refuse_pending(url):
    async def refuse():
        async with aclosing(await open_run_store(url)) as runs:
            claim = await runs.claim(HERE, "owner", 1000)
            closed = {entry.seq: "refused" for entry in claim.entries}
            await runs.write(HERE, claim.token, StateChanges(run={}, closed=closed))
            await runs.release(HERE, claim.token, 10**6)

    asyncio.run(refuse())


def open_once(url, *admitted):
    async def admit():
        async with aclosing(await open_run_store(url)) as runs:
            for name in admitted:
                assert (await runs.admit(HERE, InboxEntry(name, "message", {}), "alpha")).is_new

    asyncio.run(admit())


def test_messages_with_expired_ids_in_a_file_are_counted(file_url):
    damage_file(file_url, "UPDATE run_conversations SET changed = changed - 7.1 * 86400")
    open_once(file_url)
    assert counts_in(file_url) == [6, 3, 1, 2]
    refuse_pending(file_url)
    assert counts_in(file_url) == [6, 3, 3, 0]


def test_a_file_of_a_newer_version_is_refused(file_url):
    damage_file(file_url, "UPDATE run_version SET version = version + 1")
    result = run("doctor", "--store", file_url)
    assert result.exit_code == 2
    assert "have version 2; this installation supports up to version 1" in result.output


def test_messages_with_expired_ids_in_a_server_are_counted(server):
    refuse_pending(server.url)
    server.ask("DEL", f"{RUNS}:ids", f"{RUNS}:order")  # as after a week
    assert counts_in(server.url) == [6, 3, 3, 0]
    open_once(server.url, "m7")
    assert counts_in(server.url) == [7, 3, 3, 1]


def test_ids_before_the_newest_ten_thousand_are_deleted_and_counted(server):
    server.ask("HINCRBY", RUNS, "seq", "10000")
    server.ask("HINCRBY", RUNS, "n:refused", "10000")
    refuse_pending(server.url)
    assert server.ask("ZRANGE", f"{RUNS}:order", "0", "-1") == []
    assert counts_in(server.url) == [10_006, 3, 10_003, 0]


def prune(url, *options):
    result = run("conversations", "prune", "--keep-days", "0", *options, "--store", url)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()[-1]


def test_a_server_without_free_memory_can_be_read_and_pruned(server, full_server):
    refuse_pending(server.url)
    full_server()
    assert counts_in(server.url) == [6, 3, 3, 0]
    shown = run("conversations", "show", HERE, "--store", server.url)
    assert (shown.exit_code, "fine" in shown.output) == (0, True), shown.output
    assert prune(server.url, "--whole") == "Deleted 1 conversation (6 states)."
    assert report_on(server.url)["conversations"] == 0


def test_a_branch_on_a_server_without_free_memory_can_be_pruned(server, full_server):
    async def abandon_branch():
        async with aclosing(await open_store(server.url)) as logs:
            stack = InteractionStack(logs, HERE, "alpha")
            await stack.rewind(1)
            await stack.push(AssistantMessageState("instead"))

    asyncio.run(abandon_branch())
    full_server()
    assert prune(server.url) == "Deleted 1 branch (4 states)."


def test_an_audit_writes_nothing_to_a_server(server):
    server.ask("CONFIG", "RESETSTAT")
    assert violations_in(server.url) == []
    commands = server.ask("INFO", "commandstats")
    assert not {"cmdstat_hset", "cmdstat_zadd", "cmdstat_expire", "cmdstat_hincrby"} & commands.keys()
