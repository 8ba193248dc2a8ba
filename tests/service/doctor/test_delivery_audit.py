"""Conservation: each accepted message is delivered, withdrawn or refused exactly once, or pending."""

from __future__ import annotations

import sqlite3
from contextlib import aclosing, closing

import pytest

from connector.protocols import InboxEntry, StateChanges
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.rows import states_of
from orchestrator_interactive.interactions.states import AssistantMessageState
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.loop.injection_queue import Injection, Talk, injection_row, talk_row
from orchestrator_interactive.transcript.rows import user_row
from service.doctor.delivery_audit import Tally, check
from service.store import open_run_store

HERE = "T:C:1.0"


class StoredConversation:
    """A conversation in both stores."""

    def __init__(self, runs, logs):
        self.runs = runs
        self.logs = logs
        self.stack = InteractionStack(logs, HERE, "alpha")

    async def admit(self, *ids, kind="message"):
        for id_ in ids:
            await self.runs.admit(HERE, InboxEntry(id_, kind, {}), "alpha")

    async def close(self, end, *ids):
        claim = await self.runs.claim(HERE, "owner", 10)
        seqs = {entry.id: entry.seq for entry in claim.entries}
        await self.runs.write(HERE, claim.token, StateChanges(closed={seqs[id_]: end for id_ in ids}))
        await self.runs.release(HERE, claim.token, 10**6)

    async def deliver(self, id_, *injected):
        """Commit a row with a message, and one row with injected messages."""
        rows = [user_row(id_, id_)]
        if injected:
            rows.append(injection_row([Injection(each, id=each) for each in injected]))
        for row in rows:
            await self.stack.push(*states_of(row, {}))
            await self.stack.push(AssistantMessageState("fine"))

    async def violations(self):
        return [each.removeprefix(f"{HERE}: ") for each in (await self.audit()).violations]

    async def audit(self):
        return await check(self.runs, self.logs)


@pytest.fixture
async def stored(url):
    async with aclosing(await open_run_store(url)) as runs, aclosing(await open_store(url)) as logs:
        yield StoredConversation(runs, logs)


async def test_empty_stores_have_nothing_to_report(stored):
    report = await stored.audit()
    assert (report.tally, report.violations) == (Tally(), ())


async def test_talk_may_be_read_late_by_several_agents_and_whatever_became_of_the_message(stored):
    ids = [f"T:C:{n}.0" for n in range(1, 6)]
    await stored.admit(*ids)
    await stored.deliver(ids[4])
    await stored.stack.push(*states_of(talk_row(Talk(tuple((each, each) for each in ids[:4]))), {}))
    other = InteractionStack(stored.logs, HERE, "beta")
    await other.push(*states_of(talk_row(Talk(tuple((each, each) for each in ids))), {}))
    for end, id_ in (("", ids[0]), ("withdrawn", ids[1]), ("refused", ids[2])):
        await stored.close(end, id_)
    await stored.close("", ids[4])
    report = await stored.audit()
    assert report.violations == ()
    tally = report.tally
    assert (tally.delivered, tally.withdrawn, tally.refused, tally.waiting) == (2, 1, 1, 1)
    await stored.stack.push(*states_of(talk_row(Talk(((ids[0], "again"),))), {}))
    assert await stored.violations() == [f"message {ids[0]} is in the log 2 times."]


async def test_messages_are_counted_by_their_state(stored):
    await stored.admit("a", "b", "c", "d", "e", "f")
    await stored.admit("s", kind="stop")
    await stored.deliver("a", "b", "c")
    await stored.close("", "a", "b")  # c is in the log, and is not closed yet
    for end, id_ in (("withdrawn", "d"), ("refused", "e"), ("done", "s")):
        await stored.close(end, id_)
    claim = await stored.runs.claim(HERE, "owner", 10)
    await stored.runs.write(HERE, claim.token, StateChanges(run={"id": "r"}, posts={"1": {"text": "fine"}, "2": ""}))
    report = await stored.audit()
    assert report.violations == ()
    messages = {"accepted": 6, "delivered": 3, "withdrawn": 1, "refused": 1, "waiting": 1}
    assert report.tally == Tally(conversations=1, **messages, runs_on=1, leases=1, posts_pending=1)


