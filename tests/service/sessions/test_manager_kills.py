"""After a kill at any commit, the next message continues from the committed rows."""

from __future__ import annotations

import asyncio
import copy

import pytest
from anthropic_server import Gate, text, thinking, tool_call
from session_tests import HERE, steering

from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.config.config import ModuleConfig

SUMMARY = ModuleConfig(module="context-stack", config={"max_tokens": 4000, "strategy": "summary"})


class SnapshotStore(MemoryStore):
    """Copies its content after each commit, as a process finds it that starts after a kill."""

    def __init__(self):
        super().__init__()
        self.snapshots = []

    async def commit(self, key, change):
        await super().commit(key, change)
        snapshot = MemoryStore()
        content = {name: value for name, value in vars(self).items() if name != "snapshots"}
        vars(snapshot).update(copy.deepcopy(content))
        self.snapshots.append(snapshot)


@pytest.fixture
def assert_continues(model, manager):
    """Continue a conversation from a snapshot; return the messages of the request."""

    async def check(snapshot, **fields):
        async with manager(store=snapshot, **fields) as sessions:
            assert await sessions.execute("alpha", HERE, "and now?") == "fine"
        messages = model.bodies[-1]["messages"]
        calls = set()
        for each in messages:  # a provider refuses a call without a result directly after it, and any other result
            assert {block["tool_use_id"] for block in each["content"] if block["type"] == "tool_result"} == calls
            calls = {block["id"] for block in each["content"] if block["type"] == "tool_use"}
        assert not calls
        return messages

    return check


async def test_a_run_with_thinking_parallel_tools_and_injected_messages(model, manager, assert_continues):
    store, half = SnapshotStore(), Gate()
    write = tool_call("write_file", {"path": "a", "content": "b"})
    model.reply(thinking("first"), text("I look."), tool_call("list_files"), write)
    model.reply(text("Half ", half, "done."), tool_call("todo", {"action": "show"}))
    model.reply(text("Done."))
    async with manager(store=store) as sessions:
        run = asyncio.create_task(sessions.execute("alpha", HERE, "the task"))
        await half.reached.wait()
        assert sessions.inject("alpha", HERE, **steering("T:C:2.0"))
        half.open()
        assert await run == "Done."
        model.reply(tool_call("list_files"))
        await sessions.execute("alpha", HERE, "another task")
    assert len(store.snapshots) > 8
    for snapshot in store.snapshots:
        messages = await assert_continues(snapshot)
        assert [each["role"] for each in messages[:2]] in (["user"], ["user", "assistant"])
        assert messages[0]["content"][0]["text"] == "the task"
        assert messages[-1]["content"][-1]["text"] == "and now?"


async def test_a_summarised_conversation(model, manager, assert_continues):
    store = SnapshotStore()
    async with manager(store=store, context=SUMMARY) as sessions:
        for number in range(8):
            await sessions.execute("alpha", HERE, f"{number} {'words ' * 400}")
    for snapshot in store.snapshots[::5]:
        await assert_continues(snapshot, context=SUMMARY)
