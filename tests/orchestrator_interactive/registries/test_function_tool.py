"""Functions as tools: input, output and errors, the context of a call, and effects after a success."""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from agents import call, echo, make_agent, results, say, soon, use
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from registry_fixtures import RegistryFixture

from orchestrator_interactive.interactions.states import UserMessageState
from orchestrator_interactive.kernel import ToolResult
from orchestrator_interactive.kernel.contracts.messages import TextBlock
from orchestrator_interactive.registries import (
    NotRegistered,
    ToolContext,
    ToolRegistry,
    mount_tools,
    register_effect,
    tool,
)
from orchestrator_interactive.registries.schemas import ToolConfig
from orchestrator_interactive.validation import validate


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


MODULE = """
from orchestrator_interactive.registries import ToolRegistry, mount_tools, tool
from orchestrator_interactive.registries.schemas import ToolConfig


@tool(ToolConfig(name="get_weather", description="Tells the weather.", side_effect_free=True, cache_ttl=60))
async def get_weather(location: str, days: int = 1) -> dict[str, int]:
    return {location: days}


async def mount(coordinator, config):
    await mount_tools(coordinator, ["get_weather"], ToolRegistry([get_weather]))
"""


def located(**config: Any) -> Any:
    @tool(ToolConfig(name="where_am_i", description="Tells where.", requires_context=True, **config))
    async def where_am_i(context: ToolContext) -> list[Any]:
        last = await context.stack.at(0) if context.stack else None
        said = last.text if isinstance(last, UserMessageState) else None
        return [context.conversation_id, context.agent_id, said]

    return where_am_i


async def test_a_model_calls_a_registered_tool() -> None:
    registry = ToolRegistry([located(), echo()])
    agent = await make_agent(call(use("echo", "a", text="hi"), use("where_am_i", "b")), say("ok"))
    await mount_tools(agent.coordinator, ["where_am_i", "echo"], registry)
    assert await agent.run() == "ok"
    assert await results(agent) == {"a": "hi", "b": f'["{agent.session.session_id}", "", null]'}  # without a log
    assert [each.name for each in agent.provider.requests[0].tools or ()] == ["where_am_i", "echo"]


async def test_an_unknown_tool_is_an_error_and_nothing_is_mounted() -> None:
    agent = await make_agent(say("ok"))
    with pytest.raises(NotRegistered, match=r"There is no tool 'fly'\. Registered: echo"):
        await mount_tools(agent.coordinator, ["echo", "fly"], ToolRegistry([echo()]))
    assert agent.coordinator.get("tools") == {}


async def test_a_tool_that_depends_on_the_conversation_is_cached_per_conversation() -> None:
    fixture = RegistryFixture(tools=[located(cache_ttl=60, dedup_ttl=60)])
    steps = call(use("where_am_i", "a")), say("ok")
    script = await fixture.add("alpha", *steps, *steps, *steps, tools=["where_am_i"])
    seen = []
    for message, conversation_id in (("One", "first"), ("Two", "second"), ("Three", "first")):
        await fixture.run("alpha", message, conversation_id)
        seen.append(script.sent()[-1]["content"])
    assert seen == ['["first", "alpha", "One"]', '["second", "alpha", "Two"]', '["first", "alpha", "One"]']


async def test_a_registered_tool_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "weather.py"
    path.write_text(MODULE)
    report = validate(path, "tool", tool_input={"location": "Paris"})
    assert report.passed, report
    assert {finding.outcome for finding in report.findings} == {"passed"}


effects_run: list[Any] = []


@pytest.fixture(autouse=True)
def _no_effects() -> Iterator[None]:
    effects_run.clear()
    yield
    effects_run.clear()


@register_effect("note_it")
async def note_it(result: ToolResult, context: ToolContext | None) -> None:
    effects_run.append(("noted", result.output, context and context.conversation_id))


@register_effect("count_it")
def count_it(_result: ToolResult, _context: ToolContext | None) -> None:
    effects_run.append("counted")


@register_effect("break_it")
async def break_it(_result: ToolResult, _context: ToolContext | None) -> None:
    raise OSError("no disk")


def acting(*effects: str, succeeds: bool = True, content: Any = None, **config: Any) -> ToolRegistry:
    async def act() -> ToolResult:
        return ToolResult(success=succeeds, output={"done": 1}, content=content)

    made = tool(ToolConfig(name="act", description="Acts.", post_effects=list(effects), **config))(act)
    return ToolRegistry([made])


async def test_effects_follow_a_success_in_order() -> None:
    made = acting("count_it", "note_it", "count_it").get_tool_by_name("act")
    assert (await made.execute({})).output == {"done": 1}
    assert effects_run == ["counted", ("noted", {"done": 1}, None), "counted"]
    await acting("count_it", succeeds=False).get_tool_by_name("act").execute({})
    assert len(effects_run) == 3


@pytest.mark.parametrize(("content", "shown"), [(None, '{"done": 1}'), ([TextBlock(text="a picture")], "a picture")])
async def test_the_result_reports_a_failed_effect_and_the_others_run(content: Any, shown: str) -> None:
    made = acting("break_it", "count_it", content=content).get_tool_by_name("act")
    result = await made.execute({})
    assert (result.success, result.output, effects_run) == (True, {"done": 1}, ["counted"])
    assert [block.text for block in result.content or ()] == [
        shown,
        "[The call succeeded, but its effect 'break_it' failed: no disk]",
    ]


async def test_a_cached_result_has_no_effects() -> None:
    made = acting("count_it", cache_ttl=60).get_tool_by_name("act")
    await made.execute({})
    await made.execute({})
    assert effects_run == ["counted"]


async def test_a_tool_with_effects_runs_in_each_conversation() -> None:
    tools = acting("note_it", dedup_ttl=60)
    sessions = []
    for _ in range(2):
        agent = await make_agent(call(use("act", "a"), use("act", "b")), say("ok"))
        await mount_tools(agent.coordinator, ["act"], tools)
        await agent.run()
        sessions.append(agent.session.session_id)
    assert [session for _, _, session in effects_run] == sessions
