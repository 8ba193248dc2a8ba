"""Models behind the Chat Completions API, of OpenAI or of a compatible server, as a provider.

`mount` is the entry point, and `config` validates the configuration. `convert` builds requests, `streaming` builds
answers from chunks, `errors` maps SDK errors to kernel errors, `provider` makes the calls.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.contracts.events import PROVIDER_RETRY
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.modules.provider_openai.config import OpenAIConfig

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

__all__ = ["OpenAIConfig", "mount"]

log = structlog.get_logger(__name__)


async def mount(
    coordinator: ModuleCoordinator, config: dict[str, Any] | None = None
) -> Callable[[], Awaitable[None]] | None:
    """Mount the model at "providers" as "openai"; without an API key for OpenAI, log a warning and mount nothing.

    Returns:
        The clean-up, which releases the shared HTTP client; the last release closes it.

    Raises:
        ValueError: an unknown configuration key, or an invalid value, or the SDK is not installed.
    """
    if find_spec("openai") is None:
        raise ValueError(
            "provider-openai: the SDK is not installed. Install it with `pip install 'amplifier-slack[openai]'`."
        )
    from orchestrator_interactive.modules.provider_openai.provider import CLIENTS, OpenAIProvider  # noqa: PLC0415

    settings = OpenAIConfig.from_config(config or {})
    if not settings.api_key and settings.is_openai:
        log.warning(
            "provider.not_mounted",
            provider="openai",
            reason="there is no API key",
            what_to_do="set OPENAI_API_KEY, or `api_key` or `base_url` in the configuration of provider-openai",
        )
        return None
    coordinator = to_local_coordinator(coordinator)
    lease = CLIENTS.lease(settings.api_key, settings.base_url, settings.organization, settings.project)
    provider = OpenAIProvider(lease.client, settings, coordinator.hooks)
    await coordinator.mount("providers", provider, name=provider.name)
    coordinator.register_contributor("observability.events", "provider-openai", lambda: [PROVIDER_RETRY])
    return lease.release
