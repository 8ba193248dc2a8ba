"""`tool-agents`: tools of the tool registry, and agents that an agent asks and that judge results."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.kernel.error_boundary import error_text
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.registries.agent_calls import Reflection
from orchestrator_interactive.registries.agents import ANSWER_TIMEOUT_S, AgentRegistry, AgentRepository
from orchestrator_interactive.registries.llm_agent import LLMAgents
from orchestrator_interactive.registries.schemas import LLMAgentConfig  # noqa: TC001 - pydantic reads it at run time
from orchestrator_interactive.registries.templates import TemplateManager
from orchestrator_interactive.registries.tools import mount_tools, tool_registry

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator


class AgentsOptions(Options):
    """Configuration of `tool-agents`.

    Args:
        agents: the agents that can be asked, with the fields of `LLMAgentConfig`; `type` may be missing. An agent
            without `llm_model` uses the providers of the session.
        tools: names of tools in the tool registry for the session, in addition to `call_agent`.
        modules: names of Python modules to import, which register tools, effects and render policies.
        templates: folder of the files that a `behavior_template` may name.
        reflection_agent_id: the agent that judges the session's results: the answers of other agents, and the results
            of the tools in `reflect` and of registered tools with `reflect`.
        reflect: names of such tools.
        answer_timeout_s: time limit of another agent's answer, in seconds.
        reflection_timeout_s: time limit of a judgement, in seconds.
    """

    agents: list[LLMAgentConfig] = Field(default_factory=list)
    tools: list[str] = Field(default_factory=list)
    modules: list[str] = Field(default_factory=list)
    templates: str | None = None
    reflection_agent_id: str | None = None
    reflect: frozenset[str] = frozenset()
    answer_timeout_s: float = Field(default=ANSWER_TIMEOUT_S, gt=0)
    reflection_timeout_s: float = Field(default=30, gt=0)

    @field_validator("agents", mode="before")
    @classmethod
    def _with_type(cls, agents: Any) -> Any:
        if not isinstance(agents, list):
            return agents
        return [{"type": "llm", **each} if isinstance(each, dict) else each for each in agents]


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Mount `call_agent` and the named tools, and register the capability `agents.registry`.

    Raises:
        ValueError: the configuration is invalid, or a module cannot be imported.
        RegistryError: an agent, tool, provider, template or render policy is unknown.
    """
    options = validate(AgentsOptions, config, "tool-agents")
    coordinator = to_local_coordinator(coordinator)
    for name in options.modules:
        try:
            importlib.import_module(name)
        except Exception as e:  # third-party code may raise anything
            remedy = ""
            if isinstance(e, ModuleNotFoundError):
                remedy = ". Install it for this Python, or add its folder to PYTHONPATH"
            raise ValueError(f"tool-agents: the module '{name}' cannot be imported: {error_text(e)}{remedy}.") from e
    store = coordinator.get_capability("interactions.store") or await open_store("memory:")
    agents = LLMAgents(
        store,
        templates=TemplateManager(options.templates),
        reflection_timeout_s=options.reflection_timeout_s,
        host=coordinator,
    )
    repository = AgentRepository(store, {agent.id: agent for agent in options.agents})
    registry = AgentRegistry(repository, agents, options.answer_timeout_s)
    judges = [each.reflection_agent_id for each in options.agents] + [options.reflection_agent_id]
    for agent_id in dict.fromkeys([*(each.id for each in options.agents), *filter(None, judges)]):
        await registry.get_agent(agent_id)  # checks its configuration
    coordinator.register_capability("agents.registry", registry)
    if options.reflection_agent_id is not None:
        timeout_s, judge = options.reflection_timeout_s, options.reflection_agent_id
        Reflection(registry, judge, coordinator, timeout_s, options.reflect).listen()
    await mount_tools(coordinator, dict.fromkeys(["call_agent", *options.tools]), tool_registry)
