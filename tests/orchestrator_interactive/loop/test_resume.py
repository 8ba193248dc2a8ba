"""A run whose process has ended is resumed by another, from where its log ends."""

import asyncio
from typing import Any

import pytest
from agents.after_run import delivered, goes_on, late_results, results
from agents.milestones import LONG_S, soon
from agents.provider import fail, never, say, use
from agents.rows import faults, told
from agents.session import Agent, make_agent
from agents.tools import ScriptedTool, echo, gated, having
from loop_rows import NOT_STARTED, PROCESS_ENDED, injection_row, late_results_row, still_running_row
from virtual_time import in_virtual_time

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError
from orchestrator_interactive.transcript.answer_parts import mark_partial
from orchestrator_interactive.transcript.rows import assistant_row, delivered_ids_in, is_prompt, tool_row, user_row

Row = dict[str, Any]
GO = user_row("go", "m0")
DO_A = use("do", "a")
LOST_A = {"tool": "do", "id": "a", "label": None, "outcome": "unknown"}
NOTHING_LOST = {"unknown": [], "retried": [], "tools": []}


def words(text: str) -> Row:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def calling(*calls: Any) -> Row:
    return assistant_row((), calls)


def steer(message_id: str) -> Row:
    return injection_row([Injection("more", id=message_id)])


async def killed(*rows: Row, steps: tuple[Any, ...] = (say("ok"),), **more: Any) -> Agent:
    """An agent with these rows in its log, in a new process."""
    agent = await make_agent(*steps, **more)
    await agent.context.set_messages(rows)
    return agent


def resuming(agent: Agent) -> asyncio.Task[str]:
    return asyncio.create_task(agent.session.resume(on_progress=agent.progress))


async def resumed(agent: Agent) -> str:
    return await soon(agent.session.resume(on_progress=agent.progress))


def free(tool: ScriptedTool) -> ScriptedTool:
    return having(tool, side_effect_free=True)


class TestWhereItGoesOn:
    async def test_after_the_prompt_the_model_is_asked(self) -> None:
        agent = await killed(GO)
        assert await resumed(agent) == "ok"
        assert await agent.told() == [("user", "go"), ("assistant", "ok")]
        assert agent.progress.names() == ["executing", "resumed", "thinking", "complete"]

    async def test_after_an_answer_it_is_over(self) -> None:
        agent = await killed(GO, words("Done."), steps=())
        assert await resumed(agent) == "Done."
        assert agent.complete().items() >= {"status": "success", "part": 1, "iterations": 1}.items()
        assert await agent.told() == [("user", "go"), ("assistant", "Done.")]

    async def test_a_message_that_waits_after_an_answer_is_read(self) -> None:
        agent = await killed(GO, words("Done."))
        agent.inject(Injection("And that?", id="m1"))
        assert await resumed(agent) == "ok"
        assert [(data["part"], data["text"]) for data in agent.progress.of("text")] == [(1, "Done.")]
        assert agent.complete()["part"] == 2
        assert await delivered(agent) == ["m1"]

    @pytest.mark.parametrize("cut", ["length", "urgent"])
    async def test_an_answer_that_was_to_be_continued_is_continued(self, cut: Any) -> None:
        agent = await killed(GO, mark_partial(words("One, "), cut), steps=(say("two."),))
        assert await resumed(agent) == "One, two."

    async def test_an_answer_that_was_truncated_too_often_is_not_continued(self) -> None:
        rows = [mark_partial(words(text), "length") for text in "abc"]
        agent = await killed(GO, *rows, steps=(say("d", finish_reason="max_tokens"),))
        for _ in range(2):
            assert await resumed(agent) == "abcd"
            assert agent.complete().items() >= {"status": "incomplete", "reason": "length"}.items()

    async def test_the_text_of_a_stopped_run_is_its_answer(self) -> None:
        agent = await killed(GO, mark_partial(words("One, "), "stopped"), steps=())
        assert await resumed(agent) == "One, "
        assert agent.complete()["status"] == "cancelled"

    async def test_a_refusal_stays_one(self) -> None:
        agent = await make_agent(say("No.", finish_reason="refusal", metadata={"refusal": "It is dangerous."}))
        await agent.run()
        assert await resumed(agent) == "No."
        expected = {"status": "incomplete", "reason": "refusal", "detail": "It is dangerous.", "part": 1}
        assert [data.items() >= expected.items() for data in agent.progress.of("complete")] == [True, True]

    async def test_after_a_tool_that_forces_an_answer_it_is_forced(self) -> None:
        dispatch = use("dispatch_worker", "a")
        agent = await killed(GO, calling(dispatch), tool_row(dispatch, "begun"), tools=[echo("dispatch_worker")])
        await resumed(agent)
        assert agent.provider.requests[0].tool_choice == "none"

    @pytest.mark.parametrize(
        "rows", [[], [words("Hello.")], [{"role": "user", "content": "x", "metadata": {"source": "hook"}}]]
    )
    async def test_without_a_prompt_there_is_no_run_to_resume(self, rows: list[Row]) -> None:
        agent = await killed(*rows)
        agent.events.listen(agent.hooks, "execution:start", "execution:end", "orchestrator:complete")
        with pytest.raises(RuntimeError, match="There is no run to resume"):
            await resumed(agent)
        assert agent.events.names() == ["execution:start", "execution:end", "orchestrator:complete"]
        assert agent.complete()["status"] == "error"
        await goes_on(agent)


