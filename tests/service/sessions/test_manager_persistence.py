"""What a session manager keeps in the store, and what one after it finds there."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from anthropic_server import AnthropicServer, Gate, message, text, thinking, tool_call
from redis_server import redis_server

from connector import RunFailed, SteeringMessage
from connector.protocols import MessageAuthor
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.states import FinishedState, UserMessageState
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.config.config import ConfigError, InstanceConfig, ModuleConfig, PersonaConfig, WorkspaceConfig
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HERE = "T:C:1.0"
ALPHA = InstanceConfig(persona=PersonaConfig(name="Alpha", emoji=":owl:"))
WATCHING = """
async def mount(coordinator, config):
    async def note(event, data):
        with open(config["file"], "a") as file:
            file.write(event + "\\n")
    for event in ("session:start", "session:resume"):
        coordinator.hooks.register(event, note)
"""


@pytest.fixture
async def model(monkeypatch) -> AsyncIterator[AnthropicServer]:
    """A model that says `fine` whatever it is asked."""
    async with AnthropicServer() as model:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.base_url)
        model.otherwise = lambda _: message(text("fine"))
        yield model


@pytest.fixture
def started(tmp_path):
    """Start a manager over the file of this test."""

    @asynccontextmanager
    async def started(*names: str, **changes) -> AsyncIterator[InProcessSessionManager]:
        instances = dict.fromkeys(names or ("alpha",), ALPHA.model_copy(update=changes))
        workspaces = Workspaces(WorkspaceConfig(root=tmp_path / "files"))
        async with (
            aclosing(await open_store(f"sqlite:{tmp_path}/kept.db")) as store,
            InProcessSessionManager(instances, "provider-anthropic", workspaces, store) as sessions,
        ):
            yield sessions

    return started


@pytest.fixture
async def store(tmp_path) -> AsyncIterator:
    """The same file, for somebody else."""
    async with aclosing(await open_store(f"sqlite:{tmp_path}/kept.db")) as store:
        yield store


class Ends:
    """Remember how runs end."""

    def __init__(self) -> None:
        self.told: list[dict] = []

    async def hear(self, event: str, data: dict) -> None:
        if event == "complete":
            self.told.append(data)


async def test_the_usage_of_a_conversation_counts_the_runs_before_a_restart(model, started):
    ends = Ends()
    for prompt in ("one", "two"):
        async with started() as sessions:
            await sessions.execute("alpha", HERE, prompt, ends.hear)
    first, second = (told["conversation_usage"]["input_tokens"] for told in ends.told)
    assert (first, second) == (10, 20)
    assert ends.told[1]["usage"]["input_tokens"] == 10, "of this run alone"


async def test_thinking_comes_back_with_its_signature(model, started):
    model.reply(thinking("the notes first", signature="signed by the test"), tool_call("list_files"))
    async with started() as sessions:
        await sessions.execute("alpha", HERE, "look")
    async with started() as sessions:
        await sessions.execute("alpha", HERE, "and now?")
    block = model.bodies[-1]["messages"][1]["content"][0]
    assert block == {"type": "thinking", "thinking": "the notes first", "signature": "signed by the test"}


async def test_a_session_that_goes_on_is_resumed_and_a_new_one_is_started(model, started, tmp_path):
    (tmp_path / "watching.py").write_text(WATCHING)
    noted = tmp_path / "noted"
    hook = ModuleConfig(module="watching", source=str(tmp_path / "watching.py"), config={"file": str(noted)})
    events = []
    for conversation in (HERE, HERE, "T:C:2.0"):
        async with started(hooks=(hook,)) as sessions:
            noted.write_text("")  # the check at the start begins a session, too
            await sessions.execute("alpha", conversation, "hello")
            events += noted.read_text().split()
    assert events == ["session:start", "session:resume", "session:start"]


async def test_the_check_at_the_start_and_other_contexts_keep_nothing(model, started, store):
    async with started("alpha", "beta"):
        pass
    async with started(context=ModuleConfig(module="context-simple")) as sessions:
        await sessions.execute("alpha", HERE, "hello")
    assert await store.keys() == []


async def test_a_wrong_option_of_the_context_is_told_at_the_start(model, started):
    context = ModuleConfig(module="context-stack", config={"max_token": 3})
    with pytest.raises(ConfigError, match=r"instances\.alpha: context-stack: there is no 'max_token'"):
        await started(context=context).__aenter__()


async def test_each_step_is_in_the_store_before_the_next_one_begins(model, started, store):
    gate = Gate()
    model.reply(tool_call("list_files"))
    model.reply(gate, text("fine"))
    async with started() as sessions:
        task = asyncio.create_task(sessions.execute("alpha", HERE, "look"))
        await gate.reached.wait()
        stack = InteractionStack(store, HERE, "alpha")
        kinds = [entry.kind async for entry in stack.iter_last_n(9)]
        assert kinds == ["UserMessageState", "AssistantMessageState", "ToolCallState", "ToolResultState"]
        gate.open()
        await task


async def test_a_conversation_that_somebody_changed_during_a_run_says_so_and_goes_on_from_there(model, started, store):
    gate = Gate()
    async with started() as sessions:
        await sessions.execute("alpha", HERE, "one")
        model.reply(gate, text("two it is"))
        task = asyncio.create_task(sessions.execute("alpha", HERE, "two"))
        await gate.reached.wait()
        assert sessions.inject(
            "alpha", HERE, SteeringMessage("T:C:2.0", "and that", MessageAuthor("U0ANA", "Ana"), written_s=2.0)
        )
        await InteractionStack(store, HERE, "alpha").rewind(1)
        gate.open()
        with pytest.raises(RunFailed, match="Another program changed this conversation, so I stopped"):
            await task
        assert await sessions.execute("alpha", HERE, "three") == "fine"
    said = str(model.bodies[-1]["messages"])
    assert [word in said for word in ("one", "two", "and that", "three")] == [True, False, False, True]


async def test_a_conversation_that_is_finished_says_so(model, started, store):
    await InteractionStack(store, HERE, "alpha").push(UserMessageState("one"), FinishedState())
    async with started() as sessions:
        with pytest.raises(RunFailed, match=r"This conversation is finished .* Start a new thread"):
            await sessions.execute("alpha", HERE, "two")


async def test_a_store_that_is_gone_in_the_middle_is_told_in_a_sentence(model, tmp_path):
    store = await open_store(f"sqlite:{tmp_path}/kept.db")
    workspaces = Workspaces(WorkspaceConfig(root=tmp_path / "files"))
    async with InProcessSessionManager({"alpha": ALPHA}, "provider-anthropic", workspaces, store) as sessions:
        await sessions.execute("alpha", HERE, "one")
        await store.aclose()
        with pytest.raises(RunFailed, match="I cannot save this conversation at the moment"):
            await sessions.execute("alpha", HERE, "two")


async def test_a_redis_that_was_away_for_a_while_is_told_and_then_used_again(model, tmp_path):
    workspaces = Workspaces(WorkspaceConfig(root=tmp_path))
    with redis_server("--appendonly", "yes", "--appendfsync", "always") as server:
        async with (
            aclosing(await open_store(server.url)) as store,
            InProcessSessionManager({"alpha": ALPHA}, "provider-anthropic", workspaces, store) as sessions,
        ):
            await sessions.execute("alpha", HERE, "one")
            server.kill()
            with pytest.raises(RunFailed, match="I cannot save this conversation at the moment"):
                await sessions.execute("alpha", HERE, "two")
            server.start()
            assert await sessions.execute("alpha", HERE, "three") == "fine"
    said = str(model.bodies[-1]["messages"])
    assert [word in said for word in ("one", "two", "three")] == [True, False, True]


async def test_a_manager_over_the_same_memory_finds_what_another_one_kept(model, tmp_path):
    store, workspaces = MemoryStore(), Workspaces(WorkspaceConfig(root=tmp_path))
    for prompt in ("one", "two"):
        async with InProcessSessionManager({"alpha": ALPHA}, "provider-anthropic", workspaces, store) as sessions:
            await sessions.execute("alpha", HERE, prompt)
    assert await store.keys() == [Key(HERE, "alpha")]
    assert len(model.bodies[-1]["messages"]) == 3
