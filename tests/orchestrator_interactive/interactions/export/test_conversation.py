"""Exports of a conversation as JSON lines and as text."""

import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any
from unicodedata import category

import pytest
from fault_injecting_store import FaultInjectingStore
from hypothesis import given, settings
from hypothesis import strategies as st
from interaction_states import brought, called, conversations, said

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.artifacts import NoSuchConversation, artifacts
from orchestrator_interactive.interactions.errors import NoSuchBranch
from orchestrator_interactive.interactions.export import as_json_lines, as_page, as_text
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    BaseState,
    FinishedState,
    ToolResultState,
    UserMessageState,
    UserResponseState,
    WaitingState,
)
from orchestrator_interactive.interactions.stores.base import LogStore
from orchestrator_interactive.interactions.stores.memory import MemoryStore

KEY = Key("T1:C1:1700000000.000100", "alpha")
HEAD = re.compile(r"^ {0,5}(\d+)  (?:\d\d:\d\d:\d\d|--:--:--)  (.*)$")


async def joined(pieces: AsyncIterator[str]) -> str:
    return "".join([piece async for piece in pieces])


async def a_conversation(store: LogStore, *states: BaseState) -> InteractionStack:
    stack = InteractionStack(store, KEY.conversation_id, KEY.agent_id)
    await stack.push(*states)
    return stack


async def text_of(*states: BaseState, **options: Any) -> list[tuple[int, str]]:
    """Return index and heading of the lines that start with an index."""
    store = MemoryStore()
    await a_conversation(store, *states)
    lines = (await joined(as_text(store, KEY, **options))).splitlines()
    return [(int(found[1]), found[2]) for line in lines if (found := HEAD.match(line))]


