"""Test doubles for module authors: a coordinator, one module of each kind, and an event recorder.

They are scripted and record their inputs. Names and behaviour are those of `amplifier_core.testing`; docstrings name
the differences that the contracts require. No test framework is needed.
"""

from orchestrator_interactive.testing.coordinator import (
    ApprovalRequest,
    MockApprovalSystem,
    MockCoordinator,
    MockDisplaySystem,
    TestCoordinator,
    create_test_coordinator,
)
from orchestrator_interactive.testing.modules import MockContextManager, MockTool, ScriptedOrchestrator
from orchestrator_interactive.testing.provider import MockProvider
from orchestrator_interactive.testing.recorder import EventRecorder, wait_for

__all__ = [
    "ApprovalRequest",
    "EventRecorder",
    "MockApprovalSystem",
    "MockContextManager",
    "MockCoordinator",
    "MockDisplaySystem",
    "MockProvider",
    "MockTool",
    "ScriptedOrchestrator",
    "TestCoordinator",
    "create_test_coordinator",
    "wait_for",
]
