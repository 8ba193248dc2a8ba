"""A message that begins with `!` cuts the model call in flight: what was said stays, and the model reads it at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from agents import (
    answer,
    call,
    deaf,
    delivered,
    doing,
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

from orchestrator_interactive import Injection, InjectionQueueFull, RunFinished
from orchestrator_interactive.injection import PREFIX
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.errors import InvalidRequestError, ProviderUnavailableError
from orchestrator_interactive.kernel.messages import TextBlock, ThinkingBlock, ToolCallBlock

if TYPE_CHECKING:
    from typing import Any

    from agents import Agent

SIGNED = ThinkingBlock(thinking="signed", signature="s")
UNSIGNED = ThinkingBlock(thinking="cut")
CALL = ToolCallBlock(id="a", name="echo", input={})
NOW = ("user", f"{PREFIX}\n- !now")

# Where an answer may be cut, and what of its text stays.
PIECES = (SIGNED, "Wh", "ole.", TextBlock(text="Whole."), UNSIGNED, CALL, " And", " more")
KEPT = ("", "", "Wh", "Whole.", "Whole.", "Whole.", "Whole.", "Whole. And", "Whole. And more")


async def _steered(agent: Agent, *messages: str | Injection, asked: int = 1) -> asyncio.Task[str]:
    run = agent.start()
    await agent.provider.asked(asked)
    for message in messages:
        agent.inject(message)
    return run


def _texts(agent: Agent) -> list[str]:
    return [data["text"] for data in agent.progress.of("text")]


class TestWhatStays:
    @pytest.mark.parametrize("count", range(len(PIECES) + 1))
    async def test_the_text_as_far_as_it_came_is_kept_and_shown_once_wherever_the_answer_is_cut(
        self, count: int
    ) -> None:
        agent = await make_agent(streaming(*PIECES[:count], then=never()), say("ok"), tools=[echo()])
        assert await soon(await _steered(agent, "!now")) == "ok"
        said = [("assistant", KEPT[count])] if KEPT[count] else []
        assert await agent.told() == [("user", "go"), *said, NOW, ("assistant", "ok")]
        assert _texts(agent) == [text for _, text in said]
        assert agent.provider.cancelled == 1

    @pytest.mark.parametrize("count", range(len(PIECES) + 1))
    async def test_the_next_request_is_the_one_before_and_what_was_committed(self, count: int) -> None:
        agent = await make_agent(streaming(*PIECES[:count], then=never()), say("ok"), tools=[echo()])
        await soon(await _steered(agent, "!now"))
        assert agent.provider.prefix_breaks() == []
        assert len(agent.provider.requests[1].messages) == 2 + bool(KEPT[count])
        await goes_on(agent)
        assert agent.provider.prefix_breaks() == []

    async def test_thinking_stays_if_it_is_signed_and_calls_that_have_not_begun_go(self) -> None:
        agent = await make_agent(streaming(*PIECES, then=never()), say("ok"), tools=[tool := echo()])
        await soon(await _steered(agent, "!now"))
        kept = (await agent.history())[1]
        assert [block["type"] for block in kept["content"]] == ["thinking", "text", "text"]
        assert kept["content"][0]["signature"] == "s"
        assert "tool_calls" not in kept
        assert tool.inputs == []

    async def test_it_is_shown_before_the_message_is_committed_and_after_the_text_is(self) -> None:
        order: list[str] = []
        agent = await make_agent(streaming("so far", then=never()), say("ok"))

        async def before_row(row: dict[str, Any]) -> None:
            order.append(row["role"])

        agent.context.before = before_row
        agent.progress.act_on("text", lambda: order.append("shown"))
        await soon(await _steered(agent, "!now"))
        assert order == ["user", "assistant", "shown", "user", "assistant"]

    async def test_the_hooks_see_the_part_that_came_and_may_change_it(self) -> None:
        agent = await make_agent(streaming("hunter2", then=never()), say("ok"))

        async def redact(_event: str, data: dict[str, Any]) -> HookResult:
            clean = data["response"].text.replace("hunter2", "[redacted]")
            changed = data["response"].model_copy(update={"content": [TextBlock(text=clean)]})
            return HookResult(action="modify", data={"response": changed})

        agent.hooks.register("provider:response", redact)
        await soon(await _steered(agent, "!now"))
        assert _texts(agent) == ["[redacted]"]
        assert "hunter2" not in str(await agent.history())

    async def test_each_request_has_its_response_for_the_hooks(self) -> None:
        agent = await make_agent(streaming("so far", then=never()), say("ok"))
        agent.events.listen(agent.hooks, "provider:request", "provider:response", "provider:error")
        await soon(await _steered(agent, "!now"))
        assert agent.events.names() == ["provider:request", "provider:response"] * 2


class TestTheMoment:
    @pytest.mark.parametrize("event", ["executing", "thinking"])
    async def test_before_the_model_is_asked_it_is_read_with_the_first_question(self, event: str) -> None:
        agent = await make_agent(say("ok"))
        agent.progress.act_on(event, lambda: agent.inject("!now"))
        assert await agent.run() == "ok"
        assert [told(agent.provider.sent(i)) for i in range(len(agent.provider.requests))] == [[("user", "go"), NOW]]

    @pytest.mark.parametrize("event", ["execution:start", "prompt:submit", "provider:request"])
    async def test_while_hooks_are_asked_before_the_model_is_it_is_read_with_the_first_question(
        self, event: str
    ) -> None:
        agent = await make_agent(say("ok"))
        agent.events.listen(agent.hooks, event).act_on(event, lambda: agent.inject("!now"))
        assert await agent.run() == "ok"
        assert [told(agent.provider.sent(i)) for i in range(len(agent.provider.requests))] == [[("user", "go"), NOW]]

    async def test_while_the_context_is_read_it_is_read_with_the_first_question(self) -> None:
        agent = await make_agent(say("ok"))
        read = agent.context.get_messages_for_request

        async def compact(**more: Any) -> Any:
            agent.context.get_messages_for_request = read
            agent.inject("!now")
            return await read(**more)

        agent.context.get_messages_for_request = compact  # type: ignore[assignment]
        assert await agent.run() == "ok"
        assert [told(agent.provider.sent(i)) for i in range(len(agent.provider.requests))] == [[("user", "go"), NOW]]

    async def test_while_hooks_look_at_a_whole_answer_it_cuts_nothing_of_it(self) -> None:
        agent = await make_agent(say("whole"), say("ok"))
        agent.events.listen(agent.hooks, "provider:response")
        agent.events.act_on("provider:response", lambda: agent.inject("!now"))
        assert await agent.run() == "ok"
        assert (await agent.told())[1:3] == [("assistant", "whole"), NOW]
        assert _texts(agent) == ["whole"]

    @pytest.mark.parametrize("moment", ["before", "after"])
    @pytest.mark.parametrize("index", range(2))
    async def test_while_a_row_is_committed_it_is_read_right_after(self, index: int, moment: str) -> None:
        agent = await make_agent(say("one"), say("two"))
        count = iter(range(100))

        async def at_row(_row: dict[str, Any]) -> None:
            if next(count) == index:
                agent.inject("!now")

        setattr(agent.context, moment, at_row)
        await agent.run()
        assert (await agent.told())[: index + 2] == [*[("user", "go"), ("assistant", "one")][: index + 1], NOW]
        await goes_on(agent)

    async def test_from_the_providers_last_step_it_is_read_and_nothing_is_said_twice(self) -> None:
        agent = await make_agent(streaming("all", then=doing(lambda: agent.inject("!now"), say("all"))), say("ok"))
        assert await agent.run() == "ok"
        assert (await agent.told())[1:3] == [("assistant", "all"), NOW]
        assert _texts(agent) == ["all"]

    @pytest.mark.parametrize("event", ["execution:end", "orchestrator:complete"])
    async def test_after_the_last_look_it_is_refused(self, event: str) -> None:
        refused: list[str] = []

        def offer() -> None:
            with pytest.raises(RunFinished):
                agent.inject("!now")
            refused.append("!now")

        agent = await make_agent(say("ok"))
        agent.events.listen(agent.hooks, event).act_on(event, offer)
        assert await agent.run() == "ok"
        assert refused == ["!now"]
        assert agent.receipts() == ()
        await goes_on(agent)

    @pytest.mark.parametrize(
        ("text", "cuts"), [("!", True), (" \n!x", True), ("!!", True), ("wow! now", False), ("now!", False)]
    )
    async def test_only_the_first_sign_of_a_message_makes_it_urgent(self, text: str, *, cuts: bool) -> None:
        gate = asyncio.Event()
        agent = await make_agent(streaming(gate, then=say("one")), say("two"))
        run = await _steered(agent, text)
        if not cuts:
            gate.set()
        await soon(run)
        assert agent.provider.cancelled == cuts


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
