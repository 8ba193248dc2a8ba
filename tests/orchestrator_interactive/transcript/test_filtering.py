"""Refused tasks stay in the log and are in no later request; malformed rows end no conversation."""

from typing import Any

import pytest
from agents import call, echo, make_agent, say, use

REFUSED = "refusal"


async def test_the_log_keeps_a_refused_task() -> None:
    agent = await make_agent(say("I will n", finish_reason=REFUSED))
    await agent.run("a bad one")
    rows = await agent.context.get_messages()
    assert [row["role"] for row in rows] == ["user", "assistant"]
    assert rows[-1]["metadata"]["refused"] is True


async def test_a_refused_answer_calls_no_tool() -> None:
    tool = echo()
    agent = await make_agent(call(use("echo", "a"), finish_reason=REFUSED), say("ok"), tools=[tool])
    await agent.run("a bad one")
    assert agent.progress.of("tool:start") == []
    assert agent.progress.of("complete")[-1]["reason"] == "refusal"
    assert await agent.run("a harmless one") == "ok"


@pytest.mark.parametrize(
    "steps",
    [
        [say("I will n", finish_reason=REFUSED)],
        [call(use("echo", "a")), say("so far", finish_reason=REFUSED)],
        [call(use("echo", "a")), say("", finish_reason=REFUSED)],
    ],
    ids=["at once", "after tools", "without a word"],
)
async def test_later_requests_leave_out_the_whole_refused_task_and_say_so(steps: list[Any]) -> None:
    agent = await make_agent(say("fine"), *steps, say("no", finish_reason=REFUSED), say("ok"), tools=[echo()])
    await agent.run("a harmless one")
    agent.progress.act_on("tool:start", lambda: agent.inject("be quick"))
    await agent.run("a bad one")
    await agent.run("another bad one")
    assert await agent.run("another harmless one") == "ok"
    sent = agent.provider.sent()
    assert [row["role"] for row in sent] == ["user", "assistant", "user", "user", "user"]
    assert sent[0]["content"] == "a harmless one"
    assert sent[-1]["content"] == "another harmless one"
    assert ["it was refused" in str(row) for row in sent[2:4]] == [True, True]
    assert not any(text in str(sent) for text in ("bad", "be quick", "so far", "will n"))


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
