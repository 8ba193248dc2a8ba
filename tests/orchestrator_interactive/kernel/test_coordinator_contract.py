"""Coordinator API: mount points, properties, capabilities, contributions, cleanup."""

import asyncio
import functools
import inspect
from typing import Any

import pytest

from orchestrator_interactive.kernel import AmplifierSession, HookResult, ModuleCoordinator, ModuleLoader
from orchestrator_interactive.modules import context_simple

PLAN = {"session": {"orchestrator": "o", "context": "c"}}
SINGLE = ["orchestrator", "context", "module-source-resolver"]
MULTI = ["providers", "tools", "agents"]
LIMITS = ["injection_budget_per_turn", "injection_size_limit"]


class CustomTool:
    name = "custom-tool"


class TestMethods:
    @pytest.mark.parametrize(
        ("method", "parameters", "defaults"),
        [
            ("mount", ["mount_point", "module", "name"], {"name": None}),
            ("unmount", ["mount_point", "name"], {"name": None}),
            ("get", ["mount_point", "name"], {"name": None}),
            ("register_cleanup", ["cleanup_fn"], {}),
            ("cleanup", [], {}),
            ("reset_turn", [], {}),
            ("register_capability", ["name", "value"], {}),
            ("get_capability", ["name"], {}),
            ("register_contributor", ["channel", "name", "callback"], {}),
            ("collect_contributions", ["channel"], {}),
            ("process_hook_result", ["result", "event", "hook_name"], {"hook_name": "unknown"}),
        ],
    )
    def test_a_method_has_the_documented_parameters(self, method, parameters, defaults) -> None:
        _, *given = inspect.signature(getattr(ModuleCoordinator, method)).parameters.values()
        assert [parameter.name for parameter in given] == parameters
        assert {p.name: p.default for p in given if p.default is not p.empty} == defaults


class TestModuleCoordinator:
    def test_it_takes_a_session_and_two_optional_systems(self) -> None:
        session, approvals, display = AmplifierSession(PLAN), object(), object()
        full = ModuleCoordinator(session=session, approval_system=approvals, display_system=display)
        assert (full.session, full.approval_system, full.display_system) == (session, approvals, display)
        bare = ModuleCoordinator(session=session)
        assert (bare.approval_system, bare.display_system) == (None, None)
        with pytest.raises(TypeError, match="session"):
            ModuleCoordinator()


class TestMountPoints:
    def test_every_mount_point_starts_empty(self, coordinator: ModuleCoordinator) -> None:
        assert [coordinator.get(point) for point in SINGLE] == [None] * 3
        assert [coordinator.get(point) for point in MULTI] == [{}] * 3

    def test_hooks_is_the_built_in_registry(self, coordinator: ModuleCoordinator) -> None:
        assert coordinator.get("hooks") is coordinator.get("hooks", "any name") is coordinator.hooks


