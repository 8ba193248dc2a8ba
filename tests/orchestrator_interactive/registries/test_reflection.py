"""Self-reflection: what a reflection agent says is in the log and before the agent's eyes, and never in its way."""

from __future__ import annotations

from typing import Any

import pytest
from agents import call, echo, fail, having, never, raising, say, soon, told, use
from registry_fixtures import RegistryFixture
from virtual_time import in_virtual_time

from orchestrator_interactive.interactions.states import AgentResultState, AssistantMessageState, ToolResultState
from orchestrator_interactive.kernel import HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.errors import AuthenticationError
from orchestrator_interactive.registries import tool
from orchestrator_interactive.registries.reflection import Reflection
from orchestrator_interactive.registries.schemas import ToolConfig

REFLECTING = {"enable_self_reflection": True, "reflection_agent_id": "judge"}
GOOD = '{"score": 0.8, "comment": "Precise."}'


@tool(ToolConfig(name="weather", description="Tells the weather.", reflect=True))
async def weather(location: str) -> str:
    return f"Sunny in {location}."


async def a_house(*verdicts: Any, tools: tuple[Any, ...] = (weather,), **parts: Any) -> RegistryFixture:
    """An agent that asks for the weather, and one that judges."""
    house = RegistryFixture(tools=tools, **parts)
    asks = call(use(getattr(tools[0], "name", "weather"), "w", location="Paris"))
    names = [name for name in house.tools.list_tools() if name != "call_agent"]
    await house.add("alpha", asks, say("Done."), tools=names, **REFLECTING)
    await house.add("judge", *verdicts)
    return house


async def rewards(house: RegistryFixture) -> list[float | None]:
    return [state.reward for state in await house.states(ToolResultState, "alpha")]


async def comments(house: RegistryFixture) -> list[tuple[Any, Any]]:
    said = await house.states(AssistantMessageState, "alpha")
    return [(state.content, state.meta) for state in said if str(state.meta).startswith("reflection:")]


async def test_a_judgement_is_the_results_reward_and_its_comment_stands_in_the_log() -> None:
    house = await a_house(say(GOOD))
    assert await house.run("alpha") == "Done."
    assert await rewards(house) == [0.8]
    assert await comments(house) == [("Precise.", "reflection:weather")]


async def test_the_reflection_agent_sees_what_was_asked_and_what_it_brought() -> None:
    house = await a_house(say(GOOD))
    await house.run("alpha")
    [request] = told(house.scripts["judge"].sent())
    assert 'weather: {"location": "Paris"}' in request[1]
    assert "Sunny in Paris." in request[1]


async def test_the_agent_reads_the_judgement_behind_the_result_and_the_history_stays_as_it_was() -> None:
    house = await a_house(say(GOOD), say(GOOD))
    await house.run("alpha")
    script = house.scripts["alpha"]
    read = script.sent(1)[-1]
    assert read["role"] == "tool"
    assert "[Reflection on weather: 0.8 of 1. Precise.]" in str(read["content"])
    script.add(say("Still done."))
    await house.run("alpha", "Again?")
    assert told(script.sent()) == [
        ("user", "go"),
        ("assistant", ""),
        ("tool", "Sunny in Paris."),
        ("assistant", "Done."),
        ("user", "Again?"),
    ]


async def test_comments_stand_behind_the_answer_where_no_request_ends_with_them() -> None:
    house = await a_house(say(GOOD), say('{"score": 0.1, "comment": "Vague."}'))
    again = call(use("weather", "x", location="Rome"))
    await house.add(
        "alpha", *[call(use("weather", "w", location="Paris")), again, say("Done.")], tools=["weather"], **REFLECTING
    )
    await house.run("alpha")
    assert await rewards(house) == [0.8, 0.1]
    answer, *notes = (await house.log("alpha"))[-3:]
    assert "Done." in str(answer.state)
    assert [note.state for note in notes] == [
        AssistantMessageState("Precise.", meta="reflection:weather"),
        AssistantMessageState("Vague.", meta="reflection:weather"),
    ]


async def test_comments_are_in_the_log_of_a_run_that_failed_too() -> None:
    house = await a_house(say(GOOD))
    broken = fail(AuthenticationError("no such key", provider="x"))
    await house.add("alpha", call(use("weather", "w", location="Paris")), broken, tools=["weather"], **REFLECTING)
    with pytest.raises(AuthenticationError):
        await house.run("alpha")
    assert await comments(house) == [("Precise.", "reflection:weather")]


