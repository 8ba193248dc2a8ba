"""Module contracts: what all kinds of modules have in common."""

from __future__ import annotations

import inspect
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from agents import StaticLoader

from orchestrator_interactive.kernel import AmplifierSession, HookResult, ModuleCoordinator
from orchestrator_interactive.kernel.contracts import messages, models, protocols

PYPROJECT = Path(__file__).parents[4] / "pyproject.toml"
SHIPPED = [
    "loop-interactive",
    "context-simple",
    "context-stack",
    "provider-anthropic",
    "provider-demo",
    "tool-filesystem",
    "tool-todo",
]


class TestModuleTypes:
    @pytest.mark.parametrize(
        ("protocol", "members"),
        [
            ("Provider", {"name", "get_info", "list_models", "complete", "parse_tool_calls"}),
            ("Tool", {"name", "description", "execute"}),
            ("HookHandler", {"__call__"}),
            ("Orchestrator", {"execute"}),
            (
                "ContextManager",
                {"add_message", "get_messages_for_request", "get_messages", "set_messages", "clear"},
            ),
        ],
    )
    def test_each_type_has_a_protocol_with_the_contracts_members(self, protocol: str, members: set[str]) -> None:
        own = {name for name, value in vars(getattr(protocols, protocol)).items() if callable(value) or name in members}
        assert members <= own
        assert {name for name in own if not name.startswith("_")} <= members

    @pytest.mark.parametrize("protocol", ["Provider", "Tool", "HookHandler", "Orchestrator", "ContextManager"])
    def test_a_protocol_can_be_checked_at_run_time(self, protocol: str) -> None:
        assert not isinstance(object(), getattr(protocols, protocol))


class TestQuickStartPattern:
    async def test_it_runs_as_written(self, coordinator: ModuleCoordinator) -> None:
        class MyModule:
            def __init__(self, config: dict[str, Any]) -> None:
                self.config = config

        async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> MyModule:
            instance = MyModule(config)
            await coordinator.mount("tools", instance, name="my-module")
            return instance

        instance = await mount(coordinator, {"a": 1})
        assert coordinator.get("tools", "my-module") is instance


class TestSourceOfTruth:
    @pytest.mark.parametrize("name", ["ToolResult", "HookResult", "ProviderInfo", "ModelInfo"])
    def test_data_models_are_where_the_contracts_say(self, name: str) -> None:
        assert hasattr(models, name)

    @pytest.mark.parametrize("name", ["ChatRequest", "ChatResponse", "Message", "ToolCall", "Usage", "ThinkingBlock"])
    def test_message_models_have_the_contracts_names(self, name: str) -> None:
        assert hasattr(messages, name)


class TestEntryPointPattern:
    @pytest.mark.parametrize("module_id", SHIPPED)
    def test_a_shipped_module_is_an_entry_point_with_a_mount_function(self, module_id: str) -> None:
        [entry] = [entry for entry in entry_points(group="amplifier.modules") if entry.name == module_id]
        mount = entry.load()
        assert inspect.iscoroutinefunction(mount)
        assert list(inspect.signature(mount).parameters) == ["coordinator", "config"]

    def test_pyproject_declares_exactly_these(self) -> None:
        declared = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"]["amplifier.modules"]
        assert sorted(declared) == sorted(SHIPPED)


class Part:
    """A module of any type: it has the members of all of them."""

    name = description = "part"

    async def execute(self, prompt: Any, *_: Any, **__: Any) -> Any:
        return prompt

    def get_info(self) -> models.ProviderInfo:
        return models.ProviderInfo(id="part", display_name="Part")

    async def _nothing(self, *_: Any, **__: Any) -> list[Any]:
        return []

    list_models = complete = add_message = get_messages_for_request = get_messages = set_messages = clear = _nothing

    def parse_tool_calls(self, _response: Any) -> list[Any]:
        return []


async def mount_orchestrator(coordinator: ModuleCoordinator, _config: dict[str, Any]) -> None:
    await coordinator.mount("session", Part(), name="orchestrator")


async def mount_context(coordinator: ModuleCoordinator, _config: dict[str, Any]) -> None:
    await coordinator.mount("session", Part(), name="context")


