"""The tables of events and actions of hooks; their effects are tested with the loop."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import orchestrator_interactive
from orchestrator_interactive.kernel import AmplifierSession, HookResult, ToolResult
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import AuthenticationError
from orchestrator_interactive.kernel.contracts.messages import ToolCall
from orchestrator_interactive.kernel.contracts.models import HookAction
from orchestrator_interactive.testing import MockApprovalSystem, MockProvider, MockTool

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

    def __init__(self, *hooks, answers=(CALL, "It is blue."), tool=None):
        self.tool = tool or MockTool("look", return_value="blue")
        self.provider = MockProvider(list(answers))
        self.emitted = []
        plan = {"session": {"orchestrator": "loop-interactive", "context": "context-simple"}}
        self.session = AmplifierSession(plan, approval_system=MockApprovalSystem())
        self.coordinator = self.session.coordinator
        self.coordinator.mount("providers", self.provider)
        self.coordinator.mount("tools", self.tool)
        for event, hook in hooks:
            self.register(event, hook)

    def register(self, event, hook):
        async def once(event, data):
            self.emitted.append((event, data))
            return hook if len(self.emitted) == 1 else HookResult()

        self.coordinator.hooks.register(event, hook if callable(hook) else once)

    async def run(self):
        try:
            async with self.session:
                self.answer = await self.session.execute("Which colour?")
        finally:
            self.history = await self.coordinator.get("context").get_messages()
        return self

    async def inject_message(self, _event, _data):
        self.coordinator.get_capability("orchestrator.inject_message")("And which shape?")

    def sent(self, request=-1):
        """Return the text of each message of a request, or the role of a message without text."""
        messages = self.provider.requests[request].messages
        return [m.content if isinstance(m.content, str) else m.role for m in messages]


async def run(*hooks, **options):
    return await HookedRun(*hooks, **options).run()


def inject(**fields):
    return HookResult(action="inject_context", context_injection="Mind the gap.", **fields)


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


@pytest.mark.parametrize("event", [*AFTERWARDS[:4], *SESSION_EVENTS])
async def test_a_deny_after_the_fact_has_no_effect(event):
    hooked = HookedRun((event, DENY))
    hooked.register("tool:pre", hooked.inject_message)
    assert (await hooked.run()).answer == "It is blue."


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
    hooked.register("tool:pre", hooked.inject_message)
    *_, message, injection = (await hooked.run()).sent()
    assert "And which shape?" in message
    assert injection == "Mind the gap."


@pytest.mark.parametrize("result", [inject(), HookResult(action="deny")])
async def test_a_stop_cannot_be_denied(result):
    hooked = HookedRun(("cancel:requested", result))

    async def stop(_event, _data):
        hooked.coordinator.cancellation.request_graceful()

    hooked.register("provider:response", stop)
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
