"""Tool contract, for the tools of `tool-filesystem` and `tool-todo`."""

from __future__ import annotations

import re
from typing import Any

import pytest
from agents import call, make_agent, raising, say, told, use
from pydantic import ValidationError

from orchestrator_interactive.kernel import ModuleCoordinator, ToolResult
from orchestrator_interactive.kernel.contracts.messages import ToolCall
from orchestrator_interactive.kernel.contracts.protocols import Tool
from orchestrator_interactive.modules import tool_filesystem, tool_todo

NAMES = ["list_files", "read_file", "search_files", "write_file", "todo"]
GOOD: dict[str, dict[str, Any]] = {
    "list_files": {},
    "read_file": {"path": "notes.md"},
    "search_files": {"query": "hello"},
    "write_file": {"path": "new.md", "content": "hello"},
    "todo": {"items": [{"text": "bake a cake"}]},
}
BAD: dict[str, Any] = {
    "list_files": {"path": "../elsewhere"},
    "read_file": {"path": "absent.md"},
    "search_files": {"query": ""},
    "write_file": {"path": "/etc/passwd", "content": "x"},
    "todo": {"items": "bake a cake"},
}


@pytest.fixture
async def tools(coordinator: ModuleCoordinator, tmp_path) -> dict[str, Any]:
    (tmp_path / "notes.md").write_text("hello\n")
    await tool_filesystem.mount(coordinator, {"root": str(tmp_path)})
    await tool_todo.mount(coordinator, {})
    return coordinator.get("tools")


@pytest.fixture(params=NAMES)
def tool(request: pytest.FixtureRequest, tools: dict[str, Any]) -> Any:
    return tools[request.param]


class TestProtocolDefinition:
    def test_a_tool_is_a_tool(self, tool: Any) -> None:
        assert isinstance(tool, Tool)

    def test_the_modules_mount_exactly_these(self, tools: dict[str, Any]) -> None:
        assert sorted(tools) == sorted(NAMES)

    async def test_a_tool_of_the_three_members_is_enough(self) -> None:
        class Least:
            name = "least"
            description = "Says done."

            async def execute(self, _input: dict[str, Any]) -> ToolResult:
                return ToolResult(output="done")

        agent = await make_agent(call(use("least", "a")), say("ok"), tools=[Least()])
        assert await agent.run() == "ok"
        assert told(agent.provider.sent(1))[-1] == ("tool", "done")


class TestDataModels:
    def test_a_tool_call_has_id_name_and_arguments(self) -> None:
        tool_call = ToolCall(id="1", name="read_file", arguments={"path": "a"})
        assert tool_call.model_dump() == {"id": "1", "name": "read_file", "arguments": {"path": "a"}}

    @pytest.mark.parametrize("missing", ["id", "name", "arguments"])
    def test_a_tool_call_without_one_of_them_is_refused(self, missing: str) -> None:
        whole = {"id": "1", "name": "read_file", "arguments": {}}
        with pytest.raises(ValidationError, match=missing):
            ToolCall.model_validate({key: value for key, value in whole.items() if key != missing})

    def test_a_tool_result_is_a_success_unless_it_says_otherwise(self) -> None:
        result = ToolResult()
        assert (result.success, result.output, result.error) == (True, None, None)

    @pytest.mark.parametrize("output", ["text", {"a": 1}, [1], 5, None], ids=str)
    def test_a_tool_result_takes_any_output(self, output: Any) -> None:
        assert ToolResult(output=output).output == output

    def test_a_failure_carries_its_error(self) -> None:
        result = ToolResult(success=False, error={"message": "gone", "type": "OSError"})
        assert result.error == {"message": "gone", "type": "OSError"}
        assert "gone" in result.get_serialized_output()


class TestNameAndDescription:
    def test_the_name_is_short_and_in_snake_case(self, tool: Any) -> None:
        assert re.fullmatch(r"[a-z][a-z_]{1,30}", tool.name)

    def test_the_name_is_the_one_it_is_mounted_under(self, tools: dict[str, Any]) -> None:
        assert {name: tool.name for name, tool in tools.items()} == {name: name for name in tools}

    def test_the_description_says_what_it_does(self, tool: Any) -> None:
        assert len(tool.description.split()) >= 5

    async def test_the_model_reads_name_and_description(self, tools: dict[str, Any]) -> None:
        agent = await make_agent(say("ok"), tools=list(tools.values()))
        await agent.run()
        declared = {spec.name: spec.description for spec in agent.provider.requests[0].tools or ()}
        assert declared == {name: tool.description for name, tool in tools.items()}


class MyTool:
    """The contract's own example."""

    name = "my_tool"
    description = "Performs specific action with given parameters."

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the name is the contract's
        try:
            required_param = input.get("required_param")
            if not required_param:
                return ToolResult(success=False, error={"message": "required_param is required"})
            result = await self._do_work(required_param)
            return ToolResult(success=True, output=result)
        except Exception as e:  # noqa: BLE001 - the document's own
            return ToolResult(success=False, error={"message": str(e), "type": type(e).__name__})

    def get_schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {
                "required_param": {"type": "string", "description": "Description of parameter"},
                "optional_param": {"type": "integer", "default": 10},
            },
            "required": ["required_param"],
        }

    async def _do_work(self, param: str) -> str:
        if param == "break":
            raise LookupError("nothing there")
        return f"did {param}"


