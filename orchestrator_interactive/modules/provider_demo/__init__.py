"""`provider-demo`: an offline provider without a language model, for trying out the service.

It answers by word rules from the conversation and the tool results. `plan` contains the logic, as a pure function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.config import validate
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.modules.provider_demo.plan import plan
from orchestrator_interactive.modules.provider_demo.provider import DemoOptions, DemoProvider

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

__all__ = ["DemoOptions", "DemoProvider", "mount", "plan"]


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> DemoProvider:
    """Mount the provider as `demo`.

    Raises:
        ValueError: the configuration has an unknown option or a value out of range.
    """
    provider = DemoProvider(validate(DemoOptions, config, "provider-demo"))
    await to_local_coordinator(coordinator).mount("providers", provider, name=provider.name)
    return provider
