"""Scripted agents of an agent registry, with one store for all logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents import ScriptedProvider

from orchestrator_interactive.interactions import InteractionStack, StackEntry
from orchestrator_interactive.interactions.states import BaseState
from orchestrator_interactive.interactions.stores.base import LogStore
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.registries import AgentRegistry, AgentRepository, LLMAgents, ToolRegistry, call_agent
from orchestrator_interactive.registries.schemas import LLMAgentConfig


class RegistryFixture:
    """A registry of agents; the model "script/NAME" follows the script of this name."""

    def __init__(self, store: LogStore | None = None, tools: Sequence[Any] = (), **parts: Any) -> None:
        self.store = store or MemoryStore()
        self.scripts: dict[str, ScriptedProvider] = {}
        self.tools = ToolRegistry([call_agent, *tools])
        self.repository = AgentRepository(self.store)
        providers = {"script": lambda name: self.scripts[name]}
        self.make = LLMAgents(self.store, self.tools, providers, **parts)
        self.registry = AgentRegistry(self.repository, self.make)

    async def add(self, agent_id: str, *steps: Any, **config: Any) -> ScriptedProvider:
        """Store an agent's configuration, and its script."""
        self.scripts[agent_id] = ScriptedProvider(*steps, name=agent_id)
        await self.repository.save(LLMAgentConfig(type="llm", id=agent_id, llm_model=f"script/{agent_id}", **config))
        return self.scripts[agent_id]

    async def run(self, agent_id: str, message: str = "go", conversation_id: str = "talk") -> str:
        agent = await self.registry.get_agent(agent_id)
        return await agent.run(message, conversation_id)

    async def log(self, agent_id: str, conversation_id: str = "talk") -> list[StackEntry]:
        """Return the entries of an agent's log."""
        stack = InteractionStack(self.store, conversation_id, agent_id)
        return [entry async for entry in stack.iter_last_n(await stack.length())]

    async def states(self, kind: type[BaseState], agent_id: str, conversation_id: str = "talk") -> list[Any]:
        """Return the states of one type in an agent's log."""
        return [e.state for e in await self.log(agent_id, conversation_id) if isinstance(e.state, kind)]

    async def conversations(self, agent_id: str) -> list[str]:
        """Return the conversations of an agent, the latest first."""
        return [key.conversation_id for key in await self.store.keys() if key.agent_id == agent_id]
