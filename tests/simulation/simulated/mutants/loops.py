"""Orchestrators around the loop that do more, or less, than it does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orchestrator_interactive

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator_interactive.kernel import HookRegistry, ModuleCoordinator
    from simulated.world import Mount


class LoopLike:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class LoopThatEndsSilently(LoopLike):
    """Does not tell of the end of a run."""

    async def execute(self, *given: Any, hooks: HookRegistry | None = None, **more: Any) -> str:
        prompt, context, providers, tools, registry = given
        answer: str = await self._inner.execute(prompt, context, providers, tools, _HalfDeaf(registry), **more)
        return answer


class _HalfDeaf:
    def __init__(self, hooks: HookRegistry) -> None:
        self._hooks = hooks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hooks, name)

    def listens(self, event: str) -> bool:
        return event != "execution:end" and self._hooks.listens(event)


class LoopThatLivesOn(LoopLike):
    """Goes on in the background when the run is cancelled."""

    async def execute(self, *given: Any, **more: Any) -> str:
        answer: str = await asyncio.shield(asyncio.ensure_future(self._inner.execute(*given, **more)))
        return answer


class LoopThatAddsLater(LoopLike):
    """Adds a row to the log after it has returned."""

    async def execute(self, prompt: str, context: Any, *given: Any, **more: Any) -> str:
        answer: str = await self._inner.execute(prompt, context, *given, **more)
        row = {"role": "system", "content": "By the way."}
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, lambda: loop.create_task(context.add_message(row)))
        return answer


class LoopThatHidesErrors(LoopLike):
    async def execute(self, *given: Any, **more: Any) -> str:
        try:
            answer: str = await self._inner.execute(*given, **more)
        except Exception:  # noqa: BLE001 - that is the bug
            return ""
        return answer


class LoopThatTurnsProvidersRound(LoopLike):
    """Asks the last provider first."""

    async def execute(self, prompt: str, context: Any, providers: dict[str, Any], *given: Any, **more: Any) -> str:
        turned = dict(reversed(providers.items()))
        answer: str = await self._inner.execute(prompt, context, turned, *given, **more)
        return answer


class LoopThatForgetsCalls(LoopLike):
    """Sees no calls in an answer that was cut."""

    async def execute(self, prompt: str, context: Any, providers: dict[str, Any], *given: Any, **more: Any) -> str:
        others = {name: _ProviderThatForgets(provider) for name, provider in providers.items()}
        answer: str = await self._inner.execute(prompt, context, others, *given, **more)
        return answer


class _ProviderThatForgets(LoopLike):
    def parse_tool_calls(self, response: Any) -> Any:
        return [] if response.finish_reason == "interrupted" else self._inner.parse_tool_calls(response)


def with_loop(kind: Callable[[Any], Any]) -> Mount:
    """Another orchestrator around the loop."""

    async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await orchestrator_interactive.mount(coordinator, config)
        inner = coordinator.get("orchestrator")
        coordinator.unmount("orchestrator")
        coordinator.mount("orchestrator", kind(inner))

    return mount
