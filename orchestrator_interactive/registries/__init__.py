"""Tools and agents, by name.

`tools` has the registry of tools, `registered_tool` what makes one of a function, with `kept_results`, `effects` and
`tool_context` as its parts; `default_tools` is the registry that everybody shares. `agents` has the registry of agents
and keeps their configurations; `llm_agent` makes agents of them, with a provider from `providers`. They ask each other
by `asking_agents`, and have themselves judged by `reflection`, which understands a `judgement`.
"""

from __future__ import annotations

from orchestrator_interactive.registries.agents import Agent, AgentRegistry, AgentRepository
from orchestrator_interactive.registries.ask_agent_tool import ask_agent
from orchestrator_interactive.registries.default_tools import tool_registry
from orchestrator_interactive.registries.effects import register_effect
from orchestrator_interactive.registries.errors import AlreadyRegistered, NotRegistered, RegistryError
from orchestrator_interactive.registries.function_tool import ToolFunction, tool
from orchestrator_interactive.registries.llm_agent import LLMAgent, LLMAgents
from orchestrator_interactive.registries.tool_context import ToolContext
from orchestrator_interactive.registries.tools import ToolRegistry, mount_tools

__all__ = [
    "Agent",
    "AgentRegistry",
    "AgentRepository",
    "AlreadyRegistered",
    "LLMAgent",
    "LLMAgents",
    "NotRegistered",
    "RegistryError",
    "ToolContext",
    "ToolFunction",
    "ToolRegistry",
    "ask_agent",
    "mount_tools",
    "register_effect",
    "tool",
    "tool_registry",
]
