"""A run whose process has ended is gone on with by another, from where its log stands."""

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    ScriptedTool,
    delivered,
    echo,
    fail,
    faults,
    gated,
    goes_on,
    having,
    late_results,
    make_agent,
    never,
    results,
    say,
    soon,
    told,
    use,
)

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError
from orchestrator_interactive.loop.injection_queue import injection_row
from orchestrator_interactive.loop.tool_results import NOT_STARTED, PROCESS_ENDED, late_row, still_running_row
from orchestrator_interactive.transcript.answer_parts import cut_row
from orchestrator_interactive.transcript.rows import assistant_row, delivered_in, is_prompt, tool_row, user_row

Row = dict[str, Any]


GO = user_row("go", "m0")


def words(text: str) -> Row:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def calling(*calls: Any) -> Row:
    return assistant_row((), calls)


async def killed(*rows: Row, steps: tuple[Any, ...] = (say("ok"),), **more: Any) -> Agent:
    """An agent in whose log these rows stand, and whose process began just now."""
    agent = await make_agent(*steps, **more)
    await agent.context.set_messages(rows)
    return agent


async def resumed(agent: Agent) -> str:
    return await soon(agent.session.resume(on_progress=agent.progress))


def harmless(name: str = "look") -> ScriptedTool:
    return having(echo(name), side_effect_free=True)


class TestWhereItGoesOn:
    async def test_after_the_prompt_the_model_is_asked(self) -> None:
        agent = await killed(GO)
        assert await resumed(agent) == "ok"
        assert await agent.told() == [("user", "go"), ("assistant", "ok")]
        assert agent.progress.names() == ["executing", "resumed", "thinking", "complete"]

    async def test_after_an_answer_nobody_is_asked(self) -> None:
        agent = await killed(GO, words("Done."), steps=())
        assert await resumed(agent) == "Done."
        assert agent.progress.of("complete")[0].items() >= {"status": "success", "part": 1, "iterations": 1}.items()
        assert await agent.told() == [("user", "go"), ("assistant", "Done.")]

    async def test_what_waits_after_an_answer_is_read(self) -> None:
        agent = await killed(GO, words("Done."))
        agent.inject(Injection("And that?", id="m1"))
        assert await resumed(agent) == "ok"
        assert [(data["part"], data["text"]) for data in agent.progress.of("text")] == [(1, "Done.")]
        assert agent.progress.of("complete")[0]["part"] == 2
        assert await delivered(agent) == ["m1"]

    @pytest.mark.parametrize("cut", ["length", "urgent"])
    async def test_an_answer_that_was_to_go_on_goes_on(self, cut: Any) -> None:
        agent = await killed(GO, cut_row(words("One, "), cut), steps=(say("two."),))
        assert await resumed(agent) == "One, two."

    async def test_one_that_was_cut_too_often_does_not(self) -> None:
        rows = [cut_row(words(text), "length") for text in "abc"]
        agent = await killed(GO, *rows, steps=(say("d", finish_reason="max_tokens"),))
        assert await resumed(agent) == "abcd"
        assert agent.progress.of("complete")[0].items() >= {"status": "incomplete", "reason": "length"}.items()
        assert await resumed(agent) == "abcd"
        assert agent.progress.of("complete")[1].items() >= {"status": "incomplete", "reason": "length"}.items()

    async def test_the_words_of_a_run_that_was_stopped_are_its_last(self) -> None:
        agent = await killed(GO, cut_row(words("One, "), "stopped"), steps=())
        assert await resumed(agent) == "One, "
        assert agent.progress.of("complete")[0]["status"] == "cancelled"

    async def test_a_refusal_stays_one(self) -> None:
        agent = await make_agent(say("No.", finish_reason="refusal", metadata={"refusal": "It is dangerous."}))
        await agent.run()
        assert await resumed(agent) == "No."
        first, second = agent.progress.of("complete")
        assert second.items() >= {"status": "incomplete", "reason": "refusal", "detail": "It is dangerous."}.items()
        assert [first["part"], second["part"]] == [1, 1]

    async def test_after_a_tool_that_asks_for_words_they_are_asked_for(self) -> None:
        row, result = calling(use("dispatch_worker", "a")), tool_row(use("dispatch_worker", "a"), "begun")
        agent = await killed(GO, row, result, tools=[echo("dispatch_worker")])
        await resumed(agent)
        assert agent.provider.requests[0].tool_choice == "none"

    @pytest.mark.parametrize(
        "rows", [[], [words("Hello.")], [{"role": "user", "content": "x", "metadata": {"source": "hook"}}]]
    )
    async def test_where_nobody_asked_anything_there_is_a_sentence(self, rows: list[Row]) -> None:
        agent = await killed(*rows)
        agent.events.listen(agent.hooks, "execution:start", "execution:end", "orchestrator:complete")
        with pytest.raises(RuntimeError, match="There is no run to resume"):
            await resumed(agent)
        assert agent.events.names() == ["execution:start", "execution:end", "orchestrator:complete"]
        assert agent.progress.of("complete")[0]["status"] == "error"
        await goes_on(agent)


