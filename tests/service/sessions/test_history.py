"""Branches of a log as commands make them; a command that is repeated after a crash changes nothing more."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from connector.protocols import LeaseLost, LogPlace, Rating, Refused
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.feedback import feedback
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.rows import states_of
from orchestrator_interactive.interactions.states import RunFinishedState, ToolCallState, ToolResultState
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.transcript.framing import Author, message_text
from service.sessions.history import LogHistory

HERE, NEW = "T1:C1:1.1", "T1:C1:9.9"
ALPHA = ("alpha", HERE)


def said(text: str, message_id: str, **metadata: object) -> dict[str, object]:
    return {"role": "user", "content": text, "metadata": {"message": message_id, **metadata}}


def steered(text: str, message_id: str) -> dict[str, object]:
    return {"role": "user", "content": text, "metadata": {"injections": [message_id]}}


def answer(text: str) -> dict[str, object]:
    return {"role": "assistant", "content": text}


ONE = [said("one", "T1:C1:1.1"), answer("first")]
TWO = [said("two", "T1:C1:2.1"), answer("second"), steered("more", "T1:C1:2.2"), answer("third")]
THREE = [said("three", "T1:C1:3.1"), answer("fourth")]


@pytest.fixture(params=["sqlite", "redis"])
async def store(request, tmp_path, redis_url):
    url = f"sqlite:{tmp_path}/logs.db" if request.param == "sqlite" else redis_url
    async with aclosing(await open_store(url)) as store:
        stack = InteractionStack(store, HERE, "alpha")
        for run in (ONE, TWO, THREE):
            await stack.push(*(state for row in run for state in states_of(row, {})), RunFinishedState())
        yield store


@pytest.fixture
def history(store):
    return LogHistory(store)


async def texts(store, place: str = HERE) -> list[str]:
    stack = InteractionStack(store, place, "alpha")
    states = [entry.state async for entry in stack.iter_last_n(await stack.length())]
    return [
        getattr(state, "text", None) or state.content for state in states if not isinstance(state, RunFinishedState)
    ]


async def test_a_repeated_rewind_changes_nothing_more(store, history):
    first = await history.rewind(*ALPHA, 1, "left-1", fence=1)
    assert await history.rewind(*ALPHA, 1, "left-1", fence=2) == first
    assert (first.messages, first.answers, first.branch) == (1, 1, "left-1")
    assert await texts(store) == ["one", "first", "two", "second", "more", "third"]
    second = await history.rewind(*ALPHA, 1, "left-2", fence=2)
    assert (second.messages, second.answers) == (2, 2)
    assert await texts(store) == ["one", "first"]


async def test_a_rewind_names_the_files_that_were_written_and_none_that_a_call_failed_to_write(store, history):
    calls = [ToolCallState(path, "write_file", {"path": path}) for path in ("a.md", "../b.md", "c.md")]
    results = [
        ToolResultState("a.md", "write_file", "Written."),
        ToolResultState("../b.md", "write_file", "It is not in the workspace.", meta={"is_error": True}),
    ]
    stack = InteractionStack(store, HERE, "alpha")
    prompt = [state for row in [said("four", "T1:C1:4.1")] for state in states_of(row, {})]
    await stack.push(*prompt, *calls, *results, RunFinishedState())
    assert (await history.rewind(*ALPHA, 1, "left-1", fence=1)).files == ("a.md", "c.md")


async def test_more_exchanges_than_there_are_rewind_to_the_beginning(store, history):
    await history.rewind(*ALPHA, 10, "left-1", fence=1)
    assert await texts(store) == []
    with pytest.raises(Refused, match="nothing to rewind"):
        await history.rewind(*ALPHA, 1, "left-2", fence=1)
    await history.checkout(*ALPHA, "left-1", fence=1)
    assert len(await texts(store)) == 8


async def test_a_rewind_goes_to_before_a_message_also_one_that_was_injected(store, history):
    await history.rewind(*ALPHA, LogPlace("T1:C1:2.2"), "left-1", fence=1)
    assert await texts(store) == ["one", "first", "two", "second"]
    for message_id, reason in (("T1:C1:3.1", "Another branch"), ("T1:C1:7.7", "not read")):
        with pytest.raises(Refused, match=reason):
            await history.rewind(*ALPHA, LogPlace(message_id), "left-2", fence=1)
        with pytest.raises(Refused, match=reason):
            await history.since(*ALPHA, LogPlace(message_id))


async def test_a_repeated_begin_makes_one_empty_branch(store, history):
    assert await history.begin_anew(*ALPHA, "new-1", fence=1) == "main"
    assert await history.begin_anew(*ALPHA, "new-1", fence=1) == "main"
    assert await texts(store) == []
    assert [each.name for each in await history.branches(*ALPHA)] == ["main", "new-1"]


@pytest.mark.parametrize(
    ("place", "last"),
    [
        (None, "fourth"),
        (LogPlace("T1:C1:1.1"), "one"),
        (LogPlace("T1:C1:2.2"), "more"),
        (LogPlace("T1:C1:1.1", 1), "first"),
        (LogPlace("T1:C1:2.1", 1), "second"),
        (LogPlace("T1:C1:2.1", 2), "third"),
    ],
)
async def test_a_fork_ends_with_its_place_on_whichever_branch_that_is(store, history, place, last):
    for _ in range(2):
        await history.fork(*ALPHA, place, NEW)
    copied = await texts(store, NEW)
    assert copied[-1] == last
    await history.begin_anew(*ALPHA, "new-1", fence=1)
    await history.fork(*ALPHA, place or LogPlace("T1:C1:3.1", 1), "T1:C1:8.8")
    assert await texts(store, "T1:C1:8.8") == copied


async def test_a_fork_leaves_a_conversation_that_others_began_as_it_is(store, history):
    await InteractionStack(store, NEW, "alpha").push(*states_of(said("hello", "T1:C1:9.9"), {}))
    with pytest.raises(Refused, match="wrote in the new thread first"):
        await history.fork(*ALPHA, None, NEW)
    with pytest.raises(Refused, match="not read"):
        await history.fork(*ALPHA, LogPlace("T1:C1:7.7"), "")


async def test_an_owner_that_lost_its_lease_changes_nothing(store, history):
    await history.rewind(*ALPHA, 1, "left-1", fence=5)
    for change in (history.rewind(*ALPHA, 1, "left-2", fence=4), history.checkout(*ALPHA, "left-1", fence=4)):
        with pytest.raises(LeaseLost):
            await change


async def test_the_export_has_the_messages_and_the_calls(history):
    exported = await history.export(*ALPHA)
    assert exported.startswith("# Conversation with alpha")
    assert exported.index("one") < exported.index("first") < exported.index("fourth")


@pytest.mark.parametrize("processes", [1, 2])
async def test_ratings_that_many_people_give_at_once_are_all_stored(store, processes):
    histories = [LogHistory(store) for _ in range(processes)]
    ratings = [Rating(f"r{n}", "T1:C1:1.2", LogPlace("T1:C1:1.1", 1), f"U{n}", 1, float(n)) for n in range(20)]
    await asyncio.gather(*(histories[n % processes].rate(*ALPHA, each) for n, each in enumerate(ratings)))
    stored = [each.state.id async for each in feedback(store, Key(HERE, "alpha"))]
    assert sorted(stored) == sorted(each.id for each in ratings)


async def test_a_title_is_the_first_line_without_the_files(store, history):
    stack = InteractionStack(store, NEW, "alpha")
    told = message_text("look here\nand there", Author("U1", "Ana"), ["a.md"])
    row = said(f"{told}\n(a.md is in the workspace: files/a.md)\n> its text", "T1:C1:9.9")
    await stack.push(*states_of(row, {}))
    assert await history.title("alpha", NEW) == "look here"
