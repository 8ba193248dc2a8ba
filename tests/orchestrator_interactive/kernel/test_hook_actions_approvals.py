"""Approvals whose answer is unusual, late, missing or remembered."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agents import soon

from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.testing import MockApprovalSystem, TestCoordinator

ASK = HookResult(action="ask_user", approval_prompt="May it?")
QUICK = ASK.model_copy(update={"approval_timeout": 0.01})


class Asks:
    """An approval system that answers as a function says."""

    def __init__(self, answer: Callable[[], Awaitable[str]]) -> None:
        self._answer = answer

    async def request_approval(self, *_question: Any) -> str:
        return await self._answer()


async def _decided(approvals: Any, *questions: HookResult) -> list[str]:
    coordinator = TestCoordinator()
    coordinator.approval_system = approvals
    return [(await soon(coordinator.process_hook_result(question, "e", "h"))).action for question in questions]


async def test_an_answer_after_the_timeout_is_ignored() -> None:
    async def too_late() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "Allow"
        return "unreachable"

    assert await _decided(Asks(too_late), QUICK) == ["deny"]


async def test_an_approval_system_that_ignores_the_timeout_is_not_waited_for() -> None:
    release, ended = asyncio.Event(), asyncio.Event()

    async def deaf() -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return "Allow"

    assert await _decided(Asks(deaf), QUICK) == ["deny"]
    release.set()
    await soon(ended.wait())


async def test_an_infinite_timeout_is_allowed() -> None:
    async def takes_a_while() -> str:
        await asyncio.sleep(0)
        return "Allow"

    assert await _decided(Asks(takes_a_while), ASK.model_copy(update={"approval_timeout": math.inf})) == ["continue"]


@pytest.mark.parametrize(
    ("question", "requests"),
    [
        ({"approval_options": ["Allow always", "Deny"]}, 1),
        ({"approval_options": ["allow ALWAYS", "Deny"]}, 1),
        ({"approval_options": None}, 2),
        ({"approval_options": ["Allow", "Deny"]}, 2),
        ({"approval_options": ["Allow always", "Deny"], "approval_prompt": None}, 2),
    ],
    ids=["offered", "offered in another case", "no options", "not offered", "no prompt"],
)
async def test_always_is_remembered_for_a_prompt_that_offered_it(question: dict[str, Any], requests: int) -> None:
    approvals = MockApprovalSystem("Allow Always ")
    ask = ASK.model_copy(update=question)
    assert await _decided(approvals, ask, ask) == ["continue", "continue"]
    assert len(approvals.requests) == requests


async def test_a_denial_is_not_remembered() -> None:
    answers = iter(["Deny", "Allow"])

    async def changes_its_mind() -> str:
        return next(answers)

    assert await _decided(Asks(changes_its_mind), ASK, ASK) == ["deny", "continue"]


async def test_always_holds_for_the_hook_that_asked_and_while_it_offers_it() -> None:
    approvals = MockApprovalSystem("Allow always")
    coordinator = TestCoordinator()
    coordinator.approval_system = approvals
    offering = HookResult(action="ask_user", approval_prompt="May I?", approval_options=["Allow always", "Deny"])
    plain = HookResult(action="ask_user", approval_prompt="May I?")
    for question, hook in ((offering, "one"), (offering, "one"), (offering, "other"), (plain, "one")):
        await coordinator.process_hook_result(question, "tool:pre", hook)
    assert len(approvals.requests) == 3
