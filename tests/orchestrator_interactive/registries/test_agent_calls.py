"""Agents that ask each other: both logs, failures, cancellation and depth; and agents that judge results."""

import asyncio
from typing import Any

import pytest
from agents import call, deaf_tool, echo, fail, having, make_agent, never, raising, say, soon, told, use
from hypothesis import given
from hypothesis import strategies as st
from registry_fixtures import RegistryFixture
from structlog.testing import capture_logs
from virtual_time import in_virtual_time

from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    ToolResultState,
    UserMessageState,
    WaitingState,
)
from orchestrator_interactive.kernel import HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.errors import AuthenticationError
from orchestrator_interactive.registries import tool
from orchestrator_interactive.registries.agent_calls import Reflection, Verdict, verdict_in
from orchestrator_interactive.registries.schemas import ToolConfig
from orchestrator_interactive.registries.tools import ToolContext, mount_tools


def asking(agent_id: str, message: str = "Please help.", call_id: str = "q") -> Any:
    return call(use("call_agent", call_id, agent_id=agent_id, message=message))


async def results(fixture: RegistryFixture, agent_id: str = "alpha") -> list[str]:
    """Return the tool results in the log of an agent."""
    return [state.result for state in await fixture.states(ToolResultState, agent_id)]


async def test_the_question_and_the_answer_are_in_both_logs() -> None:
    fixture = RegistryFixture()
    await fixture.add("alpha", asking("helper_agent", "Please analyze."), say("Done."), tools=["call_agent"])
    helper = await fixture.add("helper_agent", say("Analysis complete"))
    assert await fixture.run("alpha", conversation_id="talk") == "Done."
    assert await results(fixture) == ["Analysis complete"]
    assert helper.sent()[0]["content"] == "Please analyze."
    log = await fixture.log("alpha")
    kinds = [entry.kind.removesuffix("State") for entry in log[3:-2]]
    assert kinds == ["AgentCall", "Waiting", "AgentResult", "ToolResult"]
    asked, waited, answered = (entry.state for entry in log[3:6])
    assert isinstance(asked, AgentCallState)
    assert isinstance(waited, WaitingState)
    assert isinstance(answered, AgentResultState)
    assert (asked.agent_id, asked.message) == ("helper_agent", "Please analyze.")
    assert asked.correlation_id == waited.correlation_id == answered.correlation_id
    assert (answered.result, answered.score) == ({"status": "success", "content": "Analysis complete"}, None)
    assert log[5].parents == (log[3].ref,)
    [child] = await fixture.conversations("helper_agent")
    assert child.startswith("talk/")
    assert (await fixture.log("helper_agent", child))[0].parents == (log[3].ref,)


async def test_several_agents_are_asked_concurrently() -> None:
    fixture = RegistryFixture()
    questions = call(*(use("call_agent", each, agent_id=each, message="Who are you?") for each in ("beta", "gamma")))
    await fixture.add("alpha", questions, say("Done."), tools=["call_agent"])
    for each in ("beta", "gamma"):
        await fixture.add(each, say(f"I am {each}."))
    assert await fixture.run("alpha") == "Done."
    assert await results(fixture) == ["I am beta.", "I am gamma."]
    answers = [state.result["content"] for state in await fixture.states(AgentResultState, "alpha")]
    assert sorted(answers) == ["I am beta.", "I am gamma."]


async def test_the_error_of_an_unknown_agent_names_the_registered_ones() -> None:
    fixture = RegistryFixture()
    await fixture.add("alpha", asking("nobody"), say("Done."), tools=["call_agent"])
    assert await fixture.run("alpha") == "Done."
    assert await results(fixture) == ["There is no agent 'nobody'. Registered: alpha."]
    assert await fixture.states(AgentCallState, "alpha") == []


async def test_the_failure_of_the_asked_agent_is_a_failed_call() -> None:
    fixture = RegistryFixture()
    await fixture.add("alpha", asking("beta"), say("Without it, then."), tools=["call_agent"])
    await fixture.add("beta", fail(AuthenticationError("no such key", provider="x")))
    assert await fixture.run("alpha") == "Without it, then."
    assert await results(fixture) == ["Agent 'beta' failed: no such key"]
    [answered] = await fixture.states(AgentResultState, "alpha")
    assert answered.result == {"status": "error", "content": "no such key"}


