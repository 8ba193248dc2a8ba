"""Hooks beside a stop: nobody holds it up, nothing slips past a gate or between a call and its result."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import (
    ScriptedTool,
    call,
    doing,
    echo,
    faults,
    gated,
    make_agent,
    never,
    raising,
    returning,
    say,
    soon,
    text_of,
    told,
    use,
)
from structlog.testing import capture_logs

from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock

if TYPE_CHECKING:
    from agents import Agent

# Far longer than a test takes: a grace period that ends by itself would be a hang.
LONG_S = 600
DENY = HookResult(action="deny", reason="secret")
ASK = HookResult(action="ask_user", approval_prompt="May it?")


def inject(text: str = "noted", **more: Any) -> HookResult:
    return HookResult(action="inject_context", context_injection=text, **more)


async def _agent(**more: Any) -> Agent:
    steps = call(use("echo", "a", text="one"), use("echo", "b", text="two")), say("ok")
    return await make_agent(*steps, tools=[echo()], **more)


def _results(rows: list[dict[str, Any]]) -> list[str]:
    return [text_of(row) for row in rows if row["role"] == "tool"]


async def _goes_on(agent: Agent) -> None:
    assert faults(await agent.history()) == []
    agent.provider._steps.clear()
    agent.provider.add(say("next answer"))
    with capture_logs() as logs:
        assert await agent.run("next") == "next answer"
    assert "request.repaired" not in {entry["event"] for entry in logs}


@pytest.mark.parametrize("event", ["execution:start", "injection:applied"])
async def test_a_stop_is_not_held_up_by_a_hook_that_is_told_of_what_happens(event: str) -> None:
    agent = await _agent()
    agent.inject("and this")
    agent.events.listen(agent.hooks, event).hold(event, asyncio.Event())
    run = agent.start()
    await agent.events.reached(event)
    agent.stop()
    await soon(run)
    assert agent.provider.requests == []


@pytest.mark.parametrize("event", ["cancel:requested", "execution:end", "orchestrator:complete", "cancel:completed"])
async def test_a_stop_is_not_held_up_by_a_hook_that_is_told_of_it(event: str) -> None:
    agent = await make_agent(never())
    agent.events.listen(agent.hooks, event).hold(event, asyncio.Event())
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    await soon(run)
    assert agent.progress.of("complete")[0]["status"] == "cancelled"


@pytest.mark.parametrize("event", ["executing", "text", "complete"])
async def test_a_stop_is_not_held_up_by_whoever_watches_the_run(event: str) -> None:
    agent = await make_agent(doing(lambda: agent.inject("more"), say("first")), say("second"))
    agent.progress.hold(event, asyncio.Event())
    run = agent.start()
    await agent.progress.reached(event)
    agent.stop()
    await soon(run)
    assert faults(await agent.history()) == []


async def test_a_stop_is_not_held_up_by_a_display() -> None:
    shown = asyncio.Event()

    class Hangs:
        async def show_message(*_: Any) -> None:
            shown.set()
            await asyncio.Event().wait()

    agent = await _agent(display=Hangs())
    agent.on_hook("execution:start", HookResult(user_message="look"))
    run = agent.start()
    await soon(shown.wait())
    agent.stop()
    await soon(run)


@pytest.mark.parametrize("immediate", [False, True])
@pytest.mark.parametrize(
    "event", ["prompt:submit", "provider:request", "provider:response", "tool:pre", "tool:post", "execution:end"]
)
async def test_a_hook_may_ask_for_the_stop_itself(event: str, *, immediate: bool) -> None:
    agent = await _agent()

    async def stops(_event: str, _data: dict[str, Any]) -> None:
        await agent.coordinator.request_cancel(immediate)

    end = agent.hooks.register(event, stops)
    await soon(agent.start())
    end()
    await _goes_on(agent)


@pytest.mark.parametrize("immediate", [False, True])
async def test_a_result_that_a_person_is_asked_about_is_not_let_past_them(*, immediate: bool) -> None:
    asked = asyncio.Event()

    class Nobody:
        async def request_approval(*_: Any) -> str:
            asked.set()
            await asyncio.Event().wait()
            return "unreachable"

    tools = [returning("hunter2")]
    agent = await make_agent(call(use("give", "a")), tools=tools, approvals=Nobody(), stop_grace_s=0)
    end = agent.on_hook("tool:post", ASK)
    run = agent.start()
    await soon(asked.wait())
    agent.stop(immediate=immediate)
    await soon(run)
    end()
    assert "The call ended" in _results(await agent.history())[0]
    assert "hunter2" not in str(await agent.history())
    await _goes_on(agent)


@pytest.mark.parametrize(
    ("wish", "result"),
    [
        (DENY, "The result was withheld: secret"),
        (HookResult(action="modify", data={"tool_result": "[redacted]"}), "[redacted]"),
        (HookResult(), "hunter2"),
    ],
    ids=["deny", "modify", "continue"],
)
async def test_a_gate_that_decides_on_a_result_within_the_grace_period_has_its_way(
    wish: HookResult, result: str
) -> None:
    gate = asyncio.Event()
    agent = await make_agent(call(use("give", "a")), tools=[returning("hunter2")], stop_grace_s=LONG_S)
    agent.events.listen(agent.hooks, "tool:post").hold("tool:post", gate)
    agent.on_hook("tool:post", wish)
    run = agent.start()
    await agent.events.reached("tool:post")
    agent.stop()
    gate.set()
    await soon(run)
    assert _results(await agent.history()) == [result]


@pytest.mark.parametrize(
    ("wish", "kept"),
    [
        (DENY, []),
        (
            HookResult(action="modify", data={"response": ChatResponse(content=[TextBlock(text="[redacted]")])}),
            ["[redacted]"],
        ),
        (HookResult(), ["hunter2"]),
    ],
    ids=["deny", "modify", "continue"],
)
async def test_a_gate_that_decides_on_an_answer_at_the_instant_of_the_stop_has_its_way(
    wish: HookResult, kept: list[str]
) -> None:
    agent = await make_agent(say("hunter2"))

    async def decides(_event: str, _data: dict[str, Any]) -> HookResult:
        asyncio.get_running_loop().call_soon(agent.stop)
        return wish

    end = agent.hooks.register("provider:response", decides)
    assert await agent.run() == "".join(kept)
    end()
    assert [text for role, text in await agent.told() if role == "assistant"] == kept
    assert agent.progress.of("complete")[0]["status"] == "cancelled"
    await _goes_on(agent)


async def test_a_yes_that_comes_after_the_stop_starts_no_tool() -> None:
    asked = asyncio.Event()

    class Late:
        async def request_approval(*_: Any) -> str:
            asked.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "Allow"
            return "unreachable"

    tool = echo()
    agent = await make_agent(call(use("echo", "a")), tools=[tool], approvals=Late(), stop_grace_s=LONG_S)
    end = agent.on_hook("tool:pre", ASK)
    run = agent.start()
    await soon(asked.wait())
    agent.stop()
    await soon(run)
    end()
    assert tool.inputs == []
    await _goes_on(agent)


async def test_what_hooks_note_of_tools_that_were_cut_follows_all_results() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(*(use("wait", i) for i in "abc")), tools=[tool])
    end = agent.on_hook("tool:error", inject())
    run = agent.start()
    await tool.started(3)
    agent.stop(immediate=True)
    await soon(run)
    end()
    assert [role for role, _ in await agent.told()][2:] == ["tool"] * 3 + ["system"] * 3
    await _goes_on(agent)


@pytest.mark.parametrize("ephemeral", [False, True])
@pytest.mark.parametrize("event", ["tool:pre", "tool:post", "tool:error"])
async def test_what_hooks_note_beside_denied_unknown_and_broken_tools_follows_all_results(
    event: str, *, ephemeral: bool
) -> None:
    names = ["echo", "echo", "nope", "break", "echo"]
    calls = call(*(use(name, str(i), text=str(i)) for i, name in enumerate(names)))
    agent = await make_agent(calls, say("ok"), tools=[echo(), raising(OSError("broken"))])

    async def guards(event: str, data: dict[str, Any]) -> HookResult:
        return DENY if (event, data["tool_call_id"]) == ("tool:pre", "1") else HookResult()

    agent.hooks.register("tool:pre", guards)
    agent.on_hook(event, inject(ephemeral=ephemeral))
    assert await agent.run() == "ok"
    assert [row["role"] for row in agent.provider.sent(1)][:7] == ["user", "assistant"] + ["tool"] * 5
    assert "noted" in str(agent.provider.sent(1)[7:])
    await _goes_on(agent)


async def test_what_a_tool_notes_itself_stands_after_its_results_in_the_request() -> None:
    async def scans(_input: dict[str, Any]) -> str:
        wish = await agent.hooks.emit("scan:done", {})
        await agent.coordinator.process_hook_result(wish, "scan:done", wish.hook_name)
        return "scanned"

    tool = ScriptedTool("scan", scans)
    agent = await make_agent(call(use("scan", "a"), use("scan", "b")), say("ok"), tools=[tool])
    agent.on_hook("scan:done", inject("2 problems"))
    assert await agent.run() == "ok"
    assert told(agent.provider.sent(1))[2:] == [("tool", "scanned")] * 2 + [("system", "2 problems")] * 2


async def test_a_result_that_comes_late_takes_the_place_of_the_note_that_it_is_missing() -> None:
    async def finds(_input: dict[str, Any]) -> str:
        await agent.context.add_message({"role": "tool", "tool_call_id": "lost", "content": "found"})
        return "searched"

    agent = await make_agent(call(use("search", "a")), say("ok"), tools=[ScriptedTool("search", finds)])
    lost = {"id": "lost", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    await agent.context.add_message({"role": "assistant", "content": "I will", "tool_calls": [lost]})
    assert await agent.run() == "ok"
    results = [_results(agent.provider.sent(i)) for i in range(2)]
    assert "unknown" in results[0][0]
    assert results[1] == ["found", "searched"]


async def test_one_injection_too_large_leaves_the_lasting_ones_in_this_request() -> None:
    agent = await make_agent(say("ok"), plan={"injection_size_limit": 10})
    for wish in (inject("small"), inject("much too large"), inject("tiny")):
        agent.on_hook("provider:request", wish)
    await agent.run()
    assert told(agent.provider.sent(0)) == [("user", "go"), ("system", "small"), ("system", "tiny")]
    assert "too large" not in str(await agent.history())


@pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "tool:pre", "tool:post"])
async def test_one_injection_too_large_leaves_a_passing_one(event: str) -> None:
    agent = await _agent(plan={"injection_size_limit": 10})
    agent.on_hook(event, inject("much too large", ephemeral=True))
    agent.on_hook(event, inject("small", ephemeral=True))
    await agent.run()
    requests = str([agent.provider.sent(0), agent.provider.sent(1)])
    assert "small" in requests
    assert "too large" not in requests


async def test_one_injection_too_large_leaves_a_modification() -> None:
    tool = echo()
    steps = call(use("echo", "a", text="worse")), say("ok")
    agent = await make_agent(*steps, tools=[tool], plan={"injection_size_limit": 3})
    agent.on_hook("tool:pre", HookResult(action="modify", data={"tool_input": {"text": "better"}}))
    agent.on_hook("tool:pre", inject("too large"))
    await agent.run()
    assert tool.inputs == [{"text": "better"}]