class TestTheRowOfAPrompt:
    async def test_it_has_the_id_of_its_message(self) -> None:
        agent = await make_agent(say("ok"), say("ok"))
        await soon(agent.session.execute("go", message_id="m0"))
        await agent.run()
        with_id, _, without_id, _ = await agent.history()
        assert with_id == {"role": "user", "content": "go", "metadata": {"message": "m0"}}
        assert delivered_ids_in(with_id) == ["m0"]
        assert is_prompt(with_id)
        assert without_id == {"role": "user", "content": "go"}

    @pytest.mark.parametrize("metadata", [None, "m0", {"message": 1}, {"injections": "m0"}, {"injections": [None, 2]}])
    def test_metadata_of_another_form_has_none(self, metadata: Any) -> None:
        assert delivered_ids_in({"role": "user", "content": "go", "metadata": metadata}) == []


class TestEventsAndCounts:
    async def test_hooks_learn_of_the_start_and_are_not_asked_about_the_prompt_again(self) -> None:
        agent = await killed(GO)
        agent.events.listen(agent.hooks, "execution:start", "prompt:submit", "execution:end", "orchestrator:complete")
        await resumed(agent)
        assert agent.events.names() == ["execution:start", "execution:end", "orchestrator:complete"]
        assert agent.events.of("execution:start")[0].items() >= {"prompt": "go", "resumed": True}.items()

    async def test_an_injection_at_the_start_follows_the_results_that_were_missing(self) -> None:
        agent = await killed(GO, calling(DO_A), tools=[echo("do")])
        agent.on_hook("execution:start", HookResult(action="inject_context", context_injection="Good morning"))
        await resumed(agent)
        assert [row["role"] for row in await agent.history()] == ["user", "assistant", "tool", "system", "assistant"]
        await goes_on(agent)

    async def test_texts_are_reported_again_with_their_numbers(self) -> None:
        agent = await killed(GO, words("One."), steer("m1"), mark_partial(words("Tw"), "urgent"), steer("m2"))
        agent.progress.act_on("thinking", lambda: agent.inject("!now"))
        assert await resumed(agent) == "ok"
        texts = [{"text": "One.", "part": 1}, {"text": "Tw", "part": 2, "partial": True}]
        assert agent.progress.of("text") == texts
        assert agent.complete()["part"] == 3

    async def test_usage_and_iterations_before_count(self) -> None:
        usage = {"usage": {"input_tokens": 10, "output_tokens": 5}}
        before = [user_row("before"), {**words("Yes."), "metadata": usage}]
        rows = [GO, {**calling(DO_A), "metadata": usage}, tool_row(DO_A, "x")]
        agent = await killed(*before, *rows, max_iterations=1, tools=[echo("do")])
        await resumed(agent)
        complete = agent.complete()
        assert (complete["usage"]["input_tokens"], complete["conversation_usage"]["input_tokens"]) == (11, 21)
        assert agent.provider.requests[0].tool_choice == "none"
        assert complete.items() >= {"iterations": 2, "status": "incomplete", "reason": "max_iterations"}.items()

    @pytest.mark.parametrize("moment", ["before", "during"])
    async def test_a_message_that_is_in_the_log_is_not_read_again(self, moment: str) -> None:
        agent = await killed(GO, words("One."), steer("m1"))
        if moment == "before":
            agent.inject(Injection("more", id="m1"))
        else:
            agent.progress.act_on("thinking", lambda: agent.inject(Injection("more", id="m1")))
        await resumed(agent)
        assert await delivered(agent) == ["m1"]
        if moment == "before":
            assert agent.progress.of("injection:applied")[0]["ids"] == ["m1"], "but it is reported as read"


