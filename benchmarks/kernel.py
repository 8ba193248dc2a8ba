"""Kernel operations of every turn and every conversation: ours, and amplifier-core's with the same calls."""

from __future__ import annotations

import asyncio
import importlib
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Benchmark, Row, Side

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from benchmarks.harness import Operations

    Handler = Callable[[str, dict[str, Any]], Any]
    Plan = dict[str, Any]
    NewSession = Callable[[Any, Plan], Any]  # takes a kernel and a plan; uses the in-memory loader

EVENT = "tool:pre"
PAYLOAD = {
    "tool_name": "read_file",
    "tool_call_id": "toolu_01A09q90qw90lq917835lq9",
    "tool_input": {"path": "notes/plan.md", "offset": 0, "limit": 200},
}
FINDING = "Linter found 3 issues in notes/plan.py: two unused imports, and a line that is too long."

IN_MEMORY: Plan = {
    "session": {"orchestrator": "loop", "context": "context"},
    "providers": [{"module": "provider"}],
    "tools": [{"module": "read"}, {"module": "write"}],
}
MOUNT_POINT = {"loop": "orchestrator", "context": "context", "provider": "providers", "read": "tools", "write": "tools"}


def installed(root: str) -> Plan:
    """Return the demo's plan: an orchestrator, a context, a provider, and two modules with five tools."""
    return {
        "session": {"orchestrator": "loop-interactive", "context": "context-simple"},
        "providers": [{"module": "provider-demo"}],
        "tools": [{"module": "tool-filesystem", "config": {"root": root}}, {"module": "tool-todo"}],
    }


class Module:
    """A no-op module of any kind; as a context it keeps the last message."""

    description = "Do nothing."

    def __init__(self, name: str) -> None:
        self.name = name

    async def add_message(self, message: dict[str, Any]) -> None:
        self.last_message = message

    async def execute(self, *_: Any, **__: Any) -> str:
        return ""

    async def get_messages(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return []

    async def close(self) -> None:
        pass

    get_messages_for_request = set_messages = clear = list_models = complete = get_messages

    def get_info(self) -> None: ...

    def parse_tool_calls(self, _response: Any) -> list[Any]:
        return []


async def load_from_memory(module_id: str, *_: Any, **__: Any) -> Any:
    """Replaces a loader's `load`, so that only the kernel's own work is measured."""

    async def mount(coordinator: Any) -> Any:
        module = Module(module_id)
        await coordinator.mount(MOUNT_POINT[module_id], module, name=module_id)
        return module.close

    return mount


def in_memory_loader(kernel: Any) -> Any:
    loader = kernel.ModuleLoader()
    loader.load = load_from_memory
    return loader


def our_session(kernel: Any, plan: Plan) -> Any:
    return kernel.AmplifierSession(plan, loader=in_memory_loader(kernel))


def their_session(kernel: Any, plan: Plan) -> Any:
    session = kernel.AmplifierSession(plan)
    # amplifier-core accepts the argument `loader` and logs that it is unused.
    session.coordinator.loader = in_memory_loader(kernel)
    return session


def hooks(kernel: Any, *handlers: Handler) -> Any:
    """Return a session's hook registry with these handlers."""
    registry = kernel.HookRegistry()
    registry.set_default_fields(session_id="0b2a8f6e-3c1d-4e5f-9a7b-2d4c6e8f0a1b", parent_id=None)
    for number, handler in enumerate(handlers):
        registry.register(EVENT, handler, priority=number, name=f"hook-{number}")
    return registry


async def initialized(session: Any) -> Any:
    """Initialize a session and check that its plan is mounted; a failed plan would falsify the figures."""
    await session.initialize()
    missing = [point for point in ("orchestrator", "context", "providers") if not session.coordinator.get(point)]
    if missing or len(session.coordinator.get("tools")) < 2:
        raise RuntimeError(f"A session of {type(session).__module__} did not mount its plan; missing: {missing}.")
    return session


@asynccontextmanager
async def operations(package: str, new_session: NewSession) -> AsyncIterator[Operations]:
    """Provide the operations with the kernel of this package; only the creation of sessions differs."""
    kernel: Any = importlib.import_module(package)

    async def passes(_event: str, _data: dict[str, Any]) -> Any:
        return kernel.HookResult(action="continue")

    async def waits(_event: str, _data: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        return kernel.HookResult(action="continue")

    async def live(make: Callable[[], Any]) -> None:
        session = await initialized(make())
        await session.cleanup()

    def emit(*handlers: Handler) -> Any:
        return partial(hooks(kernel, *handlers).emit, EVENT, PAYLOAD)

    async with AsyncExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory())
        session = await initialized(new_session(kernel, IN_MEMORY))
        stack.push_async_callback(session.cleanup)
        process = session.coordinator.process_hook_result
        finds = kernel.HookResult(action="inject_context", context_injection=FINDING)
        yield {
            "emit_0": emit(),
            "emit_1": emit(passes),
            "emit_5": emit(*[passes] * 5),
            "emit_waiting": emit(waits),
            "session_in_memory": partial(live, partial(new_session, kernel, IN_MEMORY)),
            "session_installed": partial(live, partial(kernel.AmplifierSession, installed(root))),
            "process_continue": partial(process, kernel.HookResult(action="continue"), EVENT, "hook-0"),
            "process_injection": partial(process, finds, EVENT, "hook-0"),
        }


BENCHMARK = Benchmark(
    title="The kernel",
    rows=(
        Row("emit_0", "hooks.emit, no handler", target=1),
        Row("emit_1", "hooks.emit, 1 handler", target=5),
        Row("emit_5", "hooks.emit, 5 handlers"),
        Row("emit_waiting", "hooks.emit, 1 handler that awaits once"),
        Row("session_in_memory", "session: create, initialize, cleanup; modules in memory", target=200),
        Row("session_installed", "session: the same; modules by entry points", target=200),
        Row("process_continue", "process_hook_result, continue"),
        Row("process_injection", "process_hook_result, inject_context"),
    ),
    sides=(
        Side("ours", partial(operations, "orchestrator_interactive.kernel", our_session)),
        Side(
            "amplifier-core",
            partial(operations, "amplifier_core", their_session),
            packages=("amplifier-core",),
            install="pip install 'amplifier-slack[amplifier]'",
        ),
    ),
    notes=(
        "Handlers are coroutines that return a HookResult; the payload is a tool:pre with a session's default fields.",
        (
            "Modules in memory: an orchestrator, a context, a provider and two tools, each with a clean-up, from a "
            "loader without look-ups. By entry points: loop-interactive, context-simple, provider-demo, "
            "tool-filesystem and tool-todo, from the default loader of a session."
        ),
    ),
)
