"""Coordinator API: register_cleanup, cleanup, reset_turn."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING

import pytest

from orchestrator_interactive.kernel import AmplifierSession, HookResult, ModuleCoordinator
from orchestrator_interactive.modules import context_simple

if TYPE_CHECKING:
    from collections.abc import Callable


class Resource:
    """Something with a synchronous and an asynchronous way to end, which write down that they were used."""

    def __init__(self, name: str, order: list[str]) -> None:
        self._name = name
        self._order = order

    def close(self) -> None:
        self._order.append(self._name)

    async def disconnect(self) -> None:
        await asyncio.sleep(0)
        self._order.append(self._name)


@pytest.fixture
def order() -> list[str]:
    return []


class TestRegisterCleanup:
    def test_it_returns_none_and_runs_nothing_yet(self, coordinator: ModuleCoordinator, order: list[str]) -> None:
        assert coordinator.register_cleanup(Resource("a", order).close) is None
        assert order == []

    async def test_sync_functions_are_called(self, coordinator: ModuleCoordinator, order: list[str]) -> None:
        coordinator.register_cleanup(Resource("sync", order).close)
        await coordinator.cleanup()
        assert order == ["sync"]

    async def test_async_functions_are_awaited(self, coordinator: ModuleCoordinator, order: list[str]) -> None:
        coordinator.register_cleanup(Resource("async", order).disconnect)
        await coordinator.cleanup()
        assert order == ["async"]

    @pytest.mark.parametrize("wrap", [lambda f: lambda: f(), functools.partial], ids=["lambda", "partial"])  # noqa: PLW0108 - what is to be told apart
    async def test_a_coroutine_that_a_sync_function_returns_is_awaited(
        self, coordinator: ModuleCoordinator, order: list[str], wrap: Callable[..., Callable[[], object]]
    ) -> None:
        coordinator.register_cleanup(wrap(Resource("returned", order).disconnect))
        await coordinator.cleanup()
        assert order == ["returned"]

    async def test_the_latest_registered_runs_first(self, coordinator: ModuleCoordinator, order: list[str]) -> None:
        for name in ("first", "second", "third"):
            coordinator.register_cleanup(Resource(name, order).close)
        await coordinator.cleanup()
        assert order == ["third", "second", "first"]

    async def test_it_does_not_validate_and_what_cannot_be_called_harms_no_other(
        self, coordinator: ModuleCoordinator, order: list[str]
    ) -> None:
        coordinator.register_cleanup(Resource("before", order).close)
        coordinator.register_cleanup("not a function")
        coordinator.register_cleanup(Resource("after", order).close)
        await coordinator.cleanup()
        assert order == ["after", "before"]

    async def test_usage_example(self, coordinator: ModuleCoordinator, order: list[str]) -> None:
        file_handle, connection_pool, database = (Resource(name, order) for name in ("file", "pool", "database"))
        coordinator.register_cleanup(lambda: order.append("Simple cleanup"))
        coordinator.register_cleanup(Resource("async database", order).disconnect)
        coordinator.register_cleanup(file_handle.close)
        coordinator.register_cleanup(connection_pool.close)
        coordinator.register_cleanup(database.disconnect)
        await coordinator.cleanup()
        assert order == ["database", "pool", "file", "async database", "Simple cleanup"]


class TestCleanup:
    async def test_it_returns_none(self, coordinator: ModuleCoordinator) -> None:
        assert await coordinator.cleanup() is None

    @pytest.mark.parametrize("is_async", [False, True])
    async def test_a_failure_is_logged_and_the_others_run(
        self, coordinator: ModuleCoordinator, order: list[str], logs, *, is_async: bool
    ) -> None:
        def fails() -> None:
            raise RuntimeError("the socket is gone")

        async def fails_later() -> None:
            fails()

        coordinator.register_cleanup(Resource("first", order).close)
        coordinator.register_cleanup(fails_later if is_async else fails)
        coordinator.register_cleanup(Resource("last", order).disconnect)
        await coordinator.cleanup()
        assert order == ["last", "first"]
        assert logs.tell("error", "cleanup", "fails")

    async def test_one_that_awaits_what_it_cancelled_keeps_no_other_from_running(
        self, coordinator: ModuleCoordinator, order: list[str]
    ) -> None:
        task = asyncio.create_task(asyncio.Event().wait())

        async def ends_its_task() -> None:
            task.cancel()
            await task

        coordinator.register_cleanup(Resource("first", order).close)
        coordinator.register_cleanup(ends_its_task)
        await coordinator.cleanup()
        assert order == ["first"]

    async def test_being_cancelled_is_passed_on_after_the_others(
        self, coordinator: ModuleCoordinator, order: list[str]
    ) -> None:
        begun = asyncio.Event()

        async def waits() -> None:
            begun.set()
            await asyncio.Event().wait()

        coordinator.register_cleanup(Resource("first", order).close)
        coordinator.register_cleanup(waits)
        cleaning = asyncio.create_task(coordinator.cleanup())
        await begun.wait()
        cleaning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cleaning
        assert order == ["first"]

    async def test_each_function_runs_once(self, coordinator: ModuleCoordinator, order: list[str]) -> None:
        coordinator.register_cleanup(Resource("once", order).close)
        await coordinator.cleanup()
        await coordinator.cleanup()
        assert order == ["once"]

    async def test_the_session_calls_it(self, shipped_plan, order: list[str]) -> None:
        async with AmplifierSession(shipped_plan) as session:
            session.coordinator.register_cleanup(Resource("module", order).disconnect)
        assert order == ["module"]

    async def test_usage_example(self, coordinator: ModuleCoordinator, capsys) -> None:
        order: list[str] = []
        coordinator.register_cleanup(lambda: print("Cleanup step 1"))  # noqa: T201 - the document's own
        coordinator.register_cleanup(Resource("database", order).disconnect)
        coordinator.register_cleanup(Resource("file", order).close)
        await coordinator.cleanup()
        assert order == ["file", "database"]
        assert capsys.readouterr().out == "Cleanup step 1\n"


class TestResetTurn:
    async def test_it_sets_the_counter_to_zero_at_once(self, coordinator: ModuleCoordinator) -> None:
        await coordinator.process_hook_result(
            HookResult(action="inject_context", context_injection="Analysis complete", ephemeral=True), "e"
        )
        assert coordinator._current_turn_injections > 0
        assert coordinator.reset_turn() is None
        assert coordinator._current_turn_injections == 0

    async def test_it_touches_nothing_else(self, coordinator: ModuleCoordinator) -> None:
        context = await context_simple.mount(coordinator, {})
        await coordinator.mount("tools", "a tool", "t")
        coordinator.register_capability("a.b", 1)
        await context.add_message({"role": "user", "content": "hello"})
        coordinator.reset_turn()
        assert coordinator.get("context") is context
        assert coordinator.get("tools") == {"t": "a tool"}
        assert coordinator.get_capability("a.b") == 1
        assert len(await context.get_messages()) == 1

    async def test_usage_example(self, coordinator: ModuleCoordinator) -> None:
        await context_simple.mount(coordinator, {})
        await coordinator.process_hook_result(
            HookResult(action="inject_context", context_injection="Analysis complete"), event="tool.complete"
        )
        assert coordinator._current_turn_injections > 0
        coordinator.reset_turn()
        assert coordinator._current_turn_injections == 0
