"""A tool call that waits for a person: messages pass it, and a suspended or killed run makes it again."""

import asyncio
from typing import Any

import pytest
from agents.after_run import late_results, results
from agents.milestones import soon
from agents.provider import call, say, use
from agents.session import Agent, make_agent
from loop_rows import STILL_RUNNING, injection_row, still_running_row

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import ToolResult
from orchestrator_interactive.kernel.contracts.messages import TextBlock
from orchestrator_interactive.kernel.tool_support import current_call
from orchestrator_interactive.transcript.rows import assistant_row, user_row

ASKED = [user_row("go", "m0"), assistant_row((), [use("ask", "a")])]


class Asking:
    """A tool that waits for a person; a message answers it if it `takes_text`.

    `asked_s`: when an earlier process asked the question.
    """

    name, description = "ask", "Ask."
    input_schema: dict[str, Any] = {"type": "object"}  # noqa: RUF012 - as contracts have it
    repeatable = True

    def __init__(self, *, takes_text: bool = False, asked_s: float | None = None) -> None:
        self.calls = 0
        self._asked_s = asked_s
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.is_asking = asyncio.Event()
        self._takes_text = takes_text

    def get_schema(self) -> dict[str, Any]:
        return self.input_schema

    async def execute(self, _input: dict[str, Any]) -> ToolResult:
        context = current_call.get()
        assert context is not None
        self.calls += 1
        on_message = (lambda: self.answer.done() or self.answer.set_result("see below")) if self._takes_text else None
        with context.awaiting_others(on_message, self._asked_s):
            self.is_asking.set()
            return ToolResult(output=await asyncio.shield(self.answer))


def suspend(agent: Agent) -> None:
    assert agent.coordinator.get_capability("orchestrator.suspend")()


async def test_a_message_does_not_wait_for_a_person_and_the_result_follows() -> None:
    tool = Asking()
    agent = await make_agent(call(use("ask", "a")), say("I am waiting."), say("Thanks."), tools=[tool])
    run = asyncio.create_task(agent.session.execute("go", on_progress=agent.progress))
    await soon(tool.is_asking.wait())
    agent.inject("and?")
    await agent.progress.reached("text")
    assert await results(agent) == {"a": STILL_RUNNING}
    tool.answer.set_result("yes")
    assert await soon(run) == "Thanks."
    assert [row["metadata"]["results"] for row in await late_results(agent)] == [["a"]]


async def test_a_message_answers_a_question_that_takes_text() -> None:
    tool = Asking(takes_text=True)
    agent = await make_agent(call(use("ask", "a")), say("ok"), tools=[tool])
    run = asyncio.create_task(agent.session.execute("go", on_progress=agent.progress))
    await soon(tool.is_asking.wait())
    agent.inject("tomorrow")
    assert await soon(run) == "ok"
    assert await results(agent) == {"a": "see below"}


@pytest.mark.parametrize("is_postponed", [False, True])
async def test_a_message_written_since_an_earlier_process_asked_answers_the_repeated_question(
    is_postponed: bool,
) -> None:
    tool = Asking(takes_text=True, asked_s=10.0)
    agent = await make_agent(say("Thanks."), say("Welcome."), tools=[tool])
    waits = [still_running_row(use("ask", "a")), {"role": "assistant", "content": "I am waiting."}]
    await agent.context.set_messages([*ASKED, *(waits if is_postponed else [])])
    agent.progress.act_on("executing", lambda: agent.inject(Injection("tomorrow", order=11.0)))
    await soon(agent.session.resume(on_progress=agent.progress))
    assert tool.answer.result() == "see below"
    assert await results(agent) == {"a": STILL_RUNNING if is_postponed else "see below"}


async def test_a_message_written_before_the_question_does_not_answer_it() -> None:
    tool = Asking(takes_text=True, asked_s=10.0)
    agent = await make_agent(say("I am waiting."), say("Thanks."), tools=[tool])
    await agent.context.set_messages(ASKED)
    agent.progress.act_on("executing", lambda: agent.inject(Injection("by the way", order=9.0)))
    run = asyncio.create_task(agent.session.resume(on_progress=agent.progress))
    await agent.progress.reached("text")
    assert await results(agent) == {"a": STILL_RUNNING}
    tool.answer.set_result("yes")
    assert await soon(run) == "Thanks."


