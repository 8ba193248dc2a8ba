"""Coordinator without a session, with an approval and a display system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from orchestrator_interactive.kernel.contracts.models import SessionStatus, ToolResult
from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
from orchestrator_interactive.kernel.loading.loader import ModuleLoader
from orchestrator_interactive.testing.modules import MockContextManager, MockTool

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from orchestrator_interactive.kernel.contracts.models import Level
    from orchestrator_interactive.kernel.session import AmplifierSession


class ApprovalRequest(NamedTuple):
    """One approval request; `timeout` is in seconds."""

    prompt: str
    options: list[str]
    timeout: float
    default: Literal["allow", "deny"]


class MockApprovalSystem:
    """Approves every request, or always returns `answer`. `requests` records the requests."""

    def __init__(self, answer: str | None = None) -> None:
        self.answer = answer
        self.requests: list[ApprovalRequest] = []

    async def request_approval(
        self,
        prompt: str,
        options: list[str],
        timeout: float,  # noqa: ASYNC109 - the contract's name
        default: Literal["allow", "deny"],
    ) -> str:
        """Return `answer` if it is set, else the first option that begins with "allow", else "Allow"."""
        self.requests.append(ApprovalRequest(prompt, list(options), timeout, default))
        if self.answer is not None:
            return self.answer
        return next((option for option in options if option.lower().startswith("allow")), "Allow")


class MockDisplaySystem:
    """Records shown messages in `messages` as (message, level, source) tuples."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Level, str]] = []

    def show_message(self, message: str, level: Level, source: str = "hook") -> None:
        self.messages.append((message, level, source))


class _SessionStandIn:
    """Session attributes that a coordinator and its modules read."""

    session_id = "test-session"
    parent_id = None

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self.coordinator = coordinator
        self.loader = ModuleLoader(coordinator)
        self.config = {"session": {"orchestrator": "test-orchestrator", "context": "test-context"}}
        self.status = SessionStatus(session_id=self.session_id)


class TestCoordinator(ModuleCoordinator):
    """A real coordinator of the session "test-session" that records mounts and unmounts.

    The histories contain one dictionary per call, including refused calls. `config` may be changed in place
    (`config["session"]["injection_size_limit"] = 100`); `approval_system` approves every request; it and
    `display_system` may be replaced.
    """

    __test__ = False  # for test runners that collect classes by their name

    def __init__(self) -> None:
        session = cast("AmplifierSession", _SessionStandIn(self))
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
