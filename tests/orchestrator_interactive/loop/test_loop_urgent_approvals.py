"""An urgent message while a person is asked: it approves nothing, and destroys nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from agents import (
    call,
    delivered,
    goes_on,
    late_results,
    make_agent,
    returning,
    say,
    soon,
    text_of,
    use,
)

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import HookResult

if TYPE_CHECKING:
    from typing import Any

    from agents import Agent

# Far longer than a test takes: a grace period that ends by itself would be a hang.
LONG_S = 600


class Person:
    """Is asked, and answers when the test says so."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def request_approval(self, *_: Any) -> str:
        self.asked.set()
        return await self.answer


class TestWhileAnApprovalWaits:
    @staticmethod
    async def _asked(*steps: Any, wish: HookResult | None = None, **more: Any) -> tuple[Agent, Any, Any, Any]:
        person, tool = Person(), returning("deleted", "delete")
        agent = await make_agent(call(use("delete", "a")), *steps, tools=[tool], approvals=person, **more)
        agent.on_hook("tool:pre", wish or HookResult(action="ask_user", approval_prompt="Delete it all?"))
        run = agent.start()
        await soon(person.asked.wait())
        return agent, run, person, tool

    @pytest.mark.parametrize("text", ["!now", "!yes", "!Allow", "Allow", "allow always"])
    async def test_no_message_approves_and_the_answer_still_counts(self, text: str) -> None:
        agent, run, person, tool = await self._asked(say("meanwhile"), say("done"))
        agent.inject(text)
        if text.startswith("!"):
            await agent.progress.reached("text")
        assert tool.inputs == []
        assert not person.answer.done()
        person.answer.set_result("Allow")
        await soon(run)
        assert len(tool.inputs) == 1
        assert "deleted" in str(await agent.told())
        await goes_on(agent)

    async def test_a_no_afterwards_is_a_no(self) -> None:
        agent, run, person, tool = await self._asked(say("meanwhile"), say("done"))
        agent.inject("!yes")
        await agent.progress.reached("text")
        person.answer.set_result("Deny")
        assert await soon(run) == "done"
        assert tool.inputs == []
        assert text_of((await late_results(agent))[0]).splitlines()[1].startswith("- call a, delete: failed: Denied")

    @pytest.mark.parametrize(("default", "runs"), [("deny", 0), ("allow", 1)])
    async def test_an_approval_that_nobody_answers_takes_its_default(self, default: Any, runs: int) -> None:
        wish = HookResult(action="ask_user", approval_prompt="Delete?", approval_timeout=0.01, approval_default=default)
        agent, run, _, tool = await self._asked(say("meanwhile"), say("done"), wish=wish)
        agent.inject("!now")
        assert await soon(run) == "done"
        assert len(tool.inputs) == runs
        assert len(await late_results(agent)) == 1

    @pytest.mark.parametrize("immediate", [False, True])
    async def test_a_stop_afterwards_ends_it_without_a_yes(self, *, immediate: bool) -> None:
        agent, run, person, tool = await self._asked(say("meanwhile"), stop_grace_s=LONG_S)
        agent.inject("!now")
        await agent.progress.reached("text")
        agent.stop(immediate=immediate)
        await soon(run)
        assert person.answer.cancelled()
        assert tool.inputs == []
        assert "Not started" in text_of((await late_results(agent))[0])
        assert agent.progress.of("complete")[0]["tools"][0]["outcome"] == "cancelled"

    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "provider:response"])
    async def test_a_question_before_or_after_the_model_is_asked_is_not_answered_by_it_either(self, event: str) -> None:
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