async def test_only_valid_leases_are_counted(stored):
    await stored.admit("a")
    claim = await stored.runs.claim(HERE, "owner", 1000)
    assert (await stored.audit()).tally.leases == 1
    await stored.runs.renew(HERE, claim.token, 0)
    assert (await stored.audit()).tally.leases == 0


async def test_a_delivered_message_that_is_in_no_row_is_lost(stored):
    await stored.admit("a", "b")
    await stored.deliver("a")
    await stored.close("", "a", "b")
    assert await stored.violations() == ["message b left the inbox as delivered, but is not in the log."]


async def test_a_message_in_two_rows_of_a_branch_is_a_duplicate(stored):
    await stored.admit("a")
    await stored.deliver("a")
    await stored.deliver("a")
    assert await stored.violations() == ["message a is in the log 2 times."]


async def test_a_withdrawn_or_refused_message_in_the_log_is_a_violation(stored):
    await stored.admit("a", "b")
    await stored.deliver("a", "b")
    await stored.close("withdrawn", "a")
    await stored.close("refused", "b")
    assert await stored.violations() == [
        "message a was withdrawn, but is in the log.",
        "message b was refused, but is in the log.",
    ]


async def test_delivery_in_another_order_is_a_violation(stored):
    first, second, third = messages = ("T:C:1.0", "T:C:2.0", "T:C:2.0:edit:3.0")
    await stored.admit(*messages)
    await stored.deliver(second, third, first)
    assert await stored.violations() == [
        f"message {first} was delivered after {third}, and was written and accepted before it."
    ]


async def test_the_order_is_that_of_writing_and_not_of_acceptance(stored):
    await stored.admit("T:C:2.0", "T:C:3.0", "T:C:1.0", "T:C:2.0:deleted")
    await stored.deliver("T:C:1.0", "T:C:2.0", "T:C:2.0:deleted", "T:C:3.0")
    assert await stored.violations() == []


async def test_a_message_in_the_logs_of_two_agents_is_a_violation(stored):
    await stored.admit("a")
    await stored.deliver("a")
    await InteractionStack(stored.logs, HERE, "beta").push(*states_of(user_row("a", "a"), {}))
    assert await stored.violations() == ["message a is in the logs of 2 agents."]


async def test_messages_on_an_abandoned_branch_are_delivered(stored):
    await stored.admit("a", "b", "c")
    await stored.deliver("a")
    await stored.deliver("b")
    await stored.stack.rewind(1)
    await stored.deliver("c")
    await stored.close("", "a", "b", "c")
    report = await stored.audit()
    assert (report.violations, report.tally.delivered) == ((), 3)


async def test_messages_that_a_deleted_branch_or_log_may_have_had_are_not_lost(stored):
    await stored.admit("a", "b")
    await stored.deliver("a")
    await stored.deliver("b")
    await stored.stack.rewind(1)
    await stored.close("", "a", "b")
    await stored.stack.prune([branch.name for branch in await stored.stack.get_branch_info() if not branch.is_current])
    report = await stored.audit()
    assert (report.violations, report.tally.delivered, report.tally.unchecked) == ((), 2, 0)
    await stored.logs.remove(Key(HERE, "alpha"), (await stored.logs.load(Key(HERE, "alpha"))).version)
    report = await stored.audit()
    assert (report.violations, report.tally.delivered, report.tally.unchecked) == ((), 2, 1)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_damaged_log_is_a_violation(stored, tmp_path):
    await stored.admit("a")
    await stored.deliver("a")
    with closing(sqlite3.connect(tmp_path / "kept.db")) as file, file:
        file.execute("UPDATE trees SET tree = 'x'")
    (violation,) = (await stored.audit()).violations
    assert HERE in violation
