"""The coordinator: mount points, capabilities, contributions, clean-up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import ScriptedProvider, echo

from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator

SINGLE = ["orchestrator", "context", "module-source-resolver"]
MULTI = ["providers", "tools", "agents"]


@pytest.fixture
def coordinator() -> ModuleCoordinator:
    plan = {"session": {"orchestrator": "o", "context": "c", "injection_size_limit": 50}}
    return AmplifierSession(plan, session_id="child", parent_id="parent").coordinator


@pytest.mark.parametrize("point", SINGLE)
async def test_a_single_mount_point_holds_one_module(coordinator: ModuleCoordinator, point: str) -> None:
    assert coordinator.get(point) is None
    await coordinator.mount(point, "old")
    await coordinator.mount(point, "new")
    assert coordinator.get(point) == "new"
    assert coordinator.get(point, "whatever") == "new"
    await coordinator.unmount(point)
    assert coordinator.get(point) is None


@pytest.mark.parametrize("point", MULTI)
async def test_a_multi_mount_point_holds_modules_by_name(coordinator: ModuleCoordinator, point: str) -> None:
    await coordinator.mount(point, "first", name="a")
    await coordinator.mount(point, "second", name="b")
    assert coordinator.get(point) == {"a": "first", "b": "second"}
    assert coordinator.get(point, "b") == "second"
    assert coordinator.get(point, "absent") is None
    await coordinator.unmount(point, "a")
    assert coordinator.get(point) == {"b": "second"}


async def test_the_name_of_a_module_is_taken_from_it(coordinator: ModuleCoordinator) -> None:
    tool, provider = echo(), ScriptedProvider()
    await coordinator.mount("tools", tool)
    await coordinator.mount("providers", provider)
    assert coordinator.get("tools", "echo") is tool
    assert coordinator.get("providers", "scripted") is provider


async def test_a_given_name_goes_before_the_modules_own(coordinator: ModuleCoordinator) -> None:
    await coordinator.mount("tools", echo(), name="other")
    assert list(coordinator.get("tools")) == ["other"]


@pytest.mark.parametrize("name", ["orchestrator", "context"])
async def test_the_session_alias_means_the_single_points(coordinator: ModuleCoordinator, name: str) -> None:
    await coordinator.mount("session", "module", name=name)
    assert coordinator.get(name) == coordinator.get("session", name) == "module"
    await coordinator.unmount("session", name)
    assert coordinator.get(name) is None


@pytest.mark.parametrize("name", [None, "tools"])
def test_the_session_alias_needs_a_single_point(coordinator: ModuleCoordinator, name: str | None) -> None:
    with pytest.raises(ValueError, match="session"):
        coordinator.mount("session", "module", name=name)


def test_a_mount_that_is_not_awaited_has_happened(coordinator: ModuleCoordinator) -> None:
    coordinator.mount("orchestrator", "module")
    coordinator.mount("tools", "module", name="t")
    assert coordinator.get("orchestrator") == coordinator.get("tools", "t") == "module"
    coordinator.unmount("tools", "t")
    assert coordinator.get("tools") == {}


async def test_mounts_can_be_gathered(coordinator: ModuleCoordinator) -> None:
    await asyncio.gather(coordinator.mount("tools", 1, name="a"), coordinator.mount("tools", 2, name="b"))
    assert coordinator.get("tools") == {"a": 1, "b": 2}


def test_errors_come_at_the_call_even_if_it_is_not_awaited(coordinator: ModuleCoordinator) -> None:
    with pytest.raises(ValueError, match=r"Unknown.*nowhere"):
        coordinator.mount("nowhere", "module")
    with pytest.raises(ValueError, match="Name required"):
        coordinator.mount("tools", object())
    with pytest.raises(ValueError, match="hooks"):
        coordinator.mount("hooks", object())


def test_unmounting_says_what_is_wrong(coordinator: ModuleCoordinator) -> None:
    with pytest.raises(ValueError, match="Name required"):
        coordinator.unmount("tools")
    with pytest.raises(ValueError, match="absent"):
        coordinator.unmount("tools", "absent")
    with pytest.raises(ValueError, match="Unknown"):
        coordinator.unmount("nowhere")


def test_getting_from_nowhere_is_an_error(coordinator: ModuleCoordinator) -> None:
    with pytest.raises(ValueError, match="Unknown"):
        coordinator.get("nowhere")


def test_hooks_are_the_registry(coordinator: ModuleCoordinator) -> None:
    assert coordinator.get("hooks") is coordinator.hooks


def test_it_knows_its_session(coordinator: ModuleCoordinator) -> None:
    assert (coordinator.session_id, coordinator.parent_id) == ("child", "parent")
    assert coordinator.session.coordinator is coordinator
    assert coordinator.config is coordinator.session.config
    assert coordinator.loader is coordinator.session.loader
    assert coordinator.injection_size_limit == 50
    assert coordinator.injection_budget_per_turn is None


def test_capabilities_are_found_by_name(coordinator: ModuleCoordinator) -> None:
    coordinator.register_capability("x.y", 1)
    coordinator.register_capability("x.y", 2)
    assert coordinator.get_capability("x.y") == 2
    assert coordinator.get_capability("absent") is None


async def test_contributions_come_in_order_without_the_silent_and_the_failing(coordinator: ModuleCoordinator) -> None:
    async def asynchronous() -> str:
        return "second"

    def failing() -> str:
        raise RuntimeError

    for callback in (lambda: "first", asynchronous, lambda: None, failing, list):
        coordinator.register_contributor("channel", "same name", callback)
    assert await coordinator.collect_contributions("channel") == ["first", "second", []]
    assert await coordinator.collect_contributions("silence") == []


async def test_clean_ups_run_last_first_and_once(coordinator: ModuleCoordinator) -> None:
    order: list[str] = []

    async def asynchronous() -> None:
        await asyncio.sleep(0)
        order.append("async")

    coordinator.register_cleanup(lambda: order.append("sync"))
    coordinator.register_cleanup(asynchronous)
    coordinator.register_cleanup(lambda: asynchronous())  # noqa: PLW0108 - a sync function that returns a coroutine
    await coordinator.cleanup()
    await coordinator.cleanup()
    assert order == ["async", "async", "sync"]


@pytest.mark.parametrize("error", [RuntimeError("broken"), asyncio.CancelledError()], ids=["error", "cancelled"])
async def test_a_clean_up_that_fails_keeps_no_other_from_running(
    coordinator: ModuleCoordinator, error: BaseException
) -> None:
    ran: list[str] = []

    async def fails() -> Any:
        raise error

    coordinator.register_cleanup(lambda: ran.append("first"))
    coordinator.register_cleanup(fails)
    coordinator.register_cleanup(lambda: ran.append("last"))
    await asyncio.gather(coordinator.cleanup(), return_exceptions=True)
    assert ran == ["last", "first"]
