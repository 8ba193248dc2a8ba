"""`hooks-office`: tells the model what day it is, and keeps the agent's hands off some files."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from orchestrator_interactive.config import Options, read
from orchestrator_interactive.kernel import HookResult, ModuleCoordinator


class OfficeOptions(Options):
    hands_off: frozenset[str] = frozenset({".env"})


async def tell_the_date(event: str, data: dict[str, Any]) -> HookResult:
    today = f"Today is {datetime.now().astimezone():%A, %Y-%m-%d}."
    return HookResult(action="inject_context", context_injection=today, ephemeral=True)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Callable[[], None]:
    options = read(OfficeOptions, config, "hooks-office")

    async def keep_off(event: str, data: dict[str, Any]) -> HookResult:
        given = data.get("tool_input")
        name = Path(str(given.get("path"))).name if isinstance(given, dict) else ""
        if name in options.hands_off:
            return HookResult(action="deny", reason=f"{name} is none of your business.")
        return HookResult()

    hooks = coordinator.hooks
    hooks.register("provider:request", tell_the_date, priority=50, name="hooks-office")
    hooks.register("tool:pre", keep_off, priority=50, name="hooks-office")
    return lambda: hooks.unregister("hooks-office")