@pytest.fixture
def in_kolkata(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def test_json_lines_have_a_header_and_one_artifact_per_line(store: LogStore) -> None:
    long = "long " * 1000
    stack = await a_conversation(store, said("Hi\nthere"), called("a", path="x"), brought("a", long), said("Thanks ✓"))
    await stack.fork(0, "other")
    head, *lines = map(json.loads, (await joined(as_json_lines(store, KEY))).splitlines())
    branches = head.pop("branches")
    assert head == {
        "format": "amplifier-conversation",
        "version": 1,
        "conversation": KEY.conversation_id,
        "agent": "alpha",
        "asked_by": None,
        "branch": "main",
        "states": 4,
    }
    assert [(each["name"], each["length"], each["is_current"]) for each in branches] == [
        ("main", 4, True),
        ("other", 1, False),
    ]
    there = [each async for each in artifacts(store, session=KEY.conversation_id, branch="main")]
    assert [(line["ref"], line["index"], line["ts"], line["kind"], line["episode"]) for line in lines] == [
        (each.ref, each.index, each.ts, each.kind, each.episode) for each in there
    ]
    assert [line["parents"] for line in lines] == [list(each.parents) for each in there]
    assert [line["metadata"] for line in lines] == [each.metadata for each in there]
    assert lines[2]["data"] == {"tool_call_id": "a", "tool_name": "look", "result": long}
    assert [line["v"] for line in lines] == [1, 1, 1, 1]


async def test_json_lines_report_an_unreadable_state_in_its_place() -> None:
    store = FaultInjectingStore({1}, unknown={2})
    await a_conversation(store, said("Hi"), said("there"), UserMessageState("you", meta={"a": 1}))
    lines = [json.loads(line) for line in (await joined(as_json_lines(store, KEY))).splitlines()[1:]]
    assert [(line["index"], line["kind"], line["data"]) for line in lines] == [
        (0, "UserMessageState", {"text": "Hi"}),
        (1, "(damaged)", None),
        (2, "NeverHeardOfState", {"text": "you", "meta": {"a": 1}}),
    ]
    assert lines[0]["problem"] is None
    assert "damaged or missing" in lines[1]["problem"]
    assert "import the module that defines it" in lines[2]["problem"]


@pytest.mark.parametrize("form", [as_json_lines, as_text, as_page])
async def test_an_unknown_conversation_or_branch_is_an_error_before_any_output(form: Any) -> None:
    store = MemoryStore()
    with pytest.raises(NoSuchConversation, match=r"no conversation T1:C1:1700000000\.000100 of the agent alpha"):
        await anext(form(store, KEY))
    await a_conversation(store, said("Hi"))
    with pytest.raises(NoSuchBranch, match="no branch 'mian'; existing branches: main"):
        await anext(form(store, KEY, "mian"))


@pytest.mark.parametrize("form", [as_json_lines, as_text, as_page])
async def test_a_long_conversation_is_read_in_pages_during_the_export(form: Any) -> None:
    store = FaultInjectingStore()
    await a_conversation(store, *(said(f"message {n}") for n in range(5000)))
    store.reads.clear()
    pieces = form(store, KEY)
    await anext(pieces)
    await anext(pieces)
    assert len(store.reads) == 1
    rest = await joined(pieces)
    assert "message 4999" in rest
    assert max(stop - start for start, stop in store.reads) <= 500


async def test_text_has_indices_and_results_below_their_calls(in_kolkata: None) -> None:
    store = MemoryStore()
    await a_conversation(
        store,
        said("Look at both"),
        AssistantMessageState(
            [{"type": "thinking", "thinking": "hm\nhm", "signature": "s"}, {"type": "text", "text": "I look."}],
            meta={"usage": {"input_tokens": 1200, "output_tokens": 85, "cost_usd": "0.01"}},
        ),
        called("a", at="roof"),
        called("b", at="cellar"),
        ToolResultState("b", "look", "wet", meta={"is_error": True}),
        ToolResultState("a", "look", {"state": "dry"}, reward=0.8),
    )
    there = [each async for each in artifacts(store)]
    ist = [time.strftime("%H:%M:%S", time.gmtime(each.ts + 5.5 * 3600)) for each in there]
    day = time.strftime("%Y-%m-%d %H:%M", time.gmtime(there[0].ts + 5.5 * 3600))
    assert (await joined(as_text(store, KEY))).splitlines() == [
        "",
        f"── Task 1 ── {day} ──",
        f"     0  {ist[0]}  Person",
        "        Look at both",
        f"     1  {ist[1]}  Agent (tokens: 1,200 in, 85 out; $0.01)",
        "        (thinking) hm hm",
        "        I look.",
        f'     2  {ist[2]}  Calls look {{ "at": "roof" }}',
        f"     5  {ist[5]}  → done (reward 0.8)",
        "        {",
        '          "state": "dry"',
        "        }",
        f'     3  {ist[3]}  Calls look {{ "at": "cellar" }}',
        f"     4  {ist[4]}  → failed",
        "        wet",
    ]


async def test_text_names_the_kind_of_each_message() -> None:
    steer = UserMessageState("- Ana: quick!", meta={"injections": ["m1", "m2"]})
    heads = await text_of(
        said("Hi"),
        steer,
        UserMessageState("…", meta={"results": ["a"]}),
        UserMessageState("…", meta={"notices": 1}),
        UserMessageState("…", meta={"source": "hook"}),
        UserMessageState("…", meta="from a phone"),
        AssistantMessageState("Well?", meta="reflection:look"),
        UserResponseState("Yes"),
    )
    assert [text for _, text in heads] == [
        "Person",
        "Person (while the agent was at work; message m1, m2)",
        "Late result",
        "Notice",
        "Remark of a hook",
        "Person (from a phone)",
        "Judgement (reflection:look)",
        "Person (in response)",
    ]


async def test_text_has_calls_of_agents_waits_and_the_end() -> None:
    heads = await text_of(
        said("Hi"),
        AgentCallState("helper", "Why?", "x"),
        WaitingState("agent", correlation_id="x"),
        AgentResultState("x", "Because.", score=0.9),
        called("a"),
        ToolResultState("a", "look", "still at work", meta={"pending": True, "whole": "…"}),
        called("b"),
        FinishedState(),
    )
    assert heads == [
        (0, "Person"),
        (1, "Asks helper Why?"),
        (3, "→ done (score 0.9)"),
        (2, "[Waiting for another agent (x)]"),
        (4, "Calls look {}"),
        (5, "→ at work (shortened for the model)"),
        (6, "Calls look {}"),
        (7, "[Finished]"),
    ]


async def test_text_of_the_last_states_has_results_without_their_call() -> None:
    states = [said("Hi"), called("a"), brought("a"), AssistantMessageState("So.")]
    assert await text_of(*states, last_n=2) == [
        (2, "Result of look (of the call a)"),
        (3, "Agent"),
    ]
    assert await text_of(*states, last_n=0) == []
    assert len(await text_of(*states, last_n=99)) == 4


async def test_text_has_declared_calls_with_their_results() -> None:
    declared = [{"id": i, "type": "function", "function": {"name": f"do_{i}", "arguments": "{}"}} for i in "ab"]
    heads = await text_of(said("Hi"), AssistantMessageState(None, declared), brought("a"), said("Stop"))
    assert heads == [
        (0, "Person"),
        (1, "Agent"),
        (1, "Calls do_a {}"),
        (2, "→ done"),
        (3, "Person"),
        (1, "Calls do_b {}"),
    ]


@dataclass(slots=True, frozen=True)
class WeatherState(BaseState):
    sky: str


@dataclass(slots=True, frozen=True)
class SystemState(BaseState):
    text: str

    def message(self) -> dict[str, Any]:
        return {"role": "system", "content": self.text}


async def test_custom_states_have_their_message_or_their_fields() -> None:
    store = MemoryStore()
    await a_conversation(store, SystemState("Be kind."), WeatherState("blue"))
    text = await joined(as_text(store, KEY))
    assert re.search(r"     0  .{8}  System message\n        Be kind\.\n", text)
    assert re.search(r'     1  .{8}  \[WeatherState\]\n        \{\n          "sky": "blue"\n        \}\n', text)


async def test_long_texts_are_truncated_with_a_note() -> None:
    store = MemoryStore()
    await a_conversation(store, said("x" * 50_000))
    text, page = await joined(as_text(store, KEY)), await joined(as_page(store, KEY))
    assert "[… 46000 more characters; the JSON lines export has them]" in text
    assert "[… 30000 more characters; the JSON lines export has them]" in page


@settings(max_examples=40, deadline=None)
@given(states=conversations, lost=st.sets(st.integers(0, 25), max_size=3))
async def test_text_has_every_state_once_and_no_control_characters(states: list[BaseState], lost: set[int]) -> None:
    store = FaultInjectingStore(lost)
    await a_conversation(store, said("\x1b[2J\u202e\ud800"), *states)
    text = await joined(as_text(store, KEY))
    assert {character for character in text if category(character) in ("Cc", "Cs")} <= {"\n", "\t"}
    assert "\u202e" not in text
    counts = Counter(int(head[1]) for line in text.split("\n") if (head := HEAD.match(line)))
    assert set(counts) == set(range(len(states) + 1))
    for index, state in enumerate(states, 1):
        # Declared calls that did not start have the index of their answer.
        assert counts[index] == 1 or isinstance(state, AssistantMessageState)
