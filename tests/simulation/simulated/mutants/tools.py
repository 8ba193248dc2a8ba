"""Tools between the loop and those of the cast."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import orchestrator_interactive

from .loops import LoopLike, with_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator_interactive.kernel import ModuleCoordinator
    from simulated.world import Mount


class _ToolLike:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002 - the contract's name
        return await self._inner.execute(input)


class LooksHarmless(_ToolLike):
    """Begins while the answer still streams, whatever it does."""

    side_effect_free = True


class NeverEnds(_ToolLike):
    """Goes on in the background when it is cancelled."""

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002
        return await asyncio.shield(asyncio.ensure_future(self._inner.execute(input)))


class CannotWait(_ToolLike):
    """Has no time limit."""

    timeout_s = 1e6


class _Fragile(_ToolLike):
    """Is cancelled by whoever is in a hurry."""

    at_work: ClassVar[set[asyncio.Task[Any]]] = set()

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002
        work = asyncio.ensure_future(self._inner.execute(input))
        self.at_work.add(work)
        try:
            return await work
        finally:
            self.at_work.discard(work)


def with_tools(kind: Callable[[Any], Any]) -> Mount:
    """The loop with other tools."""

    class LoopWithTools(LoopLike):
        async def execute(self, prompt: str, context: Any, providers: Any, tools: Any, *given: Any, **more: Any) -> str:
            others = {name: kind(tool) for name, tool in tools.items()}
            answer: str = await self._inner.execute(prompt, context, providers, others, *given, **more)
            return answer

    return with_loop(LoopWithTools)


async def mount_harming_tools(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """The loop with urgent messages that cut the tools, too."""
    await with_tools(_Fragile)(coordinator, config)
    inject: Any = coordinator.get_capability("orchestrator.inject_message")

    def hurrying(content: Any) -> Any:
        receipt = inject(content)
        if orchestrator_interactive.Injection.of(content).urgent:
            for work in list(_Fragile.at_work):
                work.cancel()
        return receipt

    coordinator.register_capability("orchestrator.inject_message", hurrying)
