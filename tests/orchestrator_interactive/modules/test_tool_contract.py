"""Tool contract, for the tools of `tool-filesystem` and `tool-todo`."""

import re
from typing import Any

import pytest
from agents import call, make_agent, say, told, use
from pydantic import ValidationError

from orchestrator_interactive.kernel import ModuleCoordinator, ToolResult
from orchestrator_interactive.kernel.contracts.messages import ToolCall
from orchestrator_interactive.kernel.contracts.protocols import Tool
from orchestrator_interactive.modules import tool_filesystem, tool_todo

VALID: dict[str, dict[str, Any]] = {
    "list_files": {},
    "read_file": {"path": "notes.md"},
    "search_files": {"query": "hello"},
    "write_file": {"path": "new.md", "content": "hello"},
    "edit_file": {"path": "notes.md", "old_string": "hello", "new_string": "bye"},
    "move_file": {"path": "notes.md", "to": "old/notes.md"},
    "delete_file": {"path": "notes.md"},
    "todo": {"items": [{"text": "bake a cake"}]},
}
INVALID: dict[str, Any] = {
    "list_files": {"path": "../elsewhere"},
    "read_file": {"path": "absent.md"},
    "search_files": {"query": ""},
    "write_file": {"path": "new.md", "content": "x", "mode": "wild"},
    "edit_file": {"path": "notes.md", "old_string": "absent", "new_string": "bye"},
    "move_file": {"path": "absent.md", "to": "notes.md"},
    "delete_file": {"path": "absent.md"},
    "todo": {"items": "bake a cake"},
}


@pytest.fixture
async def tools(coordinator: ModuleCoordinator, tmp_path) -> dict[str, Any]:
    (tmp_path / "notes.md").write_text("hello\n")
    await tool_filesystem.mount(coordinator, {"root": str(tmp_path)})
    await tool_todo.mount(coordinator, {})
    return coordinator.get("tools")


@pytest.fixture(params=VALID)
def tool(request: pytest.FixtureRequest, tools: dict[str, Any]) -> Any:
    return tools[request.param]


class MinimalTool:
    """A tool of the three required members."""

    name = "minimal"
    description = "Says done."

    async def execute(self, _input: dict[str, Any]) -> ToolResult:
        return ToolResult(output="done")


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


class TestProtocolDefinition:
    def test_a_tool_describes_itself(self, tool: Any, tools: dict[str, Any]) -> None:
        assert isinstance(tool, Tool)
        assert tools[tool.name] is tool
        assert sorted(tools) == sorted(VALID)
        assert re.fullmatch(r"[a-z][a-z_]{1,30}", tool.name)
        assert len(tool.description.split()) >= 5
        schema = tool.get_schema()
        assert schema["type"] == "object"
        assert set(schema.get("required", ())) <= set(schema["properties"])

    async def test_the_model_reads_name_description_and_schema(self) -> None:
        tool = MyTool(config={})
        agent = await make_agent(call(use("minimal", "a")), say("ok"), tools=[tool, MinimalTool()])
        await agent.run()
        assert [(spec.name, spec.description, spec.parameters) for spec in agent.provider.requests[0].tools or ()] == [
            ("my_tool", tool.description, tool.get_schema()),
            ("minimal", "Says done.", {"type": "object"}),
        ]
        assert told(agent.provider.sent(1))[-1] == ("tool", "done")


class TestDataModels:
    @pytest.mark.parametrize("missing", ["id", "name", "arguments"])
    def test_a_tool_call_has_id_name_and_arguments(self, missing: str) -> None:
        fields = {"id": "1", "name": "read_file", "arguments": {"path": "a"}}
        assert ToolCall(**fields).model_dump() == fields
        del fields[missing]
        with pytest.raises(ValidationError, match=missing):
            ToolCall.model_validate(fields)

    @pytest.mark.parametrize("output", ["text", {"a": 1}, [1], 5, None], ids=str)
    def test_a_tool_result_is_a_success_with_any_output(self, output: Any) -> None:
        result = ToolResult(output=output)
        assert (result.success, result.output, result.error) == (True, output, None)

    def test_a_failure_has_an_error(self) -> None:
        result = ToolResult(success=False, error={"message": "gone", "type": "OSError"})
        assert result.error == {"message": "gone", "type": "OSError"}
        assert "gone" in result.get_serialized_output()


class TestExecuteMethod:
    async def test_valid_input_is_a_success(self, tool: Any) -> None:
        result = await tool.execute(VALID[tool.name])
        assert isinstance(result, ToolResult)
        assert (result.success, result.error) == (True, None)

    @pytest.mark.parametrize("given", [INVALID, {"nonsense": 1}, None, "text", [1]], ids=type)
    async def test_invalid_input_is_a_failure_with_a_message_and_no_effect(self, tool, tools, given) -> None:
        result = await tool.execute(INVALID[tool.name] if given is INVALID else given)
        assert isinstance(result, ToolResult)
        assert not result.success
        assert result.error["message"]
        assert not (await tools["read_file"].execute({"path": "new.md"})).success

    async def test_the_contracts_example_works_in_the_loop(self) -> None:
        inputs: list[dict[str, Any]] = [{"required_param": "it"}, {}, {"required_param": "break"}]
        calls = [use("my_tool", f"c{number}", **given) for number, given in enumerate(inputs)]
        agent = await make_agent(call(*calls), say("ok"), tools=[MyTool(config={})])
        await agent.run()
        read = [text for role, text in told(agent.provider.sent(1)) if role == "tool"]
        assert read == ["did it", "required_param is required", "nothing there"]


class TestObservability:
    async def test_the_tools_emit_and_contribute_no_events_of_their_own(self, coordinator, tools) -> None:
        assert tools
        assert await coordinator.collect_contributions("observability.events") == []
