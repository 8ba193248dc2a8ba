"""Select the provider for an `llm_model`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.protocols import Provider
from orchestrator_interactive.registries.errors import RegistryError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Maps the name of a model to a provider, or to the mount plan entry of one.
ProviderChoice = Callable[[str], Provider | dict[str, Any]]


def _anthropic(model: str) -> dict[str, Any]:
    return {"module": "provider-anthropic", "config": {"model": model}}


def _demo(_model: str) -> dict[str, Any]:
    return {"module": "provider-demo"}


PROVIDERS: dict[str, ProviderChoice] = {"anthropic": _anthropic, "demo": _demo}


def check_provider(llm_model: str, providers: Mapping[str, ProviderChoice]) -> None:
    """Check that a model, "provider/model", has a provider.

    Raises:
        RegistryError: there is none; the message lists the known providers.
    """
    prefix = llm_model.partition("/")[0]
    if prefix not in providers:
        raise RegistryError(
            f"There is no provider '{prefix}' for the model '{llm_model}'. There are: {', '.join(sorted(providers))}; "
            "use one from this list, or add another with `providers`."
        )


def provider_of(llm_model: str, providers: Mapping[str, ProviderChoice]) -> Provider | dict[str, Any]:
    """Return the provider of a model, or its mount plan entry."""
    prefix, _, model = llm_model.partition("/")
    return providers[prefix](model)
