"""The three injection points, and the row that the messages of one drain become."""

import asyncio
from typing import Any

import pytest
from agents import ScriptedProvider, after, call, delivered, doing, echo, gated, make_agent, say, told, use

from orchestrator_interactive import Injection, RunFinished
from orchestrator_interactive.transcript.framing import PREFIX, Author

MORE = ("user", f"{PREFIX}\n- more")


class TestInjectionPoints:
    async def test_a_message_while_nothing_runs_yet_leads_the_first_run(self) -> None:
        agent = await make_agent(say("ok"))
        agent.inject("more")
        await agent.run()
        assert told(agent.provider.sent(0)) == [MORE, ("user", "go")]

    async def test_a_message_during_prompt_submit_follows_the_prompt(self) -> None:
        agent = await make_agent(say("ok"))
        agent.events.listen(agent.hooks, "prompt:submit").act_on("prompt:submit", lambda: agent.inject("more"))
        await agent.run()
        assert told(agent.provider.sent(0)) == [("user", "go"), MORE]

    @pytest.mark.parametrize(
        ("order", "read"),
        [
            (None, ["U3: go", "Ada (U1): older\nBen (U2): and\n  [this]"]),
            (1.5, ["Ada (U1): older", "U3: go", "Ben (U2): and\n  [this]"]),
            (0.5, ["U3: go", "Ada (U1): older\nBen (U2): and\n  [this]"]),
        ],
    )
    async def test_messages_written_before_the_run_are_plain_messages_in_order_with_its_prompt(
        self, order: float | None, read: list[str]
    ) -> None:
        agent = await make_agent(say("ok"))
        messages = [
            Injection("older", id="T:C:1", author=Author("U1", "Ada"), order=1.0),
            Injection("and\n[this]", id="T:C:2", author=Author("U2", "Ben"), order=2.0),
            Injection("more", id="T:C:3", order=2.0**40),
        ]
        agent.progress.act_on("executing", lambda: [agent.inject(each) for each in messages])
        await agent.session.execute("U3: go", order=order, on_progress=agent.progress)
        assert told(agent.provider.sent(0)) == [*(("user", each) for each in read), MORE]
        assert await delivered(agent) == ["T:C:1", "T:C:2", "T:C:3"]

    async def test_a_message_while_the_model_thinks_is_answered_after_the_interim_answer(self) -> None:
        gate = asyncio.Event()
        agent = await make_agent(after(gate, say("first")), say("second"))
        order: list[str] = []
        agent.context.act("before", lambda row: order.append(row["role"]))
        agent.progress.act_on("text", lambda: order.append("shown"))
        agent.progress.act_on("injection:applied", lambda: order.append("read"))
        run = await agent.steered("more")
        gate.set()
        assert await run == "second"
        assert await agent.told() == [("user", "go"), ("assistant", "first"), MORE, ("assistant", "second")]
        assert agent.progress.of("text") == [{"text": "first", "part": 1}]
        assert order == ["user", "assistant", "user", "shown", "read", "assistant"]

    async def test_an_interim_answer_without_words_is_not_shown(self) -> None:
        agent = await make_agent(doing(lambda: agent.inject("more"), call()), say("second"))
        assert await agent.run() == "second"
        assert agent.progress.of("text") == []

    async def test_a_message_while_tools_run_follows_their_results(self) -> None:
        gate = asyncio.Event()
        agent = await make_agent(call(use("wait", "a"), use("wait", "b")), say("ok"), tools=[tool := gated(gate)])
        run = await agent.in_tool(tool, 2)
        agent.inject("more")
        gate.set()
        await run
        assert told(agent.provider.sent(1))[2:] == [("tool", "wait"), ("tool", "wait"), MORE]

    async def test_a_message_between_two_results_follows_the_last_one(self) -> None:
        agent = await make_agent(call(use("echo", "a"), use("echo", "b")), say("ok"), tools=[echo()])
        agent.context.act("after", lambda row: row.get("tool_call_id") == "a" and agent.inject("more"))
        await agent.run()
        assert told(agent.provider.sent(1))[2:] == [("tool", "echo"), ("tool", "echo"), MORE]

    async def test_a_message_right_before_the_next_call_is_read_at_the_next_point(self) -> None:
        agent = await make_agent(call(use("echo", "a")), say("first"), say("second"), tools=[echo()])
        agent.progress.act_on("tool:end", lambda: agent.progress.act_on("thinking", lambda: agent.inject("more")))
        assert await agent.run() == "second"
        assert MORE not in told(agent.provider.sent(1))
        assert told(agent.provider.sent(2))[-2:] == [("assistant", "first"), MORE]

    async def test_steering_works_again_and_again(self) -> None:
        gates = [asyncio.Event() for _ in range(3)]
        agent = await make_agent(*(after(gate, say(f"answer {i}")) for i, gate in enumerate(gates)), say("last"))
        run = agent.start()
        for number, gate in enumerate(gates, start=1):
            await agent.provider.asked(number)
            agent.inject(f"steer {number}")
            gate.set()
        assert await run == "last"
        applied = [data["messages"] for data in agent.progress.of("injection:applied")]
        assert applied == [[f"steer {n}"] for n in (1, 2, 3)]

    async def test_every_request_begins_with_the_one_before_byte_by_byte(self) -> None:
        gate, thinking = asyncio.Event(), asyncio.Event()
        tool = gated(gate)
        provider = ScriptedProvider(
            call(use("wait", "a"), use("wait", "b"), text="on it"),
            call(use("dispatch_worker", "c")),
            after(thinking, say("first")),
            say("second"),
        )
        agent = await make_agent(provider=provider, tools=[tool, echo("dispatch_worker")])
        run = await agent.in_tool(tool, 2)
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


