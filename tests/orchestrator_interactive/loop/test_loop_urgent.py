"""Several urgent messages, odd providers, and the other rules of the loop beside an answer that was cut."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from agents import (
    answer,
    call,
    deaf,
    delivered,
    echo,
    fail,
    goes_on,
    make_agent,
    never,
    say,
    soon,
    streaming,
    text_of,
    told,
    use,
)
from virtual_time import in_virtual_time

from orchestrator_interactive import Injection, InjectionQueueFull
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError, ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import TextBlock
from orchestrator_interactive.loop.injection_queue import PREFIX

if TYPE_CHECKING:
    from typing import Any

    from agents import Agent

NOW = ("user", f"{PREFIX}\n- !now")


async def _steered(agent: Agent, *messages: str | Injection, asked: int = 1) -> asyncio.Task[str]:
    run = agent.start()
    await agent.provider.asked(asked)
    for message in messages:
        agent.inject(message)
    return run


def _texts(agent: Agent) -> list[str]:
    return [data["text"] for data in agent.progress.of("text")]


class TestSeveral:
    async def test_each_cuts_the_answer_to_the_one_before(self) -> None:
        agent = await make_agent(*(streaming(f"part {n}", then=never()) for n in (1, 2, 3)), say("ok"))
        run = agent.start()
        for number in (1, 2, 3):
            await agent.provider.asked(number)
            agent.inject(f"!steer {number}")
        assert await soon(run) == "ok"
        assert _texts(agent) == ["part 1", "part 2", "part 3"]
        assert [text.splitlines()[-1] for _, text in await agent.told()][1:-1] == [
            each for number in (1, 2, 3) for each in (f"part {number}", f"- !steer {number}")
        ]
        assert agent.provider.prefix_breaks() == []
        assert agent.progress.of("complete")[0]["iterations"] == 4

    async def test_all_that_wait_become_one_row_in_their_order(self) -> None:
        agent = await make_agent(never(), say("ok"))
        await soon(await _steered(agent, "one", "!two", "three", "!four"))
        assert told(agent.provider.sent(1))[1:] == [("user", f"{PREFIX}\n- one\n- !two\n- three\n- !four")]

    async def test_one_that_is_withdrawn_right_after_it_cut_leaves_an_answer_that_goes_on(self) -> None:
        agent = await make_agent(streaming("Half a ", then=never()), say("sentence."))
        run = await _steered(agent, Injection("!now", id="1"))
        assert agent.withdraw("1")
        answered = await soon(run)
        assert "".join([*_texts(agent), answered]) == "Half a sentence."
        assert await delivered(agent) == []
        assert [text for role, text in await agent.told() if role == "assistant"] == ["Half a ", "sentence."]
        await goes_on(agent)

    async def test_a_message_that_waited_is_read_with_the_next_urgent_one_though_that_is_withdrawn(self) -> None:
        agent = await make_agent(never(), say("ok"))
        run = await _steered(agent, Injection("one", id="1"), Injection("!two", id="2"))
        assert agent.withdraw("2")
        assert await soon(run) == "ok"
        assert await delivered(agent) == ["1"]

    async def test_one_that_the_queue_refuses_cuts_nothing(self) -> None:
        gate = asyncio.Event()
        agent = await make_agent(streaming(gate, then=say("one")), say("two"), max_waiting=1)
        run = await _steered(agent, "more")
        with pytest.raises(InjectionQueueFull):
            agent.inject("!now")
        gate.set()
        assert await soon(run) == "two"
        assert agent.provider.cancelled == 0


class TestOddProviders:
    async def test_one_that_does_not_stream_is_cut_and_leaves_nothing(self) -> None:
        agent = await make_agent(never(), say("ok"))
        assert await soon(await _steered(agent, "!now")) == "ok"
        assert await agent.told() == [("user", "go"), NOW, ("assistant", "ok")]
        assert _texts(agent) == []

    @in_virtual_time
    async def test_one_that_is_deaf_does_not_hold_the_run_and_says_nothing_more(self) -> None:
        release = asyncio.Event()
        late = streaming(" and late", then=say("late"))
        agent = await make_agent(streaming("so far", then=deaf(release, late)), say("ok"))
        assert await soon(await _steered(agent, "!now")) == "ok"
        before = await agent.told()
        release.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert await agent.told() == before == [("user", "go"), ("assistant", "so far"), NOW, ("assistant", "ok")]

    async def test_one_that_answers_its_cancellation_with_the_whole_answer_is_heard(self) -> None:
        async def polite(_request: Any, _stream: Any) -> Any:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return await say("the whole of it")(_request, _stream)

        agent = await make_agent(polite, say("ok"))
        assert await soon(await _steered(agent, "!now")) == "ok"
        assert (await agent.told())[1:3] == [("assistant", "the whole of it"), NOW]

    @pytest.mark.parametrize("error", [ProviderUnavailableError("cut off"), InvalidRequestError("cut off"), OSError()])
    async def test_one_that_fails_because_it_is_cut_has_not_failed(self, error: Exception) -> None:
        async def rude(_request: Any, stream: Any) -> Any:
            stream.text("so far")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise error from None

        agent = await make_agent(rude, say("ok"))
        assert await soon(await _steered(agent, "!now")) == "ok"
        assert await agent.told() == [("user", "go"), ("assistant", "so far"), NOW, ("assistant", "ok")]
        assert agent.progress.of("retrying") == []

    async def test_one_that_has_failed_before_the_message_came_has_failed(self) -> None:
        async def fails(_request: Any, _stream: Any) -> Any:
            # Between the failure and its discovery.
            asyncio.get_running_loop().call_soon(agent.inject, Injection("!now", id="1"))
            raise InvalidRequestError("no")

        agent = await make_agent(fails)
        with pytest.raises(InvalidRequestError):
            await agent.run()
        await goes_on(agent)
        assert await delivered(agent) == ["1"]


class TestBesideOtherRules:
    async def test_after_the_last_iteration_it_is_still_answered_without_tools(self) -> None:
        steps = call(use("echo", "a")), streaming("That is", then=never()), say("and this")
        agent = await make_agent(*steps, tools=[echo()], max_iterations=1)
        assert await soon(await _steered(agent, "!now", asked=2)) == "and this"
        assert [request.tool_choice for request in agent.provider.requests] == [None, "none", "none"]
        assert agent.progress.of("complete")[0].items() >= {"status": "incomplete", "reason": "max_iterations"}.items()

    async def test_an_answer_in_words_that_it_cut_is_not_asked_for_again(self) -> None:
        steps = call(use("dispatch_worker", "a")), streaming("I have", then=never()), call(use("echo", "b")), say("ok")
        agent = await make_agent(*steps, tools=[echo("dispatch_worker"), echo()])
        assert await soon(await _steered(agent, "!and this", asked=2)) == "ok"
        assert [request.tool_choice for request in agent.provider.requests] == [None, "none", None, None]

    async def test_a_stop_at_the_same_instant_is_a_stop(self) -> None:
        agent = await make_agent(streaming("so far", then=never()))
        run = await _steered(agent, Injection("!now", id="1"))
        agent.stop()
        assert await soon(run) == "so far"
        assert agent.progress.of("complete")[0].items() >= {"status": "cancelled", "waiting": 1}.items()
        await goes_on(agent)
        assert await delivered(agent) == ["1"]

    async def test_a_run_whose_task_is_cancelled_at_the_same_instant_keeps_it_for_the_next(self) -> None:
        agent = await make_agent(streaming("so far", then=never()))
        run = await _steered(agent, Injection("!now", id="1"))
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(run)
        await goes_on(agent)
        assert await delivered(agent) == ["1"]

    async def test_a_failure_of_the_call_after_it_leaves_all_that_was_said(self) -> None:
        agent = await make_agent(streaming("so far", then=never()), fail(InvalidRequestError("no")))
        run = await _steered(agent, "!now")
        with pytest.raises(InvalidRequestError):
            await soon(run)
        assert await agent.told() == [("user", "go"), ("assistant", "so far"), NOW]
        assert _texts(agent) == ["so far"]
        await goes_on(agent)

    async def test_a_message_whose_row_cannot_be_committed_is_read_by_the_next_run(self) -> None:
        agent = await make_agent(streaming("so far", then=never()))

        async def refuse(row: dict[str, Any]) -> None:
            if "!now" in text_of(row):
                raise OSError("disk full")

        agent.context.before = refuse
        with pytest.raises(OSError, match="disk full"):
            await soon(await _steered(agent, Injection("!now", id="1")))
        agent.context.before = None
        await goes_on(agent)
        assert await delivered(agent) == ["1"]
        assert _texts(agent) == ["so far"]

    @pytest.mark.parametrize("said", ["", "so far"])
    async def test_a_passing_remark_of_a_hook_is_in_the_request_that_is_answered(self, said: str) -> None:
        agent = await make_agent(streaming(said, then=never()), say("ok"))
        remark = HookResult(action="inject_context", context_injection="remember", ephemeral=True)
        agent.on_hook("prompt:submit", remark)
        await soon(await _steered(agent, "!now"))
        assert ["remember" in str(agent.provider.sent(i)) for i in range(2)] == [True, True]
        assert "remember" not in str(await agent.history())

    async def test_an_answer_that_a_hook_refuses_ends_the_run_and_loses_no_message(self) -> None:
        agent = await make_agent(streaming("secret", then=never()))
        end = agent.on_hook("provider:response", HookResult(action="deny", reason="no"))
        await soon(await _steered(agent, Injection("!now", id="1")))
        assert agent.progress.of("complete")[0].items() >= {"reason": "denied", "waiting": 1}.items()
        assert "secret" not in str(await agent.history())
        end()
        await goes_on(agent)
        assert await delivered(agent) == ["1"]

    async def test_an_interrupted_answer_is_told_with_its_blocks_to_the_next_question(self) -> None:
        steps = streaming(TextBlock(text="First. "), "Second", then=never()), answer(TextBlock(text="ok"))
        agent = await make_agent(*steps)
        await soon(await _steered(agent, "!now"))
        assert [block["text"] for block in agent.provider.sent(1)[1]["content"]] == ["First. ", "Second"]
