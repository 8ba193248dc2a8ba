"""Doubles for the tests of modules: a coordinator, one of each kind of module, and a recorder of events.

They are real parts with a script instead of a mind, and they keep what they were given. Names and behaviour are those
of `amplifier_core.testing`; a docstring says where the contracts want something else. No test framework is needed.
"""

from orchestrator_interactive.testing.coordinator import MockCoordinator, TestCoordinator, create_test_coordinator
from orchestrator_interactive.testing.modules import MockContextManager, MockTool, ScriptedOrchestrator
from orchestrator_interactive.testing.people import ApprovalRequest, MockApprovalSystem, MockDisplaySystem
from orchestrator_interactive.testing.provider import MockProvider
from orchestrator_interactive.testing.recorder import EventRecorder
from orchestrator_interactive.testing.waiting import wait_for

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
