"""Coordinator API: mount, unmount, get."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from orchestrator_interactive.kernel import ModuleCoordinator

SINGLE = ["orchestrator", "context", "module-source-resolver"]
MULTI = ["providers", "tools", "agents"]


class CustomTool:
    name = "custom-tool"


class TestMethods:
    """The section's common usage patterns; hook results have files of their own."""

    async def test_module_lifecycle_management(self, coordinator: ModuleCoordinator) -> None:
        openai_provider = object()
        await coordinator.mount("providers", openai_provider, "openai")
        provider = coordinator.get("providers", "openai")
        assert provider is openai_provider
        await coordinator.unmount("providers", "openai")
        assert coordinator.get("providers", "openai") is None

    async def test_inter_module_communication(self, coordinator: ModuleCoordinator) -> None:
        coordinator.register_capability("agents.list", lambda: ["research"])
        list_func = coordinator.get_capability("agents.list")
        assert list_func() == ["research"]

    async def test_contribution_aggregation(self, coordinator: ModuleCoordinator) -> None:
        coordinator.register_contributor(
            "observability.events", "tool-task", lambda: ["task:spawned", "task:completed"]
        )
        events = await coordinator.collect_contributions("observability.events")
        assert ["task:spawned", "task:completed"] in events


class TestMount:
    def test_its_signature(self) -> None:
        parameters = inspect.signature(ModuleCoordinator.mount).parameters
        assert list(parameters) == ["self", "mount_point", "module", "name"]
        assert parameters["name"].default is None

    async def test_it_returns_none(self, coordinator: ModuleCoordinator) -> None:
        assert await coordinator.mount("tools", object(), "t") is None

    @pytest.mark.parametrize("point", SINGLE)
    async def test_a_single_mount_point_takes_a_module(self, coordinator: ModuleCoordinator, point: str) -> None:
        module = object()
        await coordinator.mount(point, module)
        assert coordinator.get(point) is module

    @pytest.mark.parametrize("point", SINGLE)
    async def test_at_a_single_mount_point_a_name_is_optional(self, coordinator: ModuleCoordinator, point: str) -> None:
        module = object()
        await coordinator.mount(point, module, name="whatever")
        assert coordinator.get(point) is module

    @pytest.mark.parametrize("point", SINGLE)
    async def test_replacing_a_module_is_a_warning(self, coordinator: ModuleCoordinator, logs, point: str) -> None:
        await coordinator.mount(point, "old")
        assert not logs.tell("warning")
        await coordinator.mount(point, "new")
        assert coordinator.get(point) == "new"
        assert logs.tell("warning", point)

    @pytest.mark.parametrize("point", MULTI)
    async def test_a_multi_mount_point_takes_modules_by_name(self, coordinator: ModuleCoordinator, point: str) -> None:
        await coordinator.mount(point, "first", "a")
        await coordinator.mount(point, "second", name="b")
        assert coordinator.get(point) == {"a": "first", "b": "second"}

    @pytest.mark.parametrize("point", MULTI)
    async def test_a_name_is_taken_from_the_module(self, coordinator: ModuleCoordinator, point: str) -> None:
        module = CustomTool()
        await coordinator.mount(point, module)
        assert coordinator.get(point) == {"custom-tool": module}

    async def test_a_given_name_goes_before_the_modules_own(self, coordinator: ModuleCoordinator) -> None:
        await coordinator.mount("tools", CustomTool(), name="other")
        assert list(coordinator.get("tools")) == ["other"]

    async def test_replacing_a_named_module_is_a_warning(self, coordinator: ModuleCoordinator, logs) -> None:
        await coordinator.mount("tools", "old", "a")
        await coordinator.mount("tools", "new", "a")
        assert coordinator.get("tools", "a") == "new"
        assert logs.tell("warning", "tools", "'a'")

    async def test_hooks_are_registered_with_the_registry_instead(self, coordinator: ModuleCoordinator) -> None:
        with pytest.raises(ValueError, match=r"hooks\.register"):
            await coordinator.mount("hooks", object())

    async def test_an_unknown_mount_point_is_named(self, coordinator: ModuleCoordinator) -> None:
        with pytest.raises(ValueError, match=r"mount point.*nowhere"):
            await coordinator.mount("nowhere", object())

    @pytest.mark.parametrize("module", [object(), type("Blank", (), {"name": ""})()], ids=["nameless", "blank"])
    @pytest.mark.parametrize("point", MULTI)
    async def test_a_missing_name_is_an_error(self, coordinator: ModuleCoordinator, point: str, module: Any) -> None:
        with pytest.raises(ValueError, match=f"Name required.*{point}"):
            await coordinator.mount(point, module)
        assert coordinator.get(point) == {}

    async def test_a_mount_is_logged_with_class_and_place(self, coordinator: ModuleCoordinator, logs) -> None:
        await coordinator.mount("tools", CustomTool())
        assert logs.tell("debug", "CustomTool", "tools", "custom-tool")
        await coordinator.mount("context", CustomTool())
        assert logs.tell("debug", "CustomTool", "context")

    def test_a_mount_that_is_not_awaited_has_happened(self, coordinator: ModuleCoordinator) -> None:
        """Module Source Protocol: Mounting a Custom Resolver writes it without `await`."""
        coordinator.mount("module-source-resolver", "resolver")
        coordinator.mount("tools", "tool", "t")
        assert coordinator.get("module-source-resolver") == "resolver"
        assert coordinator.get("tools") == {"t": "tool"}
        coordinator.unmount("tools", "t")
        assert coordinator.get("tools") == {}

    def test_what_is_wrong_is_said_at_the_call_even_if_it_is_not_awaited(self, coordinator: ModuleCoordinator) -> None:
        with pytest.raises(ValueError, match="nowhere"):
            coordinator.mount("nowhere", object())
        with pytest.raises(ValueError, match="absent"):
            coordinator.unmount("tools", "absent")

    async def test_mounts_can_be_gathered(self, coordinator: ModuleCoordinator) -> None:
        await asyncio.gather(coordinator.mount("tools", 1, "a"), coordinator.mount("tools", 2, "b"))
        assert coordinator.get("tools") == {"a": 1, "b": 2}

    @pytest.mark.parametrize("point", ["orchestrator", "context"])
    async def test_the_contracts_session_alias_means_the_single_points(
        self, coordinator: ModuleCoordinator, point: str
    ) -> None:
        await coordinator.mount("session", "module", name=point)
        assert coordinator.get(point) == coordinator.get("session", point) == "module"
        await coordinator.unmount("session", point)
        assert coordinator.get(point) is None

    @pytest.mark.parametrize("name", [None, "tools", "nowhere"])
    async def test_the_session_alias_needs_the_name_of_a_single_point(
        self, coordinator: ModuleCoordinator, name: str | None
    ) -> None:
        with pytest.raises(ValueError, match=r"session.*name"):
            await coordinator.mount("session", "module", name=name)

    async def test_usage_example(self, coordinator: ModuleCoordinator) -> None:
        orchestrator_instance, context_manager, openai_provider, filesystem_tool = (object() for _ in range(4))
        await coordinator.mount("orchestrator", orchestrator_instance)
        await coordinator.mount("context", context_manager)
        await coordinator.mount("providers", openai_provider, "openai")
        await coordinator.mount("tools", filesystem_tool, "filesystem")
        my_tool = CustomTool()
        await coordinator.mount("tools", my_tool)
        assert coordinator.get("tools") == {"filesystem": filesystem_tool, "custom-tool": my_tool}


