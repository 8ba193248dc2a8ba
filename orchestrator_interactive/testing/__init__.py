"""Test doubles for module authors: a coordinator, one module of each kind, and an event recorder.

They are scripted and record their inputs. Names and behaviour are those of `amplifier_core.testing`; docstrings name
the differences that the contracts require. No test framework is needed.
"""

from orchestrator_interactive.testing.coordinator import (
    ApprovalRequest,
    EventRecorder,
    MockApprovalSystem,
    MockCoordinator,
    MockDisplaySystem,
    TestCoordinator,
    create_test_coordinator,
    wait_for,
)
from orchestrator_interactive.testing.modules import MockContextManager, MockProvider, MockTool, ScriptedOrchestrator

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
