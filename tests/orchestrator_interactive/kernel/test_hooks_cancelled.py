"""Cancelling whoever emits an event goes through the handlers; what they are cancelled by themselves does not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import soon

from orchestrator_interactive.kernel import HookRegistry, HookResult


async def _awaits_what_was_cancelled(_event: str, _data: dict[str, Any]) -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def _swallows_its_cancellation(reached: asyncio.Event) -> HookResult:
    reached.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return HookResult()
    return HookResult(action="deny")


async def test_a_hook_that_swallows_the_emitters_cancellation_does_not_keep_it_from_the_emitter() -> None:
    hooks, reached, went_on = HookRegistry(), asyncio.Event(), []
    hooks.register("e", lambda _event, _data: _swallows_its_cancellation(reached))

    async def emitter() -> None:
        await hooks.emit("e", {})
        went_on.append(True)

    task = asyncio.create_task(emitter())
    await soon(reached.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
    assert went_on == []


async def test_a_hook_that_is_given_up_leaves_nothing_of_its_cancellation_behind() -> None:
    hooks, cleaned = HookRegistry(timeout_s=0.01), []

    async def hangs(_event: str, _data: dict[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    hooks.register("e", hangs)

    async def emitter() -> int:
        await hooks.emit("e", {})
        task = asyncio.current_task()
        return task.cancelling() if task else -1

    assert await soon(asyncio.create_task(emitter())) == 0
    assert cleaned == ["up"]


@pytest.mark.parametrize("steps", [1, 2], ids=["right before", "right after"])
async def test_a_cancellation_at_the_instant_a_hook_is_given_up_is_not_lost(steps: int) -> None:
    hooks = HookRegistry(timeout_s=0)
    hooks.register("e", lambda _event, _data: asyncio.Event().wait())
    task: asyncio.Task[Any] = asyncio.create_task(hooks.emit("e", {}))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
