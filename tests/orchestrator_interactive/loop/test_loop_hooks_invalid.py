"""Hooks that come too late, want several things at once, hang, or hand over nonsense: the run goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import call, echo, make_agent, say, told, use
from structlog.testing import capture_logs

from orchestrator_interactive.kernel import HookResult

if TYPE_CHECKING:
    from agents import Agent

TOLD = ["execution:start", "injection:applied", "execution:end", "orchestrator:complete"]
INJECT = HookResult(action="inject_context", context_injection="by the way")


async def _agent(**more: Any) -> Agent:
    return await make_agent(call(use("echo", "a", text="one")), say("ok"), tools=[echo()], **more)


@pytest.mark.parametrize("action", ["deny", "ask_user"])
@pytest.mark.parametrize("event", TOLD)
async def test_for_a_no_to_what_has_happened_it_is_too_late(event: str, action: Any) -> None:
    agent = await _agent()
    agent.on_hook(event, HookResult(action=action, reason="no", approval_prompt="?"))
    agent.progress.act_on("executing", lambda: agent.inject("and this"))
    with capture_logs() as logs:
        assert await agent.run() == "ok"
    assert {entry["hook_event"] for entry in logs if entry["event"] == "hook.denial_ignored"} == {event}


@pytest.mark.parametrize("event", TOLD)
async def test_what_has_happened_may_be_remarked_upon(event: str) -> None:
    agent = await _agent()
    agent.on_hook(event, INJECT)
    agent.progress.act_on("executing", lambda: agent.inject("and this"))
    assert await agent.run() == "ok"
    assert ("system", "by the way") in await agent.told()


async def test_a_failing_providers_hook_may_remark_upon_it_for_the_next_run() -> None:
    async def fails(*_: Any) -> Any:
        raise RuntimeError("down")

    agent = await make_agent(fails, say("better"))
    agent.on_hook("provider:error", INJECT)
    with pytest.raises(RuntimeError, match="down"):
        await agent.run()
    await agent.run()
    assert ("system", "by the way") in told(row.model_dump() for row in agent.provider.requests[-1].messages)


async def test_a_lasting_and_a_passing_injection_of_two_hooks_each_keep_their_kind() -> None:
    agent = await make_agent(call(use("echo", "a")), say("ok"), tools=[echo()])
    end_one = agent.on_hook("provider:request", HookResult(action="inject_context", context_injection="stays"))
    passing = HookResult(action="inject_context", context_injection="passes", ephemeral=True)
    end_two = agent.on_hook("provider:request", passing)
    agent.progress.act_on("tool:start", end_one)
    agent.progress.act_on("tool:end", end_two)
    await agent.run()
    first, second = (told(m.model_dump() for m in request.messages) for request in agent.provider.requests)
    assert [text for _, text in first if text in {"stays", "passes"}] == ["stays", "passes"]
    assert [text for _, text in second if text in {"stays", "passes"}] == ["stays"]


@pytest.mark.parametrize(
    ("event", "part", "nonsense"),
    [
        ("prompt:submit", "prompt", ["not", "text"]),
        ("provider:request", "messages", "not rows"),
        ("provider:request", "messages", [{"content": "without a role"}]),
        ("provider:request", "model", 7),
        ("provider:response", "response", {"content": "not blocks"}),
        ("provider:response", "response", None),
        ("tool:pre", "tool_input", "not an object"),
        ("tool:post", "tool_result", {"success": "perhaps"}),
        ("tool:post", "tool_result", 7),
    ],
)
async def test_a_modification_of_the_wrong_form_is_logged_and_ignored(event: str, part: str, nonsense: Any) -> None:
    agent = await _agent()
    agent.on_hook(event, HookResult(action="modify", data={part: nonsense}))
    with capture_logs() as logs:
        assert await agent.run() == "ok"
    assert part in {entry.get("part") for entry in logs if entry["event"] == "hook.modification_invalid"}
    assert (await agent.told())[-1] == ("assistant", "ok")
    assert ("tool", "one") in await agent.told()


async def test_a_modified_model_is_the_one_that_is_asked() -> None:
    agent = await make_agent(say("ok"))
    agent.on_hook("provider:request", HookResult(action="modify", data={"model": "another"}))
    await agent.run()
    assert agent.provider.requests[0].model == "another"


async def test_a_result_may_be_modified_as_a_dictionary() -> None:
    agent = await _agent()
    changed = {"success": False, "error": {"message": "not quite"}}
    agent.on_hook("tool:post", HookResult(action="modify", data={"tool_result": changed}))
    await agent.run()
    assert ("tool", "not quite") in await agent.told()


@pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "tool:pre", "tool:post", "execution:end"])
async def test_a_hook_that_hangs_is_given_up(event: str) -> None:
    agent = await _agent(plan={"hook_timeout_s": 0.01})

    async def hangs(_event: str, _data: dict[str, Any]) -> HookResult:
        await asyncio.Event().wait()
        return HookResult(action="deny")

    agent.hooks.register(event, hangs, name="hangs")
    with capture_logs() as logs:
        assert await agent.run() == "ok"
    gave_up = [entry for entry in logs if entry["event"] == "hook.timeout"]
    assert {(entry["hook"], entry["hook_event"], entry["timeout_s"]) for entry in gave_up} == {("hangs", event, 0.01)}


@pytest.mark.parametrize("event", ["prompt:submit", "tool:pre", "execution:start"])
async def test_a_hook_that_raises_a_cancellation_of_its_own_does_not_cancel_the_run(event: str) -> None:
    agent = await _agent()

    async def confused(_event: str, _data: dict[str, Any]) -> HookResult:
        raise asyncio.CancelledError

    agent.hooks.register(event, confused)
    assert await agent.run() == "ok"
