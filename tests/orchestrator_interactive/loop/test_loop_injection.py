"""Where a message comes in: the three injection points, and the row that it becomes.

No message is lost, read twice or read out of order, whatever happens at the same instant."""

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    ScriptedProvider,
    after,
    call,
    doing,
    echo,
    fail,
    gated,
    make_agent,
    never,
    say,
    soon,
    told,
    use,
)

from orchestrator_interactive import Injection, InjectionQueueFull, RunFinished
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError

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


PROGRESS = ["executing", "thinking", "tool:start", "tool:end", "complete"]


HOOKS = [
    "execution:start",
    "prompt:submit",
    "provider:request",
    "provider:response",
    "tool:pre",
    "tool:post",
    "execution:end",
    "orchestrator:complete",
]


AFTER_THE_LAST_LOOK = {"complete", "execution:end", "orchestrator:complete"}


def _is_injection(row: dict[str, Any]) -> bool:
    return bool((row.get("metadata") or {}).get("injections"))


async def _delivered(agent: Agent) -> list[str]:
    return [i for row in await agent.history() if _is_injection(row) for i in row["metadata"]["injections"]]


class _Offer:
    """Hands a message over once, and knows whether it was taken."""

    def __init__(self, agent: Agent, text: str = "now") -> None:
        self._agent = agent
        self._text = text
        self.taken: bool | None = None

    def __call__(self) -> None:
        try:
            self._agent.inject(Injection(self._text, id="now"))
        except RunFinished:
            self.taken = False
        else:
            self.taken = True


async def _agent_with_a_tool() -> Agent:
    return await make_agent(call(use("echo", "a")), *map(say, ("one", "two", "three")), tools=[echo()])


@pytest.mark.parametrize("text", ["now", "!now"])
@pytest.mark.parametrize("event", PROGRESS)
async def test_a_message_from_within_a_progress_callback_is_read_or_refused(event: str, text: str) -> None:
    agent = await _agent_with_a_tool()
    offer = _Offer(agent, text)
    agent.progress.act_on(event, offer)
    await agent.run()
    assert offer.taken is (event not in AFTER_THE_LAST_LOOK)
    assert await _delivered(agent) == (["now"] if offer.taken else [])


@pytest.mark.parametrize("text", ["now", "!now"])
@pytest.mark.parametrize("event", HOOKS)
async def test_a_message_from_within_a_hook_is_read_or_refused(event: str, text: str) -> None:
    agent = await _agent_with_a_tool()
    offer = _Offer(agent, text)
    agent.events.listen(agent.hooks, event).act_on(event, offer)
    await agent.run()
    assert offer.taken is (event not in AFTER_THE_LAST_LOOK)
    assert await _delivered(agent) == (["now"] if offer.taken else [])


