"""Hooks deny, modify, inject, ask and show at each point of the loop, and the history stays valid."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from agents import Agent, ScriptedProvider, ScriptedTool, call, echo, faults, make_agent, raising, say, told, use
from structlog.testing import capture_logs

from orchestrator_interactive.kernel import AmplifierSession, HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.errors import ApprovalTimeoutError
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock
from orchestrator_interactive.testing import MockApprovalSystem, MockDisplaySystem

POINTS = ["prompt:submit", "provider:request", "provider:response", "tool:pre", "tool:post"]
# Events after the fact: a hook can no longer deny anything.
REPORTS = ["execution:start", "injection:applied", "execution:end", "orchestrator:complete"]
DENY = HookResult(action="deny", reason="not here")
ASK = HookResult(action="ask_user", approval_prompt="May it?", approval_options=["Allow", "Deny"], approval_timeout=9)
at_every_point = pytest.mark.parametrize("event", POINTS)


def inject(text: str = "remember", **more: Any) -> HookResult:
    return HookResult(action="inject_context", context_injection=text, **more)


def modify(**data: Any) -> HookResult:
    return HookResult(action="modify", data=data)


async def _agent(tool: Any = None, **more: Any) -> Agent:
    batch = call(use("echo", "a", text="one"), use("echo", "b", text="two"))
    return await make_agent(batch, say("ok"), tools=[tool or echo()], **more)


async def _results(agent: Agent) -> list[str]:
    return [text for role, text in await agent.told() if role == "tool"]


def _request(agent: Agent, index: int) -> list[tuple[str, str]]:
    return told(agent.provider.sent(index))


class TestDeny:
    @pytest.mark.parametrize("event", POINTS[:3])
    async def test_a_denied_step_ends_the_run_and_says_why(self, event: str) -> None:
        agent = await _agent()
        end = agent.on_hook(event, DENY)
        assert await agent.run() == "Operation denied: not here"
        assert agent.complete()["status"] == "incomplete"
        assert await agent.told() == ([] if event == "prompt:submit" else [("user", "go")])
        end()
        agent.provider.drop_the_rest()
        agent.provider.add(say("fine"))
        assert await agent.run("again") == "fine"

    @pytest.mark.parametrize(("event", "runs"), [("tool:pre", 0), ("tool:post", 2)])
    async def test_a_denied_tool_is_not_run_and_a_denied_result_is_withheld(self, event: str, runs: int) -> None:
        agent = await _agent(tool := echo())
        agent.on_hook(event, DENY)
        assert await agent.run() == "ok"
        assert len(tool.inputs) == len(agent.progress.of("tool:start")) == runs
        assert all("not here" in text and "one" not in text for text in await _results(agent))

    @pytest.mark.parametrize("action", ["deny", "ask_user"])
    @pytest.mark.parametrize("event", REPORTS)
    async def test_what_has_happened_cannot_be_denied(self, event: str, action: Any) -> None:
        agent = await _agent()
        agent.on_hook(event, HookResult(action=action, reason="no", approval_prompt="?"))
        agent.inject("and this")
        with capture_logs() as logs:
            assert await agent.run() == "ok"
        assert {entry["hook_event"] for entry in logs if entry["event"] == "hook.denial_ignored"} == {event}


class TestModify:
    async def test_modified_messages_are_in_the_request_and_not_in_the_history(self) -> None:
        agent = await _agent()
        agent.on_hook("provider:request", modify(messages=[{"role": "user", "content": "instead"}]))
        agent.on_hook("provider:request", inject(ephemeral=True))
        await agent.run("secret")
        assert _request(agent, 0) == [("user", "instead"), ("system", "remember")]
        assert (await agent.told())[0] == ("user", "secret")

    async def test_a_modified_prompt_is_the_one_that_the_model_reads(self) -> None:
        agent = await _agent()
        agent.on_hook("prompt:submit", modify(prompt="better"))
        await agent.run("worse")
        assert _request(agent, 0) == [("user", "better")]

    async def test_a_modified_model_is_the_one_that_is_asked(self) -> None:
        agent = await _agent()
        agent.on_hook("provider:request", modify(model="another"))
        await agent.run()
        assert agent.provider.requests[0].model == "another"

    async def test_a_modified_tool_name_is_refused_and_logged(self) -> None:
        agent = await _agent(tool := echo())
        agent.on_hook("tool:pre", modify(tool_name="another"))
        with capture_logs() as logs:
            assert await agent.run() == "ok"
        assert len(tool.inputs) == 2
        refused = [each for each in logs if each["event"] == "hook.modification_refused"]
        assert [(each["part"], each["value"]) for each in refused] == [("tool_name", "another")] * 2

    async def test_a_modified_response_is_the_answer(self) -> None:
        agent = await _agent()
        agent.on_hook("provider:response", modify(response=ChatResponse(content=[TextBlock(text="instead")])))
        assert await agent.run() == "instead"
        assert (await agent.told())[-1] == ("assistant", "instead")

    @pytest.mark.parametrize(
        "beside", [HookResult(), ASK, inject("much too large")], ids=["alone", "question", "refused injection"]
    )
    async def test_a_modified_input_is_the_one_the_tool_gets(self, beside: HookResult) -> None:
        plan = {"injection_size_limit": 10}
        agent = await _agent(tool := echo(), approvals=MockApprovalSystem(), plan=plan)
        agent.on_hook("tool:pre", modify(tool_input={"text": "better"}))
        agent.on_hook("tool:pre", beside)
        await agent.run()
        assert tool.inputs == [{"text": "better"}] * 2
        assert agent.progress.of("tool:start")[0]["args"] == {"text": "better"}

    @pytest.mark.parametrize(
        ("result", "text"),
        [
            (ToolResult(output="redacted"), "redacted"),
            ("redacted", "redacted"),
            ({"success": False, "error": {"message": "not quite"}}, "not quite"),
            ({"rows": 3}, '{"rows": 3}'),
        ],
    )
    @pytest.mark.parametrize("event", ["tool:post", "tool:error"])
    async def test_a_modified_result_is_the_one_the_model_reads(self, event: str, result: Any, text: str) -> None:
        tool = echo() if event == "tool:post" else raising(OSError("secret path"), "echo")
        agent = await _agent(tool)
        agent.on_hook(event, modify(tool_result=result))
        await agent.run()
        assert await _results(agent) == [text, text]
        assert [sent for role, sent in _request(agent, 1) if role == "tool"] == [text, text]

    @at_every_point
    async def test_a_modification_of_nothing_known_changes_nothing(self, event: str) -> None:
        agent = await _agent()
        agent.on_hook(event, modify(note="seen"))
        agent.on_hook(event, HookResult(action="modify"))
        assert await agent.run() == "ok"
        assert await _results(agent) == ["one", "two"]

    @pytest.mark.parametrize(
        ("event", "part", "invalid"),
        [
            ("prompt:submit", "prompt", ["not", "text"]),
            ("provider:request", "model", 7),
            ("provider:response", "response", {"content": "not blocks"}),
            ("provider:response", "response", None),
            ("tool:pre", "tool_input", "not an object"),
            ("tool:post", "tool_result", {"success": "perhaps"}),
            ("tool:post", "tool_result", 7),
            ("provider:request", "messages", "not rows"),
            *(
                ("provider:request", "messages", [{"role": "user", "content": "fine"}, row])
                for row in (
                    {"content": "without a role"},
                    {"role": "banana", "content": "x"},
                    {"role": "user", "content": 5},
                    {"role": "user", "content": [{"type": "nonsense"}]},
                    {"role": "user", "content": [{"text": "no type"}]},
                    {"role": "user", "content": [{"type": "text"}]},
                    {"role": "assistant", "content": "x", "tool_calls": [{"name": "no id"}]},
                    {"role": "assistant", "content": "x", "tool_calls": "nonsense"},
                    "no row",
                    None,
                )
            ),
        ],
        ids=repr,
    )
    async def test_a_modification_of_the_wrong_form_is_logged_and_ignored(
        self, event: str, part: str, invalid: Any
    ) -> None:
        agent = await _agent()
        agent.on_hook(event, modify(**{part: invalid}))
        with capture_logs() as logs:
            assert await agent.run() == "ok"
        assert part in {entry.get("part") for entry in logs if entry["event"] == "hook.modification_invalid"}
        assert _request(agent, 0) == [("user", "go")]
        assert await _results(agent) == ["one", "two"]

    async def test_modified_rows_whose_calls_and_results_do_not_match_are_repaired(self) -> None:
        agent = await make_agent(say("ok"))
        rows = [{"role": "tool", "tool_call_id": "gone", "content": "x"}, {"role": "user", "content": "y"}]
        agent.on_hook("provider:request", modify(messages=rows))
        assert await agent.run() == "ok"
        assert _request(agent, 0) == [("user", "y")]

    async def test_data_that_a_hook_changes_in_place_without_a_modification_stays_as_it_was(self) -> None:
        agent = await _agent(tool := echo())

        def change(data: dict[str, Any]) -> None:
            data["messages"][0]["content"] = "changed"
            data["messages"].clear()

        agent.on_hook("provider:request", change)
        agent.on_hook("tool:pre", lambda data: data["tool_input"].clear())
        await agent.run()
        assert _request(agent, 1)[0] == (await agent.told())[0] == ("user", "go")
        assert tool.inputs == [{"text": "one"}, {"text": "two"}]
        assert (await agent.history())[1]["content"][0]["input"] == {"text": "one"}

    @pytest.mark.parametrize("in_place", [True, False])
    @pytest.mark.parametrize("first", [0, 1])
    async def test_redacted_rows_are_redacted_in_the_requests_and_whole_in_the_history(
        self, first: int, *, in_place: bool
    ) -> None:
        agent = await _agent()

        def redact(data: dict[str, Any]) -> HookResult:
            if len(agent.provider.requests) < first:
                return HookResult()
            rows = data["messages"] if in_place else [dict(row) for row in data["messages"]]
            rows[0]["content"] = "***"
            return modify(messages=rows)

        agent.on_hook("provider:request", redact)
        await agent.run("my secret")
        expected = ["my secret"] * first + ["***"] * (2 - first)
        assert [_request(agent, i)[0][1] for i in range(2)] == expected
        assert (await agent.told())[0] == ("user", "my secret")


class TestInject:
    @pytest.mark.parametrize("role", ["system", "user", "assistant"])
    @at_every_point
    async def test_a_lasting_injection_is_in_the_history_and_in_later_requests(self, event: str, role: Any) -> None:
        agent = await _agent()

        async def linter(_event: str, _data: dict[str, Any]) -> HookResult:
            return inject(context_injection_role=role)

        agent.hooks.register(event, linter, name="linter")
        assert await agent.run() == "ok"
        injected = [row for row in await agent.history() if (row.get("metadata") or {}).get("hook_name")]
        assert {(row["role"], row["metadata"]["hook_name"]) for row in injected} == {(role, "linter")}
        assert "remember" in str(await agent.history())
        assert "remember" in str(_request(agent, 1))
        assert faults(await agent.history()) == []
        if event == "provider:request":
            assert "remember" in str(_request(agent, 0))

    async def test_every_run_has_its_own_injection_budget(self) -> None:
        agent = await make_agent(say("one"), say("two"), plan={"injection_budget_per_turn": 2})
        agent.on_hook("prompt:submit", inject())
        with capture_logs() as logs:
            await agent.run()
            await agent.run()
        assert not [entry for entry in logs if "budget" in str(entry)]

    @pytest.mark.parametrize("event", REPORTS)
    async def test_a_hook_may_inject_when_something_has_happened(self, event: str) -> None:
        agent = await _agent()
        agent.on_hook(event, inject())
        agent.inject("and this")
        assert await agent.run() == "ok"
        assert ("system", "remember") in await agent.told()

    async def test_an_injection_about_a_failed_provider_is_for_the_next_run(self) -> None:
        async def fails(*_: Any) -> Any:
            raise RuntimeError("down")

        agent = await make_agent(fails, say("better"))
        agent.on_hook("provider:error", inject())
        with pytest.raises(RuntimeError, match="down"):
            await agent.run()
        await agent.run()
        assert ("system", "remember") in _request(agent, -1)

    @pytest.mark.parametrize("ephemeral", [False, True])
    @pytest.mark.parametrize("event", ["tool:pre", "tool:post", "tool:error"])
    async def test_an_injection_of_a_tools_hook_waits_for_all_results(self, event: str, *, ephemeral: bool) -> None:
        names = ["echo", "echo", "nope", "break", "echo"]
        calls = call(*(use(name, str(i), text=str(i)) for i, name in enumerate(names)))
        agent = await make_agent(calls, say("ok"), tools=[echo(), raising(OSError("broken"))])
        agent.on_hook("tool:pre", lambda data: DENY if data["tool_call_id"] == "1" else None)
        agent.on_hook(event, inject(ephemeral=ephemeral))
        assert await agent.run() == "ok"
        assert [role for role, _ in _request(agent, 1)][:7] == ["user", "assistant"] + ["tool"] * 5
        assert "remember" in str(_request(agent, 1)[7:])
        assert faults(await agent.history()) == []

    async def test_an_injection_that_a_tool_makes_itself_follows_all_results(self) -> None:
        async def scans(_input: dict[str, Any]) -> str:
            result = await agent.hooks.emit("scan:done", {})
            await agent.coordinator.process_hook_result(result, "scan:done", result.hook_name)
            return "scanned"

        agent = await _agent(ScriptedTool("echo", scans))
        agent.on_hook("scan:done", inject("2 problems"))
        assert await agent.run() == "ok"
        assert _request(agent, 1)[2:] == [("tool", "scanned")] * 2 + [("system", "2 problems")] * 2

    async def test_an_injection_of_a_tools_hook_survives_a_stop(self) -> None:
        agent = await _agent()
        agent.on_hook("tool:post", inject())
        agent.progress.act_on("tool:end", agent.stop)
        await agent.run()
        assert ("system", "remember") in await agent.told()
        assert faults(await agent.history()) == []

    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "tool:pre", "tool:post"])
    async def test_an_ephemeral_injection_is_in_the_next_request_only(self, event: str) -> None:
        agent = await make_agent(call(use("echo", "a")), say("ok"), say("next"), tools=[echo()])
        once = iter([inject(ephemeral=True)])
        agent.on_hook(event, lambda _data: next(once, None))
        await agent.run()
        await agent.run("next")
        requests = ["remember" in str(_request(agent, i)) for i in range(3)]
        assert requests == ([False, True, False] if event.startswith("tool") else [True, False, False])
        assert "remember" not in str(await agent.history())

    @pytest.mark.parametrize("event", ["provider:response", "execution:end", "orchestrator:complete"])
    async def test_an_ephemeral_injection_at_the_end_of_a_run_is_in_the_first_request_of_the_next(
        self, event: str
    ) -> None:
        agent = await make_agent(say("one"), say("two"), say("three"))
        once = iter([inject(ephemeral=True)])
        agent.on_hook(event, lambda _data: next(once, None))
        for _ in range(3):
            await agent.run()
        assert ["remember" in str(_request(agent, i)) for i in range(3)] == [False, True, False]
        assert "remember" not in str(await agent.history())

    @pytest.mark.parametrize("obstacle", ["denial", "stop", "error"])
    async def test_an_ephemeral_injection_waits_until_a_request_is_sent(self, obstacle: str) -> None:
        agent = await make_agent(say("one"), say("two"))
        once, obstacles = iter([inject(ephemeral=True)]), iter([obstacle])
        agent.on_hook("execution:start", lambda _data: next(once, None))
        read = agent.context.get_messages_for_request

        async def fail_once(**given: Any) -> list[dict[str, Any]]:
            if next(obstacles, None):
                raise OSError("disk full")
            return await read(**given)

        def hinder_once(_data: dict[str, Any]) -> HookResult | None:
            match next(obstacles, None):
                case "denial":
                    return HookResult(action="deny", reason="not now")
                case "stop":
                    agent.stop()
            return None

        if obstacle == "error":
            agent.context.get_messages_for_request = fail_once
        else:
            agent.on_hook("provider:request", hinder_once)
        with suppress(OSError):
            await agent.run()
        assert agent.provider.requests == []
        for _ in range(2):
            await agent.run()
        assert ["remember" in str(_request(agent, i)) for i in range(2)] == [True, False]

    @pytest.mark.parametrize("is_resumed", [False, True])
    async def test_an_ephemeral_injection_at_the_start_of_a_session_is_in_its_first_request(
        self, *, is_resumed: bool
    ) -> None:
        plan = {"session": {"orchestrator": "loop-interactive", "context": "context-simple"}}
        session, provider = AmplifierSession(plan, is_resumed=is_resumed), ScriptedProvider(say("one"), say("two"))

        async def greet(_event: str, _data: dict[str, Any]) -> HookResult:
            return inject(ephemeral=True)

        session.coordinator.hooks.register("session:resume" if is_resumed else "session:start", greet)
        async with session:
            await session.coordinator.mount("providers", provider)
            for _ in range(2):
                await session.execute("go")
        assert ["remember" in str(told(provider.sent(i))) for i in range(2)] == [True, False]

    @pytest.mark.parametrize("event", ["provider:request", "tool:post"])
    async def test_an_ephemeral_injection_can_end_the_last_tool_result(self, event: str) -> None:
        agent = await make_agent(call(use("echo", "a", text="one")), say("ok"), tools=[echo()])
        agent.on_hook(event, inject(ephemeral=True, append_to_last_tool_result=True))
        await agent.run()
        if event == "provider:request":
            assert _request(agent, 0) == [("user", "go"), ("system", "remember")], "without a result it comes last"
        assert _request(agent, 1)[-1] == ("tool", "one\n\nremember")
        assert await _results(agent) == ["one"]

    async def test_one_hook_result_may_have_several_kinds_of_injection(self) -> None:
        agent = await make_agent(call(use("echo", "a", text="one")), say("ok"), tools=[echo()])
        injections = [
            {"content": "lasts", "role": "user"},
            {"content": "passes", "ephemeral": True},
            {"content": "ends it", "ephemeral": True, "append_to_last_tool_result": True},
        ]
        agent.on_hook("tool:post", HookResult(action="inject_context", context_injections=injections))
        await agent.run()
        assert ("user", "lasts") in await agent.told()
        assert {"passes", "ends it"} <= {text for _, text in _request(agent, 1)}
        assert "passes" not in str(await agent.history())

    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "tool:pre", "tool:post"])
    @pytest.mark.parametrize("ephemeral", [False, True])
    async def test_an_injection_over_the_size_limit_is_left_out_and_others_stay(
        self, event: str, *, ephemeral: bool
    ) -> None:
        agent = await _agent(plan={"injection_size_limit": 10})
        for text in ("small", "much too large", "tiny"):
            agent.on_hook(event, inject(text, ephemeral=ephemeral))
        assert await agent.run() == "ok"
        requests = str([_request(agent, 0), _request(agent, 1)])
        assert [text in requests for text in ("small", "much too large", "tiny")] == [True, False, True]
        assert "too large" not in str(await agent.history())


class TestAsk:
    @pytest.mark.parametrize("outcome", ["Allow", "Allow once", "Allow always"])
    @at_every_point
    async def test_a_step_that_a_person_allows_is_done(self, event: str, outcome: str) -> None:
        approvals = MockApprovalSystem(outcome)
        agent = await _agent(approvals=approvals)
        agent.on_hook(event, ASK)
        assert await agent.run() == "ok"
        assert approvals.requests[0] == ("May it?", ["Allow", "Deny"], 9, "deny")
        assert await _results(agent) == ["one", "two"]

    @pytest.mark.parametrize("outcome", ["Deny", ApprovalTimeoutError, TimeoutError, ConnectionError, None])
    @at_every_point
    async def test_a_step_that_no_person_allows_is_not_done(self, event: str, outcome: Any) -> None:
        class Answers:
            async def request_approval(self, *_: Any) -> str:
                if isinstance(outcome, type):
                    raise outcome
                return str(outcome)

        agent = await _agent(tool := echo(), approvals=Answers() if outcome else None)
        agent.on_hook(event, ASK)
        answered = await agent.run()
        assert answered == "ok" if event.startswith("tool") else "May it?" in answered
        assert len(tool.inputs) == (2 if event == "tool:post" else 0)
        assert "one" not in str(await _results(agent))
        assert faults(await agent.history()) == []

    @pytest.mark.parametrize("answer", ["Allow", "Deny"])
    async def test_an_injection_beside_a_question_is_kept_whatever_the_answer(self, answer: str) -> None:
        agent = await _agent(approvals=MockApprovalSystem(answer))
        agent.on_hook("tool:pre", inject("3 issues"))
        agent.on_hook("tool:pre", ASK)
        await agent.run()
        assert [role for role, _ in _request(agent, 1)][2:] == ["tool", "tool", "system", "system"]


class TestShow:
    @pytest.mark.parametrize("event", ["context:pre_compact", "cancel:completed", "session:end", "execution:end"])
    async def test_a_user_message_of_any_event_is_shown(self, event: str) -> None:
        display = MockDisplaySystem()
        agent = await make_agent(call(use("echo", "a", text="x" * 9_000)), say("ok"), tools=[echo()], display=display)
        agent.on_hook(event, HookResult(user_message="look", user_message_source="guard"))
        if event == "context:pre_compact":
            await agent.run()
            await agent.coordinator.get("context").get_messages_for_request(token_budget=1_000)
        elif event == "cancel:completed":
            agent.progress.act_on("tool:end", agent.stop)
            await agent.run()
        else:
            await agent.run()
            await agent.session.cleanup()
        assert display.messages == [("look", "info", "guard")]

    async def test_a_message_about_a_module_that_could_not_be_mounted_is_shown(self) -> None:
        display = MockDisplaySystem()
        plan = {
            "session": {"orchestrator": "loop-interactive", "context": "context-simple"},
            "providers": ["provider-demo"],
            "tools": ["tool-imaginary"],
        }
        session = AmplifierSession(plan, display_system=display)

        async def tell(_event: str, data: dict[str, Any]) -> HookResult:
            return HookResult(user_message=f"Without {data['module_id']}.", user_message_level="warning")

        session.coordinator.hooks.register("module:load_failed", tell, name="tell")
        async with session:
            assert display.messages == [("Without tool-imaginary.", "warning", "tell")]

    async def test_a_question_precedes_the_message_of_the_same_result(self) -> None:
        """The document's order: injection, approval, user message."""
        order: list[str] = []
        display, approvals = MockDisplaySystem(), MockApprovalSystem()
        agent = await make_agent(
            call(use("echo", "a")), say("ok"), tools=[echo()], approvals=approvals, display=display
        )
        agent.on_hook("approval:granted", lambda _data: order.append(f"{len(display.messages)} shown"))
        agent.on_hook("tool:pre", ASK.model_copy(update={"user_message": "look"}))
        await agent.run()
        assert order == ["0 shown"]
        assert len(display.messages) == 1

    @at_every_point
    async def test_a_message_of_a_hook_is_shown(self, event: str) -> None:
        display = MockDisplaySystem()
        agent = await _agent(display=display)
        agent.on_hook(event, HookResult(user_message="look", user_message_level="warning", user_message_source="guard"))
        await agent.run()
        assert display.messages[0] == ("look", "warning", "guard")

    @at_every_point
    async def test_a_display_that_fails_does_not_end_the_run(self, event: str) -> None:
        class Broken:
            def show_message(self, *_: Any) -> None:
                raise ConnectionError("Slack is away")

        agent = await _agent(display=Broken())
        agent.on_hook(event, HookResult(user_message="look"))
        assert await agent.run() == "ok"
        assert await _results(agent) == ["one", "two"]


