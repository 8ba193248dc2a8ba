"""A stop or an urgent message ends the model call in flight: the text so far stays, and nothing is lost."""

import asyncio
from typing import Any

import pytest
from agents.after_run import delivered, goes_on, late_results
from agents.milestones import LONG_S, soon
from agents.provider import answer, call, deaf, doing, fail, never, say, streaming, use
from agents.rows import text_of, told
from agents.session import Agent, make_agent
from agents.tools import Person, echo, returning
from virtual_time import in_virtual_time

from orchestrator_interactive import Injection, InjectionQueueFull
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError, ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock, ThinkingBlock, ToolCallBlock
from orchestrator_interactive.transcript.framing import PREFIX

NOW = ("user", f"{PREFIX}\n- !now")
SIGNED, UNSIGNED = ThinkingBlock(thinking="signed", signature="s"), ThinkingBlock(thinking="cut")
CALL = ToolCallBlock(id="a", name="echo", input={})
WHOLE = (SIGNED, "Wh", "ole.", TextBlock(text="Whole."))
# The pieces that a provider has streamed when its call ends, and the text that is kept.
STREAMED = {
    "nothing": ((), ""),
    "thinking": ((SIGNED,), ""),
    "blank text": ((" \n",), ""),
    "half a block": ((SIGNED, "Wh"), "Wh"),
    "a block": (WHOLE, "Whole."),
    "unsigned thinking": ((*WHOLE, UNSIGNED), "Whole."),
    "a call": ((*WHOLE, UNSIGNED, CALL), "Whole."),
    "more text": ((*WHOLE, UNSIGNED, CALL, " And", " more"), "Whole. And more"),
}
of_every_kind = pytest.mark.parametrize(("pieces", "kept"), STREAMED.values(), ids=STREAMED)


def _requests(agent: Agent) -> list[list[tuple[str, str]]]:
    return [told(agent.provider.sent(i)) for i in range(len(agent.provider.requests))]


class TestTheTextSoFar:
    @of_every_kind
    async def test_a_stop_keeps_and_returns_it(self, pieces: Any, kept: str) -> None:
        agent = await make_agent(streaming(*pieces, then=never()), tools=[echo()])
        assert await agent.stopped(await agent.asked()) == kept
        assert (await agent.told())[1:] == ([("assistant", kept)] if kept else [])
        assert agent.provider.cancelled == 1
        await goes_on(agent)

    @of_every_kind
    async def test_an_urgent_message_keeps_it_and_shows_it_once(self, pieces: Any, kept: str) -> None:
        agent = await make_agent(streaming(*pieces, then=never()), say("ok"), tools=[echo()])
        assert await soon(await agent.steered("!now")) == "ok"
        said = [("assistant", kept)] if kept else []
        assert await agent.told() == [("user", "go"), *said, NOW, ("assistant", "ok")]
        assert agent.shown() == [text for _, text in said]
        assert agent.provider.cancelled == 1
        await goes_on(agent)
        assert agent.provider.prefix_breaks() == []

    @pytest.mark.parametrize("how", ["stop", "urgent message"])
    async def test_signed_thinking_stays_and_unsigned_thinking_and_calls_go(self, how: str) -> None:
        agent = await make_agent(streaming(*STREAMED["more text"][0], then=never()), say("ok"), tools=[tool := echo()])
        await (agent.stopped(await agent.asked()) if how == "stop" else soon(await agent.steered("!now")))
        row = (await agent.history())[1]
        assert [block["type"] for block in row["content"]] == ["thinking", "text", "text"]
        assert row["content"][0]["signature"] == "s"
        assert "tool_calls" not in row
        assert tool.inputs == []

    async def test_the_next_request_has_it_in_its_blocks(self) -> None:
        agent = await make_agent(streaming(TextBlock(text="First. "), "Second", then=never()), say("ok"))
        await soon(await agent.steered("!now"))
        assert [block["text"] for block in agent.provider.sent(1)[1]["content"]] == ["First. ", "Second"]

    async def test_hooks_see_it_and_may_change_it(self) -> None:
        agent = await make_agent(streaming("hunter2", then=never()), say("ok"))
        agent.events.listen(agent.hooks, "provider:request", "provider:response", "provider:error")

        def redact(data: dict[str, Any]) -> HookResult:
            clean = data["response"].text.replace("hunter2", "[redacted]")
            changed = data["response"].model_copy(update={"content": [TextBlock(text=clean)]})
            return HookResult(action="modify", data={"response": changed})

        agent.on_hook("provider:response", redact)
        await soon(await agent.steered("!now"))
        assert agent.shown() == ["[redacted]"]
        assert "hunter2" not in str(await agent.history())
        assert agent.events.names() == ["provider:request", "provider:response"] * 2


