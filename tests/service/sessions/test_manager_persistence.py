"""The conversation log in the store, across restarts of the manager and after a kill at any commit."""

from __future__ import annotations

import asyncio
import copy
from contextlib import aclosing

import pytest
from anthropic_server import Gate, text, thinking, tool_call
from session_tests import HERE, steering

from connector import RunFailed
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.states import FinishedState, RunFinishedState, UserMessageState
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.config.config import ModuleConfig

SUMMARY = ModuleConfig(module="context-stack", config={"max_tokens": 4000, "strategy": "summary"})
NOTES_EVENTS = """
async def mount(coordinator, config):
    async def note(event, data):
        with open(config["file"], "a") as file:
            file.write(event + "\\n")
    for event in ("session:start", "session:resume"):
        coordinator.hooks.register(event, note)
"""


@pytest.fixture
async def store(sqlite_url):
    """The store of `started`, opened by another program."""
    async with aclosing(await open_store(sqlite_url)) as store:
        yield store


async def test_thinking_is_restored_with_its_signature(model, started):
    model.reply(thinking("the notes first", signature="signed by the test"), tool_call("list_files"))
    for prompt in ("look", "and now?"):
        async with started() as sessions:
            await sessions.execute("alpha", HERE, prompt)
    block = model.bodies[-1]["messages"][1]["content"][0]
    assert block == {"type": "thinking", "thinking": "the notes first", "signature": "signed by the test"}


async def test_a_conversation_with_a_log_is_resumed_and_a_new_one_started(model, started, tmp_path):
    (tmp_path / "notes.py").write_text(NOTES_EVENTS)
    noted = tmp_path / "noted"
    hook = ModuleConfig(module="notes", source=str(tmp_path / "notes.py"), config={"file": str(noted)})
    events = []
    for conversation in (HERE, HERE, "T:C:2.0"):
        async with started(hooks=(hook,)) as sessions:
            noted.write_text("")
            await sessions.execute("alpha", conversation, "hello")
            events += noted.read_text().split()
    assert events == ["session:start", "session:resume", "session:start"]


async def test_a_context_without_a_log_writes_none(model, started, store):
    async with started(context=ModuleConfig(module="context-simple")) as sessions:
        await sessions.execute("alpha", HERE, "hello")
    assert await store.keys() == []


async def test_each_step_is_committed_before_the_next_one_starts(model, started, store):
    gate = Gate()
    model.reply(tool_call("list_files"))
    model.reply(gate, text("fine"))
    async with started() as sessions:
        run = asyncio.create_task(sessions.execute("alpha", HERE, "look"))
        await gate.reached.wait()
        kinds = [entry.kind async for entry in InteractionStack(store, HERE, "alpha").iter_last_n(9)]
        assert kinds == ["UserMessageState", "AssistantMessageState", "ToolCallState", "ToolResultState"]
        gate.open()
        await run


async def test_a_finished_conversation_refuses_a_run(model, started, store):
    await InteractionStack(store, HERE, "alpha").push(UserMessageState("one"), FinishedState())
    async with started() as sessions:
        with pytest.raises(RunFailed, match=r"This conversation is finished .* Start a new thread"):
            await sessions.execute("alpha", HERE, "two")


async def test_a_redis_outage_fails_a_run_and_the_next_one_succeeds(model, manager, durable_redis):
    async with aclosing(await open_store(durable_redis.url)) as store, manager(store=store) as sessions:
        await sessions.execute("alpha", HERE, "one")
        durable_redis.kill()
        with pytest.raises(RunFailed, match="I cannot save this conversation at the moment"):
            await sessions.execute("alpha", HERE, "two")
        durable_redis.start()
        assert await sessions.execute("alpha", HERE, "three") == "fine"
    sent = str(model.bodies[-1]["messages"])
    assert [word in sent for word in ("one", "two", "three")] == [True, False, True]


async def test_a_manager_over_the_same_memory_store_continues_the_conversation(model, manager):
    store = MemoryStore()
    for prompt in ("one", "two"):
        async with manager(store=store) as sessions:
            await sessions.execute("alpha", HERE, prompt)
    assert await store.keys() == [Key(HERE, "alpha")]
    assert len(model.bodies[-1]["messages"]) == 3


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


async def test_a_run_with_tools_and_injected_messages_continues_after_a_kill_at_any_commit(
    model, manager, assert_continues
):
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


async def test_each_run_has_one_recorded_end_after_a_kill_at_any_commit_and_a_resume(model, manager):
    store = SnapshotStore()
    model.reply(tool_call("list_files"))
    async with manager(store=store) as sessions:
        await sessions.execute("alpha", HERE, "one")
        await sessions.execute("alpha", HERE, "two")
    assert len(store.snapshots) == 8
    for snapshot in store.snapshots:
        for _ in range(2):  # it is killed again before it can note that the run is over
            async with manager(store=snapshot) as sessions:
                assert await sessions.resume("alpha", HERE) == "fine"
        stack = InteractionStack(snapshot, HERE, "alpha")
        states = [entry.state async for entry in stack.iter_last_n(await stack.length())]
        ends = [type(each) for each in states if isinstance(each, UserMessageState | FinishedState)]
        assert ends in ([UserMessageState, RunFinishedState], [UserMessageState, RunFinishedState] * 2)
        assert isinstance(states[-1], FinishedState)
    assert "Finished" not in str(model.bodies)


async def test_a_run_that_has_failed_is_not_run_again_by_a_resume(model, manager):
    store = MemoryStore()
    async with manager(store=store) as sessions:
        model.fail(400, "invalid_request_error")
        with pytest.raises(RunFailed, match="refused the request"):
            await sessions.execute("alpha", HERE, "one")
        asked = len(model.bodies)
        with pytest.raises(RunFailed, match="I was interrupted"):
            await sessions.resume("alpha", HERE)
        assert len(model.bodies) == asked
        assert await sessions.execute("alpha", HERE, "two") == "fine"


async def test_a_summarised_conversation_continues_after_a_kill(model, manager, assert_continues):
    store = SnapshotStore()
    async with manager(store=store, context=SUMMARY) as sessions:
        for number in range(8):
            await sessions.execute("alpha", HERE, f"{number} {'words ' * 400}")
    for snapshot in store.snapshots[::5]:
        await assert_continues(snapshot, context=SUMMARY)