class TestExecuteMethod:
    async def test_good_input_is_a_success(self, tool: Any) -> None:
        result = await tool.execute(GOOD[tool.name])
        assert isinstance(result, ToolResult)
        assert result.success, result
        assert result.error is None

    async def test_bad_input_is_a_failure_with_a_message(self, tool: Any) -> None:
        result = await tool.execute(BAD[tool.name])
        assert isinstance(result, ToolResult)
        assert not result.success
        assert result.error["message"]

    @pytest.mark.parametrize("nonsense", [{"nonsense": 1}, None, "text", [1]], ids=str)
    async def test_nonsense_is_a_failure_rather_than_a_crash(self, tool: Any, nonsense: Any) -> None:
        result = await tool.execute(nonsense)
        assert not result.success
        assert result.error["message"]

    async def test_what_is_bad_is_refused_before_anything_is_done(self, tools: dict[str, Any]) -> None:
        refused = await tools["write_file"].execute({"path": "new.md", "content": "x", "mode": "wild"})
        assert not refused.success
        assert not (await tools["read_file"].execute({"path": "new.md"})).success

    async def test_the_contracts_example_works_in_the_loop(self) -> None:
        calls = [use("my_tool", f"c{n}", **given) for n, given in enumerate(({"required_param": "it"}, {}))]
        calls.append(use("my_tool", "c2", required_param="break"))
        agent = await make_agent(call(*calls), say("ok"), tools=[MyTool(config={})])
        await agent.run()
        read = [text for role, text in told(agent.provider.sent(1)) if role == "tool"]
        assert read == ["did it", "required_param is required", "nothing there"]


class TestToolSchema:
    def test_a_tool_gives_a_json_schema(self, tool: Any) -> None:
        schema = tool.get_schema()
        assert schema["type"] == "object"
        assert set(schema.get("required", ())) <= set(schema["properties"])

    async def test_the_model_reads_the_schema(self) -> None:
        tool = MyTool(config={})
        agent = await make_agent(say("ok"), tools=[tool])
        await agent.run()
        [spec] = agent.provider.requests[0].tools or ()
        assert spec.parameters == tool.get_schema()

    async def test_a_tool_without_one_takes_any_object(self) -> None:
        class Least:
            name = "least"
            description = "Says done."

            async def execute(self, _input: dict[str, Any]) -> ToolResult:
                return ToolResult(output="done")

        agent = await make_agent(say("ok"), tools=[Least()])
        await agent.run()
        assert [spec.parameters for spec in agent.provider.requests[0].tools or ()] == [{"type": "object"}]


class TestConfiguration:
    async def test_a_tool_honours_its_configuration(self, coordinator: ModuleCoordinator, tmp_path) -> None:
        (tmp_path / "long.md").write_text("x" * 5000)
        await tool_filesystem.mount(coordinator, {"root": str(tmp_path), "max_read_bytes": 100})
        result = await coordinator.get("tools", "read_file").execute({"path": "long.md"})
        assert len(str(result.output)) < 1000

    @pytest.mark.parametrize(
        ("module", "config", "named"),
        [
            (tool_filesystem, {"max_results": 0}, "max_results"),
            (tool_filesystem, {"root": "x", "roof": 1}, "roof"),
            (tool_todo, {"a": 1}, "a"),
        ],
    )
    async def test_a_wrong_option_is_named(
        self, coordinator: ModuleCoordinator, module: Any, config: dict[str, Any], named: str
    ) -> None:
        with pytest.raises(ValueError, match=f"'{named}'"):
            await module.mount(coordinator, config)
        assert coordinator.get("tools") == {}


class TestObservability:
    """The tools that ship emit no events of their own, so they declare none; those of the loop are its to emit."""

    async def test_nothing_is_declared_that_is_not_emitted(
        self, coordinator: ModuleCoordinator, tools: dict[str, Any]
    ) -> None:
        assert tools
        assert await coordinator.collect_contributions("observability.events") == []

    @pytest.mark.parametrize(("event", "fails"), [("tool:pre", False), ("tool:post", False), ("tool:error", True)])
    async def test_the_standard_events_are_emitted_by_the_loop(self, event: str, *, fails: bool) -> None:
        tool = raising(OSError("broken"), "my_tool") if fails else MyTool(config={})
        agent = await make_agent(call(use("my_tool", "a", required_param="it")), say("ok"), tools=[tool])
        agent.events.listen(agent.hooks, event)
        await agent.run()
        assert [data["tool_name"] for data in agent.events.of(event)] == ["my_tool"]


class TestTesting:
    async def test_the_contracts_example(self) -> None:
        tool = MyTool(config={})
        result = await tool.execute({"required_param": "value"})
        assert result.success
        assert result.error is None
