"""What hooks want is done, at each point of the loop, and never at the price of a valid history."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import call, echo, faults, make_agent, raising, say, soon, told, use

from orchestrator_interactive.kernel import HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.errors import ApprovalTimeoutError
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock

if TYPE_CHECKING:
    from agents import Agent

POINTS = ["prompt:submit", "provider:request", "provider:response", "tool:pre", "tool:post"]
DENY = HookResult(action="deny", reason="not here")


async def _agent(**more: Any) -> Agent:
    return await make_agent(
        call(use("echo", "a", text="one"), use("echo", "b", text="two")), say("ok"), tools=[echo()], **more
    )


def _results(rows: list[dict[str, Any]]) -> list[str]:
    return [row["content"] for row in rows if row["role"] == "tool"]


@pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "provider:response"])
async def test_a_denied_step_ends_the_run_and_says_why(event: str) -> None:
    agent = await _agent()
    end = agent.on_hook(event, DENY)
    assert "not here" in await agent.run()
    assert agent.progress.of("complete")[0]["status"] == "incomplete"
    end()
    agent.provider._steps.clear()
    agent.provider.add(say("fine"))
    assert await agent.run("again") == "fine"


async def test_a_denied_prompt_never_reaches_the_history() -> None:
    agent = await _agent()
    agent.on_hook("prompt:submit", DENY)
    await agent.run()
    assert await agent.history() == []


async def test_a_denied_tool_is_not_run_and_the_model_reads_why() -> None:
    tool = echo()
    agent = await make_agent(call(use("echo", "a")), say("ok"), tools=[tool])
    agent.on_hook("tool:pre", DENY)
    assert await agent.run() == "ok"
    assert tool.inputs == []
    assert "not here" in _results(await agent.history())[0]
    assert agent.progress.of("tool:start") == []


async def test_a_result_that_is_denied_is_withheld() -> None:
    agent = await _agent()
    agent.on_hook("tool:post", DENY)
    await agent.run()
    assert all("not here" in text and "one" not in text for text in _results(await agent.history()))


async def test_a_modified_prompt_is_the_one_the_model_reads() -> None:
    agent = await _agent()
    agent.on_hook("prompt:submit", HookResult(action="modify", data={"prompt": "better"}))
    await agent.run("worse")
    assert told(agent.provider.sent(0)) == [("user", "better")]


async def test_modified_messages_are_the_ones_the_model_reads() -> None:
    agent = await _agent()
    rows = [{"role": "user", "content": "instead"}]
    agent.on_hook("provider:request", HookResult(action="modify", data={"messages": rows}))
    await agent.run()
    assert told(agent.provider.sent(0)) == [("user", "instead")]
    assert (await agent.told())[0] == ("user", "go")


async def test_a_modified_response_is_the_one_that_counts() -> None:
    agent = await make_agent(call(use("echo", "a")), tools=[echo()])
    response = ChatResponse(content=[TextBlock(text="instead")])
    agent.on_hook("provider:response", HookResult(action="modify", data={"response": response}))
    assert await agent.run() == "instead"
    assert (await agent.told())[-1] == ("assistant", "instead")


async def test_a_modified_input_is_the_one_the_tool_gets() -> None:
    tool = echo()
    agent = await make_agent(call(use("echo", "a", text="worse")), say("ok"), tools=[tool])
    agent.on_hook("tool:pre", HookResult(action="modify", data={"tool_input": {"text": "better"}}))
    await agent.run()
    assert tool.inputs == [{"text": "better"}]
    assert agent.progress.of("tool:start")[0]["args"] == {"text": "better"}


@pytest.mark.parametrize("result", [ToolResult(output="redacted"), "redacted"])
async def test_a_modified_result_is_the_one_the_model_reads(result: Any) -> None:
    agent = await _agent()
    agent.on_hook("tool:post", HookResult(action="modify", data={"tool_result": result}))
    await agent.run()
    assert _results(agent.provider.sent(1)) == ["redacted", "redacted"]


async def test_a_modified_failure_is_the_one_the_model_reads() -> None:
    agent = await make_agent(call(use("break", "a")), say("ok"), tools=[raising(OSError("secret path"))])
    agent.on_hook("tool:error", HookResult(action="modify", data={"tool_result": ToolResult(output="it failed")}))
    await agent.run()
    assert _results(agent.provider.sent(1)) == ["it failed"]


async def test_modified_messages_stay_modified_beside_an_injection() -> None:
    agent = await _agent()
    rows = [{"role": "user", "content": "redacted"}]
    agent.on_hook("provider:request", HookResult(action="modify", data={"messages": rows}))
    agent.on_hook("provider:request", HookResult(action="inject_context", context_injection="remember"))
    await agent.run("secret")
    assert "secret" not in str(told(agent.provider.sent(0)))


@pytest.mark.parametrize("event", POINTS)
async def test_a_modification_that_changes_nothing_known_changes_nothing(event: str) -> None:
    agent = await _agent()
    agent.on_hook(event, HookResult(action="modify", data={"note": "seen"}))
    agent.on_hook(event, HookResult(action="modify"))
    assert await agent.run() == "ok"
    assert _results(await agent.history()) == ["one", "two"]


@pytest.mark.parametrize("role", ["system", "user"])
@pytest.mark.parametrize("event", POINTS)
async def test_a_lasting_injection_is_in_the_history_and_in_later_requests(event: str, role: Any) -> None:
    agent = await _agent()
    wish = HookResult(action="inject_context", context_injection="remember", context_injection_role=role)
    agent.on_hook(event, wish)
    assert await agent.run() == "ok"
    assert (role, "remember") in await agent.told()
    assert (role, "remember") in told(agent.provider.sent(1))
    assert faults(await agent.history()) == []


async def test_a_lasting_injection_at_the_request_is_in_that_request() -> None:
    agent = await _agent()
    agent.on_hook("provider:request", HookResult(action="inject_context", context_injection="remember"))
    await agent.run()
    assert told(agent.provider.sent(0))[-1] == ("system", "remember")


@pytest.mark.parametrize("event", ["tool:pre", "tool:post"])
async def test_an_injection_of_a_tools_hook_waits_for_all_results(event: str) -> None:
    agent = await _agent()
    agent.on_hook(event, HookResult(action="inject_context", context_injection="remember"))
    await agent.run()
    roles = [role for role, _ in told(agent.provider.sent(1))]
    assert roles == ["user", "assistant", "tool", "tool", "system", "system"]


async def test_an_injection_of_a_tools_hook_survives_a_stop() -> None:
    agent = await _agent()
    agent.on_hook("tool:post", HookResult(action="inject_context", context_injection="remember"))
    agent.progress.act_on("tool:end", agent.stop)
    await agent.run()
    assert ("system", "remember") in await agent.told()
    assert faults(await agent.history()) == []


@pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "tool:pre", "tool:post"])
async def test_an_ephemeral_injection_is_in_the_next_request_only(event: str) -> None:
    agent = await make_agent(call(use("echo", "a")), say("ok"), tools=[echo()])
    wish = HookResult(action="inject_context", context_injection="by the way", ephemeral=True)
    end: list[Any] = []

    async def once(_event: str, _data: dict[str, Any]) -> HookResult:
        end.pop()()
        return wish

    end.append(agent.hooks.register(event, once))
    await agent.run()
    agent.provider.add(say("next"))
    await agent.run("next")
    requests = ["by the way" in str(told(agent.provider.sent(i))) for i in range(3)]
    assert requests == ([False, True, False] if event.startswith("tool") else [True, False, False])
    assert "by the way" not in str(await agent.history())


@pytest.mark.parametrize("event", ["provider:request", "tool:post"])
async def test_an_ephemeral_injection_can_end_the_last_tool_result(event: str) -> None:
    agent = await make_agent(call(use("echo", "a", text="one")), say("ok"), tools=[echo()])
    wish = HookResult(
        action="inject_context", context_injection="by the way", ephemeral=True, append_to_last_tool_result=True
    )
    agent.on_hook(event, wish)
    await agent.run()
    assert told(agent.provider.sent(1))[-1] == ("tool", "one\n\nby the way")
    assert _results(await agent.history()) == ["one"]


async def test_an_injection_for_the_last_tool_result_without_one_comes_last() -> None:
    agent = await make_agent(say("ok"))
    wish = HookResult(
        action="inject_context", context_injection="by the way", ephemeral=True, append_to_last_tool_result=True
    )
    agent.on_hook("provider:request", wish)
    await agent.run()
    assert told(agent.provider.sent(0)) == [("user", "go"), ("system", "by the way")]


class Answers:
    """An approval system that gives one answer, or raises it."""

    def __init__(self, outcome: str | Exception) -> None:
        self._outcome = outcome
        self.asked: list[tuple[Any, ...]] = []

    async def request_approval(self, *question: Any) -> str:
        self.asked.append(question)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


ASK = HookResult(action="ask_user", approval_prompt="May it?", approval_options=["Allow", "Deny"], approval_timeout=9)


@pytest.mark.parametrize("outcome", ["Allow", "Allow once", "Allow always"])
@pytest.mark.parametrize("event", POINTS)
async def test_what_a_person_allows_goes_on(event: str, outcome: str) -> None:
    approvals = Answers(outcome)
    agent = await _agent(approvals=approvals)
    agent.on_hook(event, ASK)
    assert await agent.run() == "ok"
    assert approvals.asked[0] == ("May it?", ["Allow", "Deny"], 9, "deny")
    assert _results(await agent.history()) == ["one", "two"]


@pytest.mark.parametrize("outcome", ["Deny", ApprovalTimeoutError(), TimeoutError()])
@pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "provider:response"])
async def test_what_a_person_does_not_allow_ends_the_run(event: str, outcome: Any) -> None:
    agent = await _agent(approvals=Answers(outcome))
    agent.on_hook(event, ASK)
    assert "May it?" in await agent.run()
    assert faults(await agent.history()) == []


@pytest.mark.parametrize("outcome", ["Deny", ApprovalTimeoutError(), TimeoutError(), ConnectionError("Slack is away")])
async def test_a_tool_that_a_person_does_not_allow_is_not_run(outcome: Any) -> None:
    tool = echo()
    agent = await make_agent(call(use("echo", "a")), say("ok"), tools=[tool], approvals=Answers(outcome))
    agent.on_hook("tool:pre", ASK)
    assert await agent.run() == "ok"
    assert tool.inputs == []


async def test_nobody_answering_in_time_takes_the_default() -> None:
    tool = echo()

    class Silence:
        async def request_approval(self, *_: Any) -> str:
            await asyncio.Event().wait()
            return "Deny"

    agent = await make_agent(call(use("echo", "a")), say("ok"), tools=[tool], approvals=Silence())
    agent.on_hook("tool:pre", ASK.model_copy(update={"approval_timeout": 0, "approval_default": "allow"}))
    assert await soon(agent.session.execute("go")) == "ok"
    assert tool.inputs == [{}]


async def test_where_nobody_can_be_asked_the_tool_is_not_run() -> None:
    tool = echo()
    agent = await make_agent(call(use("echo", "a")), say("ok"), tools=[tool])
    agent.on_hook("tool:pre", ASK)
    assert await agent.run() == "ok"
    assert tool.inputs == []


@pytest.mark.parametrize("event", POINTS)
async def test_a_hook_that_fails_changes_nothing(event: str) -> None:
    agent = await _agent()

    async def fails(_event: str, _data: dict[str, Any]) -> HookResult:
        raise RuntimeError("a bug in the hook")

    agent.hooks.register(event, fails)
    assert await agent.run() == "ok"
    assert _results(await agent.history()) == ["one", "two"]


@pytest.mark.parametrize(
    "nonsense", [None, "deny", {"action": "deny"}, 0, object()], ids=["none", "word", "dict", "zero", "object"]
)
@pytest.mark.parametrize("event", POINTS)
async def test_a_hook_that_returns_nonsense_changes_nothing(event: str, nonsense: Any) -> None:
    agent = await _agent()

    async def babbles(_event: str, _data: dict[str, Any]) -> Any:
        return nonsense

    agent.hooks.register(event, babbles)
    assert await agent.run() == "ok"
    assert _results(await agent.history()) == ["one", "two"]


@pytest.mark.parametrize("event", POINTS)
async def test_a_display_that_fails_does_not_end_the_run(event: str) -> None:
    class Broken:
        def show_message(self, *_: Any) -> None:
            raise ConnectionError("Slack is away")

    agent = await _agent(display=Broken())
    agent.on_hook(event, HookResult(user_message="look"))
    assert await agent.run() == "ok"
    assert _results(await agent.history()) == ["one", "two"]


@pytest.mark.parametrize("event", ["provider:request", "tool:pre", "tool:post"])
async def test_an_injection_over_the_size_limit_is_left_out_and_the_run_goes_on(event: str) -> None:
    agent = await _agent(plan={"injection_size_limit": 5})
    agent.on_hook(event, HookResult(action="inject_context", context_injection="far too long"))
    assert await agent.run() == "ok"
    assert "far too long" not in str(await agent.history())


@pytest.mark.parametrize("event", POINTS)
async def test_a_message_of_a_hook_is_shown(event: str) -> None:
    shown: list[tuple[Any, ...]] = []

    class Display:
        def show_message(self, *message: Any) -> None:
            shown.append(message)

    agent = await _agent(display=Display())
    agent.on_hook(event, HookResult(user_message="look", user_message_level="warning", user_message_source="guard"))
    await agent.run()
    assert shown[0] == ("look", "warning", "guard")