class TestUnmount:
    def test_its_signature(self) -> None:
        parameters = inspect.signature(ModuleCoordinator.unmount).parameters
        assert list(parameters) == ["self", "mount_point", "name"]
        assert parameters["name"].default is None

    @pytest.mark.parametrize("point", SINGLE)
    async def test_a_single_mount_point_becomes_none(self, coordinator: ModuleCoordinator, point: str) -> None:
        await coordinator.mount(point, object())
        assert await coordinator.unmount(point) is None
        assert coordinator.get(point) is None

    @pytest.mark.parametrize("point", SINGLE)
    async def test_an_empty_single_mount_point_may_be_unmounted(
        self, coordinator: ModuleCoordinator, point: str
    ) -> None:
        await coordinator.unmount(point)
        assert coordinator.get(point) is None

    @pytest.mark.parametrize("point", MULTI)
    async def test_only_the_named_module_goes(self, coordinator: ModuleCoordinator, point: str) -> None:
        await coordinator.mount(point, 1, "a")
        await coordinator.mount(point, 2, "b")
        await coordinator.unmount(point, "a")
        assert coordinator.get(point) == {"b": 2}

    @pytest.mark.parametrize("point", MULTI)
    async def test_a_missing_name_is_an_error(self, coordinator: ModuleCoordinator, point: str) -> None:
        with pytest.raises(ValueError, match=f"Name required.*{point}"):
            await coordinator.unmount(point)

    @pytest.mark.parametrize("point", MULTI)
    async def test_a_module_that_is_not_there_is_an_error(self, coordinator: ModuleCoordinator, point: str) -> None:
        with pytest.raises(ValueError, match=f"absent.*{point}"):
            await coordinator.unmount(point, "absent")

    @pytest.mark.parametrize("point", ["invalid", "hooks"])
    async def test_an_invalid_mount_point_is_an_error(self, coordinator: ModuleCoordinator, point: str) -> None:
        with pytest.raises(ValueError, match=r"(?i)" + point):
            await coordinator.unmount(point)

    async def test_an_unmount_is_logged_with_place_and_name(self, coordinator: ModuleCoordinator, logs) -> None:
        await coordinator.mount("tools", object(), "a")
        await coordinator.unmount("tools", "a")
        assert logs.tell("debug", "unmounted", "tools", "'a'")

    async def test_usage_example(self, coordinator: ModuleCoordinator) -> None:
        names = {"orchestrator": None, "context": None, "providers": "openai", "tools": "filesystem"}
        for point, name in names.items():
            await coordinator.mount(point, object(), name)
        await coordinator.unmount("orchestrator")
        await coordinator.unmount("context")
        await coordinator.unmount("providers", "openai")
        await coordinator.unmount("tools", "filesystem")
        with pytest.raises(ValueError, match="Name required"):
            await coordinator.unmount("providers")
        with pytest.raises(ValueError, match="Unknown mount point"):
            await coordinator.unmount("invalid")


