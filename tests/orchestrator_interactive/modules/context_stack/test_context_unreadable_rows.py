"""An unreadable row of a log is omitted and reported, and the conversation continues."""

import json
from typing import Any

import pytest
from agents import ScriptedProvider, faults, say
from stored_logs import TREE
from structlog.testing import capture_logs

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.records import Flow, Key, Node
from orchestrator_interactive.interactions.serializers import encode
from orchestrator_interactive.interactions.states import UserMessageState
from orchestrator_interactive.interactions.stores.base import Change, LogStore
from orchestrator_interactive.kernel import AmplifierSession
from service.sessions.logged_ids import logged_ids

KEY = Key("c", "agent")
DEEP = '{"a": ' * 700 + "1" + "}" * 700
DEEPER = "[" * 50_000 + "]" * 50_000
CALL = f'{{"type": "tool_call", "id": "t", "name": "note", "input": {DEEP}}}'
# A call with deeply nested arguments, and invalid states.
ODD = {
    "a deep call": [
        ("AssistantMessageState", f'{{"content": [{CALL}]}}'),
        ("ToolCallState", f'{{"id": "t", "function_name": "note", "arguments": {DEEP}}}'),
    ],
    "a result": [("ToolResultState", f'{{"tool_call_id": "t", "tool_name": null, "result": {DEEP}}}')],
    "deeper than any parser reads": [("UserMessageState", f'{{"content": {DEEPER}}}')],
    "no object": [("RowState", '{"row": [1]}')],
    "without a role": [("RowState", '{"row": {"content": "x"}}')],
    "a role that is none": [("RowState", '{"row": {"role": {}, "content": "x"}}')],
    "calls that are none": [("AssistantMessageState", '{"content": "x", "tool_calls": 5}')],
    "calls of another kind": [("AssistantMessageState", '{"content": "x", "tool_calls": [5, null, "t"]}')],
    "metadata that are none": [("UserMessageState", '{"content": "x", "meta": [1]}')],
    "content of any kind": [
        ("AssistantMessageState", '{"content": {"x": [1]}}'),
        ("UserMessageState", '{"content": 5}'),
    ],
    "a view of nothing": [("ViewState", '{"view": {"rows": 5}}'), ("ViewState", '{"view": [[1]]}')],
    "a view of rows that are not there": [
        ("ViewState", '{"view": {"rows": [99], "shown": [99], "since": 99, "summary": null}}')
    ],
}


async def plant(store: LogStore, written: list[tuple[str, str]]) -> None:
    """Write a log with a user message, these states and another user message."""
    before, after = (encode(UserMessageState(text, {"message": text})) for text in ("before", "after"))
    odd = [{"v": 1, "t": kind, "ts": 1000.0, "data": data, "compressed": False} for kind, data in written]
    envelopes: list[Any] = [before, *odd, after]
    nodes = [Node(0, n, each, 1, Flow(each["t"])) for n, each in enumerate(envelopes)]
    await store.commit(KEY, Change(0, len(nodes), 1000.0, TREE.with_end(len(nodes), 1000.0), nodes))


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
async def test_the_conversation_continues_without_an_unreadable_row(store, odd: list[tuple[str, str]]) -> None:
    await plant(store, odd)
    context = {"module": "context-stack", "config": {"conversation_id": "c"}}
    session = AmplifierSession({"session": {"orchestrator": {"module": "loop-interactive"}, "context": context}})
    session.coordinator.register_capability("interactions.store", store)
    async with session:
        provider = ScriptedProvider(say("ok"), say("again"))
        await session.coordinator.mount("providers", provider)
        assert await session.execute("next") == "ok"
        sent = json.dumps([str(each.content) for each in provider.requests[0].messages])
        assert "before" in sent
        assert "after" in sent
        assert await session.execute("more") == "again"
        history = await session.coordinator.get("context").get_messages()
        assert faults([row for row in history if row["content"] in ("before", "after", "next", "more")]) == []


@pytest.mark.parametrize("name", ["a deep call", "deeper than any parser reads"])
async def test_an_unreadable_row_is_logged_and_reported_by_doctor(store: LogStore, name: str) -> None:
    await plant(store, ODD[name])
    stack = InteractionStack(store, KEY.conversation_id, KEY.agent_id)
    problems = [entry.problem async for entry in stack.iter_last_n(10) if entry.state is None]
    assert len(problems) == len(ODD[name])
    assert all("damaged" in str(problem) for problem in problems)
    found = await logged_ids(store, KEY)
    assert found is not None
    assert list(found.damaged.values()) == [tuple(range(1, len(ODD[name]) + 1))]
    assert found.every == {"before", "after"}
    context = {"module": "context-stack", "config": {"conversation_id": "c"}}
    session = AmplifierSession({"session": {"orchestrator": {"module": "loop-interactive"}, "context": context}})
    session.coordinator.register_capability("interactions.store", store)
    async with session:
        with capture_logs() as logs:
            await session.coordinator.get("context").get_messages()
    assert [each["event"] for each in logs].count("log.state_unreadable") == len(ODD[name])


@pytest.mark.parametrize("levels", [140, 600, 5000])
async def test_a_deeply_nested_row_is_refused(store: LogStore, levels: int) -> None:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    stack = InteractionStack(store, KEY.conversation_id, KEY.agent_id)
    with pytest.raises(ValueError, match=r"nested|recursion"):
        await stack.push(UserMessageState([{"type": "text", "deep": value}]))
    assert await stack.length() == 0
