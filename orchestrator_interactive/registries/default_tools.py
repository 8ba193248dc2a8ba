"""The shared tool registry."""

from __future__ import annotations

from orchestrator_interactive.registries.ask_agent_tool import ask_agent
from orchestrator_interactive.registries.tools import ToolRegistry

tool_registry = ToolRegistry([ask_agent])
