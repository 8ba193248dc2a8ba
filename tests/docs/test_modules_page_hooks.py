"""The effects of hooks, for each cell of the page's tables."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

import orchestrator_interactive
from orchestrator_interactive.kernel import AmplifierSession, HookResult, ToolResult
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import AuthenticationError
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock, ToolCall
from orchestrator_interactive.kernel.contracts.models import HookAction
from orchestrator_interactive.testing import MockApprovalSystem, MockDisplaySystem, MockProvider, MockTool

CALL = ToolCall(id="1", name="look", arguments={"at": "the sky"})
AROUND_THE_MODEL = ("prompt:submit", "provider:request", "provider:response")
TOOL_EVENTS = ("tool:pre", "tool:post", "tool:error")
AFTERWARDS = ("execution:start", "execution:end", "orchestrator:complete", "injection:applied", "cancel:requested")
SESSION_EVENTS = ("session:start", "session:end")
NOTIFICATIONS = ("approval:required", "approval:granted")
EVENT_NAME = r"`([a-z]+:[a-z_]+)`"
DENY = HookResult(action="deny", reason="not today.")
FAILED = MockTool("look", return_value=ToolResult(success=False, output="blue"))


class HookedRun:
    """A run with one tool call and hooks: pairs of an event and a handler, or a `HookResult` for the first event."""

    def __init__(self, *hooks, answers=(CALL, "It is blue."), tool=None, approvals=None, policy=None):
        self.hooks = hooks
        self.tool = tool or MockTool("look", return_value="blue")
        self.approvals = approvals or MockApprovalSystem()
        self.display = MockDisplaySystem()
        self.provider = MockProvider(list(answers))
        self.emitted = []
        plan = {"session": {"orchestrator": "loop-interactive", "context": "context-simple", **(policy or {})}}
        self.session = AmplifierSession(plan, approval_system=self.approvals, display_system=self.display)

    async def run(self):
        coordinator = self.session.coordinator
        coordinator.mount("providers", self.provider)
        coordinator.mount("tools", self.tool)
        for event, hook in self.hooks:
            coordinator.hooks.register(event, hook if callable(hook) else self._once(hook))
        try:
            async with self.session:
                self.answer = await self.session.execute("Which colour?")
        finally:
            self.history = await coordinator.get("context").get_messages()
        return self

    def _once(self, result):
        async def handler(event, data):
            self.emitted.append((event, data))
            return result if len(self.emitted) == 1 else HookResult()

        return handler

    async def inject_message(self, _event, _data):
        self.session.coordinator.get_capability("orchestrator.inject_message")("And which shape?")

    def sent(self, request=-1):
        """Return the text of each message of a request, or the role of a message without text."""
        messages = self.provider.requests[request].messages
        return [m.content if isinstance(m.content, str) else m.role for m in messages]


async def run(*hooks, **options):
    return await HookedRun(*hooks, **options).run()


def inject(**fields):
    return HookResult(action="inject_context", context_injection="Mind the gap.", **fields)


def modify(**data):
    return lambda *_: HookResult(action="modify", data=data)


def test_the_tables_list_all_actions_and_the_tested_events(page):
    assert {row[0].strip("`") for row in page.table("action")} == set(HookAction.__args__)
    listed = {name for row in page.table("event and its data") for name in re.findall(EVENT_NAME, row[0])}
    tested = {*AROUND_THE_MODEL, *TOOL_EVENTS, *AFTERWARDS, *SESSION_EVENTS, *NOTIFICATIONS, "provider:error"}
    assert listed == tested


@pytest.mark.parametrize(
    ("event", "data"),
    [
        ("prompt:submit", {"prompt"}),
        ("provider:request", {"provider", "messages", "model"}),
        ("provider:response", {"provider", "response", "usage"}),
        ("tool:pre", {"tool_name", "tool_input", "tool_call_id"}),
        ("tool:post", {"tool_name", "tool_input", "tool_call_id", "tool_result", "error"}),
    ],
)
async def test_an_event_has_the_data_in_the_table(page, event, data):
    (emitted, *_) = (await run((event, HookResult()))).emitted
    assert (emitted[0], emitted[1].keys()) == (event, {*data, "session_id", "parent_id"})
    (cell,) = [row[0] for row in page.table("event and its data") if f"`{event}`" in row[0]]
    listed = data - {"tool_name", "tool_input", "tool_call_id"} if event == "tool:post" else data
    assert set(re.findall(r"`([a-z_]+)`", cell)) == listed


@pytest.mark.parametrize("event", AROUND_THE_MODEL)
async def test_a_deny_around_the_model_ends_the_run(event):
    assert (await run((event, DENY))).answer == "Operation denied: not today."


async def test_a_deny_before_a_tool_prevents_the_call():
    ended = await run(("tool:pre", DENY))
    assert ended.tool.call_count == 0
    assert ended.sent()[-1] == "Denied: not today."


@pytest.mark.parametrize(("event", "tool"), [("tool:post", None), ("tool:error", FAILED)])
async def test_a_deny_after_a_tool_withholds_its_result(event, tool):
    assert (await run((event, DENY), tool=tool)).sent()[-1] == "The result was withheld: not today."


@pytest.mark.parametrize("event", [*AFTERWARDS[:4], *SESSION_EVENTS])
async def test_a_deny_after_the_fact_has_no_effect(event):
    hooked = HookedRun((event, DENY))
    hooked.hooks = (("tool:pre", hooked.inject_message), *hooked.hooks)
    assert (await hooked.run()).answer == "It is blue."


async def test_modify_changes_the_prompt_the_input_and_the_result():
    ended = await run(
        ("prompt:submit", modify(prompt="Which shape?")),
        ("tool:pre", modify(tool_input={"at": "the sea"})),
        ("tool:post", modify(tool_result=ToolResult(output="round"))),
    )
    assert ended.sent() == ["Which shape?", "assistant", "round"]
    assert ended.tool.last_input == {"at": "the sea"}


async def test_modify_changes_one_request_and_its_model():
    messages = [{"role": "user", "content": "Which shape?"}]
    ended = await run(("provider:request", modify(messages=messages, model="another")(None)))
    assert ended.sent(0) == ["Which shape?"]
    assert [request.model for request in ended.provider.requests] == ["another", None]
    assert ended.history[0]["content"] == "Which colour?"


async def test_modify_changes_the_answer():
    response = ChatResponse(content=[TextBlock(text="It is green.")])
    ended = await run(("provider:response", modify(response=response)), answers=["It is blue."])
    assert ended.answer == "It is green."


@pytest.mark.parametrize(
    ("event", "request_number", "sent"),
    [
        ("prompt:submit", 0, ["Mind the gap.", "Which colour?"]),
        ("provider:request", 0, ["Which colour?", "Mind the gap."]),
        ("provider:response", 1, ["Which colour?", "Mind the gap.", "assistant", "blue"]),
        ("tool:pre", 1, ["Which colour?", "assistant", "blue", "Mind the gap."]),
        ("tool:post", 1, ["Which colour?", "assistant", "blue", "Mind the gap."]),
        ("tool:error", 1, ["Which colour?", "assistant", "blue", "Mind the gap."]),
        ("execution:start", 0, ["Mind the gap.", "Which colour?"]),
        ("session:start", 0, ["Mind the gap.", "Which colour?"]),
    ],
)
async def test_an_injection_has_the_position_in_the_table(event, request_number, sent):
    ended = await run((event, inject()), tool=FAILED if event == "tool:error" else None)
    assert ended.sent(request_number) == sent
    assert [row["role"] for row in ended.history if row["content"] == "Mind the gap."] == ["system"]


@pytest.mark.parametrize("event", ["execution:end", "orchestrator:complete", "session:end"])
async def test_an_injection_at_the_end_is_the_last_row(event):
    assert (await run((event, inject()))).history[-1]["content"] == "Mind the gap."


async def test_an_injection_at_an_injected_message_follows_it():
    hooked = HookedRun(("injection:applied", inject()))
    hooked.hooks = (("tool:pre", hooked.inject_message), *hooked.hooks)
    *_, message, injection = (await hooked.run()).sent()
    assert "And which shape?" in message
    assert injection == "Mind the gap."


@pytest.mark.parametrize("result", [inject(), HookResult(action="deny")])
async def test_a_stop_cannot_be_denied(result):
    hooked = HookedRun(("cancel:requested", result))

    async def stop(_event, _data):
        hooked.session.coordinator.cancellation.request_graceful()

    hooked.hooks = (("provider:response", stop), *hooked.hooks)
    ended = await hooked.run()
    assert ended.answer == ""
    assert ("Mind the gap." in str(ended.history[-1])) is (result.action == "inject_context")


@pytest.mark.parametrize("result", [inject(), HookResult(action="deny")])
async def test_an_error_of_the_provider_cannot_be_denied(result):
    hooked = HookedRun(("provider:error", result), answers=[AuthenticationError("No key.")])
    with pytest.raises(AuthenticationError):
        await hooked.run()
    assert ("Mind the gap." in str(hooked.history[-1])) is (result.action == "inject_context")


@pytest.mark.parametrize("event", NOTIFICATIONS)
async def test_results_of_notifications_are_ignored(event):
    ask = HookResult(action="ask_user", approval_prompt="May it look?")
    ended = await run(("tool:pre", ask), (event, lambda *_: inject()))
    assert ended.tool.call_count == 1
    assert "Mind the gap." not in str(ended.history)


def test_the_page_lists_every_emitted_event(page):
    package = Path(orchestrator_interactive.__file__).parent
    files = [path for path in package.rglob("*.py") if not {"validation", "testing"} & set(path.parts)]
    code = "".join(path.read_text(encoding="utf-8") for path in files)
    emitted = {getattr(events, name) for name in re.findall(r"\bevents\.([A-Z_]+)\b", code) if name != "ALL_EVENTS"}
    assert emitted | {"provider:fallback", "injection:applied"} == set(re.findall(EVENT_NAME, page.text))


@pytest.mark.parametrize("event", ["prompt:submit", "provider:request"])
async def test_an_ephemeral_injection_is_in_the_next_request_only(event):
    ended = await run((event, inject(ephemeral=True)))
    assert ended.sent(0) == ["Which colour?", "Mind the gap."]
    assert "Mind the gap." not in [*ended.sent(1), *(row["content"] for row in ended.history)]


async def test_an_ephemeral_injection_may_be_appended_to_the_last_tool_result():
    ended = await run(("tool:post", inject(ephemeral=True, append_to_last_tool_result=True)))
    assert ended.sent() == ["Which colour?", "assistant", "blue\n\nMind the gap."]
    assert "Mind the gap." not in str(ended.history)


@pytest.mark.parametrize(
    ("answer", "calls"), [("Allow once", 1), ("allow", 1), ("Deny", 0), ("Certainly", 0), ("Disallow", 0)]
)
async def test_an_answer_that_begins_with_allow_approves(answer, calls):
    ask = HookResult(action="ask_user", approval_prompt="May it look?", approval_options=[answer])
    ended = await run(("tool:pre", ask), approvals=MockApprovalSystem(answer))
    assert ended.tool.call_count == calls
    assert [request.prompt for request in ended.approvals.requests] == ["May it look?"]


async def test_without_an_approval_system_a_request_is_denied(plan, make_session):
    session = make_session({**plan, "hooks": []}, MockProvider())
    ask = HookResult(action="ask_user", approval_prompt="May it begin?")
    session.coordinator.hooks.register("prompt:submit", lambda *_: ask)
    async with session:
        assert await session.execute("Begin.") == "Operation denied: No approval system is available: May it begin?"


@pytest.mark.parametrize(
    ("event", "action"),
    [*(("tool:pre", action) for action in HookAction.__args__), *((event, "deny") for event in SESSION_EVENTS)],
)
async def test_any_result_may_have_a_message_for_the_user(event, action):
    fields = {"user_message": "A hook was here.", "context_injection": "Mind the gap.", "data": {}}
    ended = await run((event, HookResult(action=action, **fields)))
    assert [message for message, _, _ in ended.display.messages] == ["A hook was here."]


async def test_the_strongest_action_wins_and_all_injections_and_changes_are_kept():
    ended = await run(
        ("tool:pre", modify(tool_input={"at": "the sea"})),
        ("tool:pre", lambda *_: inject()),
        ("tool:pre", lambda *_: HookResult(action="inject_context", context_injection="Mind the step.")),
    )
    assert ended.tool.last_input == {"at": "the sea"}
    assert ended.sent()[-2:] == ["Mind the gap.", "Mind the step."]


async def test_after_a_deny_no_other_handler_is_called():
    called = []
    ended = await run(("tool:pre", DENY), ("tool:pre", lambda *_: called.append("late")))
    assert (ended.tool.call_count, called) == (0, [])


async def test_a_handler_that_fails_hangs_or_returns_nonsense_counts_as_continue():
    async def hang(_event, _data):
        await asyncio.Event().wait()
        return HookResult(action="deny")

    def fail(_event, _data):
        raise OSError("no disk")

    hooks = [("tool:pre", handler) for handler in (hang, fail, lambda *_: "no", lambda *_: None)]
    assert (await run(*hooks, policy={"hook_timeout_s": 0.01})).answer == "It is blue."
