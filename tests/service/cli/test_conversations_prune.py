"""`amplifier-slack conversations prune` deletes old branches, and with --whole old conversations."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import aclosing, closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored_conversations import DAY_S, HERE, THERE, StoredConversations, made_older
from stored_logs import every_node

from connector.protocols import InboxEntry, StateChanges
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.states import UserMessageState
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.cli.store_access import forget
from service.store import inspect_run_store, open_run_store

NOTHING = "Nothing to delete: everything was written to within the last 30 days, or is kept.\n"


@pytest.fixture
def output_of(output_of):
    """Return the standard output of a successful command."""

    def standard_output_of(result):
        output_of(result)
        return result.stdout

    return standard_output_of


@pytest.fixture
def empty(tmp_path):
    return StoredConversations(tmp_path / "empty.db")


@pytest.fixture
def kept(kept, output_of):
    """A conversation whose abandoned branch has states of its own."""
    kept.talk("one", "two", "three")
    output_of(kept.run("rewind", HERE, "1"))
    kept.talk("instead")
    return kept


def test_a_recently_abandoned_branch_is_kept(empty, output_of):
    empty.talk("one", "two")
    empty.rest({"main": 100})
    output_of(empty.run("rewind", HERE, "1"))
    assert output_of(empty.run("prune")) == NOTHING
    assert empty.branches() == {"main": 2, "branch-1": 4}


def test_an_old_branch_is_deleted_with_the_states_that_only_it_has(kept, output_of):
    kept.rest({"branch-1": 31})
    assert output_of(kept.run("prune")).splitlines() == [
        f"{HERE}  alpha  branch-1 (4 states)",
        "Deleted 1 branch (4 states).",
    ]
    assert kept.branches() == {"main": 4}
    kept.talk("and on")
    assert kept.said() == ["one", "instead", "and on"]


@pytest.mark.parametrize(("days", "is_deleted"), [(31, False), (29, True)])
def test_the_minimum_age_can_be_chosen(kept, output_of, days, is_deleted):
    kept.rest({"branch-1": 30})
    output_of(kept.run("prune", "--keep-days", str(days)))
    assert ("branch-1" not in kept.branches()) is is_deleted


def test_the_current_branch_and_main_are_never_deleted(kept, output_of):
    output_of(kept.run("fork", HERE, "--name", "try"))
    output_of(kept.run("checkout", HERE, "try"))
    output_of(kept.run("fork", HERE, "--at", "0"))
    assert output_of(kept.run("prune", "--keep-days", "0")).splitlines()[-1] == "Deleted 2 branches (4 states)."
    assert kept.branches() == {"try": 4, "main": 4}


def test_a_dry_run_prints_the_same_and_changes_nothing(kept, output_of):
    before = kept.logs()
    dry = output_of(kept.run("prune", "--keep-days", "0", "--dry-run"))
    assert kept.logs() == before
    dry = dry.replace("Would delete 1 branch (4 states); nothing was changed.", "Deleted 1 branch (4 states).")
    assert output_of(kept.run("prune", "--keep-days", "0")) == dry


def test_a_whole_conversation_is_deleted_only_with_the_option_and_if_all_of_it_is_old(kept, output_of):
    kept.talk("elsewhere", place=THERE)
    kept.rest({"main": 40}, THERE)
    kept.rest({"main": 40})
    assert output_of(kept.run("prune")) == NOTHING
    assert output_of(kept.run("prune", "--whole")).splitlines() == [
        f"{THERE}  alpha  the whole conversation (2 states)",
        "Deleted 1 conversation (2 states).",
    ]
    assert list(kept.branches()) == ["main", "branch-1"], "one of its branches is recent"
    kept.rest({"branch-1": 40})
    dry = output_of(kept.run("prune", "--whole", "--dry-run")).splitlines()[-1]
    assert dry == "Would delete 1 conversation (8 states); nothing was changed."
    output_of(kept.run("prune", "--whole"))
    assert kept.logs() == {}


def test_prune_can_be_limited_to_a_conversation_or_an_agent(kept, output_of):
    kept.talk("elsewhere", "and more", place=THERE)
    output_of(kept.run("rewind", THERE, "1"))
    output_of(kept.run("prune", "C0RANDOM", "--keep-days", "0"))
    assert kept.branches(THERE) == {"main": 2}
    assert "branch-1" in kept.branches()
    kept.talk("mine", agent="beta")
    output_of(kept.run("prune", "--agent", "beta", "--keep-days", "0", "--whole"))
    assert [key.agent_id for key in kept.logs()] == ["alpha", "alpha"]


STEPS = st.lists(st.tuples(st.sampled_from(["push", "fork", "rewind", "checkout"]), st.integers(0, 9)), max_size=25)


@settings(max_examples=60)
@given(STEPS, st.lists(st.integers(0, 60), min_size=7, max_size=7), st.booleans())
def test_deleting_branches_leaves_all_others_unchanged(steps, days, whole):
    async def test():
        store, key = MemoryStore(), Key(HERE, "alpha")
        await _grow(store, key, steps)
        before = await _contents(store, key)
        ages = {name: days[at % len(days)] for at, name in enumerate(before)}
        await made_older(store, key, ages)
        branches = await InteractionStack(store, HERE, "alpha").get_branch_info()
        current = next(branch.name for branch in branches if branch.is_current)
        before_s = time.time() - 30.5 * DAY_S

        dry = await forget(store, key, before_s, whole=whole, only_look=True)
        assert await _contents(store, key) == before
        deleted = await forget(store, key, before_s, whole=whole)

        assert dry == deleted
        old = {name for name, age in ages.items() if age > 30}
        gone = old if whole and old == before.keys() else old - {current, "main"}
        assert await _contents(store, key) == {name: states for name, states in before.items() if name not in gone}
        left = {state for name in before.keys() - gone for state in before[name]}
        assert {node.envelope["data"] for node in await every_node(store, key, 100)} == left
        states = {state for states in before.values() for state in states}
        assert (deleted.states if deleted else 0) == len(states - left)

    asyncio.run(test())


async def _grow(store, key, steps):
    """Create branches; each state has a different text."""
    stack = InteractionStack(store, key.conversation_id, key.agent_id)
    await stack.push(UserMessageState("0"))
    for number, (step, at) in enumerate(steps):
        match step:
            case "push":
                await stack.push(*(UserMessageState(f"{number}.{each}") for each in range(at % 3 + 1)))
            case "fork":
                await stack.fork(at % await stack.length())
            case "rewind":
                await stack.rewind(at % await stack.length())
            case "checkout":
                names = [branch.name for branch in await stack.get_branch_info()]
                await stack.checkout(names[at % len(names)])


async def _contents(store, key):
    """Return the states of each branch."""
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


def test_a_damaged_conversation_is_reported_and_the_others_are_pruned(kept, output_of):
    kept.talk("elsewhere", place=THERE)
    kept.rest({"branch-1": 31})
    with closing(sqlite3.connect(kept.path)) as file, file:
        file.execute("UPDATE trees SET tree = '{' WHERE log = (SELECT id FROM logs WHERE conversation = ?)", (THERE,))
    listed = output_of(kept.run("list")).splitlines()[1:]
    assert [line.split()[0] for line in listed] == [THERE, HERE]
    assert listed[0].endswith("(damaged)")
    pruned = kept.run("prune")
    assert (pruned.exit_code, pruned.stderr.splitlines()[0]) == (1, f"Store: sqlite:{kept.path}")
    assert "Deleted 1 branch (4 states)." in pruned.output
    assert f"The stored branches of conversation {THERE} of alpha are damaged" in pruned.output


def admit(kept, place=HERE, *, kind="message", is_read=True, **changes):
    """Store an entry in the inbox of a conversation, read or pending."""

    async def write():
        async with aclosing(await open_run_store(kept.url)) as runs:
            await runs.admit(place, InboxEntry("a", kind, {}), "alpha")
            claim = await runs.claim(place, "owner", 10)
            closed = {entry.seq: "" for entry in claim.entries} if is_read else {}
            await runs.write(place, claim.token, StateChanges(closed=closed, **changes))
            await runs.release(place, claim.token, None)

    asyncio.run(write())


def own(kept):
    """Claim a conversation, as a service does."""

    async def claim():
        async with aclosing(await open_run_store(kept.url)) as runs:
            await runs.claim(HERE, "owner", 10)

    asyncio.run(claim())


def inboxes(kept):
    async def conversations():
        async with aclosing(await inspect_run_store(kept.url)) as runs:
            return sorted(await runs.conversations())

    return asyncio.run(conversations())


def test_the_inbox_of_a_deleted_conversation_is_deleted(empty, output_of):
    for place in (HERE, THERE):
        empty.talk("one", place=place)
        admit(empty, place)
    empty.rest({"main": 100})
    output_of(empty.run("prune", "--whole", "--dry-run"))
    output_of(empty.run("prune"))
    assert inboxes(empty) == [HERE, THERE]
    output_of(empty.run("prune", "--whole"))
    assert inboxes(empty) == [THERE]


def test_an_inbox_with_another_agents_log_is_kept(empty, output_of):
    empty.talk("one")
    empty.rest({"main": 100})
    empty.talk("one", agent="beta")
    admit(empty)
    output_of(empty.run("prune", "--whole"))
    assert inboxes(empty) == [HERE]


@pytest.mark.parametrize("work", [{"is_read": False}, {"run": {"id": "waits"}}, {"is_read": False, "held_seq": 1}])
def test_a_conversation_with_a_run_or_pending_messages_is_kept_and_named(empty, output_of, work):
    places = (HERE, f"{HERE}/beta", THERE)
    for place in places:
        empty.talk("one", place=place)
        empty.rest({"main": 100}, place)
    admit(empty, **work)
    admit(empty, THERE)
    for options in (["--dry-run"], []):
        lines = output_of(empty.run("prune", "--whole", *options)).splitlines()
        kept = "kept: a run or messages are pending; repeat the command when that has ended"
        assert [line for line in lines if "kept" in line] == [f"{each}  alpha  {kept}" for each in places[1::-1]]
    assert [key.conversation_id for key in empty.logs()] == [f"{HERE}/beta", HERE]
    assert inboxes(empty) == [HERE]
    alone = empty.run("prune", "--unfinished")
    assert (alone.exit_code, "--unfinished is for entire conversations: add --whole." in alone.output) == (2, True)
    output_of(empty.run("prune", "--whole", "--unfinished"))
    assert not empty.logs()
    assert inboxes(empty) == []


def test_a_note_that_only_a_later_message_would_bring_up_keeps_no_conversation(empty, output_of):
    empty.talk("one", place=HERE)
    empty.rest({"main": 100}, HERE)
    admit(empty, kind="note", is_read=False, held_seq=1)
    output_of(empty.run("prune", "--whole"))
    assert inboxes(empty) == []


def test_a_conversation_that_a_service_works_on_is_kept(empty, output_of):
    empty.talk("one", place=HERE)
    empty.rest({"main": 100}, HERE)
    own(empty)
    (kept,) = [
        line for line in output_of(empty.run("prune", "--whole", "--unfinished")).splitlines() if "kept:" in line
    ]
    assert kept == f"{HERE}  alpha  kept: a service works on it; repeat the command when that has ended"
    assert inboxes(empty) == [HERE]


def test_an_old_inbox_without_a_log_is_deleted_unless_messages_are_pending(empty, output_of):
    admit(empty)
    admit(empty, THERE, is_read=False)
    output_of(empty.run("prune", "--whole"))
    assert inboxes(empty) == [HERE, THERE]
    with closing(sqlite3.connect(empty.path)) as file, file:
        file.execute("UPDATE run_conversations SET changed = changed - 31 * 86400")
    output_of(empty.run("prune"))
    assert inboxes(empty) == [HERE, THERE]
    output_of(empty.run("prune", "--whole"))
    assert inboxes(empty) == [THERE]
