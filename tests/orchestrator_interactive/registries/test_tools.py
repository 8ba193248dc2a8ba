"""The registry of tools: names, errors, and tools of the contracts."""

from typing import Any

import pytest
from agents import echo

from orchestrator_interactive.kernel.contracts.protocols import Tool
from orchestrator_interactive.registries import (
    AlreadyRegistered,
    NotRegistered,
    ToolRegistry,
    register_effect,
    tool,
    tool_registry,
)
from orchestrator_interactive.registries.schemas import ToolConfig


@tool(ToolConfig(name="get_weather", description="Tells the weather.", side_effect_free=True))
async def my_tool(location: str) -> str:
    return f"Sunny in {location}."


async def test_the_documents_example() -> None:
    tool_registry.register(my_tool)
    weather_tool = tool_registry.get_tool_by_name("get_weather")
    assert (await weather_tool.execute({"location": "Paris"})).output == "Sunny in Paris."
    assert weather_tool in tool_registry.get_tools()
    assert tool_registry.list_tools()["get_weather"] == "Tells the weather."


async def test_a_registered_function_is_a_tool_of_the_contracts_and_still_a_function() -> None:
    made = ToolRegistry([my_tool]).get_tool_by_name("get_weather")
    assert isinstance(made, Tool)
    schema = {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
        "additionalProperties": False,
    }
    assert (made.input_schema, made.get_schema()) == (schema, schema)
    assert (made.side_effect_free, made.reflect) == (True, False)
    assert await my_tool("Rome") == "Sunny in Rome."


def test_names_of_tools_and_effects_are_unique() -> None:
    with pytest.raises(AlreadyRegistered, match="There is a tool 'get_weather' already"):
        ToolRegistry([my_tool]).register(my_tool)
    register_effect("taken")(lambda _result, _context: None)
    with pytest.raises(AlreadyRegistered, match="There is an effect 'taken' already"):
        register_effect("taken")(lambda _result, _context: None)


def test_a_tool_of_the_contracts_is_registered_unchanged() -> None:
    theirs = echo()
    registry = ToolRegistry([theirs])
    assert registry.get_tool_by_name("echo") is theirs
    assert registry.list_tools() == {"echo": "Does what 'echo' does."}


def test_the_error_of_an_unknown_name_names_the_registered_ones() -> None:
    with pytest.raises(NotRegistered, match=r"There is no tool 'get_wether'. Registered: echo, get_weather\."):
        ToolRegistry([my_tool, echo()]).get_tool_by_name("get_wether")
    with pytest.raises(NotRegistered, match="Registered: none"):
        ToolRegistry().get_tool_by_name("echo")


@pytest.mark.parametrize("given", [print, None, "get_weather", object()])
def test_an_object_that_is_not_a_tool_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="is no tool: give a tool of the contracts, or put @tool"):
        ToolRegistry().register(given)


def test_a_tool_with_an_unknown_effect_is_refused() -> None:
    config = ToolConfig(name="pay", description="", post_effects=["no_such_effect"])
    registry = ToolRegistry()
    with pytest.raises(NotRegistered, match="There is no effect 'no_such_effect'"):
        registry.register(tool(config)(my_tool.function))
    assert registry.get_tools() == []


def test_a_signature_that_cannot_be_called_by_keyword_is_refused() -> None:
    def many(*places: str) -> None: ...
    def odd(place: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    made = tool(ToolConfig(name="visit", description=""))
    with pytest.raises(TypeError, match=r"visit: '\*places.* cannot be passed by keyword: write input_schema"):
        ToolRegistry([made(many)])
    with pytest.raises(TypeError, match="visit: the signature cannot be read, 'Nowhere' is unknown"):
        ToolRegistry([made(odd)])
