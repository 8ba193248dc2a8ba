"""Agents that ask each other: both logs, failures, cancellation and the limit of depth."""

import asyncio
from typing import Any

import pytest
from agents import call, deaf_tool, fail, having, never, say, soon, use
from registry_fixtures import RegistryFixture
from virtual_time import in_virtual_time

from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    ToolResultState,
    UserMessageState,
    WaitingState,
)
from orchestrator_interactive.kernel.contracts.errors import AuthenticationError


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
    kinds = [entry.kind.removesuffix("State") for entry in log[3:-1]]
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
async def test_the_asking_agent_continues_after_the_timeout_of_an_answer() -> None:
    release = asyncio.Event()
    fixture = RegistryFixture(tools=[having(deaf_tool(release), timeout_s=10_000)])
    await fixture.add("alpha", asking("beta"), say("Without it, then."), tools=["call_agent"])
    await fixture.add("beta", call(use("deaf", "d")), tools=["deaf"])
    assert await fixture.run("alpha") == "Without it, then."
    kinds = [entry.kind for entry in await fixture.log("alpha")]
    assert kinds[-3:] == ["AgentResultState", "ToolResultState", "AssistantMessageState"]
    assert (await fixture.states(AgentResultState, "alpha"))[0].result == {"status": "cancelled"}
    release.set()


async def test_without_a_registry_the_call_fails() -> None:
    fixture = RegistryFixture()
    await fixture.add("alpha", asking("beta"), say("Done."), tools=["call_agent"])
    async with fixture.make.session(await fixture.repository.load("alpha"), "talk", None) as session:
        assert await session.execute("go") == "Done."
    assert await results(fixture) == ["There are no agents to ask: the session has no capability 'agents.registry'."]