class TestMount:
    @pytest.mark.parametrize("name", [None, "any name"])
    @pytest.mark.parametrize("point", SINGLE)
    async def test_a_single_mount_point_ignores_the_name(self, coordinator, point: str, name: str | None) -> None:
        module = object()
        assert await coordinator.mount(point, module, name=name) is None
        assert coordinator.get(point) is coordinator.get(point, "another name") is module

    @pytest.mark.parametrize("point", MULTI)
    async def test_a_multi_mount_point_takes_modules_by_name(self, coordinator: ModuleCoordinator, point: str) -> None:
        module = CustomTool()
        await coordinator.mount(point, "first", "a")
        await coordinator.mount(point, module)
        await coordinator.mount(point, module, name="given")
        assert coordinator.get(point) == {"a": "first", "custom-tool": module, "given": module}

    @pytest.mark.parametrize(("point", "name"), [*((point, None) for point in SINGLE), ("tools", "a")])
    async def test_replacing_a_module_logs_a_warning(self, coordinator, logs, point: str, name: str | None) -> None:
        await coordinator.mount(point, "old", name)
        assert not logs.tell("warning", "replaced")
        await coordinator.mount(point, "new", name)
        assert coordinator.get(point, name) == "new"
        assert logs.tell("warning", "replaced", point, name or "")

    @pytest.mark.parametrize(("point", "said"), [("hooks", r"hooks\.register"), ("nowhere", "mount point.*nowhere")])
    async def test_an_invalid_mount_point_is_an_error(self, coordinator, point: str, said: str) -> None:
        with pytest.raises(ValueError, match=said):
            await coordinator.mount(point, object())

    @pytest.mark.parametrize("module", [object(), type("Blank", (), {"name": ""})()], ids=["nameless", "blank"])
    @pytest.mark.parametrize("point", MULTI)
    async def test_a_missing_name_is_an_error(self, coordinator: ModuleCoordinator, point: str, module: Any) -> None:
        with pytest.raises(ValueError, match=f"Name required.*{point}"):
            await coordinator.mount(point, module)
        assert coordinator.get(point) == {}

    async def test_mount_and_unmount_are_logged(self, coordinator: ModuleCoordinator, logs) -> None:
        await coordinator.mount("tools", CustomTool())
        await coordinator.mount("context", CustomTool())
        await coordinator.unmount("tools", "custom-tool")
        assert logs.tell("debug", "CustomTool", "tools", "custom-tool")
        assert logs.tell("debug", "CustomTool", "context")
        assert logs.tell("debug", "unmounted", "tools", "'custom-tool'")

    def test_a_call_takes_effect_without_await(self, coordinator: ModuleCoordinator) -> None:
        """Module Source Protocol: Mounting a Custom Resolver writes it without `await`."""
        coordinator.mount("module-source-resolver", "resolver")
        coordinator.mount("tools", "tool", "t")
        assert coordinator.get("module-source-resolver") == "resolver"
        assert coordinator.get("tools") == {"t": "tool"}
        coordinator.unmount("tools", "t")
        assert coordinator.get("tools") == {}
        with pytest.raises(ValueError, match="nowhere"):
            coordinator.mount("nowhere", object())
        with pytest.raises(ValueError, match="absent"):
            coordinator.unmount("tools", "absent")

    async def test_mounts_can_be_gathered_and_made_tasks(self, coordinator: ModuleCoordinator) -> None:
        await asyncio.gather(coordinator.mount("tools", 1, "a"), coordinator.mount("tools", 2, "b"))
        await asyncio.create_task(coordinator.mount("tools", 3, "c"))
        assert coordinator.get("tools") == {"a": 1, "b": 2, "c": 3}
        await asyncio.create_task(coordinator.unmount("tools", "c"))
        assert list(coordinator.get("tools")) == ["a", "b"]

    @pytest.mark.parametrize("point", ["orchestrator", "context"])
    async def test_the_session_alias_means_the_single_mount_points(self, coordinator, point: str) -> None:
        await coordinator.mount("session", "module", name=point)
        assert coordinator.get(point) == coordinator.get("session", point) == "module"
        await coordinator.unmount("session", point)
        assert coordinator.get(point) is None

    @pytest.mark.parametrize("name", [None, "tools", "nowhere"])
    async def test_the_session_alias_needs_the_name_of_a_single_mount_point(self, coordinator, name) -> None:
        with pytest.raises(ValueError, match=r"session.*name"):
            await coordinator.mount("session", "module", name=name)


class TestUnmount:
    @pytest.mark.parametrize("point", SINGLE)
    async def test_a_single_mount_point_becomes_none(self, coordinator: ModuleCoordinator, point: str) -> None:
        await coordinator.mount(point, object())
        for _ in range(2):
            assert await coordinator.unmount(point) is None
            assert coordinator.get(point) is None

    @pytest.mark.parametrize("point", MULTI)
    async def test_only_the_named_module_is_removed(self, coordinator: ModuleCoordinator, point: str) -> None:
        await coordinator.mount(point, 1, "a")
        await coordinator.mount(point, 2, "b")
        await coordinator.unmount(point, "a")
        assert coordinator.get(point) == {"b": 2}

    @pytest.mark.parametrize(
        ("point", "name", "said"),
        [
            *((point, None, f"Name required.*{point}") for point in MULTI),
            *((point, "absent", f"absent.*{point}") for point in MULTI),
            ("invalid", None, "Unknown mount point.*invalid"),
            ("hooks", None, "(?i)hooks"),
        ],
    )
    async def test_a_wrong_place_or_name_is_an_error(self, coordinator, point, name, said) -> None:
        with pytest.raises(ValueError, match=said):
            await coordinator.unmount(point, name)


