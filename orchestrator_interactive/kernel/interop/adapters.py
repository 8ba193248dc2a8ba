"""Our modules in a session of amplifier_core: what they mount there speaks its types."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, cast

from orchestrator_interactive.kernel.contracts.conversion import amplifier_core, foreign, foreign_error, is_foreign, own
from orchestrator_interactive.kernel.contracts.errors import InjectionTooLargeError, LLMError
from orchestrator_interactive.kernel.interop.foreign import ForeignHooks, ForeignProvider, ForeignToken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse
    from orchestrator_interactive.kernel.contracts.models import HookResult
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

    Complete = Callable[..., Awaitable[ChatResponse]]


def at_home(coordinator: Any) -> ModuleCoordinator:
    """The coordinator as our modules know it, whichever kernel it belongs to."""
    core = amplifier_core()
    if core is not None and isinstance(coordinator, core.ModuleCoordinator):
        return cast("ModuleCoordinator", CoordinatorAdapter(coordinator))
    return cast("ModuleCoordinator", coordinator)


def own_provider(provider: Any) -> Any:
    """A provider that takes our requests: one that introduces itself in amplifier_core's types is a guest."""
    if isinstance(provider, ProviderAdapter):
        return provider.at_home
    return ForeignProvider(provider) if is_foreign(provider.get_info()) else provider


def own_tool(tool: Any) -> Any:
    return tool.at_home if isinstance(tool, ToolAdapter) else tool


def bilingual(complete: Complete) -> Complete:
    """For a provider's `complete`: asked in amplifier_core's types, it answers and fails in them."""

    @wraps(complete)
    async def answered(provider: Any, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        if not is_foreign(request):
            return await complete(provider, request, **kwargs)
        try:
            answer: ChatResponse = foreign(await complete(provider, own(request), **kwargs))
        except LLMError as e:
            raise foreign_error(e) from e
        return answer

    return answered


class CoordinatorAdapter:
    """A coordinator of amplifier_core, as ours is used."""

    def __init__(self, coordinator: Any) -> None:
        self._coordinator = coordinator
        self.hooks = ForeignHooks(coordinator.hooks)
        self.cancellation = ForeignToken(coordinator.cancellation)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coordinator, name)

    async def mount(self, mount_point: str, module: Any, name: str | None = None) -> None:
        speaks = {"providers": ProviderAdapter, "tools": ToolAdapter}.get(mount_point)
        await self._coordinator.mount(mount_point, speaks(module) if speaks else module, name=name)

    async def process_hook_result(self, result: HookResult, event: str, hook_name: str = "unknown") -> HookResult:
        """As ours does it: only an answered question comes back as something else.

        amplifier_core gives a lasting injection back as "continue"; whoever asked then misses it in the next request.
        """
        try:
            processed = await self._coordinator.process_hook_result(foreign(result), event, hook_name)
        except ValueError as e:  # one is too large, and none is injected
            update: dict[str, Any] = {"action": "continue", "context_injection": None, "context_injections": []}
            raise InjectionTooLargeError(str(e), result.model_copy(update=update)) from e
        answered: HookResult = own(processed) if result.action == "ask_user" else result
        return answered


class ProviderAdapter:
    """A provider of ours that introduces itself in amplifier_core's types. It is asked in them: see `bilingual`."""

    def __init__(self, provider: Any) -> None:
        self.at_home = provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self.at_home, name)

    def get_info(self) -> Any:
        return foreign(self.at_home.get_info())

    async def list_models(self) -> list[Any]:
        models: list[Any] = foreign(await self.at_home.list_models())
        return models

    async def complete(self, request: Any, **kwargs: Any) -> Any:
        return await self.at_home.complete(request, **kwargs)

    def parse_tool_calls(self, response: Any) -> list[Any]:
        calls: list[Any] = foreign(self.at_home.parse_tool_calls(own(response)))
        return calls


class ToolAdapter:
    """A tool of ours whose results are amplifier_core's."""

    def __init__(self, tool: Any) -> None:
        self.at_home = tool

    def __getattr__(self, name: str) -> Any:
        return getattr(self.at_home, name)

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002 - the name is the contract's
        return foreign(await self.at_home.execute(input))
