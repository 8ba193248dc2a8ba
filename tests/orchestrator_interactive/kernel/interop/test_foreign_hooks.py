"""The effect of hook results in both directions.

`adapters`: hooks in amplifier-core's registry, with our loop in its session. `foreign`: a hook module that was written
for amplifier-core, in our session.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from agents import ScriptedProvider, ScriptedTool, call, echo, faults, returning, say, soon, text_of, told, use
from amplifier_core import HookResult
from amplifier_core.approval import ApprovalTimeoutError

from orchestrator_interactive.kernel import ToolResult

Make = Callable[..., Any]

POINTS = ["prompt:submit", "provider:request", "tool:pre", "tool:post"]
BEFORE_THE_MODEL = ["prompt:submit", "provider:request"]
DENY = {"action": "deny", "reason": "not here"}
INJECT = {"action": "inject_context", "context_injection": "by the way"}
ASK = {"action": "ask_user", "approval_prompt": "May it?", "approval_options": ["Allow", "Deny"], "approval_timeout": 9}


class People:
    """An approval and display system that returns one answer, or raises it."""

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


@dataclass
class Hooked:
    """A session with one hook; its provider calls `echo` and then says "ok"."""

    session: Any
    provider: ScriptedProvider
    tool: ScriptedTool

    async def run(self) -> str:
        return await soon(self.session.execute("go"))

    async def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = await self.session.coordinator.get("context").get_messages()
        return rows

    def results(self) -> list[str]:
        return [text_of(row) for row in self.provider.sent() if row["role"] == "tool"]

    def inputs(self) -> list[str]:
        return [given.get("text", "") for given in self.tool.inputs]


STEPS = (call(use("echo", "a", text="one")), say("ok"))


@pytest.fixture(params=["adapters", "foreign"])
def hooked(request: pytest.FixtureRequest, core_session: Make, local_session: Make) -> Callable[..., Any]:
    """Make a session whose hook answers one event with a result, or changes its data."""

    async def with_adapters(event: str, result: Any, changes: Any, people: Any) -> Hooked:
        tool = echo()
        session = await core_session(*STEPS, tools=[tool], people=people)
        if changes:
            session.change(event, **changes)
        else:
            session.answer(event, HookResult(**result))
        return Hooked(session.session, session.provider, tool)

    async def with_a_foreign_hook(event: str, result: Any, changes: Any, people: Any) -> Hooked:
        config = {"event": event, "result": result, "changes": changes}
        session = await local_session(people, providers=[], hooks=[{"module": "hooks-guard", "config": config}])
        provider, tool = ScriptedProvider(*STEPS), echo()
        session.coordinator.mount("providers", provider)
        session.coordinator.mount("tools", tool)
        return Hooked(session, provider, tool)

    async def make(event: str, result: Any = None, changes: Any = None, people: Any = None) -> Hooked:
        kind = with_adapters if request.param == "adapters" else with_a_foreign_hook
        return await kind(event, result or {}, changes or {}, people)

    return make


@pytest.mark.parametrize("event", POINTS)
async def test_continue_changes_nothing(hooked: Make, event: str) -> None:
    session = await hooked(event)
    assert await session.run() == "ok"
    assert session.results() == session.inputs() == ["one"]


@pytest.mark.parametrize("event", BEFORE_THE_MODEL)
async def test_a_denied_step_ends_the_run_with_the_reason(hooked: Make, event: str) -> None:
    session = await hooked(event, DENY)
    assert await session.run() == "Operation denied: not here"
    assert session.provider.requests == []


@pytest.mark.parametrize(
    ("event", "inputs", "result"),
    [("tool:pre", [], "Denied: not here"), ("tool:post", ["one"], "The result was withheld: not here")],
)
async def test_the_model_reads_why_a_tool_was_denied(hooked: Make, event: str, inputs: list[str], result: str) -> None:
    session = await hooked(event, DENY)
    assert await session.run() == "ok"
    assert (session.inputs(), session.results()) == (inputs, [result])


@pytest.mark.parametrize(
    ("event", "changes", "first_request"),
    [
        ("prompt:submit", {"prompt": "else"}, [("user", "else")]),
        ("provider:request", {"messages": [{"role": "user", "content": "else"}]}, [("user", "else")]),
        ("tool:pre", {"tool_input": {"text": "other"}}, None),
        ("tool:post", {"tool_result": {"success": False, "output": "other"}}, None),
        ("tool:post", {"tool_result": "other"}, None),
    ],
)
async def test_modified_data_take_effect(hooked: Make, event: str, changes: Any, first_request: Any) -> None:
    session = await hooked(event, changes=changes)
    await session.run()
    if first_request:
        assert told(session.provider.sent(0)) == first_request
    else:
        assert session.results() == ["other"]


@pytest.mark.parametrize("event", POINTS)
async def test_an_injection_is_in_the_history_with_its_origin(hooked: Make, event: str) -> None:
    session = await hooked(event, {**INJECT, "context_injection_role": "user"})
    await session.run()
    rows = await session.rows()
    injected = [row for row in rows if row["content"] == "by the way"]
    assert {row["role"] for row in injected} == {"user"}
    assert {(row["metadata"]["source"], row["metadata"]["event"]) for row in injected} == {("hook", event)}
    assert faults(rows) == []
    assert "by the way" in str(session.provider.sent())


@pytest.mark.parametrize("event", POINTS)
async def test_an_ephemeral_injection_is_in_the_next_request_only(hooked: Make, event: str) -> None:
    session = await hooked(event, {**INJECT, "ephemeral": True})
    await session.run()
    assert "by the way" in str(session.provider.sent(1 if event.startswith("tool:") else 0))
    assert "by the way" not in str(await session.rows())


async def test_an_injection_may_be_appended_to_the_last_tool_result(hooked: Make) -> None:
    session = await hooked("provider:request", {**INJECT, "ephemeral": True, "append_to_last_tool_result": True})
    await session.run()
    assert session.results() == ["one\n\nby the way"]


@pytest.mark.parametrize("event", POINTS)
async def test_an_approved_step_continues(hooked: Make, event: str) -> None:
    people = People("Allow")
    session = await hooked(event, ASK, people=people)
    assert await session.run() == "ok"
    assert people.asked[0] == ("May it?", ["Allow", "Deny"], 9.0, "deny")
    assert session.inputs() == ["one"]


@pytest.mark.parametrize("event", BEFORE_THE_MODEL)
async def test_a_step_that_a_person_denies_ends_the_run(hooked: Make, event: str) -> None:
    session = await hooked(event, ASK, people=People("Deny"))
    assert await session.run() == "Operation denied: User denied: May it?"
    assert session.provider.requests == []


@pytest.mark.parametrize(
    ("people", "default", "inputs"),
    [
        (People("Deny"), "deny", []),
        (People(ApprovalTimeoutError("nobody")), "deny", []),
        (People(ApprovalTimeoutError("nobody")), "allow", ["one"]),
        (None, "allow", []),
    ],
    ids=["denied", "timeout", "timeout, default allow", "no approval system"],
)
async def test_a_tool_without_approval_is_not_run(hooked: Make, people: Any, default: str, inputs: list[str]) -> None:
    session = await hooked("tool:pre", {**ASK, "approval_default": default}, people=people)
    assert await session.run() == "ok"
    assert session.inputs() == inputs


async def test_the_cleanup_of_a_foreign_hook_runs_with_the_session(local_session: Make) -> None:
    session = await local_session(hooks=[{"module": "hooks-guard", "config": {"event": "tool:pre"}}])
    await session.coordinator.hooks.emit("tool:pre", {})
    events = session.coordinator.get_capability("guard.events")
    assert len(events) == 1
    await session.cleanup()
    assert events == []
    assert not session.coordinator.hooks.listens("tool:pre")


class TestAdapters:
    """What differs in amplifier-core's registry."""

    async def test_modifications_of_several_hooks_combine(self, core_session: Make) -> None:
        session = await core_session(say("ok"))
        session.change("provider:request", model="other")
        session.change("provider:request", messages=[{"role": "user", "content": "something else"}])
        await session.run()
        assert session.provider.requests[0].model == "other"
        assert told(session.provider.sent()) == [("user", "something else")]
        assert told(await session.rows()) == [("user", "go"), ("assistant", "ok")]

    async def test_a_modification_leaves_other_fields_unchanged(self, core_session: Make) -> None:
        """amplifier-core's registry converts a large integer to a float."""
        tool = returning(ToolResult(output={"id": 2**70 + 1}), name="echo")
        session = await core_session(call(use("echo", "a")), say("ok"), tools=[tool])
        session.change("tool:post", seen=True)
        await session.run()
        assert text_of(session.provider.sent()[-1]) == f'{{"id": {2**70 + 1}}}'

    async def test_persistent_and_ephemeral_injections_of_two_hooks_are_both_applied(self, core_session: Make) -> None:
        session = await core_session(say("ok"), say("again"))
        session.answer("provider:request", HookResult(action="inject_context", context_injection="stays"))
        session.answer(
            "provider:request", HookResult(action="inject_context", context_injection="passes", ephemeral=True)
        )
        await session.run()
        assert told(session.provider.sent()) == [("user", "go"), ("system", "stays"), ("system", "passes")]
        assert "passes" not in str(await session.rows())

    @pytest.mark.parametrize("event", POINTS)
    async def test_a_message_of_a_hook_is_shown(self, core_session: Make, event: str) -> None:
        """amplifier-core's registry drops a message that comes with `continue`."""
        people = People("Allow")
        session = await core_session(call(use("echo", "a")), say("ok"), tools=[echo()], people=people)
        session.answer(event, HookResult(**INJECT, user_message="Look.", user_message_level="warning"))
        await session.run()
        assert {message[:2] for message in people.shown} == {("Look.", "warning")}

    @pytest.mark.parametrize("event", POINTS)
    @pytest.mark.parametrize("ephemeral", [False, True])
    async def test_an_injection_over_the_limit_is_omitted(self, core_session, event: str, *, ephemeral: bool) -> None:
        session = await core_session(call(use("echo", "a")), say("ok"), tools=[echo()], injection_size_limit=5)
        session.answer(event, HookResult(**INJECT, ephemeral=ephemeral))
        assert await session.run() == "ok"
        assert "by the way" not in str([*session.provider.sent(), *await session.rows()])

    @pytest.mark.parametrize("event", POINTS)
    async def test_a_failing_hook_changes_nothing(self, core_session: Make, event: str) -> None:
        async def broken(_event: str, _data: dict[str, Any]) -> HookResult:
            raise LookupError("broken")

        session = await core_session(call(use("echo", "a", text="one")), say("ok"), tools=[echo()])
        session.coordinator.hooks.register(event, broken)
        assert await session.run() == "ok"
        assert text_of(session.provider.sent()[-1]) == "one"

    async def test_a_stop_does_not_wait_for_a_hook(self, core_session: Make) -> None:
        session = await core_session(say("never"))
        gate = asyncio.Event()
        session.events.hold("provider:request", gate)
        run = session.start()
        await session.events.reached("provider:request")
        session.coordinator.cancellation.request_graceful()
        assert await soon(run) == ""
        gate.set()
