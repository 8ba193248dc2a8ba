"""Registries of tools and agents, by name.

`tools` has the registry of tools, with one shared instance, and makes tools from functions. `agents` is the registry
of agents and stores their configurations; `llm_agent` creates them, with instructions from `templates`. In
`agent_calls`, agents call each other and judge results. `schemas` defines the configuration of tools and agents.
"""

from __future__ import annotations

from orchestrator_interactive.registries.agent_calls import call_agent
from orchestrator_interactive.registries.agents import Agent, AgentRegistry, AgentRepository
from orchestrator_interactive.registries.llm_agent import LLMAgent, LLMAgents
from orchestrator_interactive.registries.schemas import AgentStopped, AlreadyRegistered, NotRegistered, RegistryError
from orchestrator_interactive.registries.tools import (
    ToolContext,
    ToolFunction,
    ToolRegistry,
    mount_tools,
    register_effect,
    tool,
    tool_registry,
)

__all__ = [
    "Agent",
    "AgentRegistry",
    "AgentRepository",
    "AgentStopped",
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
