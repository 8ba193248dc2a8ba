"""Registries of tools and agents, by name.

`tools` is the registry of tools, with one shared instance. `function_tool` makes a tool from a function, and
`result_cache` caches its results. `agents` is the registry of agents and stores their configurations; `llm_agent`
creates them, with instructions from `templates`. Agents call each other with `agent_tool`; `reflection` has another
agent judge their results. `schemas` defines the configuration of tools and agents.
"""

from __future__ import annotations

from orchestrator_interactive.registries.agent_tool import call_agent
from orchestrator_interactive.registries.agents import Agent, AgentRegistry, AgentRepository
from orchestrator_interactive.registries.errors import AlreadyRegistered, NotRegistered, RegistryError
from orchestrator_interactive.registries.function_tool import ToolContext, ToolFunction, register_effect, tool
from orchestrator_interactive.registries.llm_agent import LLMAgent, LLMAgents
from orchestrator_interactive.registries.tools import ToolRegistry, mount_tools, tool_registry

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
