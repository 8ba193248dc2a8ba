"""What the page says of hooks, cell by cell of its tables."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import orchestrator_interactive
from orchestrator_interactive.kernel import AmplifierSession, HookResult, ToolResult
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import AuthenticationError
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock, ToolCall
from orchestrator_interactive.kernel.contracts.models import HookAction
from orchestrator_interactive.testing import MockApprovalSystem, MockDisplaySystem, MockProvider, MockTool

CALL = ToolCall(id="1", name="look", arguments={"at": "the sky"})
ENDS_THE_RUN = ("prompt:submit", "provider:request", "provider:response")
AFTER_THE_FACT = ("execution:start", "execution:end", "orchestrator:complete", "injection:applied", "cancel:requested")
OF_THE_SESSION = ("session:start", "session:end")
ONLY_TOLD = ("approval:required", "approval:granted")


@dataclass
class Tried:
    """A run with one tool call in it, and hooks that want something."""

    answers: list[Any] = field(default_factory=lambda: [CALL, "It is blue."])
    tool: MockTool = field(default_factory=lambda: MockTool("look", return_value="blue"))
    approvals: MockApprovalSystem = field(default_factory=MockApprovalSystem)
    display: MockDisplaySystem = field(default_factory=MockDisplaySystem)
    policy: dict[str, Any] = field(default_factory=dict)
    answer: str = ""
    history: list[dict[str, Any]] = field(default_factory=list)
    heard: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    session: AmplifierSession = field(init=False)
    model: MockProvider = field(init=False)

    async def run(self, *hooks):
        """Run with these hooks: events, each with a `HookResult` to return the first time, or a handler."""
        self.model = MockProvider(self.answers)
        plan = {"session": {"orchestrator": "loop-interactive", "context": "context-simple", **self.policy}}
        session = AmplifierSession(plan, approval_system=self.approvals, display_system=self.display)
        self.session = session
        session.coordinator.mount("providers", self.model)
        session.coordinator.mount("tools", self.tool)
        for event, wish in hooks:
            session.coordinator.hooks.register(event, wish if callable(wish) else self._once(wish))
        try:
            async with session:
                self.answer = await session.execute("Which colour?")
        finally:
            self.history = await session.coordinator.get("context").get_messages()
        return self

    def _once(self, wish):
        async def handler(event, data):
            self.heard.append((event, data))
            return wish if len(self.heard) == 1 else HookResult()

        return handler

    def seen(self, request=-1):
        """What the model saw, message by message: the text, or the role where there is none."""
        messages = self.model.requests[request].messages
        return [m.content if isinstance(m.content, str) else m.role for m in messages]


def inject(**fields):
    return HookResult(action="inject_context", context_injection="Mind the gap.", **fields)


def modify(**data):
    return HookResult(action="modify", data=data)


def _write(tried):
    """A handler that writes to the agent, as a person may."""

    async def write(event, data):
        tried.session.coordinator.get_capability("orchestrator.inject_message")("And which shape?")

    return write


def test_the_tables_name_every_action_and_only_events_that_are_tried_here(page):
    assert {row[0].strip("`") for row in page.table("action")} == set(HookAction.__args__)
    named = {name for row in page.table("event and its data") for name in re.findall(r"`([a-z]+:[a-z_]+)`", row[0])}
    assert named == {
        *ENDS_THE_RUN,
        *("tool:pre", "tool:post", "tool:error"),
        *AFTER_THE_FACT,
        *OF_THE_SESSION,
        "provider:error",
        *ONLY_TOLD,
    }


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
async def test_an_event_carries_the_data_that_the_table_names(page, event, data):
    tried = await Tried().run((event, HookResult()))
    name, given = tried.heard[0]
    assert name == event
    assert given.keys() == {*data, "session_id", "parent_id"}
    (cell,) = [row[0] for row in page.table("event and its data") if f"`{event}`" in row[0]]
    told = set(re.findall(r"`([a-z_]+)`", cell))
    assert told == (data - {"tool_name", "tool_input", "tool_call_id"} if event == "tool:post" else data)


@pytest.mark.parametrize("event", ENDS_THE_RUN)
async def test_a_deny_around_the_model_ends_the_run(event):
    tried = await Tried().run((event, HookResult(action="deny", reason="not today.")))
    assert tried.answer == "Operation denied: not today."


async def test_a_deny_before_a_tool_keeps_it_from_being_called():
    tried = await Tried().run(("tool:pre", HookResult(action="deny", reason="not today.")))
    assert tried.tool.call_count == 0
    assert tried.seen()[-1] == "Denied: not today."


@pytest.mark.parametrize(("event", "success"), [("tool:post", True), ("tool:error", False)])
async def test_a_deny_after_a_tool_withholds_its_result(event, success):
    tool = MockTool("look", return_value=ToolResult(success=success, output="blue"))
    tried = await Tried(tool=tool).run((event, HookResult(action="deny", reason="not today.")))
    assert tried.seen()[-1] == "The result was withheld: not today."


@pytest.mark.parametrize("event", [*AFTER_THE_FACT[:4], *OF_THE_SESSION])
async def test_a_deny_comes_too_late_for_what_has_happened(event):
    tried = Tried()
    await tried.run(("tool:pre", _write(tried)), (event, HookResult(action="deny", reason="not today.")))
    assert tried.answer == "It is blue."


async def test_modify_changes_the_prompt_the_input_and_the_result():
    tried = await Tried().run(
        ("prompt:submit", lambda *_: modify(prompt="Which shape?")),
        ("tool:pre", lambda *_: modify(tool_input={"at": "the sea"})),
        ("tool:post", lambda *_: modify(tool_result=ToolResult(output="round"))),
    )
    assert tried.seen() == ["Which shape?", "assistant", "round"]
    assert tried.tool.last_input == {"at": "the sea"}


async def test_modify_changes_one_request_and_the_model_that_is_asked():
    rows = [{"role": "user", "content": "Which shape?"}]
    tried = await Tried().run(("provider:request", modify(messages=rows, model="another")))
    assert tried.seen(0) == ["Which shape?"]
    assert [request.model for request in tried.model.requests] == ["another", None]
    assert tried.history[0]["content"] == "Which colour?"


async def test_modify_changes_the_answer():
    response = ChatResponse(content=[TextBlock(text="It is green.")])
    tried = await Tried(answers=["It is blue."]).run(("provider:response", modify(response=response)))
    assert tried.answer == "It is green."


@pytest.mark.parametrize(
    ("event", "success", "request_number", "seen"),
    [
        ("prompt:submit", True, 0, ["Mind the gap.", "Which colour?"]),
        ("provider:request", True, 0, ["Which colour?", "Mind the gap."]),
        ("provider:response", True, 1, ["Which colour?", "Mind the gap.", "assistant", "blue"]),
        ("tool:pre", True, 1, ["Which colour?", "assistant", "blue", "Mind the gap."]),
        ("tool:post", True, 1, ["Which colour?", "assistant", "blue", "Mind the gap."]),
        ("tool:error", False, 1, ["Which colour?", "assistant", "blue", "Mind the gap."]),
        ("execution:start", True, 0, ["Mind the gap.", "Which colour?"]),
    ],
)
async def test_a_lasting_injection_stands_where_the_table_says(event, success, request_number, seen):
    tool = MockTool("look", return_value=ToolResult(success=success, output="blue"))
    tried = await Tried(tool=tool).run((event, inject()))
    assert tried.seen(request_number) == seen
    assert [row["role"] for row in tried.history if row["content"] == "Mind the gap."] == ["system"]


@pytest.mark.parametrize("event", ["execution:end", "orchestrator:complete"])
async def test_an_injection_at_the_end_of_a_run_is_there_for_the_next(event):
    tried = await Tried().run((event, inject()))
    assert tried.history[-1]["content"] == "Mind the gap."


async def test_an_injection_at_a_message_that_was_taken_in_stands_after_it():
    tried = Tried()
    await tried.run(("tool:pre", _write(tried)), ("injection:applied", inject()))
    *_, written, injected = tried.seen()
    assert "And which shape?" in written
    assert injected == "Mind the gap."


@pytest.mark.parametrize("wish", [inject(), HookResult(action="deny")])
async def test_a_stop_is_told_and_stays_one(wish):
    tried = Tried()

    async def stop(event, data):
        tried.session.coordinator.cancellation.request_graceful()

    await tried.run(("provider:response", stop), ("cancel:requested", wish))
    assert tried.answer == ""
    assert ("Mind the gap." in str(tried.history[-1])) is (wish.action == "inject_context")


@pytest.mark.parametrize("wish", [inject(), HookResult(action="deny")])
async def test_an_error_of_the_provider_is_told_and_stays_one(wish):
    tried = Tried(answers=[AuthenticationError("No key.")])
    with pytest.raises(AuthenticationError):
        await tried.run(("provider:error", wish))
    assert ("Mind the gap." in str(tried.history[-1])) is (wish.action == "inject_context")


@pytest.mark.parametrize("event", ONLY_TOLD)
async def test_events_that_only_tell_hear_no_wish(event):
    ask = HookResult(action="ask_user", approval_prompt="May it look?")
    tried = await Tried().run(("tool:pre", ask), (event, lambda *_: inject()))
    assert tried.tool.call_count == 1
    assert "Mind the gap." not in str(tried.history)


async def test_an_injection_at_the_start_of_the_session_stands_before_all_else():
    tried = await Tried().run(("session:start", inject()))
    assert tried.seen(0) == ["Mind the gap.", "Which colour?"]


async def test_an_injection_at_the_end_of_the_session_is_the_last_row():
    tried = await Tried().run(("session:end", inject()))
    assert tried.history[-1]["content"] == "Mind the gap."


@pytest.mark.parametrize("event", OF_THE_SESSION)
async def test_people_are_told_something_at_the_start_and_at_the_end_of_a_session(event):
    tried = await Tried().run((event, HookResult(action="deny", user_message="A hook was here.")))
    assert [message for message, _, _ in tried.display.messages] == ["A hook was here."]


def test_the_page_names_every_event_that_something_here_emits(page):
    package = Path(orchestrator_interactive.__file__).parent
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in package.rglob("*.py")
        if not {"validation", "testing"} & set(path.parts)
    )
    emitted = {getattr(events, name) for name in re.findall(r"\bevents\.([A-Z_]+)\b", code) if name != "ALL_EVENTS"}
    named = set(re.findall(r"`([a-z]+:[a-z_]+)`", page.text))
    assert emitted | {"provider:fallback", "injection:applied"} == named


@pytest.mark.parametrize("event", ["prompt:submit", "provider:request"])
async def test_an_ephemeral_injection_is_part_of_the_next_request_only(event):
    tried = await Tried().run((event, inject(ephemeral=True)))
    assert tried.seen(0) == ["Which colour?", "Mind the gap."]
    assert "Mind the gap." not in [*tried.seen(1), *(row["content"] for row in tried.history)]


async def test_an_ephemeral_injection_may_end_the_last_tool_result():
    tried = await Tried().run(("tool:post", inject(ephemeral=True, append_to_last_tool_result=True)))
    assert tried.seen() == ["Which colour?", "assistant", "blue\n\nMind the gap."]
    assert "Mind the gap." not in str(tried.history)


@pytest.mark.parametrize(
    ("answer", "called"), [("Allow once", 1), ("allow", 1), ("Deny", 0), ("Certainly", 0), ("Disallow", 0)]
)
async def test_an_answer_that_begins_with_allow_allows(answer, called):
    wish = HookResult(action="ask_user", approval_prompt="May it look?", approval_options=[answer])
    tried = await Tried(approvals=MockApprovalSystem(answer)).run(("tool:pre", wish))
    assert tried.tool.call_count == called
    assert [request.prompt for request in tried.approvals.requests] == ["May it look?"]


async def test_where_nobody_can_be_asked_asking_denies(plan, make_session):
    model = MockProvider()
    session = make_session({**plan, "hooks": []}, model)

    async def ask(event, data):
        return HookResult(action="ask_user", approval_prompt="May it begin?")

    session.coordinator.hooks.register("prompt:submit", ask)
    async with session:
        assert await session.execute("Begin.") == "Operation denied: No approval system is available: May it begin?"


@pytest.mark.parametrize("action", [*HookAction.__args__])
async def test_with_any_action_people_may_be_told_something(action):
    wish = HookResult(action=action, user_message="A hook was here.", context_injection="Mind the gap.", data={})
    tried = await Tried().run(("tool:pre", wish))
    assert [message for message, _, _ in tried.display.messages] == ["A hook was here."]


async def test_the_strongest_answer_wins_and_texts_and_changes_are_kept():
    tried = await Tried().run(
        ("tool:pre", lambda *_: modify(tool_input={"at": "the sea"})),
        ("tool:pre", lambda *_: inject()),
        ("tool:pre", lambda *_: HookResult(action="inject_context", context_injection="Mind the step.")),
    )
    assert tried.tool.last_input == {"at": "the sea"}
    assert tried.seen()[-2:] == ["Mind the gap.", "Mind the step."]


async def test_a_deny_ends_the_round():
    asked: list[str] = []
    deny = HookResult(action="deny", reason="not today.")
    tried = await Tried().run(("tool:pre", deny), ("tool:pre", lambda *_: asked.append("late")))
    assert (tried.tool.call_count, asked) == (0, [])


async def test_a_handler_that_raises_hangs_or_talks_nonsense_counts_as_continue():
    async def hang(event, data):
        await asyncio.Event().wait()
        return HookResult(action="deny")

    def fail(event, data):
        raise OSError("no disk")

    hooks = [("tool:pre", hang), ("tool:pre", fail), ("tool:pre", lambda *_: "no"), ("tool:pre", lambda *_: None)]
    tried = await Tried(policy={"hook_timeout_s": 0.01}).run(*hooks)
    assert tried.answer == "It is blue."
