"""The configuration of agents and tools."""

from __future__ import annotations

from orchestrator_interactive.schemas.schemas import LLMAgentConfig, ToolConfig

__all__ = ["LLMAgentConfig", "ToolConfig"]