class TestTheMessageThatAPromptIs:
    async def test_its_row_names_it_and_is_a_prompt_all_the_same(self) -> None:
        agent = await make_agent(say("ok"))
        await soon(agent.session.execute("go", message_id="m0", on_progress=agent.progress))
        row = (await agent.history())[0]
        assert row == {"role": "user", "content": "go", "metadata": {"message": "m0"}}
        assert delivered_in(row) == ["m0"]
        assert is_prompt(row)

    async def test_without_one_there_is_nothing_beside_it(self) -> None:
        agent = await make_agent(say("ok"))
        await agent.run()
        assert (await agent.history())[0] == {"role": "user", "content": "go"}

    @pytest.mark.parametrize("metadata", [None, "m0", {"message": 1}, {"injections": "m0"}, {"injections": [None, 2]}])
    def test_what_others_keep_beside_a_row_names_none(self, metadata: Any) -> None:
        assert delivered_in({"role": "user", "content": "go", "metadata": metadata}) == []


class TestWhatIsTold:
    async def test_hooks_hear_of_the_beginning_and_are_not_asked_about_the_prompt_again(self) -> None:
        agent = await killed(GO)
        agent.events.listen(agent.hooks, "execution:start", "prompt:submit", "execution:end", "orchestrator:complete")
        await resumed(agent)
        assert agent.events.names() == ["execution:start", "execution:end", "orchestrator:complete"]
        assert agent.events.of("execution:start")[0].items() >= {"prompt": "go", "resumed": True}.items()

    async def test_what_hooks_add_at_the_beginning_comes_after_the_results_that_were_missing(self) -> None:
        agent = await killed(GO, calling(use("do", "a")), tools=[echo("do")])
        agent.on_hook("execution:start", HookResult(action="inject_context", context_injection="Good morning"))
        await resumed(agent)
        assert [row["role"] for row in await agent.history()] == ["user", "assistant", "tool", "system", "assistant"]
        await goes_on(agent)

    async def test_the_texts_are_told_again_and_counted_on(self) -> None:
        steer = injection_row([Injection("more", id="m1")])
        agent = await killed(GO, words("One."), steer, cut_row(words("Tw"), "urgent"), steer_of("m2"))
        agent.progress.act_on("thinking", lambda: agent.inject("!now"))
        assert await resumed(agent) == "ok"
        assert agent.progress.of("text") == [
            {"text": "One.", "part": 1},
            {"text": "Tw", "part": 2, "cut": True},
        ]
        assert agent.progress.of("complete")[0]["part"] == 3

    async def test_what_was_spent_before_counts(self) -> None:
        usage = {"usage": {"input_tokens": 10, "output_tokens": 5}}
        before = [user_row("before"), {**words("Yes."), "metadata": usage}]
        agent = await killed(*before, GO, {**calling(use("do", "a")), "metadata": usage}, tool_row(use("do", "a"), "x"))
        await resumed(agent)
        complete = agent.progress.of("complete")[0]
        assert (complete["usage"]["input_tokens"], complete["conversation_usage"]["input_tokens"]) == (11, 21)
        assert complete["iterations"] == 2

    async def test_limits_count_what_was_done_before(self) -> None:
        rows = [GO, calling(use("do", "a")), tool_row(use("do", "a"), "x")]
        agent = await killed(*rows, max_iterations=1, tools=[echo("do")])
        await resumed(agent)
        assert agent.provider.requests[0].tool_choice == "none"
        assert agent.progress.of("complete")[0].items() >= {"status": "incomplete", "reason": "max_iterations"}.items()

    async def test_a_message_that_is_given_again_though_the_log_has_it_is_not_read_again(self) -> None:
        agent = await killed(GO, words("One."), steer_of("m1"))
        agent.progress.act_on("thinking", lambda: agent.inject(Injection("more", id="m1")))
        await resumed(agent)
        assert await delivered(agent) == ["m1"]

    async def test_one_that_waits_though_the_log_has_it_is_told_as_read(self) -> None:
        agent = await killed(GO, words("One."), steer_of("m1"))
        agent.inject(Injection("more", id="m1"))
        await resumed(agent)
        assert await delivered(agent) == ["m1"]
        assert agent.progress.of("injection:applied")[0]["ids"] == ["m1"]


