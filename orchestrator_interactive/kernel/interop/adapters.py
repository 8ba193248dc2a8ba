"""Adapters that let our modules run in a session of amplifier_core: mounted objects use its types."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, cast

from orchestrator_interactive.kernel.contracts.conversion import (
    amplifier_core,
    foreign,
    foreign_error,
    is_foreign,
    to_local,
)
from orchestrator_interactive.kernel.contracts.errors import InjectionTooLargeError, LLMError
from orchestrator_interactive.kernel.interop.foreign import ForeignHooks, ForeignProvider, ForeignToken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse
    from orchestrator_interactive.kernel.contracts.models import HookResult
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

    Complete = Callable[..., Awaitable[ChatResponse]]


def to_local_coordinator(coordinator: Any) -> ModuleCoordinator:
    """Wrap amplifier_core's coordinator so that it has our coordinator's interface; return any other unchanged."""
    core = amplifier_core()
    if core is not None and isinstance(coordinator, core.ModuleCoordinator):
        return cast("ModuleCoordinator", CoordinatorAdapter(coordinator))
    return cast("ModuleCoordinator", coordinator)


def to_local_provider(provider: Any) -> Any:
    """Return a provider that takes our requests.

    Unwrap a `ProviderAdapter`; wrap a provider whose `get_info()` returns amplifier_core's type; return others as is.
    """
    if isinstance(provider, ProviderAdapter):
        return provider.wrapped
    return ForeignProvider(provider) if is_foreign(provider.get_info()) else provider


def to_local_tool(tool: Any) -> Any:
    """Unwrap a `ToolAdapter`; return any other tool as is."""
    return tool.wrapped if isinstance(tool, ToolAdapter) else tool


def accepts_both(complete: Complete) -> Complete:
    """Decorate a provider's `complete`: a request in amplifier_core's types gets responses and errors in its types."""

    @wraps(complete)
    async def converted(provider: Any, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        if not is_foreign(request):
            return await complete(provider, request, **kwargs)
        try:
            response: ChatResponse = foreign(await complete(provider, to_local(request), **kwargs))
        except LLMError as e:
            raise foreign_error(e) from e
        return response

    return converted


class CoordinatorAdapter:
    """Our coordinator's interface on top of amplifier_core's coordinator."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self.hooks = ForeignHooks(coordinator.hooks)
        self.cancellation = ForeignToken(coordinator.cancellation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coordinator, name)

    async def mount(self, mount_point: str, module: Any, name: str | None = None) -> None:
        adapter = {"providers": ProviderAdapter, "tools": ToolAdapter}.get(mount_point)
        await self._coordinator.mount(mount_point, adapter(module) if adapter else module, name=name)

    async def process_hook_result(self, result: HookResult, event: str, hook_name: str = "unknown") -> HookResult:
        """Return the given result, except for `ask_user`, which returns the answer.

        amplifier_core returns "continue" for a persistent injection; the caller would omit it from its next request.
        """
        try:
            processed = await self._coordinator.process_hook_result(foreign(result), event, hook_name)
        except ValueError as e:  # an injection is too large; amplifier_core then injects none
            update: dict[str, Any] = {"action": "continue", "context_injection": None, "context_injections": []}
            raise InjectionTooLargeError(str(e), result.model_copy(update=update)) from e
        answered: HookResult = to_local(processed) if result.action == "ask_user" else result
        return answered


class ProviderAdapter:
    """One of our providers with metadata in amplifier_core's types. Its `complete` needs `@accepts_both`."""

    def __init__(self, provider: Any) -> None:
        self.wrapped = provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def get_info(self) -> Any:
        return foreign(self.wrapped.get_info())

    async def list_models(self) -> list[Any]:
        models: list[Any] = foreign(await self.wrapped.list_models())
        return models

    async def complete(self, request: Any, **kwargs: Any) -> Any:
        return await self.wrapped.complete(request, **kwargs)

    def parse_tool_calls(self, response: Any) -> list[Any]:
        calls: list[Any] = foreign(self.wrapped.parse_tool_calls(to_local(response)))
        return calls


class ToolAdapter:
    """One of our tools that returns amplifier_core's results."""

    def __init__(self, tool: Any) -> None:
        self.wrapped = tool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002 - the name is the contract's
        return foreign(await self.wrapped.execute(input))