class TestCallsWithoutAResult:
    async def test_side_effect_free_ones_run_again_and_the_outcome_of_others_is_unknown(self) -> None:
        tools = [free(echo("look")), having(echo("do"), label=lambda given: f"Doing {given['text']}")]
        row = calling(use("do", "a", text="x"), use("look", "b"), use("look", "c"), use("do", "d", text="y"))
        agent = await killed(GO, row, tool_row(use("do", "a"), "x"), tools=tools)
        await resumed(agent)
        assert await results(agent) == {"a": "x", "b": "look", "c": "look", "d": PROCESS_ENDED}
        lost = {"tool": "do", "id": "d", "label": "Doing y", "outcome": "unknown"}
        retried = {"unknown": ["Doing y"], "retried": ["look", "look"], "tools": [lost]}
        assert agent.progress.of("resumed") == [retried]
        assert [len(tool.inputs) for tool in tools] == [2, 0]
        assert faults(await agent.history()) == []

    async def test_hooks_are_asked_about_calls_that_run_again(self) -> None:
        agent = await killed(GO, calling(use("look", "a")), tools=[free(echo("look"))])
        agent.on_hook("tool:pre", HookResult(action="deny", reason="not now"))
        await resumed(agent)
        assert await results(agent) == {"a": "Denied: not now"}

    async def test_the_outcome_of_a_tool_that_is_gone_is_unknown(self) -> None:
        agent = await killed(GO, calling(use("gone", "a")))
        await resumed(agent)
        assert await results(agent) == {"a": PROCESS_ENDED}

    async def test_the_outcome_of_calls_whose_results_were_to_follow_is_unknown(self) -> None:
        rows = [calling(DO_A), still_running_row(DO_A), steer("m1"), words("Meanwhile.")]
        agent = await killed(GO, *rows, tools=[echo("do")])
        assert await resumed(agent) == "ok"
        [late] = await late_results(agent)
        assert late["metadata"]["results"] == ["a"]
        assert PROCESS_ENDED in late["content"]
        assert agent.progress.of("resumed") == [{"unknown": ["do"], "retried": [], "tools": [LOST_A]}]
        assert agent.progress.of("text") == [{"text": "Meanwhile.", "part": 1}]
        assert agent.complete()["part"] == 2

    async def test_results_that_have_followed_are_known(self) -> None:
        rows = [calling(DO_A), still_running_row(DO_A), steer("m1"), late_results_row([tool_row(DO_A, "x")])]
        agent = await killed(GO, *rows, tools=[echo("do")])
        await resumed(agent)
        assert agent.progress.of("resumed") == [NOTHING_LOST]

    async def test_an_urgent_message_does_not_wait_for_calls_that_run_again(self) -> None:
        gate = asyncio.Event()
        look = free(gated(gate, "look"))
        agent = await killed(GO, calling(use("look", "a")), steps=(say("Yes?"), say("ok")), tools=[look])
        run = resuming(agent)
        await look.started()
        agent.inject("!now")
        await agent.progress.reached("text")
        gate.set()
        assert await soon(run) == "ok"
        assert [row["metadata"]["results"] for row in await late_results(agent)] == [["a"]]