def steer_of(message_id: str) -> Row:
    return injection_row([Injection("more", id=message_id)])


class TestCallsWithoutAResult:
    async def test_those_that_can_do_no_harm_run_again_and_of_the_others_nobody_knows(self) -> None:
        tools = [harmless(), having(echo("do"), label=lambda given: f"Doing {given['text']}")]
        row = calling(use("do", "a", text="x"), use("look", "b"), use("look", "c"), use("do", "d", text="y"))
        agent = await killed(GO, row, tool_row(use("do", "a"), "x"), tools=tools)
        await resumed(agent)
        assert await results(agent) == {"a": "x", "b": "look", "c": "look", "d": PROCESS_ENDED}
        lost = {"tool": "do", "id": "d", "label": "Doing y", "outcome": "unknown"}
        told = {"unknown": ["Doing y"], "retried": ["look", "look"], "tools": [lost]}
        assert agent.progress.of("resumed") == [told]
        assert [len(tool.inputs) for tool in tools] == [2, 0]
        assert faults(await agent.history()) == []

    async def test_hooks_are_asked_about_those_that_run_again(self) -> None:
        agent = await killed(GO, calling(use("look", "a")), tools=[harmless()])
        agent.on_hook("tool:pre", HookResult(action="deny", reason="not now"))
        await resumed(agent)
        assert await results(agent) == {"a": "Denied: not now"}

    async def test_a_tool_that_is_not_there_any_more_may_have_done_anything(self) -> None:
        agent = await killed(GO, calling(use("gone", "a")))
        await resumed(agent)
        assert await results(agent) == {"a": PROCESS_ENDED}

    async def test_those_whose_results_were_to_follow_are_told_as_unknown(self) -> None:
        slow = use("do", "a", text="x")
        rows = [calling(slow), still_running_row(slow), steer_of("m1"), words("Meanwhile.")]
        agent = await killed(GO, *rows, tools=[echo("do")])
        assert await resumed(agent) == "ok"
        [late] = await late_results(agent)
        assert late["metadata"]["results"] == ["a"]
        assert PROCESS_ENDED in late["content"]
        lost = {"tool": "do", "id": "a", "label": None, "outcome": "unknown"}
        assert agent.progress.of("resumed") == [{"unknown": ["do"], "retried": [], "tools": [lost]}]
        assert agent.progress.of("text") == [{"text": "Meanwhile.", "part": 1}]
        assert agent.progress.of("complete")[0]["part"] == 2

    async def test_results_that_have_followed_are_known(self) -> None:
        slow = use("do", "a")
        rows = [calling(slow), still_running_row(slow), steer_of("m1"), late_row([tool_row(slow, "x")])]
        agent = await killed(GO, *rows, tools=[echo("do")])
        await resumed(agent)
        assert agent.progress.of("resumed") == [{"unknown": [], "retried": [], "tools": []}]

    async def test_an_urgent_message_does_not_wait_for_those_that_run_again(self) -> None:
        gate = asyncio.Event()
        slow = having(gated(gate, "look"), side_effect_free=True)
        agent = await killed(GO, calling(use("look", "a")), steps=(say("Yes?"), say("ok")), tools=[slow])
        run = asyncio.create_task(agent.session.resume(on_progress=agent.progress))
        await slow.started()
        agent.inject("!now")
        await agent.progress.reached("text")
        gate.set()
        assert await soon(run) == "ok"
        assert [row["metadata"]["results"] for row in await late_results(agent)] == [["a"]]


