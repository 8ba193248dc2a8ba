"""`amplifier-slack conversations prune`: what may be forgotten, and what never is."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import time
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_conversations import DAY_S, HERE, THERE, StoredConversations, made_older

from connector.protocols import InboxEntry, StateChanges
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.states import UserMessageState
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.runs.queries import forget
from service.store import inspect_run_store, open_run_store


@pytest.fixture
def kept(tmp_path) -> StoredConversations:
    """A conversation with a branch of its own states beside the current one."""
    kept = StoredConversations(tmp_path / "kept.db")
    kept.talk("one", "two", "three")
    told(kept.run("rewind", HERE, "1"))
    kept.talk("instead")
    return kept


def told(result) -> str:
    assert result.exit_code == 0, result.output
    return result.output


def test_a_branch_that_was_left_today_stays_whatever_the_age_of_its_states(tmp_path):
    kept = StoredConversations(tmp_path / "kept.db")
    kept.talk("one", "two")
    kept.rest({"main": 100})
    told(kept.run("rewind", HERE, "1"))
    assert (
        told(kept.run("prune")) == "Nothing to delete: everything was written to within the last 30 days, or is kept.\n"
    )
    assert kept.branches() == {"main": 2, "branch-1": 4}


def test_an_old_branch_is_forgotten_with_the_states_that_no_other_one_has(kept):
    kept.rest({"branch-1": 31})
    assert told(kept.run("prune")).splitlines() == [
        f"{HERE}  alpha  branch-1 (4 states)",
        "Deleted 1 branch (4 states).",
    ]
    assert kept.branches() == {"main": 4}
    assert kept.said() == ["one", "instead"]


@pytest.mark.parametrize(("days", "gone"), [(29, False), (31, True)])
def test_the_age_at_which_a_branch_is_forgotten_can_be_chosen(kept, days, gone):
    kept.rest({"branch-1": 30})
    told(kept.run("prune", "--keep-days", str(60 - days)))
    assert ("branch-1" not in kept.branches()) is gone


def test_with_no_days_to_keep_every_branch_goes_but_the_current_one_and_main(kept):
    told(kept.run("fork", HERE, "--name", "try"))
    told(kept.run("checkout", HERE, "try"))
    told(kept.run("fork", HERE, "--at", "0"))
    assert told(kept.run("prune", "--keep-days", "0")).splitlines()[-1] == "Deleted 2 branches (4 states)."
    assert kept.branches() == {"try": 4, "main": 4}


def test_a_dry_run_says_the_same_and_changes_nothing(kept):
    before = kept.logs()
    would = told(kept.run("prune", "--keep-days", "0", "--dry-run"))
    assert kept.logs() == before
    did = told(kept.run("prune", "--keep-days", "0"))
    assert (
        would.replace("Would delete 1 branch (4 states); nothing was changed.", "Deleted 1 branch (4 states).") == did
    )


def test_whole_conversations_go_only_when_that_is_asked_for_and_all_of_them_is_old(kept):
    kept.talk("elsewhere", place=THERE)
    kept.rest({"main": 40}, THERE)
    kept.rest({"main": 40})
    assert (
        told(kept.run("prune")) == "Nothing to delete: everything was written to within the last 30 days, or is kept.\n"
    )
    output = told(kept.run("prune", "--whole"))
    assert output.splitlines() == [
        f"{THERE}  alpha  the whole conversation (2 states)",
        "Deleted 1 conversation (2 states).",
    ]
    assert list(kept.branches()) == ["main", "branch-1"], "a branch of it is of today"
    kept.rest({"branch-1": 40})
    assert told(kept.run("prune", "--whole", "--dry-run")).splitlines()[-1] == (
        "Would delete 1 conversation (8 states); nothing was changed."
    )
    told(kept.run("prune", "--whole"))
    assert kept.logs() == {}


def test_only_the_conversation_that_is_named_is_looked_at(kept):
    kept.talk("elsewhere", "and more", place=THERE)
    told(kept.run("rewind", THERE, "1"))
    told(kept.run("prune", "C0RANDOM", "--keep-days", "0"))
    assert kept.branches(THERE) == {"main": 2}
    assert "branch-1" in kept.branches()
    kept.talk("mine", agent="beta")
    told(kept.run("prune", "--agent", "beta", "--keep-days", "0", "--whole"))
    assert [key.agent_id for key in kept.logs()] == ["alpha", "alpha"]


def test_a_conversation_goes_on_after_all_its_other_branches_are_gone(kept):
    told(kept.run("prune", "--keep-days", "0"))
    kept.talk("and on")
    assert kept.said() == ["one", "instead", "and on"]


HOWEVER = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(1, 3)),
        st.tuples(st.just("fork"), st.integers(0, 9)),
        st.tuples(st.just("rewind"), st.integers(0, 9)),
        st.tuples(st.just("checkout"), st.integers(0, 9)),
    ),
    max_size=25,
)


@settings(max_examples=60)
@given(HOWEVER, st.lists(st.integers(0, 60), min_size=7, max_size=7), st.booleans())
def test_whatever_was_forgotten_all_other_branches_have_what_they_had(steps, days, whole):
    asyncio.run(_forgets(steps, days, whole=whole))


async def _forgets(steps, days, *, whole):
    store, key = MemoryStore(), Key(HERE, "alpha")
    await _grown(store, key, steps)
    before = await _contents(store, key)
    ages = {name: days[at % len(days)] for at, name in enumerate(before)}
    await made_older(store, key, ages)
    branches = await InteractionStack(store, HERE, "alpha").get_branch_info()
    current = next(branch.name for branch in branches if branch.is_current)
    before_then = time.time() - 30.5 * DAY_S

    would = await forget(store, key, before_then, whole=whole, only_look=True)
    assert await _contents(store, key) == before
    did = await forget(store, key, before_then, whole=whole)

    assert would == did
    old = {name for name, age in ages.items() if age > 30}
    gone = old if whole and old == before.keys() else old - {current, "main"}
    assert await _contents(store, key) == {name: said for name, said in before.items() if name not in gone}
    kept_states = {state for name in before.keys() - gone for state in before[name]}
    assert {node.envelope["data"] async for _, node in store.scan(0, math.inf, ())} == kept_states
    assert (did.states if did else 0) == len({state for said in before.values() for state in said} - kept_states)


async def _grown(store, key, steps):
    """Branches, each of whose states has a text of its own."""
    stack = InteractionStack(store, key.conversation_id, key.agent_id)
    await stack.push(UserMessageState("0"))
    for number, (step, at) in enumerate(steps):
        match step:
            case "push":
                await stack.push(*(UserMessageState(f"{number}.{each}") for each in range(at)))
            case "fork":
                await stack.fork(at % await stack.length())
            case "rewind":
                await stack.rewind(at % await stack.length())
            case "checkout":
                names = [branch.name for branch in await stack.get_branch_info()]
                await stack.checkout(names[at % len(names)])


async def _contents(store, key):
    """What each branch has."""
    log = await store.load(key)
    if log is None:
        return {}
    contents = {}
    for name in log.tree.names():
        segment = log.tree.named(name)
        pieces = log.tree.pieces(segment, 0, log.tree.segments[segment].end)
        nodes = [node for p in pieces for node in await store.read(key, p.segment, p.start, p.stop)]
        contents[name] = [node.envelope["data"] for node in nodes]
    return contents


def test_a_conversation_that_is_damaged_is_told_and_takes_no_other_along(kept):
    kept.talk("elsewhere", place=THERE)
    kept.rest({"branch-1": 31})
    with sqlite3.connect(kept.path) as file:
        file.execute("UPDATE trees SET tree = '{' WHERE log = (SELECT id FROM logs WHERE conversation = ?)", (THERE,))
    file.close()
    listed = told(kept.run("list")).splitlines()
    assert [line.split()[0] for line in listed[1:]] == [THERE, HERE]
    assert listed[1].endswith("(damaged)")
    pruned = kept.run("prune")
    assert pruned.exit_code == 1
    assert "Deleted 1 branch (4 states)." in pruned.output
    assert f"The stored branches of conversation {THERE} of alpha are damaged" in pruned.output


def inbox(kept: StoredConversations, *names: str, place: str = HERE, read: bool = True) -> None:
    """Let these messages have been written in a conversation; and read, unless they are to wait."""

    async def written() -> None:
        async with aclosing(await open_run_store(kept.url)) as runs:
            for name in names:
                await runs.admit(place, InboxEntry(name, "message", {}), "alpha")
            claim = await runs.claim(place, "owner", 10)
            await runs.write(
                place, claim.token, StateChanges(closed={e.seq: "" for e in claim.entries} if read else {})
            )
            await runs.release(place, claim.token, len(names))

    asyncio.run(written())


def inboxes(kept: StoredConversations) -> list[str]:
    async def known() -> list[str]:
        async with aclosing(await inspect_run_store(kept.url)) as runs:
            return sorted(await runs.conversations())

    return asyncio.run(known())


def test_with_a_whole_conversation_what_was_written_in_it_is_forgotten(tmp_path):
    kept = StoredConversations(tmp_path / "kept.db")
    for place in (HERE, THERE):
        kept.talk("one", place=place)
        inbox(kept, "a", place=place)
    kept.rest({"main": 100})
    told(kept.run("prune", "--whole", "--dry-run"))
    told(kept.run("prune"))
    assert inboxes(kept) == [HERE, THERE]
    told(kept.run("prune", "--whole"))
    assert inboxes(kept) == [THERE]


def test_what_is_still_to_be_read_is_not_forgotten_and_neither_is_what_another_agent_has_a_log_of(tmp_path):
    kept = StoredConversations(tmp_path / "kept.db")
    for place in (HERE, THERE):
        kept.talk("one", place=place)
        kept.rest({"main": 100}, place=place)
    kept.talk("one", place=THERE, agent="beta")
    inbox(kept, "a", read=False)
    inbox(kept, "a", place=THERE)
    told(kept.run("prune", "--whole"))
    assert inboxes(kept) == [HERE, THERE]


def test_what_was_written_where_no_agent_keeps_a_log_is_forgotten_when_it_has_rested(tmp_path):
    kept = StoredConversations(tmp_path / "kept.db")
    inbox(kept, "a")
    inbox(kept, "a", place=THERE, read=False)
    told(kept.run("prune", "--whole"))
    assert inboxes(kept) == [HERE, THERE]
    with sqlite3.connect(kept.path) as file:
        file.execute("UPDATE run_conversations SET changed = changed - 31 * 86400")
    told(kept.run("prune"))
    assert inboxes(kept) == [HERE, THERE]
    told(kept.run("prune", "--whole"))
    assert inboxes(kept) == [THERE]  # where something waits, nothing is forgotten
