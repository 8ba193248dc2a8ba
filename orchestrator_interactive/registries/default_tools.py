"""The shared tool registry."""

from __future__ import annotations

from orchestrator_interactive.registries.agent_tool import call_agent
from orchestrator_interactive.registries.tools import ToolRegistry

tool_registry = ToolRegistry([call_agent])
