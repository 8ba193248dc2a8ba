"""The registry of agents: configurations in a store, and an agent created at its first use."""

import asyncio
from pathlib import Path
from typing import Any

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

ALPHA = LLMAgentConfig(type="llm", id="agent_alpha", llm_model="demo/demo-1", tools=["call_agent"])


class Parrot:
    async def run(self, message: str, conversation_id: str, *, asked_by: str | None = None) -> str:
        return message


class Factory:
    """A factory that records its configurations."""

    def __init__(self) -> None:
        self.configs: list[LLMAgentConfig] = []

    def __call__(self, config: LLMAgentConfig, _registry: AgentRegistry) -> Parrot:
        self.configs.append(config)
        return Parrot()


async def test_the_documents_example() -> None:
    repository, agent_factory = AgentRepository(MemoryStore()), Factory()
    agent, config = Parrot(), ALPHA
    registry = AgentRegistry(repository, agent_factory)
    await registry.register(agent, config)
    assert await registry.get_agent("agent_alpha") is agent
    assert await registry.list_agents() == {"agent_alpha": "llm"}
    assert agent_factory.configs == []


async def test_an_agent_is_created_once_from_its_stored_configuration(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:{tmp_path / 'logs.db'}")
    await AgentRegistry(AgentRepository(store), Factory()).register(Parrot(), ALPHA)
    await store.aclose()

    store = await open_store(f"sqlite:{tmp_path / 'logs.db'}")
    factory = Factory()
    registry = AgentRegistry(AgentRepository(store), factory)
    assert await registry.list_agents() == {"agent_alpha": "llm"}
    agents = await asyncio.gather(*(registry.get_agent("agent_alpha") for _ in range(20)))
    assert len({id(agent) for agent in agents}) == 1
    assert factory.configs == [ALPHA]
    await store.aclose()


async def test_an_id_is_unique_until_it_is_unregistered() -> None:
    registry = AgentRegistry(AgentRepository(MemoryStore()), Factory())
    agent = Parrot()
    await registry.register(agent, ALPHA)
    await registry.register(agent, ALPHA)
    with pytest.raises(AlreadyRegistered, match="There is an agent 'agent_alpha' already: unregister it first"):
        await registry.register(Parrot(), ALPHA)
    await registry.unregister("agent_alpha")
    assert await registry.list_agents() == {}
    await registry.register(Parrot(), ALPHA)


async def test_a_configuration_that_cannot_be_stored_changes_nothing() -> None:
    class FillingStore(MemoryStore):
        full = True

        async def save_agent(self, agent_id: str, config: str) -> None:
            if self.full:
                raise StoreError("The disk is full.")
            await super().save_agent(agent_id, config)

    store, agent = FillingStore(), Parrot()
    registry = AgentRegistry(AgentRepository(store), Factory())
    with pytest.raises(StoreError, match="The disk is full"):
        await registry.register(agent, ALPHA)
    with pytest.raises(NotRegistered):
        await registry.get_agent("agent_alpha")
    store.full = False
    await registry.register(agent, ALPHA)
    store.full = True
    with pytest.raises(StoreError):
        await registry.register(agent, ALPHA)
    assert await registry.get_agent("agent_alpha") is agent


async def test_the_error_of_an_unknown_agent_names_the_registered_ones() -> None:
    registry = AgentRegistry(AgentRepository(MemoryStore()), Factory())
    await registry.register(Parrot(), ALPHA)
    for asking in (registry.get_agent, registry.unregister):
        with pytest.raises(NotRegistered, match=r"There is no agent 'agent_beta'. Registered: agent_alpha\."):
            await asking("agent_beta")


async def test_an_object_without_run_is_refused() -> None:
    registry = AgentRegistry(AgentRepository(MemoryStore()), Factory())
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
async def test_an_invalid_stored_configuration_does_not_affect_other_agents(stored: str, sentence: str) -> None:
    store = MemoryStore()
    await store.save_agent("old", stored)
    registry = AgentRegistry(AgentRepository(store), Factory())
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
            {"llm_model": "gemini/pro"},
            "no provider 'gemini' for the model 'gemini/pro'. There are: anthropic, demo, openai",
        ),
        ({"tools": ["fly"]}, "There is no tool 'fly'"),
        ({"behavior_template": "{% if %}"}, "Agent 'a': The template cannot be read, line 1"),
        ({"behavior_template": "terse.md"}, "Agent 'a': There is no template 'terse.md'"),
        ({"render_policy": "shiny"}, "There is no render policy 'shiny'"),
    ],
    ids=["provider", "tool", "template", "template's name", "policy"],
)
async def test_the_error_names_the_invalid_part_of_a_configuration(config: dict[str, Any], sentence: str) -> None:
    store = MemoryStore()
    repository = AgentRepository(store)
    await repository.save(LLMAgentConfig.model_validate({"type": "llm", "id": "a", "llm_model": "demo/x", **config}))
    with pytest.raises(RegistryError) as refused:
        await AgentRegistry(repository, LLMAgents(store)).get_agent("a")
    assert sentence in str(refused.value)
