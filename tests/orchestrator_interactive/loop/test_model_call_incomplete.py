"""An answer that was cut at its length limit is gone on with; one that the model refused is told as such."""

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    ScriptedProvider,
    answer,
    call,
    doing,
    echo,
    fail,
    gated,
    make_agent,
    never,
    say,
    soon,
    streaming,
    text_of,
    use,
)

from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import TextBlock, ThinkingBlock, ToolCallBlock


def cut(text: str, finish_reason: str = "max_tokens") -> Any:
    return say(text, finish_reason=finish_reason)


def _ending(agent: Agent) -> tuple[str, str | None]:
    complete = agent.progress.of("complete")[-1]
    return complete["status"], complete.get("reason")


def _shown(agent: Agent) -> list[str]:
    return [told["text"] for told in agent.progress.of("text")]


class TestGoingOn:
    @pytest.mark.parametrize("finish_reason", ["max_tokens", "length", "model_context_window_exceeded", "pause_turn"])
    async def test_people_read_one_text_whatever_the_provider_calls_the_cut(self, finish_reason: str) -> None:
        agent = await make_agent(cut("One, two, ", finish_reason), say("three."))
        assert await agent.run() == "One, two, three."
        assert _shown(agent) == []
        assert _ending(agent) == ("success", None)

    async def test_the_model_is_asked_to_go_on_and_the_conversation_does_not_keep_that(self) -> None:
        agent = await make_agent(cut("One, two, "), say("three."), say("yes"))
        await agent.run("count")
        await agent.run("all?")
        assert [text_of(row) for row in agent.provider.sent(1)] == ["count", "One, two, ", "[Go on.]"]
        assert await agent.told() == [
            ("user", "count"),
            ("assistant", "One, two, "),
            ("assistant", "three."),
            ("user", "all?"),
            ("assistant", "yes"),
        ]

    async def test_after_three_times_the_text_ends_and_says_why(self) -> None:
        agent = await make_agent(cut("a"), cut("b"), cut("c"), cut("d"), say("never said"))
        assert await agent.run() == "abcd"
        assert _ending(agent) == ("incomplete", "length")
        assert len(agent.provider.requests) == 4

    async def test_every_part_counts_as_an_iteration(self) -> None:
        agent = await make_agent(cut("a"), cut("b"), say("c"), max_iterations=2)
        assert await agent.run() == "abc"
        assert agent.progress.of("complete")[0]["iterations"] == 3

    async def test_the_answer_after_tools_may_be_cut_as_often_again(self) -> None:
        before, after = map(cut, "abc"), map(cut, "def")
        agent = await make_agent(*before, call(use("echo", "x")), *after, say("g"), tools=[echo()])
        assert await agent.run() == "defg"
        assert _ending(agent) == ("success", None)

    async def test_so_may_the_answer_to_what_was_written_meanwhile(self) -> None:
        agent = await make_agent()
        before, after = map(cut, "ab"), map(cut, "def")
        agent.provider.add(*before, doing(lambda: agent.inject("more"), cut("c")), *after, say("g"))
        assert await agent.run() == "defg"
        assert _shown(agent) == ["abc"]

    async def test_where_nothing_was_said_it_is_asked_again_and_the_conversation_keeps_nothing(self) -> None:
        agent = await make_agent(
            answer(finish_reason="max_tokens"),
            answer(ThinkingBlock(thinking="hm", signature="s"), finish_reason="max_tokens"),
            say("ok"),
        )
        assert await agent.run() == "ok"
        assert await agent.told() == [("user", "go"), ("assistant", "ok")]

    async def test_where_nothing_is_ever_said_the_run_ends_and_says_why(self) -> None:
        agent = await make_agent(*[answer(finish_reason="max_tokens")] * 4)
        assert await agent.run() == ""
        assert _ending(agent) == ("incomplete", "length")

    async def test_thinking_before_the_cut_stays_with_the_text_that_it_led_to(self) -> None:
        thinking = ThinkingBlock(thinking="hm", signature="s")
        agent = await make_agent(answer(thinking, TextBlock(text="One, "), finish_reason="max_tokens"), say("two"))
        assert await agent.run() == "One, two"
        assert [block["type"] for block in agent.provider.sent()[1]["content"]] == ["thinking", "text"]


class TestTools:
    async def test_a_call_that_was_complete_before_the_cut_is_run(self) -> None:
        agent = await make_agent(
            call(use("echo", "a", text="x"), text="Let me", finish_reason="max_tokens"), say("ok"), tools=[echo()]
        )
        assert await agent.run() == "ok"
        assert ("tool", "x") in await agent.told()

    async def test_what_was_said_before_the_cut_is_shown_before_the_tools_that_come_after_it(self) -> None:
        agent = await make_agent(cut("I shall look. "), call(use("echo", "a")), say("Found."), tools=[echo()])
        assert await agent.run() == "Found."
        assert [event for event in agent.progress.names() if event in {"text", "tool:start"}] == ["text", "tool:start"]
        assert _shown(agent) == ["I shall look. "]

    async def test_a_model_that_must_answer_may_go_on_with_its_answer(self) -> None:
        agent = await make_agent(
            call(use("dispatch_worker", "a")), cut("It is "), say("sent."), tools=[echo("dispatch_worker")]
        )
        assert await agent.run() == "It is sent."


