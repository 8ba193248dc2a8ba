"""Refused tasks stay in the log and are in no later request; malformed rows end no conversation."""

from typing import Any

import pytest
from agents import Agent, call, echo, make_agent, say, use

from orchestrator_interactive.kernel.contracts.messages import TextBlock

REFUSED = "refusal"


def _sent(agent: Agent) -> str:
    return str(agent.provider.sent())


async def test_the_next_request_leaves_out_a_refused_task_and_says_so() -> None:
    agent = await make_agent(say("fine"), say("I will n", finish_reason=REFUSED), say("ok"))
    await agent.run("a harmless one")
    await agent.run("a bad one")
    assert await agent.run("another harmless one") == "ok"
    assert "a bad one" not in _sent(agent)
    assert "I will n" not in _sent(agent)
    assert "a harmless one" in _sent(agent)
    assert "another harmless one" in _sent(agent)
    assert "it was refused" in _sent(agent)


async def test_the_log_keeps_a_refused_task() -> None:
    agent = await make_agent(say("I will n", finish_reason=REFUSED))
    await agent.run("a bad one")
    rows = await agent.context.get_messages()
    assert [row["role"] for row in rows] == ["user", "assistant"]
    assert rows[-1]["metadata"]["refused"] is True


@pytest.mark.parametrize("content", [[], [TextBlock(text="so far")]])
async def test_a_refusal_after_tools_leaves_out_the_whole_task(content: list[Any]) -> None:
    refusing = say("so far", finish_reason=REFUSED) if content else say("", finish_reason=REFUSED)
    agent = await make_agent(call(use("echo", "a")), refusing, say("ok"), tools=[echo()])
    await agent.run("a bad one")
    assert await agent.run("a harmless one") == "ok"
    assert [row["role"] for row in agent.provider.sent()] == ["user", "user"]


async def test_a_refused_answer_calls_no_tool() -> None:
    tool = echo()
    agent = await make_agent(call(use("echo", "a"), finish_reason=REFUSED), say("ok"), tools=[tool])
    await agent.run("a bad one")
    assert agent.progress.of("tool:start") == []
    assert agent.progress.of("complete")[-1]["reason"] == "refusal"
    assert await agent.run("a harmless one") == "ok"


async def test_two_refusals_are_both_left_out() -> None:
    agent = await make_agent(say("n", finish_reason=REFUSED), say("no", finish_reason=REFUSED), say("ok"))
    await agent.run("one")
    await agent.run("two")
    assert await agent.run("three") == "ok"
    assert [row["role"] for row in agent.provider.sent()] == ["user", "user", "user"]
    assert "two" not in _sent(agent)


async def test_messages_of_a_refused_task_are_left_out_too() -> None:
    agent = await make_agent(call(use("echo", "a")), say("n", finish_reason=REFUSED), say("ok"), tools=[echo()])
    agent.progress.act_on("tool:start", lambda: agent.inject("and be quick"))
    await agent.run("a bad one")
    assert await agent.run("a harmless one") == "ok"
    assert "a bad one" not in _sent(agent)
    assert "be quick" not in _sent(agent)


USER = {"role": "user", "content": "before"}
MALFORMED = [
    {"role": "user", "content": "x", "metadata": "a text"},
    {"role": "user", "content": "x", "metadata": ["a list"]},
    {"role": "tool", "content": "x", "metadata": {"pending": True}},
    {"role": "tool", "content": "x", "tool_call_id": "a", "metadata": {"pending": True}},
    {"role": "user", "content": "x", "metadata": {"results": 5}},
    {"role": "assistant", "content": "x", "metadata": {"usage": 7}},
    {"role": "assistant", "content": "x", "tool_calls": [{}]},
    {"role": "assistant", "content": "x", "tool_calls": "none"},
]


@pytest.mark.parametrize("row", MALFORMED)
@pytest.mark.parametrize("max_tokens", [100_000, 1])
async def test_a_malformed_row_does_not_prevent_the_next_run(row: dict[str, Any], max_tokens: int) -> None:
    agent = await make_agent(say("ok"), plan={"context": {"module": "watched", "config": {"max_tokens": max_tokens}}})
    await agent.context.set_messages([USER, row, USER])
    assert await agent.run("go on") == "ok"
