"""An urgent message does not wait for running tools: the model answers it, and their results follow."""

import asyncio
from typing import Any

import pytest
from agents.after_run import delivered, goes_on, late_results, results
from agents.milestones import LONG_S, soon
from agents.provider import call, doing, fail, never, say, streaming, use
from agents.rows import text_of, told
from agents.session import Agent, make_agent
from agents.tools import ScriptedTool, echo, gated, having
from loop_rows import STILL_RUNNING

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError
from orchestrator_interactive.kernel.contracts.messages import ImageBlock, TextBlock
from orchestrator_interactive.transcript.framing import LATE_PREFIX, PREFIX

NOW = ("user", f"{PREFIX}\n- !now")


def late(*lines: str) -> tuple[str, str]:
    return "user", "\n".join([LATE_PREFIX, *lines])


LATE_A = late("- call a, wait: wait")


class Steered:
    """A run with a tool that waits for `gate`, and an urgent message that comes in the meantime."""

    agent: Agent
    run: asyncio.Task[str]

    def __init__(self, name: str = "wait") -> None:
        self.gate = asyncio.Event()
        self.tool = gated(self.gate, name)

    async def by(
        self, *steps: Any, message: str | Injection = "!now", tools: Any = (), batch: Any = None, **more: Any
    ) -> Agent:
        """Start the run with these steps after the tool call, and inject the message."""
        batch = batch or call(use(self.tool.name, "a"))
        self.agent = await make_agent(batch, *steps, tools=[self.tool, *tools], **more)
        self.run = await self.agent.in_tool(self.tool)
        self.agent.inject(message)
        return self.agent

    async def answered(self, number: int = 1) -> None:
        """Wait until the model has answered this many messages while the tool runs."""
        await self.agent.progress.reached("text", number)

    async def ended(self) -> str:
        """Let the tool end, and wait for the end of the run."""
        self.gate.set()
        return await soon(self.run)


