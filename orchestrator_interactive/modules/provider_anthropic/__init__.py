"""Claude as a provider: the Messages API, streamed.

`mount` is the module's door. `config` reads its configuration and `clients` shares HTTP clients; `convert` makes a
request of the kernel's (`messages` the rows, `naming` the names, `model_rules` what differs between models);
`streaming` makes an answer of events (`usage` its tokens, `prices` their cost), `errors` a kernel error of whatever the
SDK raises; `provider` joins them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.contracts.events import PROVIDER_RETRY
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.modules.provider_anthropic.clients import CLIENTS
from orchestrator_interactive.modules.provider_anthropic.config import AnthropicConfig
from orchestrator_interactive.modules.provider_anthropic.provider import AnthropicProvider

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

__all__ = ["AnthropicConfig", "AnthropicProvider", "mount"]

log = structlog.get_logger(__name__)


async def mount(
    coordinator: ModuleCoordinator, config: dict[str, Any] | None = None
) -> Callable[[], Awaitable[None]] | None:
    """Mount Claude at "providers" as "anthropic"; without an API key nothing is mounted.

    Returns:
        The clean-up. It gives the HTTP client back; sessions share one, and the last one closes it.

    Raises:
        ValueError: an unknown configuration key, or a value that cannot be right.
    """
    settings = AnthropicConfig.read(config or {})
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
