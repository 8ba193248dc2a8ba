"""A module file whose provider is a script of the test, by the name `script` in its configuration."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agents.provider import ScriptedProvider

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

SOURCE = __file__
SCRIPTS: dict[str, ScriptedProvider] = {}


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    # The loader executes this file once more: the scripts are those of the imported module.
    provider = sys.modules["scripted_source"].SCRIPTS[config["script"]]
    await coordinator.mount("providers", provider, name="scripted")
