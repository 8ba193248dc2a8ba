"""Whenever the process is killed, the next message goes on from what was written by then."""

from __future__ import annotations

import asyncio
import copy
from typing import TYPE_CHECKING, Any

import pytest
from anthropic_server import AnthropicServer, Gate, message, text, thinking, tool_call

from connector import SteeringMessage
from connector.protocols import MessageAuthor
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.config.config import InstanceConfig, ModuleConfig, PersonaConfig, WorkspaceConfig
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.interactions.stores.base import Change

HERE = "T:C:1.0"
SUMMING_UP = ModuleConfig(module="context-stack", config={"max_tokens": 4000, "strategy": "summary"})


class Photographed(MemoryStore):
    """Remembers what was in it after each commit: that is what a process finds that was killed then."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures: list[MemoryStore] = []

    async def commit(self, key: Key, change: Change) -> None:
        await super().commit(key, change)
        picture = MemoryStore()
        vars(picture).update({name: copy.deepcopy(value) for name, value in vars(self).items() if name != "pictures"})
        self.pictures.append(picture)


@pytest.fixture
async def model(monkeypatch) -> AsyncIterator[AnthropicServer]:
    """A model that says `fine` whatever it is asked."""
    async with AnthropicServer() as model:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.base_url)
        model.otherwise = lambda _: message(text("fine"))
        yield model


@pytest.fixture
def manager(tmp_path):
    def manager(store: MemoryStore, **changes: Any) -> InProcessSessionManager:
        instance = InstanceConfig(persona=PersonaConfig(name="Alpha", emoji=":owl:"), **changes)
        workspaces = Workspaces(WorkspaceConfig(root=tmp_path))
        return InProcessSessionManager({"alpha": instance}, "provider-anthropic", workspaces, store)

    return manager


def unanswered(messages: list[dict[str, Any]]) -> set[str]:
    """The calls whose results do not follow at once, and the results of no call: a provider refuses both."""
    wrong: set[str] = set()
    asked: set[str] = set()
    for each in messages:
        results = {block["tool_use_id"] for block in each["content"] if block["type"] == "tool_result"}
        wrong |= results ^ asked
        asked = {block["id"] for block in each["content"] if block["type"] == "tool_use"}
    return wrong | asked


async def test_a_run_with_thinking_tools_side_by_side_and_people_who_write_meanwhile(model, manager):
    store, half = Photographed(), Gate()
    model.reply(
        thinking("first"),
        text("I look."),
        tool_call("list_files"),
        tool_call("write_file", {"path": "a", "content": "b"}),
    )
    model.reply(text("Half ", half, "done."), tool_call("todo", {"action": "show"}))
    model.reply(text("Done."))
    async with manager(store) as sessions:
        run = asyncio.create_task(sessions.execute("alpha", HERE, "the task"))
        await half.reached.wait()
        assert sessions.inject(
            "alpha", HERE, SteeringMessage("T:C:2.0", "and that", MessageAuthor("U0ANA", "Ana"), written_s=2.0)
        )
        half.open()
        assert await run == "Done."
        model.reply(tool_call("list_files"))
        await sessions.execute("alpha", HERE, "another task")
    assert len(store.pictures) > 8
    for picture in store.pictures:
        async with manager(picture) as sessions:
            assert await sessions.execute("alpha", HERE, "and now?") == "fine"
        messages = model.bodies[-1]["messages"]
        assert not unanswered(messages)
        assert [each["role"] for each in messages[:2]] in (["user"], ["user", "assistant"])
        assert messages[0]["content"][0]["text"] == "the task"
        assert messages[-1]["content"][-1]["text"] == "and now?"


async def test_a_run_that_was_stopped_and_one_that_failed(model, manager):
    store, half = Photographed(), Gate()
    model.reply(text("I begin ", half), tool_call("list_files"))
    model.fail(400, "invalid_request_error")
    async with manager(store) as sessions:
        run = asyncio.create_task(sessions.execute("alpha", HERE, "the task"))
        await half.reached.wait()
        sessions.stop("alpha", HERE)
        await run
        with pytest.raises(Exception, match="refused the request"):
            await sessions.execute("alpha", HERE, "once more")
    for picture in store.pictures:
        async with manager(picture) as sessions:
            assert await sessions.execute("alpha", HERE, "and now?") == "fine"
        assert not unanswered(model.bodies[-1]["messages"])


async def test_a_conversation_that_had_become_too_long(model, manager):
    store = Photographed()
    async with manager(store, context=SUMMING_UP) as sessions:
        for number in range(8):
            await sessions.execute("alpha", HERE, f"{number} {'words ' * 400}")
    for picture in store.pictures[::5]:
        async with manager(picture, context=SUMMING_UP) as sessions:
            assert await sessions.execute("alpha", HERE, "and now?") == "fine"
        assert not unanswered(model.bodies[-1]["messages"])
