"""Agents that ask each other: what stands in both logs, and what becomes of those who fail, hang or ask for ever."""

from __future__ import annotations

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


async def results(house: RegistryFixture, agent_id: str = "alpha") -> list[str]:
    """What the tools of an agent brought it."""
    return [state.result for state in await house.states(ToolResultState, agent_id)]


async def test_an_agent_asks_another_and_gets_its_answer() -> None:
    house = RegistryFixture()
    await house.add("alpha", asking("helper_agent", "Please analyze this data."), say("Done."), tools=["call_agent"])
    helper = await house.add("helper_agent", say("Analysis complete"))
    assert await house.run("alpha") == "Done."
    assert await results(house) == ["Analysis complete"]
    assert helper.sent()[0]["content"] == "Please analyze this data."


async def test_the_question_and_the_answer_stand_in_the_log_of_who_asked() -> None:
    house = RegistryFixture()
    await house.add("alpha", asking("helper_agent"), say("Done."), tools=["call_agent"])
    await house.add("helper_agent", say("Analysis complete"))
    await house.run("alpha")
    log = await house.log("alpha")
    assert [entry.kind for entry in log] == [
        "UserMessageState",
        "AssistantMessageState",
        "ToolCallState",
        "AgentCallState",
        "WaitingState",
        "AgentResultState",
        "ToolResultState",
        "AssistantMessageState",
    ]
    asked, waited, answered = (entry.state for entry in log[3:6])
    assert isinstance(asked, AgentCallState)
    assert isinstance(waited, WaitingState)
    assert isinstance(answered, AgentResultState)
    assert (asked.agent_id, asked.message) == ("helper_agent", "Please help.")
    assert asked.correlation_id == waited.correlation_id == answered.correlation_id
    assert (answered.result, answered.score) == ({"status": "success", "content": "Analysis complete"}, None)
    assert log[5].parents == (log[3].ref,)


async def test_the_one_who_was_asked_has_a_conversation_of_its_own_that_leads_back() -> None:
    house = RegistryFixture()
    await house.add("alpha", asking("helper_agent"), say("Done."), tools=["call_agent"])
    await house.add("helper_agent", say("Analysis complete"))
    await house.run("alpha", conversation_id="talk")
    [child] = await house.conversations("helper_agent")
    assert child.startswith("talk/")
    [question] = [entry for entry in await house.log("alpha") if entry.kind == "AgentCallState"]
    assert (await house.log("helper_agent", child))[0].parents == (question.ref,)


async def test_several_are_asked_at_once() -> None:
    house = RegistryFixture()
    questions = call(*(use("call_agent", each, agent_id=each, message="Who are you?") for each in ("beta", "gamma")))
    await house.add("alpha", questions, say("Done."), tools=["call_agent"])
    for each in ("beta", "gamma"):
        await house.add(each, say(f"I am {each}."))
    assert await house.run("alpha") == "Done."
    assert await results(house) == ["I am beta.", "I am gamma."]
    answers = [state.result["content"] for state in await house.states(AgentResultState, "alpha")]
    assert sorted(answers) == ["I am beta.", "I am gamma."]


async def test_an_agent_that_does_not_exist_is_told_with_those_that_do() -> None:
    house = RegistryFixture()
    await house.add("alpha", asking("nobody"), say("Done."), tools=["call_agent"])
    assert await house.run("alpha") == "Done."
    assert await results(house) == ["There is no agent 'nobody'. Registered: alpha."]
    assert await house.states(AgentCallState, "alpha") == []


async def test_the_failure_of_another_agent_is_a_failed_call() -> None:
    house = RegistryFixture()
    await house.add("alpha", asking("beta"), say("Without it, then."), tools=["call_agent"])
    await house.add("beta", fail(AuthenticationError("no such key", provider="x")))
    assert await house.run("alpha") == "Without it, then."
    assert await results(house) == ["Agent 'beta' failed: no such key"]
    [answered] = await house.states(AgentResultState, "alpha")
    assert answered.result == {"status": "error", "content": "no such key"}


async def test_an_agent_that_asks_itself_for_ever_comes_to_an_end() -> None:
    house = RegistryFixture()
    script = await house.add("alpha", *[asking("alpha")] * 6, *[say("Enough.")] * 6, tools=["call_agent"])
    assert await soon(house.run("alpha")) == "Enough."
    refused = [row["content"] for row in script.sent(6) if row["role"] == "tool"]
    assert refused == ["The agent was not asked: agents may call each other at most 5 levels deep."]
    assert await results(house) == ["Enough."]
    assert len(await house.conversations("alpha")) == 6


async def test_whoever_stops_an_agent_stops_the_one_that_it_asked_and_both_can_go_on() -> None:
    house = RegistryFixture()
    alpha = await house.add("alpha", asking("beta"), tools=["call_agent"])
    beta = await house.add("beta", never())
    running = asyncio.create_task(house.run("alpha"))
    await beta.asked(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(running)
    assert beta.cancelled == 1
    [answered] = await house.states(AgentResultState, "alpha")
    assert answered.result == {"status": "cancelled"}
    assert "outcome is unknown" in (await results(house))[0]
    alpha.add(asking("beta", call_id="again"), say("Done."))
    beta.add(say("Here I am."))
    assert await house.run("alpha", "And now?") == "Done."
    assert [state.text for state in await house.states(UserMessageState, "alpha")] == ["go", "And now?"]


@in_virtual_time
async def test_an_answer_that_takes_too_long_is_not_waited_for_and_the_asking_agent_goes_on() -> None:
    release = asyncio.Event()
    house = RegistryFixture(tools=[having(deaf_tool(release), timeout_s=10_000)])
    await house.add("alpha", asking("beta"), say("Without it, then."), tools=["call_agent"])
    await house.add("beta", call(use("deaf", "d")), tools=["deaf"])
    assert await house.run("alpha") == "Without it, then."
    kinds = [entry.kind for entry in await house.log("alpha")]
    assert kinds[-3:] == ["AgentResultState", "ToolResultState", "AssistantMessageState"]
    assert (await house.states(AgentResultState, "alpha"))[0].result == {"status": "cancelled"}
    release.set()


async def test_an_agent_in_a_session_of_others_says_that_there_is_nobody_to_ask() -> None:
    house = RegistryFixture()
    await house.add("alpha", asking("beta"), say("Done."), tools=["call_agent"])
    async with house.make.session(await house.repository.load("alpha"), "talk", None) as session:
        assert await session.execute("go") == "Done."
    assert await results(house) == ["There are no agents to ask: the session has no capability 'agents.registry'."]
