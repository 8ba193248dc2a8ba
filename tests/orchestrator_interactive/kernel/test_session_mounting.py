"""What modules mount and return, and what happens to those that fail or mount nothing."""

import functools
from typing import Any, ClassVar

import pytest
from agents import Recorder, StaticLoader
from structlog.testing import capture_logs

from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator, ToolResult
from orchestrator_interactive.kernel.contracts.events import ALL_EVENTS
from orchestrator_interactive.testing import (
    MockContextManager,
    MockProvider,
    MockTool,
    ScriptedOrchestrator,
    TestCoordinator,
)


async def _orchestrator(_coordinator: ModuleCoordinator, _config: dict[str, Any]) -> Any:
    return ScriptedOrchestrator(["ok"])


async def _context(_coordinator: ModuleCoordinator, _config: dict[str, Any]) -> Any:
    return MockContextManager()


async def _broken(_coordinator: ModuleCoordinator, _config: dict[str, Any]) -> Any:
    raise RuntimeError("no key")


async def _silent(_coordinator: ModuleCoordinator, _config: dict[str, Any]) -> Any:
    return None


def _session(plan: dict[str, Any], **mounts: Any) -> AmplifierSession:
    loader: Any = StaticLoader(**{"o": _orchestrator, "c": _context, "broken": _broken, "silent": _silent, **mounts})
    return AmplifierSession({"session": {"orchestrator": "o", "context": "c"}, **plan}, loader=loader)


@pytest.mark.parametrize("is_mounted", [False, True])
async def test_a_callable_tool_that_is_returned_is_mounted_and_not_called(*, is_mounted: bool) -> None:
    class CallableTool(MockTool):
        calls = 0

        def __call__(self) -> None:
            CallableTool.calls += 1

    async def mount(coordinator: Any, _config: Any) -> Any:
        tool = CallableTool("t")
        if is_mounted:
            await coordinator.mount("tools", tool)
        return tool

    async with _session({"tools": ["m"]}, m=mount) as session:
        assert list(session.coordinator.get("tools")) == ["t"]
    assert CallableTool.calls == 0


async def test_a_returned_tool_is_not_mounted_if_its_module_has_mounted_another() -> None:
    async def mount(coordinator: Any, _config: Any) -> Any:
        await coordinator.mount("tools", MockTool("wrapper"))
        return MockTool("wrapped")

    async with _session({"tools": ["m"]}, m=mount) as session:
        assert list(session.coordinator.get("tools")) == ["wrapper"]


async def test_a_later_module_that_only_returns_its_tool_replaces_an_earlier_one_of_that_name() -> None:
    async def mount(_coordinator: Any, config: Any) -> Any:
        return MockTool("t", config["output"])

    tools = [{"module": "m", "config": {"output": output}} for output in ("first", "second")]
    async with _session({"tools": tools}, m=mount) as session:
        assert session.coordinator.get("tools", "t").output == "second"


async def test_a_returned_partial_function_is_a_cleanup() -> None:
    order: list[str] = []

    async def mount(_coordinator: Any, _config: Any) -> Any:
        return functools.partial(order.append, "closed")

    async with _session({"tools": ["m"]}, m=mount):
        assert order == []
    assert order == ["closed"]


async def test_a_hook_learns_of_modules_that_failed_before_it_was_mounted() -> None:
    recorder = Recorder()

    async def mount(coordinator: Any, _config: Any) -> None:
        recorder.listen(coordinator.hooks, "module:load_failed")

    await _session({"tools": ["broken"], "hooks": ["listens"]}, listens=mount).initialize()
    assert [data["module_id"] for data in recorder.of("module:load_failed")] == ["broken"]


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        ({"providers": ["silent"]}, "silent mounted nothing"),
        ({"providers": ["broken"], "tools": ["silent"]}, "broken: no key$"),
        ({"tools": ["broken", "silent"]}, "The mount plan names none"),
    ],
    ids=["nothing", "failure", "others"],
)
async def test_without_a_provider_the_error_says_why_each_one_is_missing(plan: dict[str, Any], error: str) -> None:
    with pytest.raises(RuntimeError, match=f"'providers'.*{error}"):
        await _session(plan).execute("hello")


async def test_a_context_or_a_loader_of_length_zero_works() -> None:
    class Countable:
        def __len__(self) -> int:
            return 0

    class Context(Countable, MockContextManager): ...

    class Library(Countable, StaticLoader): ...

    async def context(_coordinator: Any, _config: Any) -> Any:
        return Context()

    async def provider(_coordinator: Any, _config: Any) -> Any:
        return MockProvider()

    loader: Any = Library(o=_orchestrator, c=context, p=provider)
    plan = {"session": {"orchestrator": "o", "context": "c"}, "providers": ["p"]}
    session = AmplifierSession(plan, loader=loader)
    assert session.loader is loader
    assert await session.execute("hello") == "ok"