class TestGet:
    def test_its_signature(self) -> None:
        parameters = inspect.signature(ModuleCoordinator.get).parameters
        assert list(parameters) == ["self", "mount_point", "name"]
        assert parameters["name"].default is None

    @pytest.mark.parametrize("point", SINGLE)
    async def test_a_single_mount_point_ignores_the_name(self, coordinator: ModuleCoordinator, point: str) -> None:
        await coordinator.mount(point, "module")
        assert coordinator.get(point, "whatever") == coordinator.get(point) == "module"

    def test_hooks_ignore_the_name(self, coordinator: ModuleCoordinator) -> None:
        assert coordinator.get("hooks", "whatever") is coordinator.hooks

    @pytest.mark.parametrize("point", MULTI)
    def test_a_name_that_is_not_there_is_none(self, coordinator: ModuleCoordinator, point: str) -> None:
        assert coordinator.get(point, "nonexistent") is None

    @pytest.mark.parametrize("point", MULTI)
    async def test_without_a_name_it_is_the_whole_dictionary(self, coordinator: ModuleCoordinator, point: str) -> None:
        await coordinator.mount(point, "module", "a")
        assert coordinator.get(point) == {"a": "module"}

    def test_an_unknown_mount_point_is_an_error(self, coordinator: ModuleCoordinator) -> None:
        with pytest.raises(ValueError, match=r"mount point.*nowhere"):
            coordinator.get("nowhere")

    async def test_it_logs_nothing(self, coordinator: ModuleCoordinator, logs) -> None:
        await coordinator.mount("tools", object(), "a")
        before = logs.count()
        coordinator.get("tools")
        coordinator.get("tools", "a")
        coordinator.get("orchestrator")
        assert logs.count() == before

    async def test_usage_example(self, coordinator: ModuleCoordinator) -> None:
        for name in ("openai", "anthropic"):
            await coordinator.mount("providers", f"the {name} provider", name)
        for name in ("filesystem", "web"):
            await coordinator.mount("tools", f"the {name} tool", name)
        assert coordinator.get("orchestrator") is None
        assert coordinator.get("context") is None
        assert coordinator.get("hooks") is coordinator.hooks
        assert coordinator.get("providers", "openai") == "the openai provider"
        assert coordinator.get("tools", "filesystem") == "the filesystem tool"
        assert coordinator.get("providers") == {"openai": "the openai provider", "anthropic": "the anthropic provider"}
        assert coordinator.get("tools") == {"filesystem": "the filesystem tool", "web": "the web tool"}
        assert coordinator.get("providers", "nonexistent") is None