class TestTheRow:
    async def test_all_messages_of_one_drain_become_one_row_in_the_order_of_writing(self) -> None:
        agent = await make_agent(say("ok"))
        agent.events.listen(agent.hooks, "injection:applied")
        for text, order in (("two", 2.0), ("three", 3.0), ("one", 1.0)):
            agent.inject(Injection(text, id=f"T:C:{order}", order=order))
        await agent.run()
        row, ids = (await agent.history())[0], ["T:C:1.0", "T:C:2.0", "T:C:3.0"]
        assert row["content"] == f"{PREFIX}\n- one\n- two\n- three"
        assert row["metadata"]["injections"] == ids
        applied = {"messages": ["one", "two", "three"], "count": 3, "ids": ids}
        assert agent.progress.of("injection:applied") == [applied]
        assert agent.events.of("injection:applied")[0].items() >= applied.items()

    @pytest.mark.parametrize("text", ["", " ", "\n\t "])
    async def test_blank_text_is_refused(self, text: str) -> None:
        agent = await make_agent()
        with pytest.raises(ValueError, match="text"):
            agent.inject(text)


PROGRESS = ["executing", "thinking", "tool:start", "tool:end", "complete"]
HOOKS = [
    *("execution:start", "prompt:submit", "provider:request", "provider:response", "tool:pre", "tool:post"),
    *("execution:end", "orchestrator:complete"),
]
AFTER_THE_LAST_DRAIN = {"complete", "execution:end", "orchestrator:complete"}


@pytest.mark.parametrize("text", ["now", "!now"])
class TestAtTheSameInstant:
    @pytest.mark.parametrize(("event", "is_hook"), [*((e, False) for e in PROGRESS), *((e, True) for e in HOOKS)])
    async def test_a_message_from_within_an_event_is_read_or_refused(
        self, event: str, text: str, *, is_hook: bool
    ) -> None:
        agent = await make_agent(call(use("echo", "a")), *map(say, ("one", "two", "three")), tools=[echo()])
        accepted: list[bool] = []

        def offer() -> None:
            try:
                agent.inject(Injection(text, id="now"))
            except RunFinished:
                accepted.append(False)
            else:
                accepted.append(True)

        recorder = agent.events.listen(agent.hooks, event) if is_hook else agent.progress
        recorder.act_on(event, offer)
        await agent.run()
        assert accepted == [event not in AFTER_THE_LAST_DRAIN]
        assert await delivered(agent) == ["now"] * accepted[0]

    @pytest.mark.parametrize("moment", ["before", "after"])
    @pytest.mark.parametrize("index", range(4))
    async def test_a_message_while_a_row_is_committed_is_read_in_this_run(
        self, index: int, moment: Any, text: str
    ) -> None:
        agent = await make_agent(call(use("echo", "a")), *map(say, ("one", "two", "three")), tools=[echo()])
        count = iter(range(100))
        agent.context.act(moment, lambda _: next(count) == index and agent.inject(Injection(text, id="now")))
        await agent.run()
        assert await delivered(agent) == ["now"]

    @pytest.mark.parametrize("steps", range(12))
    async def test_a_message_around_the_last_drain_is_read_in_this_run_or_refused(self, steps: int, text: str) -> None:
        agent = await make_agent(say("one"), say("two"))
        accepted: list[bool] = []
        offered = asyncio.Event()

        def offer_after(steps: int) -> None:
            if steps:
                asyncio.get_running_loop().call_soon(offer_after, steps - 1)
                return
            offered.set()
            try:
                agent.inject(Injection(text, id="now"))
            except RunFinished:
                accepted.append(False)
            else:
                accepted.append(True)

        answers = iter([steps])
        agent.context.act("after", lambda row: row["role"] == "assistant" and [offer_after(each) for each in answers])
        await agent.run()
        await offered.wait()
        assert await delivered(agent) == ["now"] * accepted[0]

    async def test_a_message_from_the_last_step_of_the_provider_is_read(self, text: str) -> None:
        agent = await make_agent(doing(lambda: agent.inject(text), say("one")), say("two"))
        assert await agent.run() == "two"
        assert len(await delivered(agent)) == 1

    async def test_a_message_from_another_thread_goes_through_the_event_loop(self, text: str) -> None:
        gate = asyncio.Event()
        agent = await make_agent(after(gate, say("first")), say("second"))
        run = await agent.asked()
        await asyncio.to_thread(asyncio.get_running_loop().call_soon_threadsafe, agent.inject, text)
        gate.set()
        assert await run == "second"
        assert len(await delivered(agent)) == 1

    async def test_a_message_after_the_run_is_refused(self, text: str) -> None:
        agent = await make_agent(say("ok"))
        await agent.run()
        with pytest.raises(RunFinished):
            agent.inject(text)
