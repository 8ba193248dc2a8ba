"""Parts that are broken on purpose, to see that somebody notices: each like a bug that real agents have had."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orchestrator_interactive
from orchestrator_interactive.injection import InjectionQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator_interactive import Injection
    from orchestrator_interactive.kernel import HookRegistry, ModuleCoordinator

    from .cast import Log
    from .world import Mount

    Row = dict[str, Any]


class QueueThatForgets(InjectionQueue):
    """Drops what is waiting when the run ends."""

    def close(self) -> None:
        self.drain()
        super().close()


class QueueNewestFirst(InjectionQueue):
    def drain(self) -> tuple[Injection, ...]:
        return super().drain()[::-1]


class QueueThatDoubles(InjectionQueue):
    def offer(self, injection: Injection) -> None:
        super().offer(injection)
        super().offer(injection)


class _LogLike:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._rows = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class LogThatInterrupts(_LogLike):
    """Puts a row between a call and its result."""

    async def add_message(self, row: Row) -> None:
        await self._log.add_message(row)
        if row.get("tool_calls"):
            await self._log.add_message({"role": "user", "content": "Meanwhile."})


class LogThatLosesResults(_LogLike):
    async def add_message(self, row: Row) -> None:
        if row["role"] != "tool":
            await self._log.add_message(row)


class LogThatRewrites(_LogLike):
    """Keeps the number of rows in the first of them, where every provider's prompt cache would break."""

    async def get_messages_for_request(self, **where: Any) -> list[Row]:
        rows = await self._log.get_messages_for_request(**where)
        return [{**rows[0], "content": f"{rows[0]['content']} ({len(rows)} rows)"}, *rows[1:]] if rows else rows


class LogThatHangs(_LogLike):
    async def add_message(self, row: Row) -> None:
        await self._log.add_message(row)
        self._rows += 1
        if self._rows == 7:
            await asyncio.Event().wait()


class _LoopLike:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class LoopThatEndsSilently(_LoopLike):
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


class LoopThatLivesOn(_LoopLike):
    """Goes on in the background when the run is cancelled."""

    async def execute(self, *given: Any, **more: Any) -> str:
        answer: str = await asyncio.shield(asyncio.ensure_future(self._inner.execute(*given, **more)))
        return answer


class LoopThatAddsLater(_LoopLike):
    """Adds a row to the log after it has returned."""

    async def execute(self, prompt: str, context: Any, *given: Any, **more: Any) -> str:
        answer: str = await self._inner.execute(prompt, context, *given, **more)
        row = {"role": "system", "content": "By the way."}
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, lambda: loop.create_task(context.add_message(row)))
        return answer


class LoopThatHidesErrors(_LoopLike):
    async def execute(self, *given: Any, **more: Any) -> str:
        try:
            answer: str = await self._inner.execute(*given, **more)
        except Exception:  # noqa: BLE001 - that is the bug
            return ""
        return answer


class LoopThatMumbles(_LoopLike):
    """Does not show an answer that is followed by another."""

    async def execute(self, *given: Any, on_progress: Any = None, **more: Any) -> str:
        async def mumbled(event: str, data: dict[str, Any]) -> None:
            if event != "text":
                await on_progress(event, data)

        answer: str = await self._inner.execute(*given, on_progress=mumbled, **more)
        return answer


def with_queue(kind: Callable[[], InjectionQueue]) -> Mount:
    """The loop with another queue; the queue is no module, so this reaches into the loop."""

    async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await orchestrator_interactive.mount(coordinator, config)
        loop = coordinator.get("orchestrator")
        assert isinstance(loop._queue, InjectionQueue)
        loop._queue = kind()

    return mount


def with_loop(kind: Callable[[Any], Any]) -> Mount:
    """Another orchestrator around the loop."""

    async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await orchestrator_interactive.mount(coordinator, config)
        inner = coordinator.get("orchestrator")
        coordinator.unmount("orchestrator")
        coordinator.mount("orchestrator", kind(inner))

    return mount


async def mount_deaf_to_stops(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """The loop with a stop that says that it stops, and does nothing."""
    await orchestrator_interactive.mount(coordinator, config)
    stop = coordinator.get_capability("orchestrator.stop")
    running = coordinator.get("orchestrator")
    assert stop is not None
    coordinator.register_capability("orchestrator.stop", lambda _immediate=False: running._running is not None)


async def mount_losing_messages(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """The loop with a door at which a message is accepted and thrown away."""
    await orchestrator_interactive.mount(coordinator, config)
    coordinator.register_capability("orchestrator.inject_message", lambda _content: None)