@pytest.mark.parametrize(
    "verdict",
    [say("Fine, I think."), say('{"score": 11}'), say(""), fail(AuthenticationError("no such key", provider="x"))],
    ids=["no score", "out of range", "nothing", "a failure"],
)
async def test_without_a_sensible_judgement_there_is_none(verdict: Any) -> None:
    house = await a_house(verdict)
    assert await house.run("alpha") == "Done."
    assert (await rewards(house), await comments(house)) == ([None], [])


async def test_a_reflection_agent_that_does_not_exist_is_no_obstacle() -> None:
    house = await a_house()
    await house.registry.unregister("judge")
    assert await house.run("alpha") == "Done."
    assert await rewards(house) == [None]


@in_virtual_time
async def test_a_reflection_agent_that_hangs_does_not_hold_up_the_run() -> None:
    house = await a_house(never(), reflection_timeout_s=5.0)
    assert await house.run("alpha") == "Done."
    assert (await rewards(house), await comments(house)) == ([None], [])
    assert house.scripts["judge"].cancelled == 1


async def test_only_successes_of_tools_that_wish_it_are_judged() -> None:
    house = await a_house(tools=(echo(),))
    assert await house.run("alpha") == "Done."
    house = await a_house(tools=(having(raising(OSError("no disk")), reflect=True),))
    assert await house.run("alpha") == "Done."
    assert house.scripts["judge"].requests == []


async def test_nobody_judges_an_agent_that_does_not_reflect() -> None:
    house = RegistryFixture(tools=[weather])
    steps = call(use("weather", "w", location="Paris")), say("Done.")
    await house.add("alpha", *steps, tools=["weather"], reflection_agent_id="judge")
    await house.add("judge")
    assert await house.run("alpha") == "Done."
    assert await rewards(house) == [None]


async def test_a_reflection_agent_is_not_judged_itself() -> None:
    house = RegistryFixture(tools=[weather])
    steps = call(use("weather", "w", location="Paris")), say("Done.")
    await house.add("alpha", *steps, tools=["weather"], **REFLECTING)
    judging = call(use("weather", "v", location="Paris")), say(GOOD)
    judge = await house.add("judge", *judging, tools=["weather"], **REFLECTING)
    assert await soon(house.run("alpha")) == "Done."
    assert len(judge.requests) == 2
    assert await rewards(house) == [0.8]


async def test_the_answer_of_another_agent_gets_a_score() -> None:
    house = RegistryFixture()
    asks = call(use("call_agent", "q", agent_id="helper_agent", message="Please analyze this data"))
    alpha = await house.add("alpha", asks, say("Done."), tools=["call_agent"], **REFLECTING)
    await house.add("helper_agent", say("Analysis complete"))
    await house.add("judge", say('{"score": 0.9, "comment": "Complete indeed."}'))
    await house.run("alpha")
    [answered] = await house.states(AgentResultState, "alpha")
    assert answered.score == 0.9
    assert await comments(house) == [("Complete indeed.", "reflection:helper_agent")]
    assert alpha.sent(1)[-1]["content"] == (
        "Analysis complete\n\n[Reflection on helper_agent: 0.9 of 1. Complete indeed.]"
    )


async def test_what_is_judged_is_what_the_agent_reads_after_the_hooks() -> None:
    house = await a_house(say(GOOD))

    async def censor(_event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="modify", data={"tool_result": ToolResult(output="[withheld]")})

    async with house.make.session(await house.repository.load("alpha"), "talk", None) as session:
        Reflection(house.registry, "judge", session.coordinator, 5.0).listen()
        session.coordinator.hooks.register("tool:post", censor)
        await session.execute("go")
    [(_, request)] = told(house.scripts["judge"].sent())
    assert "[withheld]" in request
    assert "Sunny" not in request
    assert await rewards(house) == [0.8]


async def test_what_is_judged_may_be_large_and_holds_no_orders() -> None:
    @tool(ToolConfig(name="weather", description="", reflect=True))
    async def lengthy(location: str) -> str:
        return "{x} " * 50_000 + location

    house = await a_house(say(GOOD), tools=(lengthy,))
    await house.run("alpha")
    [(_, request)] = told(house.scripts["judge"].sent())
    assert len(request) < 12_000
    assert "… (of 200005 characters)" in request
