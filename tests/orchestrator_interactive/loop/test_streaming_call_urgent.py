"""A message that begins with `!` cuts the model call in flight: what was said stays, and the model reads it at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from agents import (
    doing,
    echo,
    goes_on,
    make_agent,
    never,
    say,
    soon,
    streaming,
    told,
)

from orchestrator_interactive import Injection, RunFinished
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.messages import TextBlock, ThinkingBlock, ToolCallBlock
from orchestrator_interactive.loop.injection_queue import PREFIX

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

    async def test_it_is_shown_once_the_message_stands_and_before_that_is_told(self) -> None:
        order: list[str] = []
        agent = await make_agent(streaming("so far", then=never()), say("ok"))

        async def before_row(row: dict[str, Any]) -> None:
            order.append(row["role"])

        agent.context.before = before_row
        agent.progress.act_on("text", lambda: order.append("shown"))
        agent.progress.act_on("injection:applied", lambda: order.append("read"))
        await soon(await _steered(agent, "!now"))
        assert order == ["user", "assistant", "user", "shown", "read", "assistant"]

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
