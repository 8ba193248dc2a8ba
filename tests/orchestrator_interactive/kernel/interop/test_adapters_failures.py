"""Failures in a session of amplifier-core: they are events, and the session continues."""

from collections.abc import Callable
from typing import Any

import pytest
from agents import call, fail, faults, raising, returning, say, text_of, told, use
from amplifier_core import HookRegistry, HookResult
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator_interactive.kernel import ToolResult
from orchestrator_interactive.kernel.contracts.errors import RateLimitError
from orchestrator_interactive.kernel.interop import to_local_hooks

Make = Callable[..., Any]

# Values that JSON or amplifier-core does not accept.
ODD = st.one_of(
    st.floats(),
    st.integers(),
    st.text(st.characters(codec=None)),
    st.binary(),
    st.decimals(),
    st.dates(),
    st.none(),
)
VALUES = st.recursive(
    ODD, lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.tuples(st.text()), inner)
)


async def test_the_error_of_a_provider_is_an_event_and_the_next_run_works(core_session: Make) -> None:
    error = RateLimitError("Too fast.", provider="scripted", retry_after=7)
    session = await core_session(fail(error), say("Here."), loop={"max_retries": 0})
    with pytest.raises(RuntimeError, match=r"RateLimitError: Too fast\."):  # amplifier-core keeps no types
        await session.run("one")
    (failed,) = session.events.of("provider:error")
    assert (failed["provider"], failed["error"]) == ("scripted", {"type": "RateLimitError", "msg": "Too fast."})
    assert session.events.of("execution:end")[0]["status"] == "error"
    assert session.events.of("orchestrator:complete")[0]["status"] == "incomplete"
    assert await session.run("two") == "Here."
    assert told(session.provider.sent()) == [("user", "one"), ("user", "two")]


async def test_the_model_reads_the_error_of_a_tool(core_session: Make) -> None:
    session = await core_session(call(use("break", "a")), say("Sorry."), tools=[raising(LookupError("no such thing"))])
    assert await session.run() == "Sorry."
    rows = await session.rows()
    assert faults(rows) == []
    assert text_of(rows[-2]) == "no such thing"
    (error,) = session.events.of("tool:error")
    assert error["error"] == {"message": "no such thing", "type": "LookupError"}


@pytest.mark.parametrize(
    "output", [{"ratio": float("nan")}, {"n": 10**400}, "half \ud83d a pair", {("a", "b"): 1}, {1: b"\xff"}, object()]
)
async def test_a_run_continues_after_an_output_that_json_cannot_represent(core_session: Make, output: Any) -> None:
    session = await core_session(call(use("give", "a")), say("ok"), tools=[returning(ToolResult(output=output))])
    assert await session.run() == "ok"
    assert len(session.events.of("tool:post")) == 1


async def test_a_provider_without_a_key_is_not_mounted(core_session: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    session = await core_session(plan={"providers": [{"module": "provider-anthropic"}]})
    assert session.coordinator.mount_points["providers"] == {}
    with pytest.raises(RuntimeError, match="No provider is mounted"):
        await session.run()


@settings(deadline=None, max_examples=50)
@given(VALUES)
async def test_any_event_data_pass_the_registry_without_a_modification(value: Any) -> None:
    registry = HookRegistry()

    async def listener(_event: str, _data: dict[str, Any]) -> HookResult:
        return HookResult()

    registry.register("tool:post", listener)
    result = await to_local_hooks(registry).emit("tool:post", {"tool_result": ToolResult(output=value), "value": value})
    assert (result.action, result.data) == ("continue", None)
