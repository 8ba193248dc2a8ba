"""Who answers for an `llm_model`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.protocols import Provider
from orchestrator_interactive.registries.errors import RegistryError

if TYPE_CHECKING:
    from collections.abc import Mapping

# Given the name of a model, a provider, or the entry of a mount plan that mounts one.
ProviderChoice = Callable[[str], Provider | dict[str, Any]]


def _anthropic(model: str) -> dict[str, Any]:
    return {"module": "provider-anthropic", "config": {"model": model}}


def _demo(_model: str) -> dict[str, Any]:
    return {"module": "provider-demo"}


PROVIDERS: dict[str, ProviderChoice] = {"anthropic": _anthropic, "demo": _demo}


def check_provider(llm_model: str, providers: Mapping[str, ProviderChoice]) -> None:
    """Whether there is a provider for a model, "provider/model".

    Raises:
        RegistryError: there is none; the message names those that there are.
    """
    prefix = llm_model.partition("/")[0]
    if prefix not in providers:
        raise RegistryError(
            f"There is no provider '{prefix}' for the model '{llm_model}'. There are: {', '.join(sorted(providers))}; "
            "name one of these, or give another in `providers`."
        )


def provider_of(llm_model: str, providers: Mapping[str, ProviderChoice]) -> Provider | dict[str, Any]:
    """The provider of a model, or the entry of a mount plan for it."""
    prefix, _, model = llm_model.partition("/")
    return providers[prefix](model)
