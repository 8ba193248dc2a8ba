"""The registry of agents: made when they are asked for, kept in the store, there again after a restart."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.registries import (
    AgentRegistry,
    AgentRepository,
    AlreadyRegistered,
    LLMAgents,
    NotRegistered,
    RegistryError,
)
from orchestrator_interactive.registries.schemas import LLMAgentConfig
from orchestrator_interactive.storage.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

ALPHA = LLMAgentConfig(type="llm", id="agent_alpha", llm_model="demo/demo-1", tools=["call_agent"])


class Parrot:
    async def run(self, message: str, conversation_id: str, *, asked_by: str | None = None) -> str:
        return message


class Made:
    """A factory that keeps what it was given."""

    def __init__(self) -> None:
        self.configs: list[LLMAgentConfig] = []

    def __call__(self, config: LLMAgentConfig, _registry: AgentRegistry) -> Parrot:
        self.configs.append(config)
        return Parrot()


async def test_the_documents_example() -> None:
    repository, agent_factory = AgentRepository(MemoryStore()), Made()
    agent, config = Parrot(), ALPHA
    registry = AgentRegistry(repository, agent_factory)
    await registry.register(agent, config)
    assert await registry.get_agent("agent_alpha") is agent
    assert await registry.list_agents() == {"agent_alpha": "llm"}
    assert agent_factory.configs == []


async def test_an_agent_is_there_again_after_a_restart_made_of_its_configuration(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:{tmp_path / 'logs.db'}")
    await AgentRegistry(AgentRepository(store), Made()).register(Parrot(), ALPHA)
    await store.aclose()

    store = await open_store(f"sqlite:{tmp_path / 'logs.db'}")
    made = Made()
    registry = AgentRegistry(AgentRepository(store), made)
    assert await registry.list_agents() == {"agent_alpha": "llm"}
    first, second = await registry.get_agent("agent_alpha"), await registry.get_agent("agent_alpha")
    assert first is second
    assert made.configs == [ALPHA]
    await store.aclose()


async def test_an_agent_is_made_once_however_many_ask_for_it_at_once(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:{tmp_path / 'logs.db'}")
    repository, made = AgentRepository(store), Made()
    await repository.save(ALPHA)
    registry = AgentRegistry(repository, made)
    agents = await asyncio.gather(*(registry.get_agent("agent_alpha") for _ in range(20)))
    assert len({id(agent) for agent in agents}) == len(made.configs) == 1
    await store.aclose()


async def test_an_id_belongs_to_one_agent_until_it_is_unregistered() -> None:
    registry = AgentRegistry(AgentRepository(MemoryStore()), Made())
    agent = Parrot()
    await registry.register(agent, ALPHA)
    await registry.register(agent, ALPHA)
    with pytest.raises(AlreadyRegistered, match="There is an agent 'agent_alpha' already: unregister it first"):
        await registry.register(Parrot(), ALPHA)
    await registry.unregister("agent_alpha")
    assert await registry.list_agents() == {}
    await registry.register(Parrot(), ALPHA)


async def test_an_agent_stays_registered_whose_new_configuration_cannot_be_kept() -> None:
    class FillingStore(MemoryStore):
        full = False

        async def save_agent(self, agent_id: str, config: str) -> None:
            if self.full:
                raise StoreError("The disk is full.")
            await super().save_agent(agent_id, config)

    store, agent = FillingStore(), Parrot()
    registry = AgentRegistry(AgentRepository(store), Made())
    await registry.register(agent, ALPHA)
    store.full = True
    with pytest.raises(StoreError, match="The disk is full"):
        await registry.register(agent, ALPHA)
    assert await registry.get_agent("agent_alpha") is agent


async def test_an_agent_whose_configuration_cannot_be_kept_is_not_registered() -> None:
    class FullStore(MemoryStore):
        async def save_agent(self, agent_id: str, config: str) -> None:
            raise StoreError("The disk is full.")

    registry = AgentRegistry(AgentRepository(FullStore()), Made())
    with pytest.raises(StoreError, match="The disk is full"):
        await registry.register(Parrot(), ALPHA)
    with pytest.raises(NotRegistered):
        await registry.get_agent("agent_alpha")


async def test_an_unknown_agent_is_told_with_those_that_there_are() -> None:
    registry = AgentRegistry(AgentRepository(MemoryStore()), Made())
    await registry.register(Parrot(), ALPHA)
    for asking in (registry.get_agent, registry.unregister):
        with pytest.raises(NotRegistered, match=r"There is no agent 'agent_beta'. Registered: agent_alpha\."):
            await asking("agent_beta")


async def test_what_is_no_agent_is_refused_and_not_kept() -> None:
    registry = AgentRegistry(AgentRepository(MemoryStore()), Made())
    with pytest.raises(TypeError, match="is no agent: it needs `async run"):
        await registry.register(object(), ALPHA)  # type: ignore[arg-type]
    assert await registry.list_agents() == {}


@pytest.mark.parametrize(
    ("stored", "sentence"),
    [
        ('{"type": "llm", "id": "old", "mood": 3}', "there is no 'mood'; there are: type, id"),
        ('{"type": "llm"', "'type' is missing. 'id' is missing. Register the agent anew"),
        ("[]", "'type' is missing. 'id' is missing. Register the agent anew"),
    ],
)
async def test_a_configuration_that_cannot_be_read_is_told_and_takes_no_other_along(stored: str, sentence: str) -> None:
    store = MemoryStore()
    await store.save_agent("old", stored)
    registry = AgentRegistry(AgentRepository(store), Made())
    await registry.register(Parrot(), ALPHA)
    with pytest.raises(RegistryError, match="The stored configuration of agent 'old'") as refused:
        await registry.get_agent("old")
    assert sentence in str(refused.value)
    assert await registry.get_agent("agent_alpha")
    assert (await registry.list_agents())["agent_alpha"] == "llm"
    await registry.unregister("old")
    assert await registry.list_agents() == {"agent_alpha": "llm"}


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            {"llm_model": "openai/gpt-4o"},
            "no provider 'openai' for the model 'openai/gpt-4o'. There are: anthropic, demo",
        ),
        ({"tools": ["fly"]}, "There is no tool 'fly'"),
        ({"behavior_template": "{% if %}"}, "Agent 'a': The template cannot be read, line 1"),
        ({"behavior_template": "terse.md"}, "Agent 'a': There is no template 'terse.md'"),
        ({"render_policy": "shiny"}, "There is no render policy 'shiny'"),
    ],
    ids=["provider", "tool", "template", "template's name", "policy"],
)
async def test_a_configuration_of_which_no_agent_can_be_made_is_told(config: dict[str, Any], sentence: str) -> None:
    store = MemoryStore()
    repository = AgentRepository(store)
    await repository.save(LLMAgentConfig.model_validate({"type": "llm", "id": "a", "llm_model": "demo/x", **config}))
    with pytest.raises(RegistryError) as refused:
        await AgentRegistry(repository, LLMAgents(store)).get_agent("a")
    assert sentence in str(refused.value)
