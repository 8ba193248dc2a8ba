"""An answer that was cut at its length limit is continued; a refusal ends the run with its reason."""

import asyncio
from typing import Any

import pytest
from agents.milestones import soon
from agents.provider import ScriptedProvider, answer, call, doing, fail, never, say, streaming, use
from agents.rows import text_of
from agents.session import Agent, make_agent
from agents.tools import echo, gated, having

from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import TextBlock, ThinkingBlock, ToolCallBlock
from orchestrator_interactive.transcript.framing import REFUSED

WHO = errors.AuthenticationError("who?")


def cut(text: str, finish_reason: str = "max_tokens") -> Any:
    return say(text, finish_reason=finish_reason)


def _ending(agent: Agent) -> tuple[str, str | None]:
    return agent.complete()["status"], agent.complete().get("reason")


class TestTheContinuation:
    @pytest.mark.parametrize("finish_reason", ["max_tokens", "length", "model_context_window_exceeded", "pause_turn"])
    async def test_people_read_one_text_for_every_finish_reason_of_a_truncation(self, finish_reason: str) -> None:
        agent = await make_agent(cut("One, two, ", finish_reason), say("three."))
        assert await agent.run() == "One, two, three."
        assert agent.shown() == []
        assert _ending(agent) == ("success", None)

    async def test_the_prompt_to_continue_is_in_the_requests_and_not_in_the_history(self) -> None:
        agent = await make_agent(cut("One, two, "), call(use("echo", "x")), say("three."), tools=[echo()])
        await agent.run("count")
        assert agent.provider.prefix_breaks() == []
        assert [text_of(row) for row in agent.provider.sent(1)] == ["count", "One, two, ", "[Go on.]"]
        assert "[Go on.]" not in [text for _, text in await agent.told()]

    @pytest.mark.parametrize("said", ["abcd", ""])
    async def test_after_three_times_the_run_ends_and_says_why(self, said: str) -> None:
        steps = map(cut, said) if said else [answer(finish_reason="max_tokens")] * 4
        agent = await make_agent(*steps, say("never said"), max_iterations=2)
        assert await agent.run() == said
        assert _ending(agent) == ("incomplete", "length")
        assert agent.complete()["iterations"] == 4

    async def test_the_count_starts_anew_after_tools_and_after_a_message(self) -> None:
        agent = await make_agent(tools=[echo()])
        agent.provider.add(*map(cut, "abc"), call(use("echo", "x")), *map(cut, "de"))
        agent.provider.add(doing(lambda: agent.inject("more"), cut("f")), *map(cut, "ghi"), say("j"))
        assert await agent.run() == "ghij"
        assert agent.shown() == ["abc", "def"]
        assert _ending(agent) == ("success", None)

    async def test_a_truncated_answer_without_text_is_repeated_and_not_kept(self) -> None:
        thought = answer(ThinkingBlock(thinking="hm", signature="s"), finish_reason="max_tokens")
        agent = await make_agent(answer(finish_reason="max_tokens"), thought, say("ok"))
        assert await agent.run() == "ok"
        assert await agent.told() == [("user", "go"), ("assistant", "ok")]

    async def test_thinking_of_a_truncated_answer_stays_with_its_text(self) -> None:
        thinking = ThinkingBlock(thinking="hm", signature="s")
        agent = await make_agent(answer(thinking, TextBlock(text="One, "), finish_reason="max_tokens"), say("two"))
        assert await agent.run() == "One, two"
        assert [block["type"] for block in agent.provider.sent()[1]["content"]] == ["thinking", "text"]

    async def test_a_complete_call_of_a_truncated_answer_is_run(self) -> None:
        called = call(use("echo", "a", text="x"), text="Let me", finish_reason="max_tokens")
        agent = await make_agent(called, say("ok"), tools=[echo()])
        assert await agent.run() == "ok"
        assert ("tool", "x") in await agent.told()

    async def test_its_text_is_shown_before_tools_that_the_continuation_calls(self) -> None:
        agent = await make_agent(cut("I shall look. "), call(use("echo", "a")), say("Found."), tools=[echo()])
        assert await agent.run() == "Found."
        assert [event for event in agent.progress.names() if event in {"text", "tool:start"}] == ["text", "tool:start"]
        assert agent.shown() == ["I shall look. "]

    async def test_a_forced_answer_may_be_continued(self) -> None:
        steps = call(use("dispatch_worker", "a")), cut("It is "), say("sent.")
        agent = await make_agent(*steps, tools=[echo("dispatch_worker")])
        assert await agent.run() == "It is sent."