class TestGet:
    @pytest.mark.parametrize("point", MULTI)
    async def test_a_name_selects_a_module(self, coordinator: ModuleCoordinator, point: str) -> None:
        await coordinator.mount(point, "module", "a")
        assert coordinator.get(point) == {"a": "module"}
        assert coordinator.get(point, "a") == "module"
        assert coordinator.get(point, "nonexistent") is None

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


class TestProperties:
    def test_they_are_those_of_the_session(self) -> None:
        loader = ModuleLoader()
        session = AmplifierSession(PLAN, session_id="here", parent_id="above", loader=loader)
        coordinator = session.coordinator
        assert (coordinator.session, coordinator.loader) == (session, loader)
        assert (coordinator.session_id, coordinator.parent_id, coordinator.config) == ("here", "above", PLAN)

    def test_the_defaults_of_a_session(self) -> None:
        coordinators = [AmplifierSession(PLAN).coordinator for _ in range(3)]
        assert len({each.session_id for each in coordinators if each.session_id}) == 3
        for coordinator in coordinators:
            assert coordinator.parent_id is None
            assert [getattr(coordinator, limit) for limit in LIMITS] == [None, None]

    def test_modules_share_a_dictionary_during_the_session(self, coordinator: ModuleCoordinator) -> None:
        assert coordinator.session_state == {}
        coordinator.session_state["todos"] = ["buy flour"]
        assert coordinator.session_state.pop("todos") == ["buy flour"]
        coordinator.session_state |= {"budget": 1}
        assert coordinator.session_state == {"budget": 1}
        assert AmplifierSession(PLAN).coordinator.session_state == {}

    @pytest.mark.parametrize("name", ["session", "session_id", "parent_id", "config"])
    def test_the_infrastructure_is_read_only(self, coordinator: ModuleCoordinator, name: str) -> None:
        with pytest.raises(AttributeError):
            setattr(coordinator, name, "another")


class TestPolicyConfiguration:
    @pytest.mark.parametrize("value", [1000, None])
    @pytest.mark.parametrize("limit", LIMITS)
    def test_a_limit_comes_from_the_session_section(self, make_coordinator, limit: str, value: int | None) -> None:
        assert getattr(make_coordinator(**{limit: value}), limit) == value

    @pytest.mark.parametrize("wrong", ["50", -1, [], True])
    @pytest.mark.parametrize("limit", LIMITS)
    def test_the_error_names_a_limit_that_is_not_a_number(self, make_coordinator, limit: str, wrong: object) -> None:
        with pytest.raises(ValueError, match=f"session.{limit}"):
            make_coordinator(**{limit: wrong})


class Resource:
    """A resource with a synchronous and an asynchronous way to close, which record that they were called."""

    def __init__(self, name: str, order: list[str]) -> None:
        self._name = name
        self._order = order

    def close(self) -> None:
        self._order.append(self._name)

    async def disconnect(self) -> None:
        await asyncio.sleep(0)
        self._order.append(self._name)


def fails() -> None:
    raise RuntimeError("the socket is gone")


async def fails_later() -> None:
    fails()


async def fails_to_await_its_task() -> None:
    task = asyncio.create_task(asyncio.Event().wait())
    task.cancel()
    await task


@pytest.fixture
def order() -> list[str]:
    return []


class TestCleanup:
    async def test_functions_of_every_kind_run_once_the_latest_first(self, coordinator, order) -> None:
        sync, awaited, wrapped, partial = (Resource(name, order) for name in ("sync", "async", "lambda", "partial"))
        for function in (
            sync.close,
            awaited.disconnect,
            lambda: wrapped.disconnect(),  # noqa: PLW0108 - a function that returns a coroutine
            functools.partial(partial.disconnect),
        ):
            assert coordinator.register_cleanup(function) is None
        assert order == []
        for _ in range(2):
            assert await coordinator.cleanup() is None
            assert order == ["partial", "lambda", "async", "sync"]

    @pytest.mark.parametrize("failing", [fails, fails_later, fails_to_await_its_task, "not callable"])
    async def test_a_failure_is_logged_and_the_others_run(self, coordinator, order, logs, failing: Any) -> None:
        coordinator.register_cleanup(Resource("first", order).close)
        coordinator.register_cleanup(failing)
        coordinator.register_cleanup(Resource("last", order).disconnect)
        await coordinator.cleanup()
        assert order == ["last", "first"]
        assert logs.tell("error", "cleanup", getattr(failing, "__name__", ""))

    async def test_cancelling_the_caller_takes_effect_after_the_others(self, coordinator, order) -> None:
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