class TestMeanwhile:
    async def test_a_message_comes_after_what_was_said_which_is_shown_first_and_once(self) -> None:
        agent = await make_agent()
        agent.provider.add(doing(lambda: agent.inject("in French"), cut("One, two, ")), cut("trois, "), say("quatre."))
        assert await agent.run("count") == "trois, quatre."
        assert _shown(agent) == ["One, two, "]
        assert [event for event in agent.progress.names() if event in {"text", "injection:applied"}] == [
            "text",
            "injection:applied",
        ]
        assert text_of(agent.provider.sent(1)[-1]).endswith("- in French")

    async def test_an_urgent_message_cuts_the_rest_and_what_was_said_of_it_is_shown_too(self) -> None:
        agent = await make_agent(cut("One, two, "), streaming("thr", then=never()), say("Yes?"))
        run = agent.start()
        await agent.provider.asked(2)
        agent.inject("!wait")
        assert await soon(run) == "Yes?"
        assert _shown(agent) == ["One, two, thr"]

    @pytest.mark.parametrize("immediate", [False, True])
    async def test_a_stop_keeps_what_was_said_of_either_part(self, immediate: bool) -> None:
        agent = await make_agent(cut("One, two, "), streaming("thr", then=never()))
        run = agent.start()
        await agent.provider.asked(2)
        agent.stop(immediate=immediate)
        assert await soon(run) == "One, two, thr"
        assert (await agent.told())[1:] == [("assistant", "One, two, "), ("assistant", "thr")]

    async def test_a_stop_right_at_the_cut_keeps_the_text_and_asks_no_more(self) -> None:
        agent = await make_agent()
        agent.provider.add(streaming("One, two, ", then=doing(agent.stop, cut("One, two, "))))
        assert await agent.run() == "One, two, "
        assert (await agent.told())[1:] == [("assistant", "One, two, ")]
        assert len(agent.provider.requests) == 1

    async def test_a_failure_that_helps_nothing_shows_what_was_said_before_it(self) -> None:
        agent = await make_agent(cut("One, two, "), fail(errors.AuthenticationError("who?")))
        with pytest.raises(errors.AuthenticationError):
            await agent.run()
        assert _shown(agent) == ["One, two, "]

    async def test_a_failure_that_passes_does_not_part_the_text(self) -> None:
        down = errors.ProviderUnavailableError("down")
        agent = await make_agent(cut("One, "), streaming("two", then=fail(down)), say("two."), retry_base_delay_s=0)
        assert await agent.run() == "One, two."

    async def test_another_provider_goes_on_where_the_first_one_was(self) -> None:
        agent = await make_agent(cut("One, "), fail(errors.AuthenticationError("who?")))
        other = ScriptedProvider(say("two."), name="other")
        await agent.coordinator.mount("providers", other)
        assert await agent.run() == "One, two."
        assert [text_of(row) for row in other.sent()] == ["go", "One, ", "[Go on.]"]


class TestRefusals:
    @pytest.mark.parametrize("finish_reason", ["refusal", "content_filter"])
    async def test_it_is_told_with_the_reason_that_the_provider_gives(self, finish_reason: str) -> None:
        agent = await make_agent(say("I", finish_reason=finish_reason, metadata={"refusal": "It is dangerous."}))
        assert await agent.run() == "I"
        complete = agent.progress.of("complete")[0]
        assert [complete["status"], complete["reason"], complete["detail"]] == [
            "incomplete",
            "refusal",
            "It is dangerous.",
        ]

    async def test_without_a_reason_there_is_no_detail(self) -> None:
        agent = await make_agent(answer(finish_reason="refusal"))
        assert await agent.run() == ""
        assert _ending(agent) == ("incomplete", "refusal")
        assert "detail" not in agent.progress.of("complete")[0]

    async def test_hooks_hear_that_the_run_is_incomplete(self) -> None:
        agent = await make_agent(answer(finish_reason="refusal"))
        agent.events.listen(agent.hooks, "orchestrator:complete")
        await agent.run()
        assert agent.events.of("orchestrator:complete")[0]["status"] == "incomplete"

    async def test_what_is_written_while_it_refuses_gives_it_another_chance(self) -> None:
        agent = await make_agent()
        agent.provider.add(
            doing(lambda: agent.inject("for a novel"), say("No.", finish_reason="refusal")), say("Once upon a time")
        )
        assert await agent.run() == "Once upon a time"
        assert _ending(agent) == ("success", None)
        assert _shown(agent) == ["No."]

    async def test_a_tool_that_had_begun_before_the_refusal_is_ended(self) -> None:
        look = gated(asyncio.Event(), "look")
        look.side_effect_free = True  # type: ignore[attr-defined]

        async def refuse(request: Any, stream: Any) -> Any:
            await look.started()
            return await say("No.", finish_reason="refusal")(request, stream)

        agent = await make_agent(streaming(ToolCallBlock(id="a", name="look", input={}), then=refuse), tools=[look])
        assert await agent.run() == "No."
        assert look.cancelled == 1
        assert await agent.told() == [("user", "go"), ("assistant", "No.")]