@pytest.mark.parametrize("point", ["orchestrator", "context", "providers", "tools"])
def test_none_cannot_be_mounted(point: str) -> None:
    with pytest.raises(ValueError, match="module is None"):
        TestCoordinator().mount(point, None, name="x")


@pytest.mark.parametrize("name", [5, b"x", ["x"], "  "], ids=repr)
def test_a_name_that_is_not_text_is_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="Name required"):
        TestCoordinator().mount("tools", MockTool(), name=name)


async def test_a_module_that_fails_halfway_leaves_nothing_behind() -> None:
    closed: list[str] = []

    async def half(coordinator: ModuleCoordinator, _config: dict[str, Any]) -> None:
        coordinator.register_cleanup(lambda: closed.append("half"))
        coordinator.register_capability("half", 1)
        coordinator.register_contributor("channel", "half", lambda: "half")
        await coordinator.mount("providers", MockProvider(name="half"))
        await coordinator.mount("tools", MockTool("t", "another's"))
        raise RuntimeError("the other half is missing")

    async def first(_coordinator: ModuleCoordinator, _config: dict[str, Any]) -> Any:
        return MockTool("t", "the first")

    session = _session({"tools": ["first", "half"], "providers": []}, first=first, half=half)
    session.coordinator.register_capability("kept", 2)
    with capture_logs() as logs:
        await session.initialize()
    assert [e["error"] for e in logs if e["event"] == "module.load_failed"] == ["the other half is missing"]
    assert (session.coordinator.get_capability("half"), session.coordinator.get_capability("kept")) == (None, 2)
    assert await session.coordinator.collect_contributions("channel") == []
    assert session.coordinator.get("providers") == {}
    assert session.coordinator.get("tools", "t").output == "the first"
    assert closed == ["half"]


class _ToolWithoutExecute:
    name = "t"
    description = "A tool."
    input_schema: ClassVar[dict[str, Any]] = {"type": "object", "properties": {}}


class _ProviderWithoutInfo:
    name = "p"

    async def list_models(self) -> list[Any]:
        return []

    async def complete(self, _request: Any, **_options: Any) -> Any: ...

    def parse_tool_calls(self, _response: Any) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("point", "module", "missing"),
    [("tools", _ToolWithoutExecute, "execute"), ("providers", _ProviderWithoutInfo, "get_info")],
)
@pytest.mark.parametrize("kind", ["its own", "hooks"])
async def test_a_module_that_lacks_a_method_of_its_contract_is_skipped(
    kind: str, point: str, module: Any, missing: str
) -> None:
    async def mount(coordinator: Any, _config: Any) -> None:
        await coordinator.mount(point, module())

    async def good(coordinator: Any, _config: Any) -> None:
        await coordinator.mount("providers", MockProvider(default="fine", name="good"))

    plan: dict[str, Any] = {"providers": ["good"]}
    plan[point if kind == "its own" else "hooks"] = [*plan.get(point if kind == "its own" else "hooks", ()), "m"]
    session = _session(plan, m=mount, good=good)
    failed = Recorder().listen(session.coordinator.hooks, "module:load_failed")
    async with session:
        assert list(session.coordinator.get(point)) == (["good"] if point == "providers" else [])
        assert await session.execute("Hello") == "ok"
    (event,) = failed.of("module:load_failed")
    assert f"lacks {missing} of the contract" in event["error"]


@pytest.mark.parametrize("lacks", ["execute", "description"])
async def test_each_instance_is_checked_and_one_mounted_later_is_logged(lacks: str) -> None:
    async def mount(coordinator: Any, config: dict[str, Any]) -> None:
        tool = MockTool("t")
        if config:
            setattr(tool, lacks, None)
        await coordinator.mount("tools", tool)

    session = _session({"tools": ["m", {"module": "m", "config": {"is": "incomplete"}}]}, m=mount)
    failed = Recorder().listen(session.coordinator.hooks, "module:load_failed")
    async with session:
        with capture_logs() as logs:
            await mount(session.coordinator, {"is": "incomplete"})
    [line], [event] = [each for each in logs if each["event"] == "module.incomplete"], failed.of("module:load_failed")
    for problem in (line["problem"], event["error"]):
        assert f"a MockTool as tool, which lacks {lacks} of the contract" in problem


async def test_the_end_of_a_session_is_in_its_status() -> None:
    session = _session({})
    async with session:
        assert session.status.ended_at is None
    assert session.status.ended_at is not None
    assert session.status.ended_at >= session.status.started_at


async def test_the_events_of_the_contract_are_not_contributed_again() -> None:
    async with _session({}) as session:
        contributed = await session.coordinator.collect_contributions("observability.events")
    assert not {name for names in contributed for name in names} & set(ALL_EVENTS)


def test_a_result_that_says_that_it_is_an_error_is_a_failure() -> None:
    result = ToolResult(is_error=True, output="no such file")
    assert not result.success
    assert "is_error" not in result.model_dump()