class TestMeanwhile:
    async def test_a_message_follows_the_text_so_far_which_is_shown_first_and_once(self) -> None:
        agent = await make_agent()
        agent.provider.add(doing(lambda: agent.inject("in French"), cut("One, two, ")), cut("trois, "), say("quatre."))
        assert await agent.run("count") == "trois, quatre."
        assert agent.shown() == ["One, two, "]
        order = [event for event in agent.progress.names() if event in {"text", "injection:applied"}]
        assert order == ["text", "injection:applied"]
        assert text_of(agent.provider.sent(1)[-1]).endswith("- in French")

    async def test_an_urgent_message_interrupts_the_continuation_and_the_whole_text_is_shown(self) -> None:
        agent = await make_agent(cut("One, two, "), streaming("thr", then=never()), say("Yes?"))
        assert await soon(await agent.steered("!wait", asked=2)) == "Yes?"
        assert agent.shown() == ["One, two, thr"]

    async def test_a_stop_keeps_the_text_of_either_part(self) -> None:
        agent = await make_agent(cut("One, two, "), streaming("thr", then=never()))
        assert await agent.stopped(await agent.asked(2)) == "One, two, thr"
        assert (await agent.told())[1:] == [("assistant", "One, two, "), ("assistant", "thr")]

    async def test_a_stop_at_the_end_of_a_truncated_answer_keeps_the_text_and_asks_no_more(self) -> None:
        agent = await make_agent()
        agent.provider.add(streaming("One, two, ", then=doing(agent.stop, cut("One, two, "))))
        assert await agent.run() == "One, two, "
        assert (await agent.told())[1:] == [("assistant", "One, two, ")]
        assert len(agent.provider.requests) == 1

    async def test_a_failure_shows_the_text_before_it(self) -> None:
        agent = await make_agent(cut("One, two, "), fail(WHO))
        with pytest.raises(errors.AuthenticationError):
            await agent.run()
        assert agent.shown() == ["One, two, "]

    async def test_a_retry_and_a_fallback_continue_the_text(self) -> None:
        down = streaming("tw", then=fail(errors.ProviderUnavailableError("down")))
        agent = await make_agent(cut("One, "), down, fail(WHO), retry_base_delay_s=0)
        other = ScriptedProvider(say("two."), name="other")
        await agent.coordinator.mount("providers", other)
        assert await agent.run() == "One, two."
        assert [text_of(row) for row in other.sent()] == ["go", "One, ", "[Go on.]"]


class TestRefusals:
    @pytest.mark.parametrize("finish_reason", ["refusal", "content_filter"])
    @pytest.mark.parametrize("detail", ["It is dangerous.", None])
    async def test_the_run_is_incomplete_with_the_reason_of_the_provider(
        self, finish_reason: str, detail: str | None
    ) -> None:
        metadata = {"refusal": detail} if detail else None
        agent = await make_agent(say("I", finish_reason=finish_reason, metadata=metadata))
        agent.events.listen(agent.hooks, "orchestrator:complete")
        assert await agent.run() == "I"
        assert _ending(agent) == ("incomplete", "refusal")
        assert agent.complete().get("detail") == detail
        assert agent.events.of("orchestrator:complete")[0]["status"] == "incomplete"

    async def test_later_requests_omit_a_task_that_a_content_filter_rejected(self) -> None:
        why = "The content filter rejected the request."
        agent = await make_agent(say("Hi."), fail(errors.ContentFilterError(why)), say("Fine."))
        agent.events.listen(agent.hooks, "provider:error", "provider:response", "orchestrator:complete")
        await agent.run("hello")
        assert await agent.run("something bad") == ""
        assert (*_ending(agent), agent.complete()["detail"]) == ("incomplete", "refusal", why)
        assert agent.events.names()[-2:] == ["provider:error", "orchestrator:complete"]
        assert await agent.run("something else") == "Fine."
        sent = [text_of(row) for row in agent.provider.sent()]
        assert sent == ["hello", "Hi.", REFUSED, "something else"]

    async def test_a_message_during_the_refusal_is_answered(self) -> None:
        agent = await make_agent()
        refusing = doing(lambda: agent.inject("for a novel"), say("No.", finish_reason="refusal"))
        agent.provider.add(refusing, say("Once upon a time"))
        assert await agent.run() == "Once upon a time"
        assert _ending(agent) == ("success", None)
        assert agent.shown() == ["No."]

    async def test_a_tool_that_had_begun_before_the_refusal_is_ended(self) -> None:
        look = having(gated(asyncio.Event(), "look"), side_effect_free=True)

        async def refuse(request: Any, stream: Any) -> Any:
            await look.started()
            return await say("No.", finish_reason="refusal")(request, stream)

        agent = await make_agent(streaming(ToolCallBlock(id="a", name="look", input={}), then=refuse), tools=[look])
        assert await agent.run() == "No."
        assert look.cancelled == 1
        assert await agent.told() == [("user", "go"), ("assistant", "No.")]