class TestResetTurn:
    async def test_it_resets_the_injection_counter_and_nothing_else(self, coordinator: ModuleCoordinator) -> None:
        context = await context_simple.mount(coordinator, {})
        await coordinator.mount("tools", "a tool", "t")
        coordinator.register_capability("a.b", 1)
        await coordinator.process_hook_result(
            HookResult(action="inject_context", context_injection="Analysis complete"), "tool.complete"
        )
        assert coordinator._current_turn_injections > 0
        assert coordinator.reset_turn() is None
        assert coordinator._current_turn_injections == 0
        assert coordinator.get("context") is context
        assert coordinator.get("tools") == {"t": "a tool"}
        assert coordinator.get_capability("a.b") == 1
        assert len(await context.get_messages()) == 1


class TestCapabilities:
    @pytest.mark.parametrize("value", [len, "data", {"a": 1}, 0, None])
    @pytest.mark.parametrize("name", ["agents.spawn", "events.tool_complete", "transform.json_schema"])
    def test_any_value_is_available_at_once(self, coordinator: ModuleCoordinator, name: str, value: object) -> None:
        coordinator.register_capability(name, "the first")
        assert coordinator.register_capability(name, value) is None
        assert coordinator.get_capability(name) is value

    def test_only_a_registration_is_logged(self, coordinator: ModuleCoordinator, logs) -> None:
        assert coordinator.get_capability("agents.list") is None
        assert logs.count() == 0
        coordinator.register_capability("agents.list", list)
        assert logs.tell("debug", "capability", "agents.list")


async def returns_two() -> str:
    return "two"


class TestRegisterContributor:
    async def test_each_channel_has_its_contributors(self, coordinator: ModuleCoordinator) -> None:
        assert await coordinator.collect_contributions("one") == []
        assert coordinator.register_contributor("one", "module", lambda: 1) is None
        coordinator.register_contributor("two", "module", lambda: 2)
        assert await coordinator.collect_contributions("one") == [1]

    async def test_a_callback_is_called_only_when_collected(self, coordinator: ModuleCoordinator) -> None:
        calls: list[int] = []
        coordinator.register_contributor("c", "module", lambda: calls.append(1))
        assert calls == []
        await coordinator.collect_contributions("c")
        assert calls == [1]


class TestCollectContributions:
    @pytest.mark.parametrize(
        "callback",
        [lambda: "two", returns_two, lambda: returns_two(), functools.partial(returns_two)],  # noqa: PLW0108 - a function that returns a coroutine
        ids=["sync", "async", "returns a coroutine", "partial"],
    )
    async def test_every_kind_of_callback_contributes_in_order_of_registration(self, coordinator, callback) -> None:
        for contribution in (lambda: "one", callback, lambda: "three"):
            coordinator.register_contributor("c", "the same name", contribution)
        assert await coordinator.collect_contributions("c") == ["one", "two", "three"]

    @pytest.mark.parametrize("is_async", [False, True])
    async def test_a_failure_is_logged_with_name_and_channel_and_omitted(self, coordinator, logs, *, is_async) -> None:
        def fails() -> Any:
            raise RuntimeError

        async def fails_later() -> Any:
            raise RuntimeError

        coordinator.register_contributor("a.channel", "the broken one", fails_later if is_async else fails)
        coordinator.register_contributor("a.channel", "module", lambda: "fine")
        assert await coordinator.collect_contributions("a.channel") == ["fine"]
        assert logs.tell("error", "contributor", "the broken one", "a.channel")

    async def test_none_is_omitted_and_other_empty_values_are_not(self, coordinator: ModuleCoordinator) -> None:
        for value in (None, [], 0, "", {}):
            coordinator.register_contributor("c", "module", lambda value=value: value)
        assert await coordinator.collect_contributions("c") == [[], 0, "", {}]
