"""What is found wrong with the two stores, and what is not."""

from __future__ import annotations

import sqlite3
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest
from redis_server import redis_server

from connector.protocols import InboxEntry, StateChanges
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.states import AssistantMessageState
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.loop.injection_queue import Injection, injection_row
from orchestrator_interactive.modules.context_stack.rows import states_of
from orchestrator_interactive.transcript.rows import user_row
from service.doctor.delivery_audit import Tally, check
from service.store import open_run_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from orchestrator_interactive.interactions.stores.base import LogStore
    from service.store.base import RunStore

HERE = "T:C:1.0"


class House:
    """A conversation in both stores."""

    def __init__(self, runs: RunStore, logs: LogStore) -> None:
        self.runs = runs
        self.logs = logs
        self.stack = InteractionStack(logs, HERE, "alpha")

    async def write(self, *names: str, kind: str = "message") -> None:
        for name in names:
            await self.runs.admit(HERE, InboxEntry(name, kind, {}), "alpha")

    async def close(self, end: str, *names: str) -> None:
        claim = await self.runs.claim(HERE, "owner", 10)
        places = {entry.id: entry.seq for entry in claim.entries}
        await self.runs.write(HERE, claim.token, StateChanges(closed={places[name]: end for name in names}))
        await self.runs.release(HERE, claim.token, 10**6)

    async def deliver(self, name: str, *steers: str) -> None:
        """Let a run read a message, and steers in one row."""
        rows = [user_row(name, name)]
        if steers:
            rows.append(injection_row([Injection(steer, id=steer) for steer in steers]))
        for row in rows:
            await self.stack.push(*states_of(row, {}))
            await self.stack.push(AssistantMessageState("fine"))

    async def wrong(self) -> list[str]:
        return [each.removeprefix(f"{HERE}: ") for each in (await check(self.runs, self.logs)).violations]


@pytest.fixture(params=["sqlite", "redis"])
def url(request, tmp_path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path}/kept.db"
        return
    with redis_server() as server:
        yield server.url


@pytest.fixture
async def house(url) -> AsyncIterator[House]:
    async with aclosing(await open_run_store(url)) as runs, aclosing(await open_store(url)) as logs:
        yield House(runs, logs)


async def test_where_nothing_was_written_there_is_nothing_wrong(house):
    assert await check(house.runs, house.logs) == await check(house.runs, house.logs)
    assert (await check(house.runs, house.logs)).tally == Tally()


async def test_every_message_at_its_end_and_those_that_wait_are_counted(house):
    await house.write("a", "b", "c", "d", "e", "f")
    await house.write("s", kind="stop")
    await house.deliver("a", "b", "c")
    await house.close("", "a", "b")  # c stands in the log, and will be closed
    await house.close("withdrawn", "d")
    await house.close("refused", "e")
    await house.close("done", "s")
    claim = await house.runs.claim(HERE, "owner", 10)
    await house.runs.write(HERE, claim.token, StateChanges(run={"id": "r"}, posts={"1": {"text": "fine"}, "2": ""}))
    found = await check(house.runs, house.logs)
    assert found.violations == ()
    assert found.tally == Tally(
        conversations=1,
        accepted=6,
        delivered=3,
        withdrawn=1,
        refused=1,
        waiting=1,
        runs_on=1,
        leases=1,
        posts_pending=1,
    )


async def test_only_leases_that_are_valid_are_counted(house):
    await house.write("a")
    claim = await house.runs.claim(HERE, "owner", 1000)
    assert (await check(house.runs, house.logs)).tally.leases == 1
    await house.runs.renew(HERE, claim.token, 0)
    assert (await check(house.runs, house.logs)).tally.leases == 0


async def test_a_message_that_left_as_delivered_and_is_in_no_row_is_lost(house):
    await house.write("a", "b")
    await house.deliver("a")
    await house.close("", "a", "b")
    assert await house.wrong() == ["message b left the inbox as delivered, but is not in the log."]


async def test_a_message_that_is_in_two_rows_of_a_branch_was_read_twice(house):
    await house.write("a")
    await house.deliver("a")
    await house.deliver("a")
    assert await house.wrong() == ["message a is in the log 2 times."]


async def test_a_message_that_was_taken_back_or_refused_and_was_read_all_the_same_is_told(house):
    await house.write("a", "b")
    await house.deliver("a", "b")
    await house.close("withdrawn", "a")
    await house.close("refused", "b")
    assert await house.wrong() == [
        "message a was withdrawn, but is in the log.",
        "message b was refused, but is in the log.",
    ]


async def test_messages_that_were_read_in_another_order_are_told(house):
    first, second, third = messages = ("T:C:1.0", "T:C:2.0", "T:C:2.0:edit:3.0")
    await house.write(*messages)
    await house.deliver(second, third, first)
    assert await house.wrong() == [
        f"message {first} was delivered after {third}, and was written and accepted before it."
    ]


async def test_messages_are_read_in_the_order_in_which_they_were_written_not_accepted(house):
    await house.write("T:C:2.0", "T:C:3.0", "T:C:1.0", "T:C:2.0:deleted")
    await house.deliver("T:C:1.0", "T:C:2.0", "T:C:2.0:deleted", "T:C:3.0")
    assert await house.wrong() == []


async def test_a_message_that_two_agents_have_read_is_told(house):
    await house.write("a")
    await house.deliver("a")
    await InteractionStack(house.logs, HERE, "beta").push(*states_of(user_row("a", "a"), {}))
    assert await house.wrong() == ["message a is in the logs of 2 agents."]


async def test_what_was_read_on_a_branch_that_was_left_behind_was_read(house):
    await house.write("a", "b", "c")
    await house.deliver("a")
    await house.deliver("b")
    await house.stack.rewind(1)
    await house.deliver("c")
    await house.close("", "a", "b", "c")
    found = await check(house.runs, house.logs)
    assert (found.violations, found.tally.delivered) == ((), 3)


async def test_what_a_forgotten_branch_or_log_may_have_had_is_not_called_lost(house):
    await house.write("a", "b")
    await house.deliver("a")
    await house.deliver("b")
    await house.stack.rewind(1)
    await house.close("", "a", "b")
    (left,) = [branch.name for branch in await house.stack.get_branch_info() if not branch.is_current]
    await house.stack.prune([left])
    found = await check(house.runs, house.logs)
    assert (found.violations, found.tally.delivered, found.tally.unchecked) == ((), 2, 0)
    log = await house.logs.load(Key(HERE, "alpha"))
    await house.logs.remove(Key(HERE, "alpha"), log.version)
    found = await check(house.runs, house.logs)
    assert (found.violations, found.tally.delivered, found.tally.unchecked) == ((), 2, 1)


async def test_a_log_that_is_damaged_is_told(house, url, tmp_path):
    await house.write("a")
    await house.deliver("a")
    if url.startswith("redis:"):
        pytest.skip("it is damaged by hand in the file")
    with sqlite3.connect(tmp_path / "kept.db") as file:
        file.execute("UPDATE trees SET tree = 'x'")
    (sentence,) = (await check(house.runs, house.logs)).violations
    assert HERE in sentence
