"""No message is lost, read twice or read out of order, whatever happens at the same instant."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from agents import after, call, doing, echo, fail, make_agent, never, say, soon, told, use

from orchestrator_interactive import Injection, InjectionQueueFull, RunFinished
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError

if TYPE_CHECKING:
    from typing import Any

    from agents import Agent

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
