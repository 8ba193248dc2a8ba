"""Check that each agent's modules can be mounted and that its providers answer."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.interactions.stores import MemoryStore
from orchestrator_interactive.kernel.contracts import errors
from service.doctor.findings import failed, passed, warning
from service.sessions.mount_plan import mount_plan, new_session
from service.sessions.preflight import find_problems

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from service.config.config import ServiceConfig
    from service.doctor.findings import DoctorFinding

_WITHIN_S = 15.0
_DEMO = "demo"


async def check_agents(
    config: ServiceConfig, default_provider: str, anthropic_api_key: str = ""
) -> AsyncIterator[DoctorFinding]:
    """Mount and unmount each instance's modules, and list the models of its providers."""
    asked: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for name, instance in config.instances.items():
            plan = mount_plan(instance, default_provider, Path(folder), anthropic_api_key=anthropic_api_key)
            problems = await find_problems(plan)
            for problem in problems:
                yield failed(f"agent {name}", problem)
            if problems:
                continue
            yield passed(
                f"agent {name}", f"its {len(instance.modules()) + (not instance.providers)} modules can be mounted."
            )
            if str(plan["providers"]) not in asked:  # many agents may share a model
                asked.add(str(plan["providers"]))
                for finding in await _of_providers(plan):
                    yield finding


async def _of_providers(plan: dict[str, Any]) -> list[DoctorFinding]:
    session = new_session(plan, MemoryStore())
    try:
        await session.initialize()
        return [await _of_provider(name, each) for name, each in session.coordinator.get("providers").items()]
    finally:
        await session.cleanup()


async def _of_provider(name: str, provider: Any) -> DoctorFinding:
    """List the provider's models, which is free of charge."""
    area = f"model {name}"
    if name == _DEMO:
        return warning(area, "offline demo without a model. Set ANTHROPIC_API_KEY to use Claude.")
    try:
        async with asyncio.timeout(_WITHIN_S):
            models = [str(model.id) for model in await provider.list_models()]
    except errors.RateLimitError:
        return warning(area, "the provider accepts the key, but rate-limits it.")
    except Exception as e:  # noqa: BLE001 - a tool call's border: a module may raise anything
        return failed(area, _refusal(e, provider))
    model = str(provider.get_info().defaults.get("model", ""))
    if models and model and not any(each.startswith(model) for each in models):
        some = ", ".join(models[:5])
        return warning(area, f"{model} is not one of the {len(models)} models available to the key: {some}.")
    return passed(area, f"available; model: {model or 'the default of the provider'}.")


def _refusal(error: Exception, provider: Any) -> str:
    match error:
        case errors.AuthenticationError():
            return f"the provider does not accept the key. Check {_keys(provider)}."
        case errors.ProviderUnavailableError() | errors.LLMTimeoutError() | TimeoutError() | OSError():
            return "the provider does not answer. Check the network and the module's `base_url`."
        case _:
            return f"the models cannot be listed: {' '.join(str(error).split()) or type(error).__name__}"


def _keys(provider: Any) -> str:
    return " or ".join(provider.get_info().credential_env_vars) or "the key in the module's options"
