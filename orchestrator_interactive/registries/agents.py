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
    from collections.abc import Mapping

    from orchestrator_interactive.interactions.stores.base import LogStore


@runtime_checkable
class Agent(Protocol):
    async def run(self, message: str, conversation_id: str, *, asked_by: str | None = None) -> str:
        """Answer a message; `asked_by` is the ref of the calling agent's request, if any.

        Raises:
            AgentStopped: it ended early because the session that it works for was stopped.
        """
        ...


# Time limit of an answer to another agent, in seconds: less than that of a tool call in the loop.
ANSWER_TIMEOUT_S = 540.0

# Creates an agent from its configuration, for this registry.
AgentFactory = Callable[[LLMAgentConfig, "AgentRegistry"], Agent]


class AgentRepository:
    """The configurations of agents: those in a log store, and `configured` ones by id, which take precedence."""

    def __init__(self, store: LogStore, configured: Mapping[str, LLMAgentConfig] | None = None) -> None:
        self._store = store
        self._configured = dict(configured or {})

    async def save(self, config: LLMAgentConfig) -> None:
        """Store a configuration; replaces one with the same id."""
        await self._store.save_agent(config.id, config.model_dump_json(exclude_unset=True))

    async def load(self, agent_id: str) -> LLMAgentConfig:
        """Load the configuration of an agent.

        Raises:
            NotRegistered: there is none; the message lists the registered ids.
            RegistryError: it is malformed.
        """
        if agent_id in self._configured:
            return self._configured[agent_id]
        kept = await self._store.agents()
        if agent_id not in kept:
            raise not_registered("agent", agent_id, {**kept, **self._configured})
        try:
            return validate(LLMAgentConfig, _parsed(kept[agent_id]), f"The stored configuration of agent '{agent_id}'")
        except ValueError as e:
            raise RegistryError(f"{e} Register the agent anew.") from e

    async def types(self) -> dict[str, str]:
        """Return the types of all agents, by id."""
        kept = await self._store.agents()
        types = {agent_id: str(_parsed(config).get("type", "(damaged)")) for agent_id, config in kept.items()}
        return {**types, **{agent_id: config.type for agent_id, config in self._configured.items()}}

    async def forget(self, agent_id: str) -> None:
        await self._store.forget_agent(agent_id)


class AgentRegistry:
    """Agents by id. An agent is created from its stored configuration on first use.

    `answer_timeout_s` limits the time of an answer to another agent, in seconds.
    """

    def __init__(
        self, repository: AgentRepository, agent_factory: AgentFactory, answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        self.answer_timeout_s = answer_timeout_s
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