class TestTheRows:
    async def test_a_reply_next_to_tool_calls_is_shown_at_once_to_the_author_of_an_urgent_message(self) -> None:
        steered = Steered()
        reply = call(use("echo", "b"), text="It is 5,000.")
        agent = await steered.by(reply, call(use("echo", "c"), text="for the agent only"), say("done"), tools=[echo()])
        await steered.answered()
        assert agent.progress.of("text") == [{"text": "It is 5,000.", "part": 1}]
        assert await steered.ended() == "done"
        assert len(agent.progress.of("text")) == 1

    async def test_the_message_is_read_at_once_and_the_result_follows(self) -> None:
        steered = Steered()
        agent = await steered.by(say("meanwhile"), say("done"))
        await steered.answered()
        assert agent.progress.of("tool:end") == []
        assert await steered.ended() == "done"
        answers = ("assistant", "meanwhile"), LATE_A, ("assistant", "done")
        assert (await agent.told())[2:] == [("tool", STILL_RUNNING), NOW, *answers]
        rows = await agent.history()
        late_metadata = {"results": ["a"], "call_outcome": {"a": {"outcome": "finished"}}}
        assert [rows[i].get("metadata") for i in (2, 5)] == [{"pending": True}, late_metadata]
        assert agent.progress.of("text") == [{"text": "meanwhile", "part": 1}]
        assert steered.tool.cancelled == 0
        assert agent.provider.prefix_breaks() == []
        await goes_on(agent)

    async def test_calls_that_have_ended_have_their_results_in_call_order(self) -> None:
        gate = asyncio.Event()
        tool = gated(gate)
        batch = call(use("echo", "x", text="one"), use("wait", "a"), use("echo", "y", text="two"), use("wait", "b"))
        agent = await make_agent(batch, say("meanwhile"), say("done"), tools=[tool, echo()])
        run = await agent.in_tool(tool, 2)
        await agent.progress.reached("tool:end", 2)
        agent.inject("!now")
        await agent.progress.reached("text")
        gate.set()
        await soon(run)
        assert await results(agent) == {"x": "one", "a": STILL_RUNNING, "y": "two", "b": STILL_RUNNING}
        assert told(await late_results(agent)) == [late("- call a, wait: wait", "- call b, wait: wait")]

    async def test_results_that_come_one_by_one_follow_one_by_one(self) -> None:
        first, second = asyncio.Event(), asyncio.Event()
        tools = [gated(first, "one"), gated(second, "two")]
        agent = await make_agent(call(use("one", "a"), use("two", "b")), *map(say, "123"), tools=tools)
        run = await agent.in_tool(tools[1])
        agent.inject("!now")
        for number, gate in enumerate((second, first), start=1):
            await agent.progress.reached("text", number)
            gate.set()
        assert await soon(run) == "3"
        assert [row["metadata"]["results"] for row in await late_results(agent)] == [["b"], ["a"]]

    async def test_a_result_that_comes_while_the_model_answers_follows_the_answer(self) -> None:
        steered = Steered()
        agent = await steered.by(doing(lambda: agent.inject("more"), say("meanwhile")), say("done"))
        agent.progress.act_on("thinking", steered.gate.set)
        assert await soon(steered.run) == "done"
        sent = told(agent.provider.sent())
        assert sent[4:] == [("assistant", "meanwhile"), LATE_A, ("user", f"{PREFIX}\n- more")]

    async def test_when_every_call_has_ended_the_message_is_read_like_any_other(self) -> None:
        agent = await make_agent(call(use("echo", "a")), say("ok"), tools=[echo()])
        agent.context.act("after", lambda row: row["role"] == "tool" and agent.inject("!now"))
        assert await agent.run() == "ok"
        assert [role for role, _ in await agent.told()] == ["user", "assistant", "tool", "user", "assistant"]
        assert await late_results(agent) == []

    @pytest.mark.parametrize("event", ["provider:response", "tool:pre", "tool:post"])
    async def test_a_message_from_within_a_hook_leaves_a_result_for_every_call(self, event: str) -> None:
        batch = call(use("echo", "a", text="1"), use("echo", "b", text="2"))
        agent = await make_agent(batch, *map(say, "xyz"), tools=[echo()])
        agent.events.listen(agent.hooks, event).act_on(event, lambda: agent.inject("!now"))
        await agent.run()
        found = await results(agent)
        pending = [call_id for call_id, text in found.items() if text == STILL_RUNNING]
        assert list(found) == ["a", "b"]
        assert [each for row in await late_results(agent) for each in row["metadata"]["results"]] == pending
        assert agent.provider.prefix_breaks() == []
        await goes_on(agent)

    async def test_failures_images_and_long_texts_keep_their_form(self) -> None:
        gate = asyncio.Event()
        image = ImageBlock(source={"type": "base64", "media_type": "image/png", "data": "aGk="})
        outputs = {
            "break": ToolResult(success=False, error={"message": "no disk"}),
            "draw": ToolResult(content=[TextBlock(text="the plan"), image]),
            "tell": ToolResult(output="x" * 150),
        }

        def tool(name: str) -> ScriptedTool:
            async def behave(_input: dict[str, Any]) -> ToolResult:
                await gate.wait()
                return outputs[name]

            return ScriptedTool(name, behave)

        tools = [tool(name) for name in outputs]
        batch = call(*(use(name, name) for name in outputs))
        agent = await make_agent(batch, say("meanwhile"), say("done"), tools=tools, max_result_chars=100)
        run = await agent.in_tool(tools[-1])
        agent.inject("!now")
        await agent.progress.reached("text")
        gate.set()
        await soon(run)
        [row] = await late_results(agent)
        text, sent_image = row["content"]
        assert text["text"].splitlines()[1:4] == [
            "- call break, break: failed: no disk",
            "- call draw, draw: the plan",
            f"- call tell, tell: {'x' * 75}",
        ]
        assert "50 characters are left out" in text["text"]
        assert sent_image == {"type": "image", "source": image.source}
        became = {name: {"outcome": "failed" if name == "break" else "finished"} for name in outputs}
        assert row["metadata"] == {"results": list(outputs), "call_outcome": became, "whole": {"tell": "x" * 150}}
        await goes_on(agent)