async def test_a_message_answers_one_question_and_the_agent_reads_it_while_the_other_one_waits() -> None:
    first, second = Asking(takes_text=True), Asking(takes_text=True)
    second.name = "ask_more"
    steps = [call(use("ask", "a"), use("ask_more", "b")), say("I am waiting."), say("Noon."), say("Thanks.")]
    agent = await make_agent(*steps, tools=[first, second])
    run = asyncio.create_task(agent.session.execute("go", on_progress=agent.progress))
    await soon(first.is_asking.wait())
    await soon(second.is_asking.wait())
    agent.inject("tomorrow")
    await agent.progress.reached("text")
    assert await results(agent) == {"a": "see below", "b": STILL_RUNNING}
    assert not second.answer.done()
    agent.inject("at noon")  # answers the one that is left
    assert await soon(run) == "Thanks."
    assert [row["metadata"]["results"] for row in await late_results(agent)] == [["b"]]


@pytest.mark.parametrize("is_postponed", [False, True])
async def test_a_suspension_does_not_wait_for_a_person_and_the_call_is_made_again(is_postponed: bool) -> None:
    tool = Asking()
    steps = [call(use("ask", "a")), *([say("I am waiting.")] if is_postponed else [])]
    agent = await make_agent(*steps, tools=[tool])
    run = asyncio.create_task(agent.session.execute("go", on_progress=agent.progress))
    await soon(tool.is_asking.wait())
    if is_postponed:
        agent.inject("and?")
        await agent.progress.reached("text")
    suspend(agent)
    assert await soon(run) == ""
    assert await results(agent) == ({"a": STILL_RUNNING} if is_postponed else {})
    agent.provider.add(say("Thanks."))
    tool.is_asking.clear()
    resumed = asyncio.create_task(agent.session.resume(on_progress=agent.progress))
    await soon(tool.is_asking.wait())
    tool.answer.set_result("yes")
    assert await soon(resumed) == "Thanks."
    assert tool.calls == 2
    assert agent.complete()["tools"] == [{"tool": "ask", "id": "a", "label": None, "outcome": "finished"}]


@pytest.mark.parametrize("is_waiting", [True, False])
async def test_after_a_kill_only_a_call_that_has_not_begun_is_made_again(is_waiting: bool) -> None:
    tool = Asking()
    tool.repeatable = False
    agent = await make_agent(say("ok"), tools=[tool])
    await agent.context.set_messages(ASKED)
    agent.coordinator.register_capability("approvals.is_waiting", lambda call_id: is_waiting and call_id == "a")
    tool.answer.set_result("yes")
    assert await soon(agent.session.resume(on_progress=agent.progress)) == "ok"
    assert tool.calls == is_waiting
    assert agent.complete()["tools"][0]["outcome"] == ("finished" if is_waiting else "unknown")


async def test_after_a_kill_a_postponed_call_is_made_again_before_the_model_is_asked() -> None:
    tool = Asking()
    agent = await make_agent(say("Thanks."), tools=[tool])
    said = {"role": "assistant", "content": "I am waiting."}
    await agent.context.set_messages([*ASKED, still_running_row(use("ask", "a")), said])
    run = asyncio.create_task(agent.session.resume(on_progress=agent.progress))
    await soon(tool.is_asking.wait())
    assert agent.provider.requests == []
    tool.answer.set_result("yes")
    assert await soon(run) == "Thanks."


@pytest.mark.parametrize("problem", [None, "The arguments have changed."])
async def test_a_call_begins_only_if_the_approvals_let_it(problem: str | None) -> None:
    begun: list[Any] = []

    async def start(*call: Any, repeatable: bool) -> str | None:
        begun.append((*call, repeatable))
        return problem

    tool = Asking()
    tool.answer.set_result("yes")
    agent = await make_agent(call(use("ask", "a", text="x")), say("ok"), tools=[tool])
    agent.coordinator.register_capability("approvals.start_call", start)
    assert await soon(agent.session.execute("go")) == "ok"
    assert begun == [("a", "ask", {"text": "x"}, True)]
    assert tool.calls == (problem is None)
    assert (problem or "yes") in str(await results(agent))


async def test_a_resumed_run_numbers_its_texts_alike_after_an_urgent_message_before_the_prompt() -> None:
    spoken = assistant_row([TextBlock(text="I ask.")], [use("ask", "a")])
    rows = [injection_row([Injection("!now", id="m1")]), user_row("go", "m0")]
    tool = Asking()
    tool.answer.set_result("yes")
    agent = await make_agent(say("ok"), tools=[tool])
    await agent.context.set_messages([*rows, spoken])
    assert await soon(agent.session.resume(on_progress=agent.progress)) == "ok"
    assert (agent.progress.of("text"), agent.complete()["part"]) == ([], 1)