@pytest.mark.parametrize("text", ["now", "!now"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("index", range(4))
async def test_a_message_while_a_row_is_committed_is_read_in_this_run(index: int, moment: str, text: str) -> None:
    agent = await _agent_with_a_tool()
    offer, count = _Offer(agent, text), iter(range(100))

    async def at_row(_row: dict[str, Any]) -> None:
        if next(count) == index:
            offer()

    setattr(agent.context, moment, at_row)
    await agent.run()
    assert offer.taken
    assert await _delivered(agent) == ["now"]


async def test_a_message_from_the_last_step_of_the_provider_is_read() -> None:
    agent = await make_agent(doing(lambda: offer(), say("one")), say("two"))  # noqa: PLW0108 - bound in the next line
    offer = _Offer(agent)
    assert await agent.run() == "two"
    assert await _delivered(agent) == ["now"]


async def test_another_thread_injects_through_the_event_loop() -> None:
    gate = asyncio.Event()
    agent = await make_agent(after(gate, say("first")), say("second"))
    run = agent.start()
    await agent.provider.asked(1)
    await asyncio.to_thread(asyncio.get_running_loop().call_soon_threadsafe, agent.inject, "more")
    gate.set()
    assert await run == "second"


async def test_a_message_after_the_run_is_refused() -> None:
    agent = await make_agent(say("ok"))
    await agent.run()
    with pytest.raises(RunFinished):
        agent.inject("late")


async def test_a_message_during_prompt_submit_follows_the_prompt_it_came_after() -> None:
    agent = await make_agent(say("ok"))
    agent.events.listen(agent.hooks, "prompt:submit").act_on("prompt:submit", lambda: agent.inject("second"))
    await agent.run("first")
    order = [text.rpartition("- ")[2] for role, text in await agent.told() if role == "user"]
    assert order == ["first", "second"]


async def test_what_a_failed_run_left_behind_leads_the_next_one_once_and_in_order() -> None:
    gate = asyncio.Event()
    agent = await make_agent(after(gate, fail(ProviderUnavailableError("down"))), say("ok"), say("ok"), max_retries=0)
    run = agent.start("first")
    await agent.provider.asked(1)
    agent.inject(Injection("one", id="1"))
    agent.inject(Injection("two", id="2"))
    gate.set()
    with pytest.raises(ProviderUnavailableError):
        await run
    await agent.run("second")
    await agent.run("third")
    assert await _delivered(agent) == ["1", "2"]
    texts = [text.splitlines()[-1] for role, text in await agent.told() if role == "user"]
    assert texts == ["first", "- two", "second", "third"]


async def test_what_a_stopped_run_left_behind_leads_the_next_one() -> None:
    agent = await make_agent(never(), say("ok"))
    run = agent.start("first")
    await agent.provider.asked(1)
    agent.inject(Injection("one", id="1"))
    agent.stop()
    await soon(run)
    assert await _delivered(agent) == []
    assert agent.progress.of("complete")[0]["waiting"] == 1
    await agent.run("second")
    assert await _delivered(agent) == ["1"]


async def test_a_message_that_the_context_refused_is_not_lost() -> None:
    agent = await make_agent(say("ok"))
    agent.inject(Injection("one", id="1"))
    agent.inject(Injection("two", id="2"))

    async def refuse(row: dict[str, Any]) -> None:
        if _is_injection(row):
            raise OSError("disk full")

    agent.context.before = refuse
    with pytest.raises(OSError, match="disk full"):
        await agent.run()
    agent.context.before = None
    await agent.run("again")
    assert await _delivered(agent) == ["1", "2"]


async def test_a_message_that_came_after_one_that_was_put_back_stays_behind_it() -> None:
    agent = await make_agent(say("one"), say("two"))
    agent.progress.act_on("thinking", lambda: agent.inject(Injection("first", id="1")))

    async def refuse(row: dict[str, Any]) -> None:
        if _is_injection(row):
            agent.inject(Injection("second", id="2"))
            raise OSError("disk full")

    agent.context.before = refuse
    with pytest.raises(OSError, match="disk full"):
        await agent.run()
    agent.context.before = None
    await agent.run("again")
    assert await _delivered(agent) == ["1", "2"]


async def _cancelled_at_the_injection_row(agent: Agent, moment: str) -> None:
    reached, gate = asyncio.Event(), asyncio.Event()

    async def at_row(row: dict[str, Any]) -> None:
        if _is_injection(row):
            reached.set()
            await gate.wait()

    setattr(agent.context, moment, at_row)
    agent.inject(Injection("one", id="1"))
    run = agent.start()
    await soon(reached.wait())
    run.cancel()
    await asyncio.sleep(0)
    gate.set()
    with pytest.raises(asyncio.CancelledError):
        await soon(run)
    setattr(agent.context, moment, None)


async def test_a_run_cancelled_right_before_the_row_was_committed_loses_no_message() -> None:
    agent = await make_agent(say("ok"))
    await _cancelled_at_the_injection_row(agent, "before")
    await agent.run("again")
    assert await _delivered(agent) == ["1"]


async def test_a_run_cancelled_right_after_the_row_was_committed_delivers_no_message_twice() -> None:
    agent = await make_agent(say("ok"))
    await _cancelled_at_the_injection_row(agent, "after")
    await agent.run("again")
    assert await _delivered(agent) == ["1"]


async def test_a_full_queue_refuses_and_keeps_what_it_has() -> None:
    agent = await make_agent(say("ok"), max_waiting=2)
    agent.inject(Injection("one", id="1"))
    agent.inject(Injection("two", id="2"))
    with pytest.raises(InjectionQueueFull):
        agent.inject("three")
    await agent.run()
    assert await _delivered(agent) == ["1", "2"]


async def test_a_second_run_at_the_same_time_is_refused_and_harms_nothing() -> None:
    gate = asyncio.Event()
    agent = await make_agent(after(gate, say("one")), say("two"))
    run = agent.start()
    await agent.provider.asked(1)
    with pytest.raises(RuntimeError):
        await agent.session.execute("another")
    agent.inject(Injection("more", id="1"))
    gate.set()
    assert await run == "two"
    assert await _delivered(agent) == ["1"]


async def test_a_refused_second_run_does_not_undo_the_stop_of_the_first() -> None:
    held = asyncio.Event()
    agent = await make_agent(call(use("echo", "a")), say("went on"), tools=[echo()])
    agent.events.listen(agent.hooks, "tool:post").hold("tool:post", held)
    run = agent.start()
    await agent.events.reached("tool:post")
    agent.stop()
    with pytest.raises(RuntimeError):
        await agent.session.execute("another")
    held.set()
    assert await soon(run) != "went on"
    assert agent.progress.of("complete")[0]["status"] == "cancelled"


async def test_a_denied_prompt_leaves_the_waiting_messages_to_the_next_run() -> None:
    agent = await make_agent(say("ok"))
    agent.inject(Injection("one", id="1"))
    end = agent.on_hook("prompt:submit", HookResult(action="deny", reason="no"))
    await agent.run()
    assert await _delivered(agent) == []
    end()
    await agent.run("again")
    assert told(agent.provider.sent(0))[-1] == ("user", "again")
    assert await _delivered(agent) == ["1"]
