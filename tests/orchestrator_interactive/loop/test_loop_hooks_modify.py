"""What hooks make of rows, inputs and results: as they say, all of what they say, and nothing that they do not say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from agents import call, echo, faults, make_agent, say, told, use
from structlog.testing import capture_logs

from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.testing import MockApprovalSystem

if TYPE_CHECKING:
    from agents import Agent

ASK = HookResult(action="ask_user", approval_prompt="May it?")


async def _agent(tool: Any = None, **more: Any) -> Agent:
    return await make_agent(call(use("echo", "a", text="one")), say("ok"), tools=[tool or echo()], **more)


async def test_rows_that_a_hook_changes_in_place_without_saying_so_stay_as_they_were() -> None:
    agent = await _agent()

    async def rummages(_event: str, data: dict[str, Any]) -> None:
        data["messages"][0]["content"] = "changed"
        data["messages"].clear()

    agent.hooks.register("provider:request", rummages)
    assert await agent.run() == "ok"
    assert told(agent.provider.sent(1))[0] == ("user", "go")
    assert (await agent.told())[0] == ("user", "go")


async def test_an_input_that_a_hook_changes_in_place_without_saying_so_stays_as_it_was() -> None:
    tool = echo()
    agent = await _agent(tool)

    async def rummages(_event: str, data: dict[str, Any]) -> None:
        data["tool_input"].clear()

    agent.hooks.register("tool:pre", rummages)
    await agent.run()
    assert tool.inputs == [{"text": "one"}]
    assert (await agent.history())[1]["content"][0]["input"] == {"text": "one"}


@pytest.mark.parametrize("in_place", [True, False])
async def test_rows_that_a_hook_redacts_are_redacted_in_every_request_and_whole_in_the_history(
    *, in_place: bool
) -> None:
    agent = await _agent()

    async def redacts(_event: str, data: dict[str, Any]) -> HookResult:
        rows = data["messages"] if in_place else [dict(row) for row in data["messages"]]
        for row in rows:
            if row["content"] == "my secret":
                row["content"] = "***"
        return HookResult(action="modify", data={"messages": rows})

    agent.hooks.register("provider:request", redacts)
    await agent.run("my secret")
    assert [told(agent.provider.sent(i))[0] for i in range(2)] == [("user", "***")] * 2
    assert (await agent.told())[0] == ("user", "my secret")


async def test_rows_that_a_hook_begins_to_redact_later_are_redacted_from_there_on() -> None:
    agent = await _agent()
    requests: list[int] = []

    async def redacts_later(_event: str, data: dict[str, Any]) -> HookResult:
        requests.append(len(requests))
        if len(requests) == 1:
            return HookResult()
        data["messages"][0]["content"] = "***"
        return HookResult(action="modify", data=data)

    agent.hooks.register("provider:request", redacts_later)
    await agent.run("my secret")
    assert [told(agent.provider.sent(i))[0][1] for i in range(2)] == ["my secret", "***"]


@pytest.mark.parametrize(
    "row",
    [
        {"role": "banana", "content": "x"},
        {"role": "user", "content": 5},
        {"role": "user", "content": [{"type": "nonsense"}]},
        {"role": "user", "content": [{"text": "no type"}]},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "assistant", "content": "x", "tool_calls": [{"name": "no id"}]},
        {"role": "assistant", "content": "x", "tool_calls": "nonsense"},
        "no row",
        None,
    ],
    ids=repr,
)
async def test_modified_rows_of_which_no_request_can_be_made_are_logged_and_ignored(row: Any) -> None:
    agent = await _agent()
    rows = [{"role": "user", "content": "fine"}, row]
    agent.on_hook("provider:request", HookResult(action="modify", data={"messages": rows}))
    with capture_logs() as logs:
        assert await agent.run() == "ok"
    ignored = [entry.get("part") for entry in logs if entry["event"] == "hook.modification_invalid"]
    assert ignored.count("messages") == 2
    assert told(agent.provider.sent(0)) == [("user", "go")]


async def test_modified_rows_whose_calls_and_results_do_not_match_are_repaired() -> None:
    agent = await make_agent(say("ok"))
    rows = [{"role": "tool", "tool_call_id": "gone", "content": "x"}, {"role": "user", "content": "y"}]
    agent.on_hook("provider:request", HookResult(action="modify", data={"messages": rows}))
    assert await agent.run() == "ok"
    assert told(agent.provider.sent(0)) == [("user", "y")]


async def test_data_of_its_own_form_in_the_place_of_a_result_is_its_output() -> None:
    agent = await _agent()
    agent.on_hook("tool:post", HookResult(action="modify", data={"tool_result": {"rows": 3}}))
    await agent.run()
    assert ("tool", '{"rows": 3}') in await agent.told()


async def test_a_modification_holds_beside_a_question() -> None:
    tool = echo()
    agent = await _agent(tool, approvals=MockApprovalSystem())
    agent.on_hook("tool:pre", HookResult(action="modify", data={"tool_input": {"text": "better"}}))
    agent.on_hook("tool:pre", ASK)
    await agent.run()
    assert tool.inputs == [{"text": "better"}]


@pytest.mark.parametrize("answer", ["Allow", "Deny"])
async def test_an_injection_beside_a_question_about_a_tool_is_kept_whatever_the_answer(answer: str) -> None:
    agent = await _agent(approvals=MockApprovalSystem(answer))
    agent.on_hook("tool:pre", HookResult(action="inject_context", context_injection="3 issues"))
    agent.on_hook("tool:pre", ASK)
    await agent.run()
    assert [role for role, _ in told(agent.provider.sent(1))] == ["user", "assistant", "tool", "system"]
    assert faults(await agent.history()) == []


async def test_of_two_gates_each_has_its_question_asked() -> None:
    approvals = MockApprovalSystem()
    agent = await _agent(approvals=approvals)
    for prompt in ("Network?", "Delete?"):
        agent.on_hook("tool:pre", ASK.model_copy(update={"approval_prompt": prompt}))
    await agent.run()
    assert [request.prompt for request in approvals.requests] == ["Network?\nDelete?"]


@pytest.mark.parametrize("ephemeral", [True, False])
@pytest.mark.parametrize(
    "event", ["execution:start", "prompt:submit", "provider:request", "provider:response", "tool:pre", "tool:post"]
)
async def test_a_remark_in_the_models_name_does_not_take_its_turn(event: str, *, ephemeral: bool) -> None:
    agent = await _agent()
    remark = HookResult(
        action="inject_context",
        context_injection="I should be careful.",
        context_injection_role="assistant",
        ephemeral=ephemeral,
    )
    agent.on_hook(event, remark)
    assert await agent.run() == "ok"
    assert "I should be careful." in str([agent.provider.sent(0), agent.provider.sent(1)])


async def test_one_result_may_carry_a_lasting_a_passing_and_an_appended_injection() -> None:
    agent = await _agent()
    injections = [
        {"content": "lasts", "role": "user"},
        {"content": "passes", "ephemeral": True},
        {"content": "ends it", "ephemeral": True, "append_to_last_tool_result": True},
    ]
    agent.on_hook("tool:post", HookResult(action="inject_context", context_injections=injections))
    await agent.run()
    assert ("user", "lasts") in await agent.told()
    assert {"passes", "ends it"} <= {text for _, text in told(agent.provider.sent(1))}
    assert "passes" not in str(await agent.history())
