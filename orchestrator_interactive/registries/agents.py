"""Agents by id, and their configurations in the log store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from orchestrator_interactive.config import validate
from orchestrator_interactive.json_limits import parse_json
from orchestrator_interactive.registries.schemas import (
    AlreadyRegistered,
    LLMAgentConfig,
    RegistryError,
    not_registered,
)

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.stores.base import LogStore


@runtime_checkable
class Agent(Protocol):
    async def run(self, message: str, conversation_id: str, *, asked_by: str | None = None) -> str:
        """Answer a message; `asked_by` is the ref of the calling agent's request, if any."""
        ...


# Creates an agent from its configuration, for this registry.
AgentFactory = Callable[[LLMAgentConfig, "AgentRegistry"], Agent]


class AgentRepository:
    """The configurations of agents in a log store."""

    def __init__(self, store: LogStore) -> None:
        self._store = store

    async def save(self, config: LLMAgentConfig) -> None:
        """Store a configuration; replaces one with the same id."""
        await self._store.save_agent(config.id, config.model_dump_json())

    async def load(self, agent_id: str) -> LLMAgentConfig:
        """Load the configuration of an agent.

        Raises:
            NotRegistered: there is none; the message lists the registered ids.
            RegistryError: it is malformed.
        """
        kept = await self._store.agents()
        if agent_id not in kept:
            raise not_registered("agent", agent_id, kept)
        try:
            return validate(LLMAgentConfig, _parsed(kept[agent_id]), f"The stored configuration of agent '{agent_id}'")
        except ValueError as e:
            raise RegistryError(f"{e} Register the agent anew.") from e

    async def types(self) -> dict[str, str]:
        """Return the types of all agents, by id."""
        kept = await self._store.agents()
        return {agent_id: str(_parsed(config).get("type", "(damaged)")) for agent_id, config in kept.items()}

    async def forget(self, agent_id: str) -> None:
        await self._store.forget_agent(agent_id)


class AgentRegistry:
    """Agents by id. An agent is created from its stored configuration on first use."""

    def __init__(self, repository: AgentRepository, agent_factory: AgentFactory) -> None:
        self._repository = repository
        self._make = agent_factory
        self._agents: dict[str, Agent] = {}

    async def register(self, agent: Agent, config: LLMAgentConfig) -> None:
        """Add an agent and store its configuration; replaces a stored one with the same id.

        Raises:
            AlreadyRegistered: another agent with this id is registered in this process.
            TypeError: it is not an agent.
        """
        if not isinstance(agent, Agent):
            raise TypeError(f"{agent!r} is no agent: it needs `async run(message, conversation_id, *, asked_by)`.")
        before = self._agents.get(config.id)
        if before not in (None, agent):
            raise AlreadyRegistered(f"There is an agent '{config.id}' already: unregister it first.")
        self._agents[config.id] = agent
        with ExitStack() as undo:
            if before is None:
                undo.callback(self._agents.pop, config.id, None)
            await self._repository.save(config)
            undo.pop_all()

    async def get_agent(self, agent_id: str) -> Agent:
        """Return the agent with this id.

        Raises:
            NotRegistered: there is none; the message lists the registered ids.
            RegistryError: its configuration is malformed or invalid.
        """
        if agent_id not in self._agents:
            config = await self._repository.load(agent_id)
            if agent_id not in self._agents:  # else a concurrent call created it
                self._agents[agent_id] = self._make(config, self)
        return self._agents[agent_id]

    async def list_agents(self) -> dict[str, str]:
        """Return the types of all agents, by id."""
        return await self._repository.types()

    async def unregister(self, agent_id: str) -> None:
        """Forget an agent and its configuration; its conversations stay.

        Raises:
            NotRegistered: there is no agent with this id.
        """
        there = await self._repository.types()
        if agent_id not in there:
            raise not_registered("agent", agent_id, there)
        await self._repository.forget(agent_id)
        self._agents.pop(agent_id, None)


def _parsed(config: str) -> dict[str, Any]:
    """Return the fields of a stored configuration; empty if it is malformed."""
    try:
        given = parse_json(config)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}