class TestFaultyHooks:
    @pytest.mark.parametrize(
        "outcome",
        [RuntimeError, asyncio.CancelledError, "deny", {"action": "deny"}, 0, object()],
        ids=["error", "cancellation", "word", "dict", "zero", "object"],
    )
    @pytest.mark.parametrize("event", [*POINTS, *REPORTS])
    async def test_a_hook_that_fails_or_returns_no_hook_result_changes_nothing(self, event: str, outcome: Any) -> None:
        agent = await _agent()

        def answer(_data: dict[str, Any]) -> Any:
            if isinstance(outcome, type):
                raise outcome
            return outcome

        agent.on_hook(event, answer)
        assert await agent.run() == "ok"
        assert await _results(agent) == ["one", "two"]

    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "tool:pre", "tool:post", "execution:end"])
    async def test_a_hook_that_hangs_times_out(self, event: str) -> None:
        agent = await _agent(plan={"hook_timeout_s": 0.01})

        async def hangs(_event: str, _data: dict[str, Any]) -> HookResult:
            await asyncio.Event().wait()
            return DENY

        agent.hooks.register(event, hangs, name="hangs")
        with capture_logs() as logs:
            assert await agent.run() == "ok"
        timeouts = [entry for entry in logs if entry["event"] == "hook.timeout"]
        assert {(e["hook"], e["hook_event"], e["timeout_s"]) for e in timeouts} == {("hangs", event, 0.01)}