class TestWhileTheToolRuns:
    async def test_further_messages_are_read(self) -> None:
        steered = Steered()
        agent = await steered.by(say("1"), say("2"), say("3"), say("done"))
        for number, text in ((1, "more"), (2, "!and more")):
            await steered.answered(number)
            agent.inject(Injection(text, id=str(number)))
        await steered.answered(3)
        assert await steered.ended() == "done"
        assert (await delivered(agent))[1:] == ["1", "2"]
        assert agent.shown() == ["1", "2", "3"]

    async def test_an_urgent_one_interrupts_the_answer_and_not_the_tool(self) -> None:
        steered = Steered()
        agent = await steered.by(never(), say("meanwhile"), say("done"))
        await agent.provider.asked(2)
        agent.inject("!again")
        await steered.answered()
        assert await steered.ended() == "done"
        assert steered.tool.cancelled == 0
        assert agent.provider.prefix_breaks() == []

    async def test_the_model_may_call_more_tools(self) -> None:
        other = asyncio.Event()
        steered, second = Steered(), gated(other, "second")
        steps = call(use("second", "b")), say("1"), call(use("echo", "c")), say("2")
        agent = await steered.by(*steps, tools=[second, echo()])
        await second.started()
        agent.inject("!again")
        await steered.answered()
        steered.gate.set()
        await steered.answered(2)
        agent.provider.add(say("done"))
        other.set()
        assert await soon(steered.run) == "done"
        assert await results(agent) == {"a": STILL_RUNNING, "b": STILL_RUNNING, "c": "echo"}
        assert [row["metadata"]["results"] for row in await late_results(agent)] == [["a"], ["b"]]
        await goes_on(agent)

    @pytest.mark.parametrize("option", [{"max_iterations": 1}, {"max_tokens": 1}])
    async def test_a_run_at_its_limit_waits_for_it_too(self, option: dict[str, Any]) -> None:
        steered = Steered()
        agent = await steered.by(say("meanwhile"), say("done"), **option)
        await steered.answered()
        assert await steered.ended() == "done"
        assert [request.tool_choice for request in agent.provider.requests] == [None, "none", "none"]
        assert agent.complete()["status"] == "incomplete"

    async def test_an_answer_that_it_forces_is_forced_at_once(self) -> None:
        steered = Steered("dispatch_worker")
        agent = await steered.by(say("on it"), say("done"))
        await steered.answered()
        assert await steered.ended() == "done"
        assert [request.tool_choice for request in agent.provider.requests] == [None, "none", None]

    async def test_an_injection_of_its_hook_follows_its_result(self) -> None:
        steered = Steered()
        agent = await steered.by(say("meanwhile"), say("done"))
        agent.on_hook("tool:post", HookResult(action="inject_context", context_injection="noted"))
        await steered.answered()
        await steered.ended()
        assert (await agent.told())[-3:] == [LATE_A, ("system", "noted"), ("assistant", "done")]

    async def test_a_hook_may_withhold_its_result(self) -> None:
        steered = Steered()
        agent = await steered.by(say("meanwhile"), say("done"))
        agent.on_hook("tool:post", HookResult(action="deny", reason="secret"))
        await steered.answered()
        await steered.ended()
        assert late("- call a, wait: failed: The result was withheld: secret") in await agent.told()

    async def test_a_withdrawn_message_is_not_read_though_it_was_urgent(self) -> None:
        steered = Steered()
        agent = await steered.by(say("meanwhile"), say("done"), message=Injection("!now", id="1"))
        assert agent.withdraw("1")
        await steered.answered()
        agent.inject(Injection("!no", id="2"))
        assert agent.withdraw("2")
        for _ in range(10):
            await asyncio.sleep(0)
        assert await steered.ended() == "done"
        assert len(agent.provider.requests) == 3
        assert await delivered(agent) == []
        await goes_on(agent)

    async def test_a_text_before_a_late_result_is_not_joined_to_the_text_after_it(self) -> None:
        steered = Steered()
        agent = await steered.by(streaming("It is", then=never()), say("Done."))
        await agent.provider.asked(2)
        agent.progress.act_on("tool:end", lambda: [agent.inject(Injection("!now", id="1")), agent.withdraw("1")])
        assert await steered.ended() == "Done."
        assert agent.progress.of("text") == [{"text": "It is", "part": 1, "partial": True}]
        assert [role for role, _ in await agent.told()][-3:] == ["assistant", "user", "assistant"]

    async def test_a_late_row_that_the_log_refuses_loses_no_message(self) -> None:
        steered = Steered()
        agent = await steered.by(say("meanwhile"))
        await steered.answered()
        agent.context.refuse(
            lambda row: "results" in (row.get("metadata") or {}) and agent.inject(Injection("late", id="2"))
        )
        agent.progress.act_on("tool:end", lambda: agent.inject(Injection("more", id="1")))
        with pytest.raises(OSError, match="disk full"):
            await steered.ended()
        agent.context.accept()
        agent.provider.add(say("ok"))
        await agent.run("next")
        assert (await delivered(agent))[1:] == ["1", "2"]


