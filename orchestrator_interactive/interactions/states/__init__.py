"""The states of a conversation, one file each; custom states extend `BaseState`."""

from __future__ import annotations

from orchestrator_interactive.interactions.states.agent_call import AgentCallState
from orchestrator_interactive.interactions.states.agent_result import AgentResultState
from orchestrator_interactive.interactions.states.assistant_message import AssistantMessageState
from orchestrator_interactive.interactions.states.base import BaseState
from orchestrator_interactive.interactions.states.finished import FinishedState
from orchestrator_interactive.interactions.states.tool_call import ToolCallState
from orchestrator_interactive.interactions.states.tool_result import ToolResultState
from orchestrator_interactive.interactions.states.user_message import UserMessageState
from orchestrator_interactive.interactions.states.user_response import UserResponseState
from orchestrator_interactive.interactions.states.waiting import WaitingState

__all__ = [
    "AgentCallState",
    "AgentResultState",
    "AssistantMessageState",
    "BaseState",
    "FinishedState",
    "ToolCallState",
    "ToolResultState",
    "UserMessageState",
    "UserResponseState",
    "WaitingState",
]
