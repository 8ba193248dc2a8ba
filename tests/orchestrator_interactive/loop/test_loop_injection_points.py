"""Where a message comes in: the three injection points, and the row that it becomes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from agents import ScriptedProvider, after, call, echo, gated, make_agent, say, told, use

from orchestrator_interactive import Injection

if TYPE_CHECKING:
    from typing import Any

PREFIX = "[The user sent additional messages while you were working. Incorporate this into your current task:]\n"


async def test_a_message_before_the_first_call_is_in_the_first_request() -> None:
    agent = await make_agent(say("ok"))
    agent.progress.act_on("executing", lambda: agent.inject("also this"))
    await agent.run()
    assert ("user", PREFIX + "- also this") in told(agent.provider.sent(0))


async def test_a_message_while_nothing_runs_yet_leads_the_first_run() -> None:
    agent = await make_agent(say("ok"))
    agent.inject("early")
    await agent.run()
    assert told(agent.provider.sent(0)) == [("user", PREFIX + "- early"), ("user", "go")]


async def test_a_message_while_the_model_thinks_is_answered_after_the_interim_answer() -> None:
    gate = asyncio.Event()
    agent = await make_agent(after(gate, say("first")), say("second"))
    run = agent.start()
    await agent.provider.asked(1)
    agent.inject("more")
    gate.set()
    assert await run == "second"
    row = ("user", PREFIX + "- more")
    assert await agent.told() == [("user", "go"), ("assistant", "first"), row, ("assistant", "second")]


async def test_a_message_while_tools_run_follows_their_results() -> None:
    gate = asyncio.Event()
    tool = gated(gate)
    agent = await make_agent(call(use("wait", "a"), use("wait", "b")), say("ok"), tools=[tool])
    run = agent.start()
    await tool.started(2)
    agent.inject("more")
    gate.set()
    await run
    assert told(agent.provider.sent(1))[2:] == [("tool", "wait"), ("tool", "wait"), ("user", PREFIX + "- more")]


async def test_a_message_between_two_results_follows_the_last_one() -> None:
    agent = await make_agent(call(use("echo", "a"), use("echo", "b")), say("ok"), tools=[echo()])

    async def after_row(row: dict[str, Any]) -> None:
        if row.get("tool_call_id") == "a":
            agent.inject("more")

    agent.context.after = after_row
    await agent.run()
    assert [role for role, _ in told(agent.provider.sent(1))] == ["user", "assistant", "tool", "tool", "user"]


async def test_a_message_right_before_the_next_call_is_read_at_the_next_point() -> None:
    agent = await make_agent(call(use("echo", "a")), say("first"), say("second"), tools=[echo()])
    agent.progress.act_on("tool:end", lambda: agent.progress.act_on("thinking", lambda: agent.inject("more")))
    assert await agent.run() == "second"
    assert PREFIX + "- more" not in dict(told(agent.provider.sent(1))).values()
    assert told(agent.provider.sent(2))[-2:] == [("assistant", "first"), ("user", PREFIX + "- more")]


async def test_tool_results_never_hold_what_the_user_wrote() -> None:
    gate = asyncio.Event()
    tool = gated(gate)
    agent = await make_agent(call(use("wait", "a")), say("ok"), tools=[tool])
    run = agent.start()
    await tool.started()
    agent.inject("SECRET")
    gate.set()
    await run
    assert [text for role, text in await agent.told() if role == "tool"] == ["wait"]


async def test_all_messages_of_one_drain_become_one_row() -> None:
    gate = asyncio.Event()
    agent = await make_agent(after(gate, say("first")), say("second"))
    run = agent.start()
    await agent.provider.asked(1)
    for text in ("one", "two", "three"):
        agent.inject(text)
    gate.set()
    await run
    assert (await agent.told())[2] == ("user", PREFIX + "- one\n- two\n- three")


async def test_the_messages_of_one_drain_are_in_the_order_in_which_they_were_written() -> None:
    gate = asyncio.Event()
    agent = await make_agent(after(gate, say("first")), say("second"))
    run = agent.start()
    await agent.provider.asked(1)
    for text, order in (("two", 2.0), ("three", 3.0), ("one", 1.0)):
        agent.inject(Injection(text, order=order))
    gate.set()
    await run
    assert (await agent.told())[2] == ("user", PREFIX + "- one\n- two\n- three")


async def test_the_row_names_the_ids_it_delivers() -> None:
    agent = await make_agent(say("ok"))
    agent.inject(Injection("one", id="T:C:1"))
    agent.inject(Injection("two", id="T:C:2"))
    await agent.run()
    assert (await agent.history())[0]["metadata"]["injections"] == ["T:C:1", "T:C:2"]


async def test_the_interim_answer_is_shown_once_the_users_row_stands_and_before_that_is_told() -> None:
    order: list[str] = []
    gate = asyncio.Event()
    agent = await make_agent(after(gate, say("first")), say("second"))

    async def before_row(row: dict[str, Any]) -> None:
        order.append(row["role"])

    agent.context.before = before_row
    agent.progress.act_on("text", lambda: order.append("shown"))
    agent.progress.act_on("injection:applied", lambda: order.append("read"))
    run = agent.start()
    await agent.provider.asked(1)
    agent.inject("more")
    gate.set()
    await run
    assert order == ["user", "assistant", "user", "shown", "read", "assistant"]
    assert agent.progress.of("text") == [{"text": "first", "part": 1}]


async def test_an_interim_answer_without_words_is_not_shown() -> None:
    gate = asyncio.Event()
    agent = await make_agent(after(gate, call()), say("second"))
    run = agent.start()
    await agent.provider.asked(1)
    agent.inject("more")
    gate.set()
    assert await run == "second"
    assert agent.progress.of("text") == []


async def test_steering_works_again_and_again() -> None:
    gates = [asyncio.Event() for _ in range(3)]
    agent = await make_agent(*(after(gate, say(f"answer {i}")) for i, gate in enumerate(gates)), say("last"))
    run = agent.start()
    for number, gate in enumerate(gates, start=1):
        await agent.provider.asked(number)
        agent.inject(f"steer {number}")
        gate.set()
    assert await run == "last"
    assert [data["messages"] for data in agent.progress.of("injection:applied")] == [[f"steer {n}"] for n in (1, 2, 3)]


async def test_every_request_begins_with_the_one_before_byte_by_byte() -> None:
    gate, thinking = asyncio.Event(), asyncio.Event()
    tool = gated(gate)
    provider = ScriptedProvider(
        call(use("wait", "a"), use("wait", "b"), text="on it"),
        call(use("dispatch_worker", "c")),
        after(thinking, say("first")),
        say("second"),
    )
    agent = await make_agent(provider=provider, tools=[tool, echo("dispatch_worker")])
    run = agent.start()
    await tool.started(2)
    agent.inject("more")
    gate.set()
    await provider.asked(3)
    agent.inject("and more")
    thinking.set()
    await run
    provider.add(say("third"))
    await agent.run("next")
    assert len(provider.requests) == 5
    assert provider.prefix_breaks() == []


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
async def test_blank_text_is_refused(text: str) -> None:
    agent = await make_agent()
    with pytest.raises(ValueError, match="text"):
        agent.inject(text)


async def test_injection_applied_reaches_hooks_and_progress() -> None:
    agent = await make_agent(say("ok"))
    agent.events.listen(agent.hooks, "injection:applied")
    agent.inject(Injection("one", id="1"))
    agent.inject(Injection("two", id="2"))
    await agent.run()
    expected = {"messages": ["one", "two"], "count": 2, "ids": ["1", "2"]}
    assert agent.progress.of("injection:applied") == [expected]
    assert agent.events.of("injection:applied")[0].items() >= expected.items()