class TestAStopAtTheEndOfTheAnswer:
    async def test_none_of_its_tools_runs(self) -> None:
        tool = echo()
        stop = doing(lambda: asyncio.get_running_loop().call_soon(agent.stop), call(use("echo", "a"), text="I will"))
        agent = await make_agent(stop, tools=[tool])
        assert await agent.run() == "I will"
        assert tool.inputs == []
        await goes_on(agent)

    @pytest.mark.parametrize("pieces", [(), ("all ", "of it"), ("all of it", TextBlock(text="all of it"))])
    async def test_the_answer_is_kept_as_cancelled(self, pieces: Any) -> None:
        whole = streaming(*pieces, then=say("all of it"))
        agent = await make_agent(doing(lambda: asyncio.get_running_loop().call_soon(agent.stop), whole))
        assert await agent.run() == "all of it"
        assert (await agent.told())[1:] == [("assistant", "all of it")]
        assert agent.complete()["status"] == "cancelled"
        await goes_on(agent)

    @pytest.mark.parametrize(
        ("decision", "kept"),
        [
            (HookResult(action="deny", reason="secret"), ""),
            (HookResult(action="modify", data={"response": ChatResponse(content=[TextBlock(text="***")])}), "***"),
            (HookResult(), "hunter2"),
        ],
        ids=["deny", "modify", "continue"],
    )
    async def test_a_hook_that_decides_at_the_instant_of_the_stop_is_obeyed(
        self, decision: HookResult, kept: str
    ) -> None:
        agent = await make_agent(say("hunter2"))

        def decide(_data: dict[str, Any]) -> HookResult:
            asyncio.get_running_loop().call_soon(agent.stop)
            return decision

        end = agent.on_hook("provider:response", decide)
        assert await agent.run() == kept
        end()
        assert [text for role, text in await agent.told() if role == "assistant"] == ([kept] if kept else [])
        assert agent.complete()["status"] == "cancelled"
        await goes_on(agent)

    async def test_an_answer_that_a_hook_still_looks_at_is_withheld(self) -> None:
        agent = await make_agent(say("hunter2"))
        assert await agent.stopped(await agent.held_at("provider:response")) == ""
        assert "hunter2" not in str(await agent.history())

    async def test_a_failure_of_the_provider_at_that_instant_is_a_stop(self) -> None:
        agent = await make_agent()
        agent.provider.add(streaming(agent.stop, then=fail(ProviderUnavailableError("down"))))
        assert await agent.run() == ""
        await goes_on(agent)