class TestAStop:
    async def test_before_the_run_it_ends_it_and_the_log_is_valid(self) -> None:
        row = calling(DO_A, use("look", "b"))
        agent = await killed(GO, row, tools=[echo("do"), free(echo("look"))], steps=())
        agent.token.request_graceful()
        assert await resumed(agent) == ""
        assert await results(agent) == {"a": PROCESS_ENDED, "b": NOT_STARTED}
        assert agent.complete()["status"] == "cancelled"
        assert agent.outcomes() == {"a": "unknown", "b": "cancelled"}
        await goes_on(agent)

    async def test_after_the_answer_it_keeps_it(self) -> None:
        agent = await killed(GO, words("Done."), steps=())
        agent.token.request_graceful()
        assert await resumed(agent) == "Done."
        assert agent.complete()["status"] == "cancelled"

    @pytest.mark.parametrize(("after_s", "said"), [(5, ["One."]), (LONG_S, [])])
    @in_virtual_time
    async def test_it_waits_for_the_texts_in_the_log_but_not_without_end(self, after_s: float, said: list[str]) -> None:
        agent = await killed(GO, words("One."), steer("m1"), words("Done."), steps=())
        read = agent.context.get_messages

        async def read_late() -> list[Row]:
            await asyncio.sleep(after_s)
            return await read()

        agent.context.get_messages = read_late
        agent.token.request_immediate()
        assert await agent.session.resume(on_progress=agent.progress) == ("Done." if said else "")
        assert agent.shown() == said
        assert agent.complete()["status"] == "cancelled"
        assert asyncio.get_running_loop().time() < LONG_S

    @pytest.mark.parametrize("where", ["tool", "model"])
    async def test_during_a_call_it_cancels_the_call(self, where: str) -> None:
        look = free(gated(asyncio.Event(), "look"))
        rows = [GO, calling(use("look", "a"))] if where == "tool" else [GO]
        agent = await killed(*rows, tools=[look], steps=(never(),), stop_grace_s=0)
        run = resuming(agent)
        await (look.started() if where == "tool" else agent.provider.asked(1))
        assert await agent.stopped(run) == ""
        assert agent.complete()["status"] == "cancelled"
        await goes_on(agent)


class TestTheSession:
    async def test_a_failure_keeps_its_type_and_the_session_works_on(self) -> None:
        agent = await killed(GO, steps=(fail(InvalidRequestError("no")),))
        with pytest.raises(InvalidRequestError):
            await resumed(agent)
        assert agent.session.status.status == "failed"
        await goes_on(agent)

    async def test_there_is_one_run_at_a_time(self) -> None:
        agent = await killed(GO, steps=(never(),))
        run = resuming(agent)
        await agent.provider.asked(1)
        with pytest.raises(RuntimeError, match="running"):
            await agent.session.resume()
        await agent.stopped(run)

    async def test_an_orchestrator_that_cannot_resume_is_an_error(self) -> None:
        agent = await killed(GO)

        class Other:
            async def execute(self, *_: Any, **__: Any) -> str:
                return ""

        await agent.coordinator.mount("orchestrator", Other())
        with pytest.raises(RuntimeError, match="cannot resume a run"):
            await agent.session.resume()

    async def test_the_next_prompt_begins_a_run_of_its_own(self) -> None:
        agent = await killed(GO, words("One."), steer("m1"))
        await resumed(agent)
        agent.provider.add(say("another"))
        assert await agent.run("next") == "another"
        assert agent.complete().items() >= {"part": 1, "iterations": 1}.items()
        assert [text for _, text in told(await agent.history())][-2:] == ["next", "another"]
