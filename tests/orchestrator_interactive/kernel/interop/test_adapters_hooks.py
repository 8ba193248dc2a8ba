"""Hooks of amplifier-core, in its registry and with its `HookResult`: our loop does there what they want."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import ScriptedTool, call, echo, faults, returning, say, soon, text_of, told, use
from amplifier_core import HookResult
from amplifier_core.approval import ApprovalTimeoutError

from orchestrator_interactive.kernel import ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., Any]

POINTS = ["prompt:submit", "provider:request", "tool:pre", "tool:post"]
AT_A_TOOL = ["tool:pre", "tool:post"]
BEFORE_THE_MODEL = ["prompt:submit", "provider:request"]
DENY = HookResult(action="deny", reason="not here")


class Answers:
    """People who give one answer, or raise it, and read what they are shown."""

    def __init__(self, outcome: str | Exception) -> None:
        self._outcome = outcome
        self.asked: list[tuple[Any, ...]] = []
        self.shown: list[tuple[Any, ...]] = []

    async def request_approval(self, *question: Any) -> str:
        self.asked.append(question)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    def show_message(self, *message: Any) -> None:
        self.shown.append(message)


def inject(text: str = "by the way", **more: Any) -> HookResult:
    return HookResult(action="inject_context", context_injection=text, **more)


def ask(**more: Any) -> HookResult:
    return HookResult(
        action="ask_user", approval_prompt="May it?", approval_options=["Allow", "Deny"], approval_timeout=9, **more
    )


async def with_a_tool(abroad: Make, tool: ScriptedTool, **more: Any) -> Any:
    return await abroad(call(use(tool.name, "a", text="one")), say("ok"), tools=[tool], **more)


def results(rows: list[dict[str, Any]]) -> list[str]:
    return [text_of(row) for row in rows if row["role"] == "tool"]


@pytest.mark.parametrize("event", BEFORE_THE_MODEL)
async def test_a_denied_step_ends_the_run_and_says_why(abroad: Make, event: str) -> None:
    session = await abroad(say("ok"))
    session.answer(event, DENY)
    assert await session.run() == "Operation denied: not here"
    assert session.provider.requests == []
    assert session.events.of("orchestrator:complete")[0]["status"] == "incomplete"


async def test_a_denied_tool_is_not_run_and_the_model_reads_why(abroad: Make) -> None:
    tool = echo()
    session = await with_a_tool(abroad, tool)
    session.answer("tool:pre", DENY)
    assert await session.run() == "ok"
    assert tool.inputs == []
    assert results(session.provider.sent()) == ["Denied: not here"]


async def test_a_denied_result_is_withheld(abroad: Make) -> None:
    session = await with_a_tool(abroad, echo())
    session.answer("tool:post", DENY)
    assert await session.run() == "ok"
    assert results(session.provider.sent()) == ["The result was withheld: not here"]


async def test_a_modified_prompt_is_the_one_the_model_reads(abroad: Make) -> None:
    session = await abroad(say("ok"))
    session.change("prompt:submit", prompt="something else")
    await session.run()
    assert told(session.provider.sent()) == [("user", "something else")]


async def test_modified_messages_and_model_are_the_ones_of_the_request(abroad: Make) -> None:
    session = await abroad(say("ok"))
    session.change("provider:request", messages=[{"role": "user", "content": "something else"}], model="other")
    await session.run()
    assert told(session.provider.sent()) == [("user", "something else")]
    assert session.provider.requests[0].model == "other"
    assert told(await session.rows()) == [("user", "go"), ("assistant", "ok")]


async def test_a_modified_input_is_the_one_the_tool_gets(abroad: Make) -> None:
    tool = echo()
    session = await with_a_tool(abroad, tool)
    session.change("tool:pre", tool_input={"text": "other"})
    await session.run()
    assert tool.inputs == [{"text": "other"}]
    assert results(session.provider.sent()) == ["other"]


@pytest.mark.parametrize("result", ["other", {"success": True, "output": "other"}])
async def test_a_modified_result_is_the_one_the_model_reads(abroad: Make, result: Any) -> None:
    session = await with_a_tool(abroad, echo())
    session.change("tool:post", tool_result=result)
    await session.run()
    assert results(session.provider.sent()) == ["other"]


async def test_modifications_add_up(abroad: Make) -> None:
    session = await abroad(say("ok"))
    session.change("provider:request", model="other")
    session.change("provider:request", messages=[{"role": "user", "content": "something else"}])
    await session.run()
    assert session.provider.requests[0].model == "other"
    assert told(session.provider.sent()) == [("user", "something else")]


async def test_what_a_modification_leaves_alone_stays_as_it_was(abroad: Make) -> None:
    """On the way through amplifier-core's registry a large number becomes a fraction."""
    session = await with_a_tool(abroad, returning(ToolResult(output={"id": 2**70 + 1}), name="echo"))
    session.change("tool:post", seen=True)
    await session.run()
    assert results(session.provider.sent()) == [f'{{"id": {2**70 + 1}}}']


@pytest.mark.parametrize("event", POINTS)
async def test_a_lasting_injection_is_in_the_history_with_where_it_comes_from(abroad: Make, event: str) -> None:
    session = await with_a_tool(abroad, echo())
    session.answer(event, inject(context_injection_role="user"))
    await session.run()
    rows = await session.rows()
    injected = [row for row in rows if row["content"] == "by the way"]
    assert {row["role"] for row in injected} == {"user"}
    assert {(row["metadata"]["source"], row["metadata"]["event"]) for row in injected} == {("hook", event)}
    assert faults(rows) == []
    assert "by the way" in str(session.provider.sent())