class TestTheEndOfTheRun:
    @pytest.mark.parametrize("immediate", [False, True])
    @pytest.mark.parametrize("answering", [False, True])
    @pytest.mark.parametrize(("free", "outcome"), [(False, "unknown"), (True, "cancelled")])
    async def test_a_stop_cancels_the_call_and_its_late_result_says_so(
        self, outcome: str, *, free: bool, answering: bool, immediate: bool
    ) -> None:
        steered = Steered()
        having(steered.tool, side_effect_free=free)
        agent = await steered.by(never() if answering else say("meanwhile"), stop_grace_s=0)
        agent.events.listen(agent.hooks, "tool:post", "tool:error")
        await (agent.provider.asked(2) if answering else steered.answered())
        await agent.stopped(steered.run, immediate=immediate)
        [row] = await late_results(agent)
        assert "unknown" in text_of(row)
        assert steered.tool.cancelled == 1
        assert agent.complete()["tools"] == [{"tool": "wait", "id": "a", "label": None, "outcome": outcome}]
        assert agent.events.names() == ["tool:error"]
        assert [data["success"] for data in agent.progress.of("tool:end")] == [False]
        await goes_on(agent)

    async def test_a_graceful_stop_lets_it_finish(self) -> None:
        steered = Steered()
        agent = await steered.by(say("meanwhile"), stop_grace_s=LONG_S)
        await steered.answered()
        agent.stop()
        await steered.ended()
        assert (await agent.told())[-1] == LATE_A
        assert agent.outcomes() == {"a": "finished"}
        await goes_on(agent)

    async def test_a_stop_at_the_instant_of_the_message_is_a_stop(self) -> None:
        steered = Steered()
        agent = await steered.by(stop_grace_s=0)
        await agent.stopped(steered.run)
        assert agent.complete().items() >= {"status": "cancelled", "waiting": 1}.items()
        await goes_on(agent)

    @pytest.mark.parametrize("how", ["cancelled", "failed"])
    async def test_a_cancelled_or_failed_run_cancels_it_and_leaves_a_valid_history(self, how: str) -> None:
        before = asyncio.all_tasks()
        steered = Steered()
        agent = await steered.by(fail(InvalidRequestError("no")) if how == "failed" else say("meanwhile"))
        if how == "cancelled":
            await steered.answered()
            steered.run.cancel()
        with pytest.raises((asyncio.CancelledError, InvalidRequestError)):
            await soon(steered.run)
        assert "unknown" in text_of((await late_results(agent))[0])
        assert steered.tool.cancelled == 1
        assert asyncio.all_tasks() == before
        await goes_on(agent)

    async def test_a_call_that_takes_too_long_is_cancelled_and_its_late_result_says_so(self) -> None:
        steered = Steered()
        having(steered.tool, timeout_s=0.01)
        agent = await steered.by(say("meanwhile"), say("done"))
        assert await soon(steered.run) == "done"
        assert "after 0.01 seconds" in text_of((await late_results(agent))[0])