class TestTheMomentOfAnUrgentMessage:
    @pytest.mark.parametrize(
        "event", ["executing", "thinking", "execution:start", "prompt:submit", "provider:request", "compaction"]
    )
    async def test_before_the_model_is_asked_it_is_in_the_first_request(self, event: str) -> None:
        agent = await make_agent(say("ok"))
        read = agent.context.get_messages_for_request

        async def compact(**more: Any) -> Any:
            agent.context.get_messages_for_request = read
            agent.inject("!now")
            return await read(**more)

        if event == "compaction":
            agent.context.get_messages_for_request = compact  # type: ignore[assignment]
        elif event.endswith("ing"):
            agent.progress.act_on(event, lambda: agent.inject("!now"))
        else:
            agent.events.listen(agent.hooks, event).act_on(event, lambda: agent.inject("!now"))
        assert await agent.run() == "ok"
        assert _requests(agent) == [[("user", "go"), NOW]]

    @pytest.mark.parametrize("moment", ["last step of the provider", "hook on the answer"])
    async def test_at_a_complete_answer_it_interrupts_nothing_and_the_answer_is_shown_once(self, moment: str) -> None:
        agent = await make_agent()
        last_step = say("all")
        if moment == "hook on the answer":
            agent.events.listen(agent.hooks, "provider:response")
            agent.events.act_on("provider:response", lambda: agent.inject("!now"))
        else:
            last_step = doing(lambda: agent.inject("!now"), last_step)
        agent.provider.add(streaming("all", then=last_step), say("ok"))
        assert await agent.run() == "ok"
        assert (await agent.told())[1:3] == [("assistant", "all"), NOW]
        assert agent.shown() == ["all"]

    @pytest.mark.parametrize("moment", ["before", "after"])
    @pytest.mark.parametrize("index", range(2))
    async def test_while_a_row_is_committed_it_is_read_right_after(self, index: int, moment: Any) -> None:
        agent = await make_agent(say("one"), say("two"))
        count = iter(range(100))
        agent.context.act(moment, lambda _row: next(count) == index and agent.inject("!now"))
        await agent.run()
        assert (await agent.told())[: index + 2] == [*[("user", "go"), ("assistant", "one")][: index + 1], NOW]
        await goes_on(agent)

    @pytest.mark.parametrize(
        ("text", "cuts"), [("!", True), (" \n!x", True), ("!!", True), ("wow! now", False), ("now!", False)]
    )
    async def test_only_a_leading_exclamation_mark_makes_a_message_urgent(self, text: str, *, cuts: bool) -> None:
        gate = asyncio.Event()
        agent = await make_agent(streaming(gate, then=say("one")), say("two"))
        run = await agent.steered(text)
        if not cuts:
            gate.set()
        await soon(run)
        assert agent.provider.cancelled == cuts


class TestSeveralUrgentMessages:
    async def test_each_interrupts_the_answer_to_the_one_before(self) -> None:
        agent = await make_agent(*(streaming(f"part {n}", then=never()) for n in (1, 2, 3)), say("ok"))
        run = agent.start()
        for number in (1, 2, 3):
            await agent.provider.asked(number)
            agent.inject(f"!steer {number}")
        assert await soon(run) == "ok"
        assert agent.shown() == ["part 1", "part 2", "part 3"]
        assert [text.splitlines()[-1] for _, text in await agent.told()][1:-1] == [
            each for number in (1, 2, 3) for each in (f"part {number}", f"- !steer {number}")
        ]
        assert agent.provider.prefix_breaks() == []
        assert agent.complete()["iterations"] == 4

    async def test_the_answer_is_continued_if_the_message_is_withdrawn(self) -> None:
        agent = await make_agent(streaming("Half a ", then=never()), say("sentence."))
        run = await agent.steered(Injection("!now", id="1"))
        assert agent.withdraw("1")
        assert "".join([*agent.shown(), await soon(run)]) == "Half a sentence."
        assert await delivered(agent) == []
        assert [text for role, text in await agent.told() if role == "assistant"] == ["Half a ", "sentence."]
        await goes_on(agent)

    async def test_a_pending_message_is_delivered_when_an_urgent_one_was_withdrawn(self) -> None:
        agent = await make_agent(never(), say("ok"))
        run = await agent.steered(Injection("one", id="1"), Injection("!two", id="2"))
        assert agent.withdraw("2")
        assert await soon(run) == "ok"
        assert await delivered(agent) == ["1"]

    async def test_one_that_the_queue_refuses_interrupts_nothing(self) -> None:
        gate = asyncio.Event()
        agent = await make_agent(streaming(gate, then=say("one")), say("two"), max_waiting=1)
        run = await agent.steered("more")
        with pytest.raises(InjectionQueueFull):
            agent.inject("!now")
        gate.set()
        assert await soon(run) == "two"
        assert agent.provider.cancelled == 0


