"""`hooks-office`: adds the date to each request and denies access to some files."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel import HookResult, ModuleCoordinator


class OfficeOptions(Options):
    blocked_files: frozenset[str] = frozenset({".env"})


async def add_date(event: str, data: dict[str, Any]) -> HookResult:
    today = f"Today is {datetime.now().astimezone():%A, %Y-%m-%d}."
    return HookResult(action="inject_context", context_injection=today, ephemeral=True)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Callable[[], None]:
    options = validate(OfficeOptions, config, "hooks-office")

    async def deny_access(event: str, data: dict[str, Any]) -> HookResult:
        tool_input = data.get("tool_input")
        given = tool_input if isinstance(tool_input, dict) else {}
        name = Path(str(given.get("path") or given.get("file_path"))).name  # the tools accept both
        if name in options.blocked_files:
            return HookResult(action="deny", reason=f"Access to {name} is not allowed.")
        return HookResult()

    hooks = coordinator.hooks
    hooks.register("provider:request", add_date, priority=50, name="hooks-office")
    hooks.register("tool:pre", deny_access, priority=50, name="hooks-office")
    return lambda: hooks.unregister("hooks-office")
