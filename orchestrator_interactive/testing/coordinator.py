"""Coordinator without a session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from orchestrator_interactive.kernel.contracts.models import SessionStatus, ToolResult
from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
from orchestrator_interactive.kernel.loading.loader import ModuleLoader
from orchestrator_interactive.testing.modules import MockContextManager, MockTool
from orchestrator_interactive.testing.people import MockApprovalSystem, MockDisplaySystem

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from orchestrator_interactive.kernel.session import AmplifierSession

SESSION_ID = "test-session"


def _config() -> dict[str, Any]:
    return {"session": {"orchestrator": "test-orchestrator", "context": "test-context"}}


@dataclass(slots=True)
class _SessionStandIn:
    """Session attributes that a coordinator and its modules read."""

    coordinator: ModuleCoordinator
    loader: ModuleLoader
    session_id: str = SESSION_ID
    parent_id: str | None = None
    config: dict[str, Any] = field(default_factory=_config)
    status: SessionStatus = field(default_factory=lambda: SessionStatus(session_id=SESSION_ID))


class TestCoordinator(ModuleCoordinator):
    """A real coordinator of the session "test-session" that records mounts and unmounts.

    The histories contain one dictionary per call, including refused calls. `config` may be changed in place
    (`config["session"]["injection_size_limit"] = 100`); `approval_system` approves every request; it and
    `display_system` may be replaced.
    """

    __test__ = False  # for test runners that collect classes by their name

    def __init__(self) -> None:
        session = cast("AmplifierSession", _SessionStandIn(self, ModuleLoader(self)))
        super().__init__(session, MockApprovalSystem(), MockDisplaySystem())
        self.hooks.set_default_fields(session_id=session.session_id, parent_id=session.parent_id)
        self.mount_history: list[dict[str, Any]] = []
        self.unmount_history: list[dict[str, Any]] = []

    def mount(self, mount_point: str, module: Any, name: str | None = None) -> Awaitable[None]:
        self.mount_history.append({"mount_point": mount_point, "module": module, "name": name})
        return super().mount(mount_point, module, name)

    def unmount(self, mount_point: str, name: str | None = None) -> Awaitable[None]:
        self.unmount_history.append({"mount_point": mount_point, "name": name})
        return super().unmount(mount_point, name)

    def get_mounted(self, mount_point: str, name: str | None = None) -> Any:
        """Alias of `get`, used in the contracts' examples."""
        return self.get(mount_point, name)


MockCoordinator = TestCoordinator


def create_test_coordinator() -> TestCoordinator:
    """Return a coordinator with a context and the tools `echo` and `fail`; its histories are empty.

    `fail` returns `success=False` and an error. (In amplifier_core it succeeds without output.)
    """
    coordinator = TestCoordinator()
    failure = ToolResult(success=False, error={"message": "This tool always fails."})
    coordinator.mount("tools", MockTool("echo", return_value="Echo response"))
    coordinator.mount("tools", MockTool("fail", return_value=failure))
    coordinator.mount("context", MockContextManager())
    coordinator.mount_history.clear()
    return coordinator
