"""Claude as a provider, through the streamed Messages API.

`mount` is the entry point, and `config` validates the configuration. `convert` builds requests, `models` has the rules
and prices of models, `streaming` builds answers from events. `errors` maps SDK errors to kernel errors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.contracts.events import PROVIDER_RETRY
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.modules.provider_anthropic.config import AnthropicConfig
from orchestrator_interactive.modules.provider_anthropic.provider import CLIENTS, AnthropicProvider

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

__all__ = ["AnthropicConfig", "AnthropicProvider", "mount"]

log = structlog.get_logger(__name__)


async def mount(
    coordinator: ModuleCoordinator, config: dict[str, Any] | None = None
) -> Callable[[], Awaitable[None]] | None:
    """Mount Claude at "providers" as "anthropic"; without an API key, log a warning and mount nothing.

    Returns:
        The clean-up, which releases the shared HTTP client; the last release closes it.

    Raises:
        ValueError: an unknown configuration key, or an invalid value.
    """
    settings = AnthropicConfig.from_config(config or {})
    if not settings.api_key:
        log.warning(
            "provider.not_mounted",
            provider="anthropic",
            reason="there is no API key",
            what_to_do="set ANTHROPIC_API_KEY, or `api_key` in the configuration of provider-anthropic",
        )
        return None
    coordinator = to_local_coordinator(coordinator)
    lease = CLIENTS.lease(settings.api_key, settings.base_url)
    provider = AnthropicProvider(lease.client, settings, coordinator.hooks)
    await coordinator.mount("providers", provider, name=provider.name)
    coordinator.register_contributor("observability.events", "provider-anthropic", lambda: [PROVIDER_RETRY])
    return lease.release
