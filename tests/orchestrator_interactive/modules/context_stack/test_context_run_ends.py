"""The end of each run is in the log, once, and no model reads it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from agents import call, echo, fail, never, say, soon, told, use
from registry_fixtures import RegistryFixture

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.render import render_for_llm
from orchestrator_interactive.interactions.states import FinishedState, RunFinishedState, UserMessageState
from orchestrator_interactive.kernel import AmplifierSession, HookResult
from orchestrator_interactive.kernel.contracts.errors import AuthenticationError

BROKEN = fail(AuthenticationError("no such key", provider="x"))


@pytest.fixture
def fixture() -> RegistryFixture:
    return RegistryFixture(tools=[echo()])


async def ends(fixture: RegistryFixture) -> list[str]:
    """Return the states of the log in short: prompts, and the status of each end."""
    states = [entry.state for entry in await fixture.log("alpha")]
    kinds = {UserMessageState: lambda s: s.text, RunFinishedState: lambda s: s.status}
    return [kinds[type(state)](state) for state in states if type(state) in kinds]  # type: ignore[no-untyped-call]


async def in_session(fixture: RegistryFixture, work: Callable[[AmplifierSession], Any]) -> Any:
    config = await fixture.repository.load("alpha")
    async with fixture.make.session(config, "talk", None) as session:
        return await work(session)


async def test_a_reader_of_the_log_finds_the_end_of_each_run_and_no_model_reads_it(fixture: RegistryFixture) -> None:
    script = await fixture.add("alpha", call(use("echo", "a", text="moo")), say("Moo."), say("Bye."), tools=["echo"])
    await fixture.run("alpha", "One")
    stack = InteractionStack(fixture.store, "talk", "alpha")
    assert isinstance(await stack.current(), FinishedState)
    await fixture.run("alpha", "Two")
    assert await ends(fixture) == ["One", "completed", "Two", "completed"]
    assert [role for role, _ in told(script.sent())] == ["user", "assistant", "tool", "assistant", "user"]
    await stack.refresh()
    assert [row["role"] for row in await render_for_llm(stack)][-2:] == ["user", "assistant"]
    assert {entry.episode for entry in await fixture.log("alpha")} == {1, 2}


async def test_a_stop_and_an_error_are_ends_of_their_runs(fixture: RegistryFixture) -> None:
    script = await fixture.add("alpha", never(), BROKEN, say("ok"))
    running = asyncio.create_task(fixture.run("alpha", "One"))
    await script.asked(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(running)
    with pytest.raises(AuthenticationError):
        await fixture.run("alpha", "Two")
    await fixture.run("alpha", "Three")
    assert await ends(fixture) == ["One", "cancelled", "Two", "error", "Three", "completed"]


async def test_a_suspended_run_ends_when_it_has_been_resumed(fixture: RegistryFixture) -> None:
    script = await fixture.add("alpha", never(), say("ok"))

    async def suspended(session: AmplifierSession) -> None:
        running = asyncio.create_task(session.execute("One"))
        await script.asked(1)
        session.coordinator.get_capability("orchestrator.suspend")()
        await soon(running)

    await in_session(fixture, suspended)
    assert await ends(fixture) == ["One"]
    for _ in range(2):
        assert await in_session(fixture, lambda session: session.resume()) == "ok"
        assert await ends(fixture) == ["One", "completed"]


async def test_a_message_that_waits_when_a_finished_run_is_resumed_is_for_the_next_run(
    fixture: RegistryFixture,
) -> None:
    await fixture.add("alpha", say("ok"), say("Here."))
    await fixture.run("alpha", "One")

    async def with_news(session: AmplifierSession) -> None:
        async def inject(_event: str, _data: dict[str, Any]) -> HookResult:
            session.coordinator.get_capability("orchestrator.inject_message")("And that?")
            return HookResult()

        session.coordinator.hooks.register("execution:start", inject)
        assert await session.resume() == "ok"
        session.coordinator.hooks.register("execution:start", inject)
        (receipt,) = session.coordinator.get_capability("orchestrator.receipts")()
        assert receipt.state == "waiting"

    await in_session(fixture, with_news)
    assert await ends(fixture) == ["One", "completed"]


async def test_the_next_run_records_the_end_of_one_whose_process_was_lost(fixture: RegistryFixture) -> None:
    await fixture.add("alpha", say("ok"))
    await InteractionStack(fixture.store, "talk", "alpha").push(UserMessageState("One"))
    await fixture.run("alpha", "Two")
    assert await ends(fixture) == ["One", "unknown", "Two", "completed"]


async def test_a_run_that_ends_before_its_first_row_is_not_the_end_of_an_earlier_one(fixture: RegistryFixture) -> None:
    await fixture.add("alpha", say("ok"))
    await InteractionStack(fixture.store, "talk", "alpha").push(UserMessageState("One"))

    async def denied(session: AmplifierSession) -> str:
        async def deny(_event: str, _data: dict[str, Any]) -> HookResult:
            return HookResult(action="deny", reason="no")

        session.coordinator.hooks.register("prompt:submit", deny, priority=50)
        return await session.execute("Two")

    await in_session(fixture, denied)
    await fixture.run("alpha", "Three")
    assert await ends(fixture) == ["One", "unknown", "Three", "completed"]


async def test_a_fork_and_a_rewind_keep_the_ends_of_their_runs(fixture: RegistryFixture) -> None:
    await fixture.add("alpha", say("1"), say("2"), say("3"))
    for prompt in ("One", "Two"):
        await fixture.run("alpha", prompt)
    stack = InteractionStack(fixture.store, "talk", "alpha")
    await stack.rewind(1)  # before the first end
    assert await ends(fixture) == ["One"]
    assert await in_session(fixture, lambda session: session.resume()) == "1"
    await stack.refresh()
    await stack.checkout(await stack.fork(name="idea"))
    await fixture.run("alpha", "Three")
    assert await ends(fixture) == ["One", "completed", "Three", "completed"]


async def test_a_hook_that_denies_the_end_does_not_prevent_its_record(fixture: RegistryFixture) -> None:
    await fixture.add("alpha", say("ok"))

    async def denied(session: AmplifierSession) -> str:
        async def deny(_event: str, _data: dict[str, Any]) -> HookResult:
            return HookResult(action="deny", reason="no")

        session.coordinator.hooks.register("execution:end", deny, priority=50)
        return await session.execute("One")

    assert await in_session(fixture, denied) == "ok"
    assert await ends(fixture) == ["One", "completed"]