def session_with(mount: Any, section: str, **mounts: Any) -> AmplifierSession:
    """A session whose plan has one module, `m`, in a section."""
    plan = {"session": {"orchestrator": "o", "context": "c"}, section: [{"module": "m", "config": {"a": 1}}]}
    shelf: Any = StaticLoader(**{"o": mount_orchestrator, "c": mount_context, "m": mount, **mounts})
    return AmplifierSession(plan, loader=shelf)


class TestMountFunction:
    """What `mount` may return, by the contracts: an instance, a clean-up, or nothing."""

    @pytest.mark.parametrize("section", ["providers", "tools"])
    async def test_an_instance_that_it_mounted_stays(self, section: str) -> None:
        async def mount(coordinator: ModuleCoordinator, _config: dict[str, Any]) -> Part:
            part = Part()
            await coordinator.mount(section, part, name="my-part")
            return part

        async with session_with(mount, section) as session:
            assert list(session.coordinator.get(section)) == ["my-part"]

    @pytest.mark.parametrize("section", ["providers", "tools"])
    async def test_an_instance_that_it_only_returned_is_registered_automatically(self, section: str) -> None:
        async def mount(_coordinator: ModuleCoordinator, _config: dict[str, Any]) -> Part:
            return Part()

        async with session_with(mount, section) as session:
            assert isinstance(session.coordinator.get(section, "part"), Part)

    @pytest.mark.parametrize("point", ["orchestrator", "context"])
    async def test_an_orchestrator_or_context_that_it_only_returned_is_registered_too(self, point: str) -> None:
        async def mount(_coordinator: ModuleCoordinator, _config: dict[str, Any]) -> Part:
            return Part()

        async with session_with(mount, "tools", **{point[0]: mount}) as session:
            assert isinstance(session.coordinator.get(point), Part)

    @pytest.mark.parametrize("section", ["providers", "tools", "hooks"])
    @pytest.mark.parametrize("is_async", [False, True])
    async def test_a_clean_up_runs_when_the_session_ends(self, section: str, *, is_async: bool) -> None:
        ended: list[str] = []

        async def later() -> None:
            ended.append("ended")

        async def mount(_coordinator: ModuleCoordinator, _config: dict[str, Any]) -> Any:
            return later if is_async else lambda: ended.append("ended")

        async with session_with(mount, section):
            assert ended == []
        assert ended == ["ended"]

    @pytest.mark.parametrize("section", ["providers", "tools", "hooks"])
    async def test_none_is_graceful_degradation(self, section: str) -> None:
        async def mount(_coordinator: ModuleCoordinator, _config: dict[str, Any]) -> None:
            return None

        session = session_with(mount, section)
        failed = await load_failures(session)
        assert failed == []

    async def test_a_result_that_is_none_of_these_is_logged(self, logs) -> None:
        async def mount(_coordinator: ModuleCoordinator, _config: dict[str, Any]) -> str:
            return "done"

        async with session_with(mount, "tools"):
            assert logs.tell("warning", "'m'", "str")

    @pytest.mark.parametrize("section", ["providers", "tools", "hooks"])
    async def test_a_mount_that_fails_is_reported_and_the_session_goes_on(self, section: str) -> None:
        async def mount(_coordinator: ModuleCoordinator, _config: dict[str, Any]) -> None:
            raise RuntimeError("no key")

        [failed] = await load_failures(session_with(mount, section))
        assert (failed["module_type"], failed["module_id"]) == (section.removesuffix("s"), "m")
        assert "no key" in failed["error"]

    @pytest.mark.parametrize("point", ["orchestrator", "context"])
    async def test_an_orchestrator_or_context_that_fails_ends_the_session_with_its_error(self, point: str) -> None:
        async def mount(_coordinator: ModuleCoordinator, _config: dict[str, Any]) -> None:
            raise LookupError("no disk")

        with pytest.raises(LookupError, match="no disk"):
            await session_with(mount, "tools", **{point[0]: mount}).initialize()


async def load_failures(session: AmplifierSession) -> list[dict[str, Any]]:
    """What the session tells of modules that it had to leave out."""
    failed: list[dict[str, Any]] = []

    async def listen(_event: str, data: dict[str, Any]) -> HookResult:
        failed.append(data)
        return HookResult()

    session.coordinator.hooks.register("module:load_failed", listen)
    async with session:
        return failed