class TestProviders:
    @pytest.mark.parametrize("how", ["stop", "urgent message"])
    @in_virtual_time
    async def test_one_that_ignores_its_cancellation_neither_holds_the_run_nor_answers_late(self, how: str) -> None:
        release = asyncio.Event()
        late = streaming(" and late", then=say("late"))
        agent = await make_agent(streaming("so far", then=deaf(release, late)), say("ok"))
        await (agent.stopped(await agent.asked()) if how == "stop" else soon(await agent.steered("!now")))
        rest = [] if how == "stop" else [NOW, ("assistant", "ok")]
        release.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert await agent.told() == [("user", "go"), ("assistant", "so far"), *rest]
        await goes_on(agent)

    @pytest.mark.parametrize("how", ["stop", "urgent message"])
    async def test_the_answer_of_one_that_answers_its_cancellation_is_kept(self, how: str) -> None:
        async def polite(request: Any, stream: Any) -> Any:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return await answer(TextBlock(text="in time"), CALL)(request, stream)

        agent = await make_agent(polite, say("ok"), say("ok"), tools=[echo()])
        answered = await (agent.stopped(await agent.asked()) if how == "stop" else soon(await agent.steered("!now")))
        assert answered == ("in time" if how == "stop" else "ok")
        assert (await agent.told())[1] == ("assistant", "in time")
        await goes_on(agent)

    @pytest.mark.parametrize("error", [ProviderUnavailableError("cut off"), InvalidRequestError("cut off"), OSError()])
    async def test_the_error_of_one_that_fails_because_of_its_cancellation_is_ignored(self, error: Exception) -> None:
        async def rude(_request: Any, stream: Any) -> Any:
            stream.text("so far")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise error from None

        agent = await make_agent(rude, say("ok"))
        assert await soon(await agent.steered("!now")) == "ok"
        assert await agent.told() == [("user", "go"), ("assistant", "so far"), NOW, ("assistant", "ok")]
        assert agent.progress.of("retrying") == []

    async def test_a_failure_before_the_message_came_is_a_failure(self) -> None:
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
    async def test_an_interrupted_forced_answer_is_not_forced_again(self) -> None:
        steps = call(use("dispatch_worker", "a")), streaming("I have", then=never()), call(use("echo", "b")), say("ok")
        agent = await make_agent(*steps, tools=[echo("dispatch_worker"), echo()])
        assert await soon(await agent.steered("!and this", asked=2)) == "ok"
        assert [request.tool_choice for request in agent.provider.requests] == [None, "none", None, None]

    @pytest.mark.parametrize("how", ["stop", "cancel"])
    async def test_a_stop_at_the_same_instant_is_a_stop_and_loses_no_message(self, how: str) -> None:
        agent = await make_agent(streaming("so far", then=never()))
        run = await agent.steered(Injection("!now", id="1"))
        if how == "stop":
            assert await agent.stopped(run) == "so far"
        else:
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await soon(run)
        assert agent.complete().items() >= {"status": "cancelled", "waiting": 1}.items()
        await goes_on(agent)
        assert await delivered(agent) == ["1"]

    async def test_a_failure_of_the_next_call_leaves_all_that_was_said(self) -> None:
        agent = await make_agent(streaming("so far", then=never()), fail(InvalidRequestError("no")))
        with pytest.raises(InvalidRequestError):
            await soon(await agent.steered("!now"))
        assert await agent.told() == [("user", "go"), ("assistant", "so far"), NOW]
        assert agent.shown() == ["so far"]
        await goes_on(agent)

    @pytest.mark.parametrize("said", ["", "so far"])
    async def test_an_ephemeral_injection_is_in_the_request_that_is_answered(self, said: str) -> None:
        agent = await make_agent(streaming(said, then=never()), say("ok"))
        remember = HookResult(action="inject_context", context_injection="remember", ephemeral=True)
        agent.on_hook("prompt:submit", remember)
        await soon(await agent.steered("!now"))
        assert ["remember" in str(request) for request in _requests(agent)] == [True, True]
        assert "remember" not in str(await agent.history())

    async def test_an_answer_that_a_hook_denies_ends_the_run_and_loses_no_message(self) -> None:
        agent = await make_agent(streaming("secret", then=never()))
        end = agent.on_hook("provider:response", HookResult(action="deny", reason="no"))
        await soon(await agent.steered(Injection("!now", id="1")))
        assert agent.complete().items() >= {"reason": "denied", "waiting": 1}.items()
        assert "secret" not in str(await agent.history())
        end()
        await goes_on(agent)
        assert await delivered(agent) == ["1"]