async def test_a_lasting_injection_at_the_request_is_in_that_request(abroad: Make) -> None:
    session = await abroad(say("ok"))
    session.answer("provider:request", inject())
    await session.run()
    assert told(session.provider.sent()) == [("user", "go"), ("system", "by the way")]


@pytest.mark.parametrize("event", AT_A_TOOL)
async def test_an_injection_at_a_tool_waits_for_all_results(abroad: Make, event: str) -> None:
    session = await abroad(call(use("echo", "a"), use("echo", "b")), say("ok"), tools=[echo()])
    session.answer(event, inject())
    await session.run()
    assert [row["role"] for row in await session.rows()] == [
        *("user", "assistant", "tool", "tool"),
        *("system", "system", "assistant"),
    ]


@pytest.mark.parametrize("event", POINTS)
async def test_a_passing_injection_is_in_one_request_and_not_in_the_history(abroad: Make, event: str) -> None:
    session = await with_a_tool(abroad, echo())
    wishes = [inject(ephemeral=True)]

    async def once(_event: str, _data: dict[str, Any]) -> HookResult:
        return wishes.pop() if wishes else HookResult()

    session.coordinator.hooks.register(event, once)
    await session.run()
    has_it = ["by the way" in str(session.provider.sent(i)) for i in range(2)]
    assert has_it == ([False, True] if event in AT_A_TOOL else [True, False])
    assert "by the way" not in str(await session.rows())


async def test_a_passing_injection_can_end_the_last_tool_result(abroad: Make) -> None:
    session = await with_a_tool(abroad, echo())
    session.answer("tool:post", inject(ephemeral=True, append_to_last_tool_result=True))
    await session.run()
    assert results(session.provider.sent()) == ["one\n\nby the way"]
    assert results(await session.rows()) == ["one"]


async def test_two_hooks_inject_each_in_its_own_way(abroad: Make) -> None:
    session = await abroad(say("ok"), say("again"))
    session.answer("provider:request", inject("stays"))
    session.answer("provider:request", inject("passes", ephemeral=True))
    await session.run()
    assert told(session.provider.sent()) == [("user", "go"), ("system", "stays"), ("system", "passes")]
    assert "passes" not in str(await session.rows())


@pytest.mark.parametrize("event", POINTS)
async def test_what_a_person_allows_goes_on(abroad: Make, event: str) -> None:
    people = Answers("Allow")
    session = await with_a_tool(abroad, echo(), people=people)
    session.answer(event, ask())
    assert await session.run() == "ok"
    assert people.asked[0] == ("May it?", ["Allow", "Deny"], 9.0, "deny")
    assert results(await session.rows()) == ["one"]


@pytest.mark.parametrize("event", BEFORE_THE_MODEL)
async def test_what_a_person_denies_ends_the_run(abroad: Make, event: str) -> None:
    session = await abroad(say("ok"), people=Answers("Deny"))
    session.answer(event, ask())
    assert await session.run() == "Operation denied: User denied: May it?"
    assert session.provider.requests == []


@pytest.mark.parametrize("outcome", ["Deny", ApprovalTimeoutError("nobody there")])
async def test_a_tool_that_nobody_allows_is_not_run(abroad: Make, outcome: Any) -> None:
    tool = echo()
    session = await with_a_tool(abroad, tool, people=Answers(outcome))
    session.answer("tool:pre", ask())
    assert await session.run() == "ok"
    assert tool.inputs == []


async def test_nobody_in_time_takes_the_default(abroad: Make) -> None:
    tool = echo()
    session = await with_a_tool(abroad, tool, people=Answers(ApprovalTimeoutError("nobody there")))
    session.answer("tool:pre", ask(approval_default="allow"))
    assert await session.run() == "ok"
    assert len(tool.inputs) == 1


async def test_where_nobody_can_be_asked_the_tool_is_not_run(abroad: Make) -> None:
    tool = echo()
    session = await with_a_tool(abroad, tool)
    session.answer("tool:pre", ask(approval_default="allow"))
    assert await session.run() == "ok"
    assert tool.inputs == []


@pytest.mark.parametrize("event", POINTS)
async def test_a_message_of_a_hook_that_wants_something_is_shown(abroad: Make, event: str) -> None:
    """One that comes with "continue" gets lost in amplifier-core's registry."""
    people = Answers("Allow")
    session = await with_a_tool(abroad, echo(), people=people)
    session.answer(event, inject(user_message="Look.", user_message_level="warning", user_message_source="guard"))
    await session.run()
    assert {message[:2] for message in people.shown} == {("Look.", "warning")}


@pytest.mark.parametrize("event", POINTS)
@pytest.mark.parametrize("ephemeral", [False, True])
async def test_an_injection_over_the_limit_is_left_out_and_the_run_goes_on(
    abroad: Make, event: str, ephemeral: bool
) -> None:
    session = await with_a_tool(abroad, echo(), injection_size_limit=5)
    session.answer(event, inject("far too long", ephemeral=ephemeral))
    assert await session.run() == "ok"
    assert "far too long" not in str([*session.provider.sent(), *await session.rows()])


@pytest.mark.parametrize("event", POINTS)
async def test_a_hook_that_fails_changes_nothing(abroad: Make, event: str) -> None:
    async def broken(_event: str, _data: dict[str, Any]) -> HookResult:
        raise LookupError("broken")

    session = await with_a_tool(abroad, echo())
    session.coordinator.hooks.register(event, broken)
    assert await session.run() == "ok"
    assert results(await session.rows()) == ["one"]


async def test_a_stop_does_not_wait_for_a_hook(abroad: Make) -> None:
    session = await abroad(say("never"))
    gate = asyncio.Event()
    session.events.hold("provider:request", gate)
    run = session.start()
    await session.events.reached("provider:request")
    session.coordinator.cancellation.request_graceful()
    assert await soon(run) == ""
    gate.set()
