"""Coordinator without a session, with an approval and a display system; event recorder; waiting for a condition."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from orchestrator_interactive.kernel.contracts.models import HookResult, SessionStatus, ToolResult
from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
from orchestrator_interactive.kernel.hooks import HookRegistry
from orchestrator_interactive.kernel.loading.loader import ModuleLoader
from orchestrator_interactive.testing.modules import MockContextManager, MockTool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

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


class TestCoordinator(ModuleCoordinator):
    """A real coordinator of the session "test-session" that records mounts and unmounts.

    The histories contain one dictionary per call, including refused calls. `config` may be changed in place
    (`config["session"]["injection_size_limit"] = 100`); `approval_system` approves every request; it and
    `display_system` may be replaced.
    """

    __test__ = False  # for test runners that collect classes by their name

    def __init__(self) -> None:
        # The attributes that a coordinator and its modules read.
        session = SimpleNamespace(
            session_id="test-session",
            parent_id=None,
            config={"session": {"orchestrator": "test-orchestrator", "context": "test-context"}},
            status=SessionStatus(session_id="test-session"),
            coordinator=self,
            loader=ModuleLoader(self),
        )
        super().__init__(cast("AmplifierSession", session), MockApprovalSystem(), MockDisplaySystem())
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


class EventRecorder(HookRegistry):
    """Records events in order, as (event, data) tuples in `events`; the data is a shallow copy.

    Usable as a hook registry (`hooks=recorder`): it listens to every event and calls the handlers registered with it.
    Also usable as a handler: `registry.register("tool:pre", recorder)`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def record(self, event: str, data: dict[str, Any]) -> HookResult:
        """Record one event and return "continue"."""
        self.events.append((event, dict(data)))
        return HookResult()

    __call__ = record

    async def emit(self, event: str, data: dict[str, Any] | None = None) -> HookResult:
        """Record the event as emitted, then call the registered handlers."""
        self.events.append((event, dict(data or {})))
        return await super().emit(event, data or {})

    async def emit_and_collect(
        self,
        event: str,
        data: dict[str, Any] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the contract's name
    ) -> list[HookResult]:
        self.events.append((event, dict(data or {})))
        return await super().emit_and_collect(event, data or {}, timeout)

    def listens(self, event: str) -> bool:  # noqa: ARG002 - every event is recorded
        return True

    def get_events(self, event_type: str | None = None) -> list[tuple[str, dict[str, Any]]]:
        """Return the recorded events, optionally of one name."""
        return [(event, data) for event, data in self.events if event_type is None or event == event_type]

    def clear(self) -> None:
        """Delete the recorded events; handlers stay registered."""
        self.events.clear()


async def wait_for(condition: Callable[[], bool], timeout: float = 1.0) -> bool:  # noqa: ASYNC109 - amplifier_core's name
    """Wait until a condition is true, for at most `timeout` seconds; return whether it became true.

    It is evaluated every 10 ms, at least once, and once more at the end.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    while not condition():
        left_s = deadline - loop.time()
        if left_s <= 0:
            return False
        await asyncio.sleep(min(0.01, left_s))
    return True
