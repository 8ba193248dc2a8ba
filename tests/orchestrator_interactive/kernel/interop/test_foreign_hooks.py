"""A hook module that was written against amplifier-core, in a session of ours: each of its wishes is granted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from agents import ScriptedProvider, call, echo, faults, say, soon, text_of, told, use
from amplifier_core.approval import ApprovalTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator_interactive.kernel import AmplifierSession

    Make = Callable[..., Any]

DENY = {"action": "deny", "reason": "not here"}
INJECT = {"action": "inject_context", "context_injection": "by the way"}
ASK = {"action": "ask_user", "approval_prompt": "May it?", "approval_timeout": 9}


class Answers:
    def __init__(self, outcome: str | Exception) -> None:
        self._outcome = outcome
        self.asked: list[tuple[Any, ...]] = []

    async def request_approval(self, *question: Any) -> str:
        self.asked.append(question)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


@pytest.fixture
def guarded(host: Make) -> Callable[..., Any]:
    """A session of ours in which the guest answers one event; its provider calls a tool, and then says "ok"."""

    async def make(event: str, result: Any = None, changes: Any = None, approvals: Any = None) -> AmplifierSession:
        config = {"event": event, "result": result or {}, "changes": changes or {}}
        session: AmplifierSession = await host(
            approvals=approvals, providers=[], hooks=[{"module": "hooks-guard", "config": config}]
        )
        provider = ScriptedProvider(call(use("echo", "a", text="one"), use("echo", "b", text="two")), say("ok"))
        session.coordinator.mount("providers", provider)
        session.coordinator.mount("tools", echo())
        return session

    return make


async def run(session: AmplifierSession) -> str:
    return await soon(session.execute("go"))


def sent(session: AmplifierSession, index: int = -1) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = session.coordinator.get("providers", "scripted").sent(index)
    return rows


def results(session: AmplifierSession) -> list[str]:
    return [text_of(row) for row in sent(session) if row["role"] == "tool"]


def given(session: AmplifierSession) -> list[str]:
    return [asked.get("text", "") for asked in session.coordinator.get("tools", "echo").inputs]


class TestContinue:
    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "tool:pre", "tool:post"])
    async def test_it_hears_and_changes_nothing(self, guarded: Make, event: str) -> None:
        session = await guarded(event)
        assert await run(session) == "ok"
        assert results(session) == ["one", "two"]
        assert len(session.coordinator.get_capability("guard.heard")) == (1 if event == "prompt:submit" else 2)


class TestDeny:
    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request"])
    async def test_the_run_ends_and_says_why(self, guarded: Make, event: str) -> None:
        assert await run(await guarded(event, DENY)) == "Operation denied: not here"

    async def test_the_tool_is_not_run(self, guarded: Make) -> None:
        session = await guarded("tool:pre", DENY)
        assert await run(session) == "ok"
        assert given(session) == []
        assert results(session) == ["Denied: not here"] * 2

    async def test_the_result_is_withheld(self, guarded: Make) -> None:
        session = await guarded("tool:post", DENY)
        assert await run(session) == "ok"
        assert results(session) == ["The result was withheld: not here"] * 2


class TestModify:
    async def test_the_prompt(self, guarded: Make) -> None:
        session = await guarded("prompt:submit", changes={"prompt": "something else"})
        await run(session)
        assert told(sent(session, 0)) == [("user", "something else")]

    async def test_the_messages(self, guarded: Make) -> None:
        session = await guarded("provider:request", changes={"messages": [{"role": "user", "content": "else"}]})
        await run(session)
        assert told(sent(session)) == [("user", "else")]

    async def test_the_input_of_a_tool(self, guarded: Make) -> None:
        session = await guarded("tool:pre", changes={"tool_input": {"text": "other"}})
        await run(session)
        assert given(session) == ["other", "other"]

    async def test_the_result_of_a_tool(self, guarded: Make) -> None:
        session = await guarded("tool:post", changes={"tool_result": {"success": False, "output": "other"}})
        await run(session)
        assert results(session) == ["other", "other"]


class TestInjectContext:
    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "tool:pre", "tool:post"])
    async def test_what_lasts_is_in_the_history_and_names_the_hook(self, guarded: Make, event: str) -> None:
        session = await guarded(event, INJECT)
        await run(session)
        rows = await session.coordinator.get("context").get_messages()
        injected = [row for row in rows if row["content"] == "by the way"]
        assert {row["role"] for row in injected} == {"system"}
        assert {(row["metadata"]["hook_name"], row["metadata"]["event"]) for row in injected} == {("guard", event)}
        assert faults(rows) == []

    @pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "tool:pre", "tool:post"])
    async def test_what_passes_is_in_a_request_only(self, guarded: Make, event: str) -> None:
        session = await guarded(event, {**INJECT, "ephemeral": True})
        await run(session)
        assert "by the way" in str([*sent(session, 0), *sent(session, 1)])
        assert "by the way" not in str(await session.coordinator.get("context").get_messages())

    async def test_at_the_end_of_the_last_tool_result(self, guarded: Make) -> None:
        session = await guarded("provider:request", {**INJECT, "ephemeral": True, "append_to_last_tool_result": True})
        await run(session)
        assert results(session) == ["one", "two\n\nby the way"]


class TestAskUser:
    async def test_what_is_allowed_goes_on(self, guarded: Make) -> None:
        people = Answers("Allow once")
        session = await guarded("tool:pre", ASK, approvals=people)
        assert await run(session) == "ok"
        assert given(session) == ["one", "two"]
        assert people.asked == [("May it?", ["Allow", "Deny"], 9.0, "deny")] * 2

    @pytest.mark.parametrize("outcome", ["Deny", ApprovalTimeoutError("nobody"), ConnectionError("away")])
    async def test_what_is_not_allowed_is_not_run(self, guarded: Make, outcome: Any) -> None:
        session = await guarded("tool:pre", ASK, approvals=Answers(outcome))
        assert await run(session) == "ok"
        assert given(session) == []

    async def test_its_own_approval_system_runs_out_of_time_as_ours_does(self, guarded: Make) -> None:
        session = await guarded("tool:pre", ASK, approvals=Answers(ApprovalTimeoutError("nobody")))
        await run(session)
        assert results(session) == ["Denied: Approval timeout - denied by default: May it?"] * 2

    async def test_allow_always_is_remembered(self, guarded: Make) -> None:
        people = Answers("Allow always")
        wish = {**ASK, "approval_options": ["Allow once", "Allow always", "Deny"]}
        session = await guarded("prompt:submit", wish, approvals=people)
        await run(session)
        session.coordinator.get("providers", "scripted").add(say("again"))
        assert await run(session) == "again"
        assert len(people.asked) == 1


async def test_its_clean_up_is_called_with_the_session(guarded: Make) -> None:
    session = await guarded("tool:pre")
    await run(session)
    heard = session.coordinator.get_capability("guard.heard")
    assert len(heard) == 2
    await session.cleanup()
    assert heard == []
    assert not session.coordinator.hooks.listens("tool:pre")