class TestAStop:
    async def test_one_that_was_asked_for_before_ends_it_and_the_log_is_valid(self) -> None:
        row = calling(use("do", "a"), use("look", "b"))
        agent = await killed(GO, row, tools=[echo("do"), harmless()], steps=())
        agent.token.request_graceful()
        assert await resumed(agent) == ""
        assert await results(agent) == {"a": PROCESS_ENDED, "b": NOT_STARTED}
        complete = agent.progress.of("complete")[0]
        assert complete["status"] == "cancelled"
        assert {each["id"]: each["outcome"] for each in complete["tools"]} == {"a": "unknown", "b": "cancelled"}
        await goes_on(agent)

    async def test_one_that_comes_after_the_answer_keeps_it(self) -> None:
        agent = await killed(GO, words("Done."), steps=())
        agent.token.request_graceful()
        assert await resumed(agent) == "Done."
        assert agent.progress.of("complete")[0]["status"] == "cancelled"

    async def test_one_while_a_call_runs_again_cuts_it(self) -> None:
        tool = having(gated(asyncio.Event(), "look"), side_effect_free=True)
        agent = await killed(GO, calling(use("look", "a")), tools=[tool], steps=(), stop_grace_s=0)
        run = asyncio.create_task(agent.session.resume(on_progress=agent.progress))
        await tool.started()
        agent.stop()
        assert await soon(run) == ""
        assert faults(await agent.history()) == []
        await goes_on(agent)

    async def test_one_while_the_model_answers_keeps_what_it_said(self) -> None:
        agent = await killed(GO, steps=(never(),))
        run = asyncio.create_task(agent.session.resume(on_progress=agent.progress))
        await agent.provider.asked(1)
        agent.stop()
        assert await soon(run) == ""
        assert agent.progress.of("complete")[0]["status"] == "cancelled"
        await goes_on(agent)


class TestTheSession:
    async def test_a_failure_keeps_its_type_and_the_session_can_go_on(self) -> None:
        agent = await killed(GO, steps=(fail(InvalidRequestError("no")),))
        with pytest.raises(InvalidRequestError):
            await resumed(agent)
        assert agent.session.status.status == "failed"
        await goes_on(agent)

    async def test_there_is_one_run_at_a_time(self) -> None:
        agent = await killed(GO, steps=(never(),))
        run = asyncio.create_task(agent.session.resume())
        await agent.provider.asked(1)
        with pytest.raises(RuntimeError, match="running"):
            await agent.session.resume()
        agent.stop()
        await soon(run)

    async def test_an_orchestrator_that_cannot_resume_is_told_of_in_a_sentence(self) -> None:
        agent = await killed(GO)

        class Other:
            async def execute(self, *_: Any, **__: Any) -> str:
                return ""

        await agent.coordinator.mount("orchestrator", Other())
        with pytest.raises(RuntimeError, match="cannot resume a run"):
            await agent.session.resume()

    async def test_the_next_prompt_begins_a_run_of_its_own(self) -> None:
        agent = await killed(GO, words("One."), steer_of("m1"))
        await resumed(agent)
        agent.provider.add(say("another"))
        assert await agent.run("next") == "another"
        assert agent.progress.of("complete")[1].items() >= {"part": 1, "iterations": 1}.items()
        assert [text for _, text in told(await agent.history())][-2:] == ["next", "another"]
