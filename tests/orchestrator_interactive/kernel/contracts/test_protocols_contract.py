"""Module contracts: protocols, data models, entry points and `mount()` of modules of every type."""

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
    "provider-openai",
    "provider-recipe",
    "hooks-approval",
    "hooks-budget",
    "hooks-context-files",
    "hooks-logging",
    "tool-memory",
    "tool-skills",
    "tool-slack",
    "hooks-redaction",
    "tool-agents",
    "tool-ask-user",
    "tool-share-file",
    "tool-bash",
    "tool-delegate",
    "tool-dispatch-worker",
    "tool-filesystem",
    "tool-mcp",
    "tool-recipes",
    "tool-schedule",
    "tool-todo",
    "tool-web",
]


class TestModuleTypes:
    @pytest.mark.parametrize(
        ("protocol", "members"),
        [
            ("Provider", {"name", "get_info", "list_models", "complete", "parse_tool_calls"}),
            ("Tool", {"name", "description", "execute"}),
            ("HookHandler", {"__call__"}),
            ("Orchestrator", {"execute"}),
            ("ContextManager", {"add_message", "get_messages_for_request", "get_messages", "set_messages", "clear"}),
        ],
    )
    def test_each_type_has_a_protocol_with_the_documented_members(self, protocol: str, members: set[str]) -> None:
        kind = getattr(protocols, protocol)
        own = {name for name, value in vars(kind).items() if callable(value) or name in members}
        assert members <= own
        assert {name for name in own if not name.startswith("_")} <= members
        assert not isinstance(object(), kind)


class TestSourceOfTruth:
    @pytest.mark.parametrize(
        ("module", "names"),
        [
            (models, ["ToolResult", "HookResult", "ProviderInfo", "ModelInfo"]),
            (messages, ["ChatRequest", "ChatResponse", "Message", "ToolCall", "Usage", "ThinkingBlock"]),
        ],
        ids=["models", "messages"],
    )
    def test_the_data_models_have_the_documented_names(self, module: Any, names: list[str]) -> None:
        assert [name for name in names if not hasattr(module, name)] == []


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


class Module:
    """A module of every type: it has the members of all protocols."""

    name = description = "part"

    async def execute(self, prompt: Any, *_: Any, **__: Any) -> Any:
        return prompt

    def get_info(self) -> models.ProviderInfo:
        return models.ProviderInfo(id="part", display_name="Module")

    async def _nothing(self, *_: Any, **__: Any) -> list[Any]:
        return []

    list_models = complete = add_message = get_messages_for_request = get_messages = set_messages = clear = _nothing

    def parse_tool_calls(self, _response: Any) -> list[Any]:
        return []


async def mount_orchestrator(coordinator: ModuleCoordinator, _config: dict[str, Any]) -> None:
    await coordinator.mount("session", Module(), name="orchestrator")


async def mount_context(coordinator: ModuleCoordinator, _config: dict[str, Any]) -> None:
    await coordinator.mount("session", Module(), name="context")


def session_with(mount: Any, section: str, **mounts: Any) -> AmplifierSession:
    """Build a session whose plan has one module, `m`, in a section."""
    plan = {"session": {"orchestrator": "o", "context": "c"}, section: [{"module": "m", "config": {"a": 1}}]}
    loader: Any = StaticLoader(**{"o": mount_orchestrator, "c": mount_context, "m": mount, **mounts})
    return AmplifierSession(plan, loader=loader)


async def only_returns(_coordinator: ModuleCoordinator, _config: dict[str, Any]) -> Module:
    return Module()


class TestMountFunction:
    """By the contracts `mount` returns an instance, a cleanup function or nothing."""

    @pytest.mark.parametrize("section", ["providers", "tools"])
    async def test_an_instance_that_it_mounted_keeps_its_name(self, section: str) -> None:
        async def mount(coordinator: ModuleCoordinator, _config: dict[str, Any]) -> Module:
            module = Module()
            await coordinator.mount(section, module, name="my-part")
            return module

        async with session_with(mount, section) as session:
            assert list(session.coordinator.get(section)) == ["my-part"]

    @pytest.mark.parametrize("place", ["providers", "tools", "orchestrator", "context"])
    async def test_an_instance_that_it_only_returned_is_mounted(self, place: str) -> None:
        section = place if place in {"providers", "tools"} else "tools"
        async with session_with(only_returns, section, **{place[0]: only_returns}) as session:
            mounted = session.coordinator.get(place)
            assert isinstance(mounted["part"] if isinstance(mounted, dict) else mounted, Module)

    @pytest.mark.parametrize("section", ["providers", "tools", "hooks"])
    @pytest.mark.parametrize("is_async", [False, True])
    async def test_a_cleanup_function_runs_when_the_session_ends(self, section: str, *, is_async: bool) -> None:
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

        assert await load_failures(session_with(mount, section)) == []

    async def test_a_result_of_another_type_is_logged(self, logs) -> None:
        async def mount(_coordinator: ModuleCoordinator, _config: dict[str, Any]) -> str:
            return "done"

        async with session_with(mount, "tools"):
            assert logs.tell("warning", "'m'", "str")

    @pytest.mark.parametrize("section", ["providers", "tools", "hooks"])
    async def test_a_mount_that_fails_is_an_event_and_the_session_starts(self, section: str) -> None:
        [failed] = await load_failures(session_with(fails, section))
        assert (failed["module_type"], failed["module_id"]) == (section.removesuffix("s"), "m")
        assert "no key" in failed["error"]

    @pytest.mark.parametrize("point", ["orchestrator", "context"])
    async def test_the_error_of_an_orchestrator_or_context_ends_the_session(self, point: str) -> None:
        with pytest.raises(LookupError, match="no key"):
            await session_with(only_returns, "tools", **{point[0]: fails}).initialize()


async def fails(_coordinator: ModuleCoordinator, _config: dict[str, Any]) -> None:
    raise LookupError("no key")


async def load_failures(session: AmplifierSession) -> list[dict[str, Any]]:
    """Start and end the session; return the data of its `module:load_failed` events."""
    failed: list[dict[str, Any]] = []

    async def listen(_event: str, data: dict[str, Any]) -> HookResult:
        failed.append(data)
        return HookResult()

    session.coordinator.hooks.register("module:load_failed", listen)
    async with session:
        return failed
