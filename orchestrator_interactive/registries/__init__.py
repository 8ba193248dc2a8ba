"""Registries of tools and agents, by name.

`tools` is the registry of tools, and `default_tools` the shared instance. `function_tool` makes a tool from a function,
with `result_cache`, `effects` and `tool_context`. `agents` is the registry of agents and stores their configurations;
`llm_agent` creates them, with a provider from `providers`. Agents call each other with `agent_tool`; `reflection`
has another agent judge their results and parses its `verdict`.
"""

from __future__ import annotations

from orchestrator_interactive.registries.agent_tool import call_agent
from orchestrator_interactive.registries.agents import Agent, AgentRegistry, AgentRepository
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
    "call_agent",
    "mount_tools",
    "register_effect",
    "tool",
    "tool_registry",
]
