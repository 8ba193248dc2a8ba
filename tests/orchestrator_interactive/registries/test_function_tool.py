"""Functions as tools: input, output and errors."""

import asyncio
import json
import sys
import threading
from typing import Any, Literal

import pytest
from agents import soon
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from orchestrator_interactive.kernel import ToolResult
from orchestrator_interactive.registries import ToolContext, ToolRegistry, tool
from orchestrator_interactive.registries.schemas import ToolConfig


class Place(BaseModel):
    location: str = Field(min_length=1)


class Journey(BaseModel):
    start: Place
    days: int = 1


class Weather(BaseModel):
    degrees: float
    sky: str = "clear"


def registered(function: Any, **config: Any) -> Any:
    """Return the tool of a function from a new registry."""
    made = tool(ToolConfig(name="try_it", description="Tries it.", **config))(function)
    return ToolRegistry([made]).get_tool_by_name("try_it")


async def test_a_function_gets_the_validated_input() -> None:
    async def plan(start: Place, days: int) -> str:
        return f"{type(start).__name__} {start.location}, {days}"

    result = await registered(plan, input_schema=Journey).execute({"start": {"location": "Rome"}, "days": "3"})
    assert result.output == "Place Rome, 3"


async def test_the_signature_is_the_default_input_schema() -> None:
    async def weather(location: str, unit: Literal["C", "F"] = "C") -> str:
        return f"{location} {unit}"

    made = registered(weather)
    assert (await made.execute({"location": "Rome"})).output == "Rome C"
    assert made.input_schema["required"] == ["location"]
    assert "there are: location, unit" in (await made.execute({"place": "Rome"})).output


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "try_it: 'start' is missing."),
        ({"start": {"location": ""}}, "try_it: 'start.location': String should have at least 1 character."),
        (
            {"start": {"location": "x"}, "days": "many"},
            "try_it: 'days': Input should be a valid integer, unable to parse string as an integer.",
        ),
        ([], "try_it: Input should be a valid dictionary or instance of Journey."),
    ],
)
async def test_the_error_names_the_invalid_field(given: Any, sentence: str) -> None:
    async def plan(start: Place, days: int) -> None:
        raise AssertionError("not called")

    result = await registered(plan, input_schema=Journey).execute(given)
    assert (result.success, result.output) == (False, sentence)


async def test_slow_sync_functions_do_not_use_the_default_threads() -> None:
    gate = threading.Event()

    def think() -> bool:
        return gate.wait(30)

    calls = [asyncio.ensure_future(registered(think).execute({})) for _ in range(40)]
    await asyncio.sleep(0)
    await soon(asyncio.to_thread(gate.set))
    assert all(result.output for result in await asyncio.gather(*calls))


@pytest.mark.parametrize(
    "given",
    [{"degrees": 20}, Weather(degrees=20), ToolResult(output={"degrees": "20"}), {"degrees": 20, "sky": "clear"}],
)
async def test_the_output_schema_validates_the_output(given: Any) -> None:
    async def weather() -> Any:
        return given

    result = await registered(weather, output_schema=Weather).execute({})
    assert (result.success, result.output) == (True, {"degrees": 20.0, "sky": "clear"})


async def test_an_invalid_output_is_a_failed_call() -> None:
    async def weather() -> Any:
        return {"degrees": "warm"}

    result = await registered(weather, output_schema=Weather, cache_ttl=60).execute({})
    assert not result.success
    assert result.output == (
        "The output of try_it is not as declared: 'degrees': Input should be a valid number, unable to parse string "
        "as a number."
    )


async def test_a_returned_failure_is_not_validated() -> None:
    async def weather() -> ToolResult:
        return ToolResult(success=False, error={"message": "no station there"})

    assert (await registered(weather, output_schema=Weather).execute({})).output == "no station there"


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_exception_is_a_failed_call(is_async: bool) -> None:
    def fail() -> None:
        raise OSError("no disk")

    async def fail_later() -> None:
        fail()

    result = await registered(fail_later if is_async else fail).execute({})
    assert (result.success, result.output) == (False, "OSError: no disk")


async def test_a_function_cannot_exit_the_process_or_cancel_its_caller() -> None:
    async def leave() -> None:
        sys.exit(3)

    async def cancel() -> None:
        raise asyncio.CancelledError

    assert "tried to exit the process" in (await registered(leave).execute({})).output
    assert "raised CancelledError" in (await registered(cancel).execute({})).output


async def test_a_tool_that_requires_context_fails_outside_a_session() -> None:
    async def look(context: ToolContext) -> str:
        return context.conversation_id

    result = await registered(look, requires_context=True).execute({})
    assert result.output == "try_it works in a session only: mount it there with mount_tools()."


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_any_input_gives_a_result(value: Any) -> None:
    async def keep(start: Place, days: int = 1, anything: Any = None) -> Any:
        return [start.location, days, anything]

    made = registered(keep, dedup_ttl=0)
    for each in (value, {"start": value}, {"start": {"location": "x"}, "anything": value}):
        result = asyncio.run(made.execute(each))
        assert isinstance(result, ToolResult)
        json.dumps(result.output)