class TestWhileAnApprovalIsPending:
    @staticmethod
    async def _asked(*steps: Any, question: HookResult | None = None) -> tuple[Agent, Any, Any, Any]:
        person, tool = Person(), returning("deleted", "delete")
        batch = call(use("delete", "a"))
        agent = await make_agent(batch, *steps, tools=[tool], approvals=person, stop_grace_s=LONG_S)
        agent.on_hook("tool:pre", question or HookResult(action="ask_user", approval_prompt="Delete it all?"))
        run = agent.start()
        await soon(person.asked.wait())
        return agent, run, person, tool

    @pytest.mark.parametrize("text", ["!now", "!yes", "!Allow", "Allow", "allow always"])
    @pytest.mark.parametrize("answered", ["Allow", "Deny"])
    async def test_no_message_approves_and_the_answer_still_counts(self, text: str, answered: str) -> None:
        agent, run, person, tool = await self._asked(say("meanwhile"), say("done"))
        agent.inject(text)
        if text.startswith("!"):
            await agent.progress.reached("text")
        assert tool.inputs == []
        assert not person.answer.done()
        person.answer.set_result(answered)
        await soon(run)
        assert len(tool.inputs) == (answered == "Allow")
        assert ("deleted" if answered == "Allow" else "Denied") in str(await agent.told())
        await goes_on(agent)

    @pytest.mark.parametrize(("default", "runs"), [("deny", 0), ("allow", 1)])
    async def test_an_approval_that_times_out_takes_its_default(self, default: Any, runs: int) -> None:
        question = HookResult(
            action="ask_user", approval_prompt="Delete?", approval_timeout=0.01, approval_default=default
        )
        agent, run, _, tool = await self._asked(say("meanwhile"), say("done"), question=question)
        agent.inject("!now")
        assert await soon(run) == "done"
        assert len(tool.inputs) == runs
        assert len(await late_results(agent)) == 1

    @pytest.mark.parametrize("immediate", [False, True])
    async def test_a_stop_after_an_urgent_message_ends_it_without_a_yes(self, *, immediate: bool) -> None:
        agent, run, person, tool = await self._asked(say("meanwhile"))
        agent.inject("!now")
        await agent.progress.reached("text")
        await agent.stopped(run, immediate=immediate)
        assert person.answer.cancelled()
        assert tool.inputs == []
        assert "Not started" in text_of((await late_results(agent))[0])
        assert agent.outcomes() == {"a": "cancelled"}

    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "provider:response"])
    async def test_a_question_before_or_after_the_model_is_asked_is_not_answered_by_it(self, event: str) -> None:
        person = Person()
        agent = await make_agent(say("one"), say("two"), approvals=person)
        end = agent.on_hook(event, HookResult(action="ask_user", approval_prompt="Go on?"))
        run = agent.start()
        await soon(person.asked.wait())
        agent.inject(Injection("!yes", id="1"))
        before = await agent.history()
        for _ in range(5):
            await asyncio.sleep(0)
        assert await agent.history() == before
        assert not person.answer.done()
        end()
        person.answer.set_result("Allow")
        await soon(run)
        assert await delivered(agent) == ["1"]