async def test_the_depth_of_questions_is_limited() -> None:
    fixture = RegistryFixture()
    script = await fixture.add("alpha", *[asking("alpha")] * 6, *[say("Enough.")] * 6, tools=["call_agent"])
    assert await soon(fixture.run("alpha")) == "Enough."
    refused = [row["content"] for row in script.sent(6) if row["role"] == "tool"]
    assert refused == ["The agent was not asked: agents may call each other at most 5 levels deep."]
    assert await results(fixture) == ["Enough."]
    assert len(await fixture.conversations("alpha")) == 6


async def test_cancelling_an_agent_cancels_the_asked_one_and_both_can_continue() -> None:
    fixture = RegistryFixture()
    alpha = await fixture.add("alpha", asking("beta"), tools=["call_agent"])
    beta = await fixture.add("beta", never())
    running = asyncio.create_task(fixture.run("alpha"))
    await beta.asked(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(running)
    assert beta.cancelled == 1
    [answered] = await fixture.states(AgentResultState, "alpha")
    assert answered.result == {"status": "cancelled"}
    assert "outcome is unknown" in (await results(fixture))[0]
    alpha.add(asking("beta", call_id="again"), say("Done."))
    beta.add(say("Here I am."))
    assert await fixture.run("alpha", "And now?") == "Done."
    assert [state.text for state in await fixture.states(UserMessageState, "alpha")] == ["go", "And now?"]


@in_virtual_time
async def test_a_stop_of_the_session_that_agents_work_for_stops_them() -> None:
    agent = await make_agent(asking("beta"), say("never"))
    parents = []

    @tool(ToolConfig(name="act", description="Stops the asking session.", requires_context=True))
    async def act(context: ToolContext) -> str:
        parents.append(context.coordinator.parent_id)
        agent.stop()
        return "done"

    fixture = RegistryFixture(tools=[act], host=agent.coordinator)
    agent.coordinator.register_capability("agents.registry", fixture.registry)
    await mount_tools(agent.coordinator, ["call_agent"], fixture.tools)
    beta = await fixture.add("beta", call(use("act", "a")), say("never"), tools=["act"])
    await agent.run()
    assert (len(agent.provider.requests), len(beta.requests)) == (1, 1)
    assert parents == [agent.session.session_id]
    assert "Agent 'beta' was stopped." in (await agent.context.get_messages())[-1]["content"]


@in_virtual_time
async def test_the_asking_agent_continues_after_the_timeout_of_an_answer() -> None:
    release = asyncio.Event()
    fixture = RegistryFixture(tools=[having(deaf_tool(release), timeout_s=10_000)])
    await fixture.add("alpha", asking("beta"), say("Without it, then."), tools=["call_agent"])
    await fixture.add("beta", call(use("deaf", "d")), tools=["deaf"])
    with capture_logs() as logs:
        assert await fixture.run("alpha") == "Without it, then."
    assert {"wait.overdue", "agent.not_logged"}.isdisjoint(entry["event"] for entry in logs)
    kinds = [entry.kind for entry in await fixture.log("alpha")]
    assert kinds[-4:-1] == ["AgentResultState", "ToolResultState", "AssistantMessageState"]
    assert (await fixture.states(AgentResultState, "alpha"))[0].result == {"status": "timeout"}
    assert await results(fixture) == ["Agent 'beta' did not answer within 540 seconds."]
    (wait,) = await fixture.states(WaitingState, "alpha")
    assert wait.deadline is not None
    release.set()


async def test_without_a_registry_the_call_fails() -> None:
    fixture = RegistryFixture()
    await fixture.add("alpha", asking("beta"), say("Done."), tools=["call_agent"])
    async with fixture.make.session(await fixture.repository.load("alpha"), "talk", None) as session:
        assert await session.execute("go") == "Done."
    assert await results(fixture) == ["There are no agents to ask: the session has no capability 'agents.registry'."]


REFLECTING = {"enable_self_reflection": True, "reflection_agent_id": "judge"}
GOOD = '{"score": 0.8, "comment": "Precise."}'


@tool(ToolConfig(name="weather", description="Tells the weather.", reflect=True))
async def weather(location: str) -> str:
    return f"Sunny in {location}."


async def rated_agents(*verdicts: Any, tools: tuple[Any, ...] = (weather,), **parts: Any) -> RegistryFixture:
    """Make an agent that calls a tool, and a reflection agent."""
    fixture = RegistryFixture(tools=tools, **parts)
    asks = call(use(getattr(tools[0], "name", "weather"), "w", location="Paris"))
    names = [name for name in fixture.tools.list_tools() if name != "call_agent"]
    await fixture.add("alpha", asks, say("Done."), tools=names, **REFLECTING)
    await fixture.add("judge", *verdicts)
    return fixture


async def rewards(fixture: RegistryFixture) -> list[float | None]:
    return [state.reward for state in await fixture.states(ToolResultState, "alpha")]


async def comments(fixture: RegistryFixture) -> list[tuple[Any, Any]]:
    said = await fixture.states(AssistantMessageState, "alpha")
    return [(state.content, state.meta) for state in said if str(state.meta).startswith("reflection:")]


async def test_the_score_is_the_reward_of_the_result_and_the_comment_is_in_the_log() -> None:
    fixture = await rated_agents(say(GOOD))
    assert await fixture.run("alpha") == "Done."
    assert await rewards(fixture) == [0.8]
    assert await comments(fixture) == [("Precise.", "reflection:weather")]
    [request] = told(fixture.scripts["judge"].sent())
    assert 'weather: {"location": "Paris"}' in request[1]
    assert "Sunny in Paris." in request[1]


async def test_the_verdict_follows_the_result_in_the_next_request_only() -> None:
    fixture = await rated_agents(say(GOOD), say(GOOD))
    await fixture.run("alpha")
    script = fixture.scripts["alpha"]
    read = script.sent(1)[-1]
    assert read["role"] == "tool"
    assert "[Reflection on weather: 0.8 of 1. Precise.]" in str(read["content"])
    script.add(say("Still done."))
    await fixture.run("alpha", "Again?")
    assert told(script.sent()) == [
        ("user", "go"),
        ("assistant", ""),
        ("tool", "Sunny in Paris."),
        ("assistant", "Done."),
        ("user", "Again?"),
    ]


async def test_comments_follow_the_answer_in_the_log() -> None:
    fixture = await rated_agents(say(GOOD), say('{"score": 0.1, "comment": "Vague."}'))
    again = call(use("weather", "x", location="Rome"))
    await fixture.add(
        "alpha", *[call(use("weather", "w", location="Paris")), again, say("Done.")], tools=["weather"], **REFLECTING
    )
    await fixture.run("alpha")
    assert await rewards(fixture) == [0.8, 0.1]
    answer, *notes = (await fixture.log("alpha"))[-4:-1]
    assert "Done." in str(answer.state)
    assert [note.state for note in notes] == [
        AssistantMessageState("Precise.", meta="reflection:weather"),
        AssistantMessageState("Vague.", meta="reflection:weather"),
    ]


async def test_comments_are_in_the_log_of_a_failed_run() -> None:
    fixture = await rated_agents(say(GOOD))
    broken = fail(AuthenticationError("no such key", provider="x"))
    await fixture.add("alpha", call(use("weather", "w", location="Paris")), broken, tools=["weather"], **REFLECTING)
    with pytest.raises(AuthenticationError):
        await fixture.run("alpha")
    assert await comments(fixture) == [("Precise.", "reflection:weather")]


@pytest.mark.parametrize(
    "verdict",
    [say("Fine, I think."), say('{"score": 11}'), say(""), fail(AuthenticationError("no such key", provider="x"))],
    ids=["no score", "out of range", "nothing", "a failure"],
)
async def test_an_invalid_verdict_is_ignored(verdict: Any) -> None:
    fixture = await rated_agents(verdict)
    assert await fixture.run("alpha") == "Done."
    assert (await rewards(fixture), await comments(fixture)) == ([None], [])


async def test_the_time_of_a_verdict_is_no_part_of_the_time_for_an_answer() -> None:
    fixture = RegistryFixture(reflection_timeout_s=0.4)
    fixture.registry.answer_timeout_s = 0.2
    await fixture.add("alpha", asking("beta"), say("Done."), tools=["call_agent"], **REFLECTING)
    await fixture.add("beta", say("Yes."))
    await fixture.add("judge", never())
    assert await soon(fixture.run("alpha")) == "Done."
    [answered] = await fixture.states(AgentResultState, "alpha")
    assert answered.result == {"status": "success", "content": "Yes."}


@in_virtual_time
async def test_a_run_does_not_wait_for_a_reflection_agent_that_hangs() -> None:
    fixture = await rated_agents(never(), reflection_timeout_s=5.0)
    assert await fixture.run("alpha") == "Done."
    assert (await rewards(fixture), await comments(fixture)) == ([None], [])
    assert fixture.scripts["judge"].cancelled == 1


async def test_only_successes_of_tools_with_reflect_are_rated() -> None:
    fixture = await rated_agents(tools=(echo(),))
    assert await fixture.run("alpha") == "Done."
    fixture = await rated_agents(tools=(having(raising(OSError("no disk")), reflect=True),))
    assert await fixture.run("alpha") == "Done."
    assert fixture.scripts["judge"].requests == []


async def test_a_reflection_agent_is_not_rated() -> None:
    fixture = RegistryFixture(tools=[weather])
    steps = call(use("weather", "w", location="Paris")), say("Done.")
    await fixture.add("alpha", *steps, tools=["weather"], **REFLECTING)
    judging = call(use("weather", "v", location="Paris")), say(GOOD)
    judge = await fixture.add("judge", *judging, tools=["weather"], **REFLECTING)
    assert await soon(fixture.run("alpha")) == "Done."
    assert len(judge.requests) == 2
    assert await rewards(fixture) == [0.8]


async def test_the_answer_of_another_agent_gets_a_score() -> None:
    fixture = RegistryFixture()
    asks = call(use("call_agent", "q", agent_id="helper_agent", message="Please analyze this data"))
    alpha = await fixture.add("alpha", asks, say("Done."), tools=["call_agent"], **REFLECTING)
    await fixture.add("helper_agent", say("Analysis complete"))
    await fixture.add("judge", say('{"score": 0.9, "comment": "Complete indeed."}'))
    await fixture.run("alpha")
    [answered] = await fixture.states(AgentResultState, "alpha")
    assert answered.score == 0.9
    assert await comments(fixture) == [("Complete indeed.", "reflection:helper_agent")]
    assert alpha.sent(1)[-1]["content"] == (
        "Analysis complete\n\n[Reflection on helper_agent: 0.9 of 1. Complete indeed.]"
    )


async def test_the_rated_result_is_the_one_modified_by_hooks() -> None:
    fixture = await rated_agents(say(GOOD))

    async def censor(_event: str, data: dict[str, Any]) -> HookResult:
        return HookResult(action="modify", data={"tool_result": ToolResult(output="[withheld]")})

    async with fixture.make.session(await fixture.repository.load("alpha"), "talk", None) as session:
        Reflection(fixture.registry, "judge", session.coordinator, 5.0).listen()
        session.coordinator.hooks.register("tool:post", censor)
        await session.execute("go")
    [(_, request)] = told(fixture.scripts["judge"].sent())
    assert "[withheld]" in request
    assert "Sunny" not in request
    assert await rewards(fixture) == [0.8]


async def test_a_large_result_is_truncated_for_the_reflection_agent() -> None:
    @tool(ToolConfig(name="weather", description="", reflect=True))
    async def lengthy(location: str) -> str:
        return "{x} " * 50_000 + location

    fixture = await rated_agents(say(GOOD), tools=(lengthy,))
    await fixture.run("alpha")
    [(_, request)] = told(fixture.scripts["judge"].sent())
    assert len(request) < 12_000
    assert "… (of 200005 characters)" in request


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ('{"score": 0.8, "comment": "Good."}', Verdict(0.8, "Good.")),
        ('Here you are:\n```json\n{"comment": " Good. ", "score": 1}\n```\nBye {now}.', Verdict(1.0, "Good.")),
        ('{"score": "0.5"}', Verdict(0.5, "")),
        ('{"score": 0, "comment": ["a"]}', Verdict(0.0, "")),
        ('The tool said {"a": 1}. {"score": 0.25, "comment": "Odd."}', Verdict(0.25, "Odd.")),
        ("Score: 0.7. It found all.", Verdict(0.7, "Score: 0.7. It found all.")),
        ("**score** = 1", Verdict(1.0, "**score** = 1")),
        ('{"score": 2}', None),
        ('{"score": -0.5}', None),
        ('{"score": true}', None),
        ('{"score": NaN}', None),
        ('{"score": Infinity}', None),
        ('{"score": null, "comment": "score: 0.5"}', None),
        ("Score: 8/10", None),
        ("Score: 1/10", None),
        ("Score: 1 out of 5", None),
        ("Score: 80%", None),
        ("Score: 8", None),
        ("Of 5 towns 1 was found.", None),
        ("", None),
        ("{" * 10_000, None),
    ],
)
def test_a_verdict_has_a_score_from_0_to_1_and_a_comment(answer: str, verdict: Verdict | None) -> None:
    assert verdict_in(answer) == verdict


@given(st.text() | st.floats().map(lambda score: f'{{"score": {score}}}') | st.text().map(lambda t: f'{{"score": {t}'))
def test_any_answer_gives_a_valid_score_or_none(answer: str) -> None:
    verdict = verdict_in(answer)
    assert verdict is None or 0 <= verdict.score <= 1


def test_a_long_comment_is_truncated() -> None:
    verdict = verdict_in(f'{{"score": 1, "comment": "{"a" * 5000}"}}')
    assert verdict is not None
    assert len(verdict.comment) == 2000
