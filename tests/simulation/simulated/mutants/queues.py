"""Queues between people and the loop."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import orchestrator_interactive
from orchestrator_interactive.loop.injection_queue import InjectionQueue

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

    from orchestrator_interactive import Injection
    from orchestrator_interactive.kernel import ModuleCoordinator
    from simulated.world import Mount


class QueueThatForgets(InjectionQueue):
    """Drops what is waiting when the run ends."""

    def close(self) -> None:
        self.drain()
        super().close()


class QueueNewestFirst(InjectionQueue):
    def drain(self) -> tuple[Injection, ...]:
        return super().drain()[::-1]


class QueueThatDoubles(InjectionQueue):
    def drain(self) -> tuple[Injection, ...]:
        return tuple(each for each in super().drain() for _ in range(2))


class QueueWithoutHaste(InjectionQueue):
    """Lets an urgent message wait like every other."""

    has_urgent = False

    def watch(self, callback: Callable[[Injection], object]) -> AbstractContextManager[None]:
        return nullcontext()


def with_queue(kind: Callable[[], InjectionQueue]) -> Mount:
    """The loop with another queue; the queue is no module, so this reaches into the loop."""

    async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await orchestrator_interactive.mount(coordinator, config)
        loop = coordinator.get("orchestrator")
        assert isinstance(loop._queue, InjectionQueue)
        loop._queue = kind()

    return mount
