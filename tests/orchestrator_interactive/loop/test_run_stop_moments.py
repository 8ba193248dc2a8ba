"""Stopping a run before, between and after what it does: a stop is never lost, and never reaches another run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import (
    Recorder,
    ScriptedProvider,
    StaticLoader,
    call,
    doing,
    gated,
    goes_on,
    make_agent,
    mount_observed_context,
    never,
    say,
    soon,
    streaming,
    told,
    use,
)
from virtual_time import in_virtual_time

from orchestrator_interactive import RunFinished
from orchestrator_interactive.kernel import AmplifierSession, HookResult

if TYPE_CHECKING:
    pass

# Far longer than a test takes: a grace period that ends by itself would be a hang.
LONG_S = 600


@pytest.mark.parametrize("immediate", [False, True])
@pytest.mark.parametrize("event", ["execution:start", "prompt:submit", "provider:request"])
async def test_a_stop_before_the_model_is_asked_asks_it_nothing(event: str, *, immediate: bool) -> None:
    agent = await make_agent()
    agent.events.listen(agent.hooks, event).act_on(event, lambda: agent.stop(immediate=immediate))
    await agent.run()
    assert agent.provider.requests == []
    await goes_on(agent)


async def test_a_stop_while_a_hook_looks_at_the_last_answer_takes_no_message_in() -> None:
    agent = await make_agent(say("all of it"), stop_grace_s=LONG_S)
    agent.events.listen(agent.hooks, "provider:response")
    agent.events.act_on("provider:response", lambda: [agent.inject("more"), agent.stop()])
    await agent.run()
    assert agent.progress.of("complete")[0].items() >= {"status": "cancelled", "waiting": 1}.items()
    await goes_on(agent)


async def test_a_stop_while_an_interim_answer_is_shown_ends_the_run_and_loses_no_message() -> None:
    agent = await make_agent(doing(lambda: agent.inject("more"), say("first")))
    agent.progress.act_on("text", agent.stop)
    await agent.run()
    assert len(agent.provider.requests) == 1
    await goes_on(agent)
    assert "more" in "".join(text for _, text in told(agent.provider.sent(1)))


@pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "provider:response"])
async def test_a_stop_while_a_person_is_asked_ends_the_run(event: str) -> None:
    asked = asyncio.Event()

    class Nobody:
        async def request_approval(self, *_: Any) -> str:
            asked.set()
            await asyncio.Event().wait()
            return "Deny"

    agent = await make_agent(say("ok"), approvals=Nobody())
    agent.on_hook(event, HookResult(action="ask_user", approval_prompt="May I?"))
    run = agent.start()
    await soon(asked.wait())
    agent.stop()
    done, _ = await asyncio.wait([run], timeout=0.5)
    run.cancel()
    assert done


async def test_a_stop_requested_before_the_run_holds_for_it_and_only_for_it() -> None:
    agent = await make_agent()
    agent.token.request_graceful()
    assert await agent.run() == ""
    assert agent.provider.requests == []
    await goes_on(agent)


async def test_a_stop_requested_while_the_session_starts_holds_for_the_run() -> None:
    async def mount_provider(coordinator: Any, _config: Any) -> None:
        await coordinator.mount("providers", ScriptedProvider(say("went on")))

    shelf: Any = StaticLoader(watched=mount_observed_context, scripted=mount_provider)
    plan = {"session": {"orchestrator": "loop-interactive", "context": "watched"}, "providers": ["scripted"]}
    session = AmplifierSession(plan, loader=shelf)
    starting = Recorder().listen(session.coordinator.hooks, "session:start")
    starting.act_on("session:start", session.coordinator.cancellation.request_graceful)
    assert await soon(session.execute("go")) == ""
    assert session.status.status == "cancelled"


@pytest.mark.parametrize("event", ["execution:end", "orchestrator:complete"])
async def test_a_stop_while_the_end_is_reported_does_not_reach_the_next_run(event: str) -> None:
    agent = await make_agent(say("ok"))
    agent.events.listen(agent.hooks, event).act_on(event, lambda: [agent.stop(), agent.token.request_graceful()])
    assert await agent.run() == "ok"
    await goes_on(agent)


async def test_a_stop_after_the_run_has_ended_does_nothing() -> None:
    agent = await make_agent(say("ok"))
    await agent.run()
    assert not agent.stop()
    assert not agent.stop(immediate=True)
    await goes_on(agent)


async def test_a_message_after_a_stopped_run_is_refused() -> None:
    agent = await make_agent(never())
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    await soon(run)
    with pytest.raises(RunFinished):
        agent.inject("late")


async def test_a_stop_is_reported_with_its_stage() -> None:
    agent = await make_agent(never())
    agent.events.listen(agent.hooks, "cancel:requested", "cancel:completed")
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop(immediate=True)
    await soon(run)
    seen = [(name, data.get("immediate", data.get("was_immediate"))) for name, data in agent.events.seen]
    assert seen == [("cancel:requested", True), ("cancel:completed", True)]
    assert agent.session.status.status == "cancelled"


ROWS = {
    "the prompt": lambda row: row["content"] == "go",
    "a message": lambda row: "injections" in (row.get("metadata") or {}),
    "an answer with calls": lambda row: "tool_calls" in row,
    "a result": lambda row: row["role"] == "tool",
    "a late result": lambda row: "results" in (row.get("metadata") or {}),
    "an answer": lambda row: row["role"] == "assistant" and "tool_calls" not in row,
}


@pytest.mark.parametrize("how", ["graceful", "immediate", "cancel"])
@pytest.mark.parametrize("kind", ROWS)
@in_virtual_time
async def test_a_stop_ends_a_run_whose_log_hangs_whatever_it_is_to_take(kind: str, how: str) -> None:
    tool = gated(asyncio.Event())
    steps = call(use("wait", "a")), *(streaming("so far", then=say("meanwhile")) for _ in range(3))
    agent = await make_agent(*steps, tools=[tool])
    hangs = asyncio.Event()

    async def hang(row: dict[str, Any]) -> None:
        if ROWS[kind](row):
            hangs.set()
            await asyncio.Event().wait()

    agent.context.before = hang
    agent.progress.act_on("tool:start", lambda: agent.inject("!now"))
    if kind == "a late result":
        agent.progress.act_on("text", agent.stop)
    run = agent.start()
    await hangs.wait()
    began_s = asyncio.get_running_loop().time()
    if how == "cancel":
        run.cancel()
    else:
        agent.stop(immediate=how == "immediate")
    await asyncio.wait([run])
    assert run.cancelled() == (how == "cancel")
    assert asyncio.get_running_loop().time() - began_s < 10
    assert agent.progress.of("complete")[0]["status"] == "cancelled"
    assert tool.finished == 0
    agent.context.before = None
    agent.provider.drop_the_rest()
    agent.provider.add(say("next answer"))
    assert await agent.session.execute("next") == "next answer"


@pytest.mark.parametrize("moment", ["before", "after"])
@in_virtual_time
async def test_what_was_said_when_a_stop_cut_its_way_to_the_log_can_be_asked_for_where_the_log_has_it(
    moment: str,
) -> None:
    agent = await make_agent(doing(lambda: agent.inject("more"), say("first")), say("second"))
    unsaid = agent.coordinator.get_capability("orchestrator.unconfirmed_text")

    async def hang(row: dict[str, Any]) -> None:
        if row["content"] == [{"type": "text", "text": "second"}]:
            agent.stop()
            await asyncio.Event().wait()

    setattr(agent.context, moment, hang)
    assert await agent.run() == ""
    assert [data["text"] for data in agent.progress.of("text")] == ["first"]
    assert await unsaid() == ("second" if moment == "after" else "")
    assert await unsaid() == ""
    setattr(agent.context, moment, None)
    await goes_on(agent)
    assert await unsaid() == ""
