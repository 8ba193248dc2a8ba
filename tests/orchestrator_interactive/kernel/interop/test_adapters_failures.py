"""What goes wrong in a session of amplifier-core: it is told, and the session lives on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from agents import call, echo, fail, faults, raising, returning, say, text_of, told, use
from amplifier_core import HookRegistry, HookResult
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator_interactive.kernel import ToolResult
from orchestrator_interactive.kernel.contracts.errors import RateLimitError
from orchestrator_interactive.kernel.interop import to_local_hooks

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., Any]

# What tools and models give back, and JSON or amplifier-core does not take.
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


async def test_a_failing_provider_is_told_and_the_next_run_works(abroad: Make) -> None:
    error = RateLimitError("Too fast.", provider="scripted", retry_after=7)
    session = await abroad(fail(error), say("Here."), loop={"max_retries": 0})
    with pytest.raises(RuntimeError, match=r"RateLimitError: Too fast\."):  # amplifier-core keeps no types
        await session.run("one")
    (told_error,) = session.events.of("provider:error")
    assert (told_error["provider"], told_error["error"]) == ("scripted", "Too fast.")
    assert session.events.of("execution:end")[0]["status"] == "error"
    assert session.events.of("orchestrator:complete")[0]["status"] == "incomplete"
    assert await session.run("two") == "Here."
    assert told(session.provider.sent()) == [("user", "one"), ("user", "two")]


async def test_a_provider_that_comes_back_is_asked_again_and_all_hear_of_it(abroad: Make) -> None:
    error = RateLimitError("Too fast.", provider="scripted")
    session = await abroad(fail(error), say("Here."), loop={"retry_base_delay_s": 0})
    assert await session.run("one") == "Here."
    (retry,) = session.events.of("provider:retry")
    assert (retry["provider"], retry["attempt"], retry["error"]) == ("scripted", 1, "Too fast.")
    assert told(await session.rows()) == [("user", "one"), ("assistant", "Here.")]


async def test_a_failing_tool_is_a_result_that_the_model_reads(abroad: Make) -> None:
    session = await abroad(call(use("break", "a")), say("Sorry."), tools=[raising(LookupError("no such thing"))])
    assert await session.run() == "Sorry."
    rows = await session.rows()
    assert faults(rows) == []
    assert text_of(rows[-2]) == "no such thing"
    (error,) = session.events.of("tool:error")
    assert error["error"] == {"message": "no such thing", "type": "LookupError"}


async def test_a_tool_that_nobody_has_is_a_result_too(abroad: Make) -> None:
    session = await abroad(call(use("fly", "a")), say("Sorry."), tools=[echo()])
    assert await session.run() == "Sorry."
    assert text_of(session.provider.sent()[-1]) == "There is no tool 'fly'. Tools: echo."


@pytest.mark.parametrize(
    "output", [{"ratio": float("nan")}, {"n": 10**400}, "half \ud83d a pair", {("a", "b"): 1}, {1: b"\xff"}, object()]
)
async def test_an_odd_output_disturbs_nobody(abroad: Make, output: Any) -> None:
    session = await abroad(call(use("give", "a")), say("ok"), tools=[returning(ToolResult(output=output))])
    assert await session.run() == "ok"
    assert len(session.events.of("tool:post")) == 1


async def test_a_provider_that_has_no_key_is_left_out(abroad: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    session = await abroad(plan={"providers": [{"module": "provider-anthropic"}]})
    assert session.coordinator.mount_points["providers"] == {}
    with pytest.raises(RuntimeError, match="No provider is mounted"):
        await session.run()


@settings(deadline=None, max_examples=50)
@given(VALUES)
async def test_whatever_an_event_carries_its_registry_takes_it_and_nothing_seems_changed(value: Any) -> None:
    registry = HookRegistry()

    async def listener(_event: str, _data: dict[str, Any]) -> HookResult:
        return HookResult()

    registry.register("tool:post", listener)
    wish = await to_local_hooks(registry).emit("tool:post", {"tool_result": ToolResult(output=value), "value": value})
    assert (wish.action, wish.data) == ("continue", None)
