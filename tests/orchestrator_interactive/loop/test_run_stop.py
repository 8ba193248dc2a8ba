"""A stop ends its run in every state, never reaches another run, and reports its tools and messages exactly."""

import asyncio
from functools import partial
from typing import Any

import pytest
from agents.after_run import delivered, goes_on
from agents.milestones import LONG_S, soon
from agents.provider import ScriptedProvider, call, doing, fail, never, say, streaming, use
from agents.recorders import Recorder, StaticLoader, mount_observed_context
from agents.session import Agent, make_agent
from agents.tools import Person, echo, gated
from virtual_time import in_virtual_time

from orchestrator_interactive import Injection, RunFinished
from orchestrator_interactive.kernel import AmplifierSession, HookResult
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError

Running = tuple[Agent, asyncio.Task[str]]
HOOKS = ("execution:start", "prompt:submit", "provider:request", "provider:response", "tool:pre", "tool:post")


@pytest.mark.parametrize("event", ["cancel:requested", "execution:end", "orchestrator:complete", "cancel:completed"])
@in_virtual_time
async def test_a_hook_on_the_events_of_the_stop_does_not_hold_it_up(event: str) -> None:
    agent = await make_agent(never())
    agent.events.listen(agent.hooks, event).hold(event, asyncio.Event())
    await agent.stopped(await agent.asked())
    assert agent.complete()["status"] == "cancelled"


@pytest.mark.parametrize("immediate", [False, True])
@pytest.mark.parametrize("event", [*HOOKS, "execution:end"])
async def test_a_hook_may_request_the_stop_itself(event: str, *, immediate: bool) -> None:
    tool = echo()
    agent = await make_agent(call(use("echo", "a"), use("echo", "b")), say("ok"), tools=[tool])

    async def stops(_event: str, _data: dict[str, Any]) -> None:
        await agent.coordinator.request_cancel(immediate)

    end = agent.hooks.register(event, stops)
    await agent.run()
    end()
    if event in HOOKS[:3]:
        assert agent.provider.requests == []
    assert tool.inputs == [] or event in {"tool:post", "execution:end"}
    await goes_on(agent)


async def test_a_stop_requested_before_the_run_holds_for_it_and_only_for_it() -> None:
    agent = await make_agent()
    agent.token.request_graceful()
    assert await agent.run() == ""
    assert agent.provider.requests == []
    await goes_on(agent)


async def test_a_stop_requested_while_the_session_starts_holds_for_the_run() -> None:
    async def mount_provider(coordinator: Any, _config: Any) -> None:
        await coordinator.mount("providers", ScriptedProvider(say("went on")))

    loader: Any = StaticLoader(watched=mount_observed_context, scripted=mount_provider)
    plan = {"session": {"orchestrator": "loop-interactive", "context": "watched"}, "providers": ["scripted"]}
    session = AmplifierSession(plan, loader=loader)
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


@pytest.mark.parametrize("immediate", [False, True])
async def test_hooks_and_the_session_learn_the_stage_of_a_stop(*, immediate: bool) -> None:
    agent = await make_agent(never())
    agent.events.listen(agent.hooks, "cancel:requested", "cancel:completed")
    await agent.stopped(await agent.asked(), immediate=immediate)
    seen = [(name, data.get("immediate", data.get("was_immediate"))) for name, data in agent.events.seen]
    assert seen == [("cancel:requested", immediate), ("cancel:completed", immediate)]
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
async def test_a_stop_ends_a_run_whose_log_hangs_at_any_kind_of_row(kind: str, how: str) -> None:
    tool = gated(asyncio.Event())
    steps = call(use("wait", "a")), *(streaming("so far", then=say("meanwhile")) for _ in range(3))
    agent = await make_agent(*steps, tools=[tool])
    hangs = agent.context.hold("before", ROWS[kind])
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
    assert agent.complete()["status"] == "cancelled"
    assert tool.finished == 0
    agent.context.accept()
    agent.provider.drop_the_rest()
    agent.provider.add(say("next answer"))
    assert await agent.session.execute("next") == "next answer"


@pytest.mark.parametrize("moment", ["before", "after"])
@in_virtual_time
async def test_an_answer_that_was_committed_during_a_stop_is_unsaid(moment: Any) -> None:
    agent = await make_agent(doing(lambda: agent.inject("more"), say("first")), say("second"))
    unsaid = agent.coordinator.get_capability("orchestrator.unconfirmed_text")
    agent.context.hold(moment, lambda row: row["content"] == [{"type": "text", "text": "second"}] and agent.stop())
    assert await agent.run() == ""
    assert agent.shown() == ["first"]
    assert await unsaid() == ("second" if moment == "after" else "")
    assert await unsaid() == ""
    agent.context.accept()
    await goes_on(agent)
    assert await unsaid() == ""


def _run_id(agent: Agent) -> str:
    run_id: str = agent.progress.of("executing")[-1]["run"]
    return run_id


class TestTheRunId:
    @pytest.mark.parametrize("immediate", [False, True])
    async def test_a_stop_that_is_older_than_the_run_does_nothing_to_it(self, *, immediate: bool) -> None:
        gate = asyncio.Event()
        agent = await make_agent(say("one"), streaming(gate, then=say("two")))
        await agent.run()
        old = _run_id(agent)
        run = await agent.asked(2)
        assert _run_id(agent) != old
        assert not agent.stop(immediate=immediate, run_id=old)
        gate.set()
        assert await soon(run) == "two"
        assert agent.complete()["status"] == "success"

    async def test_a_stop_for_another_run_does_not_make_a_graceful_stop_immediate(self) -> None:
        gate = asyncio.Event()
        tool = gated(gate)
        agent = await make_agent(call(use("wait", "a")), tools=[tool], stop_grace_s=LONG_S)
        run = await agent.in_tool(tool)
        assert agent.stop(run_id=_run_id(agent))
        assert not agent.stop(immediate=True, run_id="another")
        gate.set()
        await soon(run)
        assert tool.cancelled == 0

    async def test_the_id_is_known_from_the_first_event_on(self) -> None:
        agent = await make_agent()
        stopped: list[bool] = []
        agent.progress.act_on("executing", lambda: stopped.append(agent.stop(run_id=_run_id(agent))))
        await agent.run()
        assert stopped == [True]
        assert agent.provider.requests == []


class TestTheCompleteEvent:
    async def test_it_has_the_tools_of_all_turns_of_its_run(self) -> None:
        agent = await make_agent(call(use("echo", "a")), call(use("echo", "b")), say("ok"), tools=[echo()])
        await agent.run()
        assert list(agent.outcomes()) == ["a", "b"]
        agent.provider.add(say("next"))
        await agent.run()
        assert agent.complete()["tools"] == []

    @pytest.mark.parametrize("interrupted", [False, True])
    async def test_the_text_so_far_is_kept_returned_and_not_shown_as_an_answer(self, *, interrupted: bool) -> None:
        agent = await make_agent(streaming("so far", then=never()), streaming(" and on", then=never()))
        run = await agent.asked()
        if interrupted:
            agent.inject(Injection("!now", id="1"))
            agent.withdraw("1")
            await agent.provider.asked(2)
        text = "so far and on" if interrupted else "so far"
        assert await agent.stopped(run) == text
        assert "".join(said for role, said in await agent.told() if role == "assistant") == text
        assert agent.shown() == []


async def _held_at(event: str) -> Running:
    """A run that has a tool, an injected message and an interim text, held at an event."""
    steps = call(use("echo", "a")), doing(lambda: agent.inject("more"), say("interim")), say("last")
    agent = await make_agent(*steps, tools=[echo()], stop_grace_s=0)
    return agent, await agent.held_at(event)


async def _asked_for_approval(event: str) -> Running:
    person, grace_s = Person(), 0 if event == "tool:post" else LONG_S
    agent = await make_agent(call(use("echo", "a")), tools=[echo()], approvals=person, stop_grace_s=grace_s)
    questions = iter([HookResult(action="ask_user", approval_prompt="May I?", approval_timeout=LONG_S)])
    agent.on_hook(event, lambda _data: next(questions, None))
    run = agent.start()
    await soon(person.asked.wait())
    return agent, run


async def _waiting_for_the_model() -> Running:
    agent = await make_agent(never())
    return agent, await agent.asked()


async def _streaming() -> Running:
    agent = await make_agent(streaming("so far", then=never()))
    return agent, await agent.asked()


async def _in_tools() -> Running:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a")), tools=[tool], stop_grace_s=0)
    return agent, await agent.in_tool(tool)


async def _waiting_for_late_results() -> Running:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a")), say("meanwhile"), tools=[tool], stop_grace_s=0)
    run = await agent.in_tool(tool)
    agent.inject("!now")
    await agent.progress.reached("text")
    return agent, run


async def _retrying() -> Running:
    agent = await make_agent(fail(ProviderUnavailableError("down")), retry_base_delay_s=LONG_S)
    return agent, await agent.held_at("retrying")


async def _compacting() -> Running:
    agent = await make_agent()
    read, reached = agent.context.get_messages_for_request, asyncio.Event()

    async def compact(**_: Any) -> Any:
        agent.context.get_messages_for_request = read
        reached.set()
        await asyncio.Event().wait()

    agent.context.get_messages_for_request = compact  # type: ignore[assignment]
    run = agent.start()
    await soon(reached.wait())
    return agent, run


async def _showing_a_message_of_a_hook() -> Running:
    shown = asyncio.Event()

    class Display:
        async def show_message(*_: Any) -> None:
            shown.set()
            await asyncio.Event().wait()

    agent = await make_agent(say("ok"), display=Display())
    messages = iter([HookResult(user_message="look")])
    agent.on_hook("execution:start", lambda _data: next(messages, None))
    run = agent.start()
    await soon(shown.wait())
    return agent, run


STATES = {
    **{f"held at {event}": partial(_held_at, event) for event in (*HOOKS, "injection:applied", "executing", "text")},
    **{f"approval at {event}": partial(_asked_for_approval, event) for event in HOOKS[1:]},
    "waiting for the model": _waiting_for_the_model,
    "streaming": _streaming,
    "in tools": _in_tools,
    "waiting for late results": _waiting_for_late_results,
    "retrying": _retrying,
    "compacting": _compacting,
    "showing a message of a hook": _showing_a_message_of_a_hook,
}
in_every_state = pytest.mark.parametrize("state", STATES.values(), ids=STATES)


class TestEveryState:
    @in_every_state
    @pytest.mark.parametrize("immediate", [False, True])
    @in_virtual_time
    async def test_a_stop_ends_the_run_in_every_state_and_a_second_one_does_nothing(
        self, state: Any, *, immediate: bool
    ) -> None:
        before = asyncio.all_tasks()
        agent, run = await state()
        assert agent.stop(immediate=immediate)
        assert not agent.stop(immediate=immediate)
        assert not agent.stop()
        await soon(run)
        assert asyncio.all_tasks() - {run} <= before
        assert not agent.stop(immediate=True)
        with pytest.raises(RunFinished):
            agent.inject("late")
        assert [data["status"] for data in agent.progress.of("complete")] == ["cancelled"]
        begun, ended = (agent.progress.of(event) for event in ("tool:start", "tool:end"))
        assert [data["id"] for data in begun] == [data["id"] for data in ended]

    @in_every_state
    @in_virtual_time
    async def test_a_graceful_stop_can_become_immediate(self, state: Any) -> None:
        agent, run = await state()
        assert [agent.stop(), agent.stop(immediate=True), agent.stop(immediate=True)] == [True, True, False]
        await soon(run)

    @in_every_state
    @in_virtual_time
    async def test_a_pending_message_is_reported_and_leads_the_next_run(self, state: Any) -> None:
        agent, run = await state()
        agent.inject(Injection("last", id="1"))
        await agent.stopped(run)
        assert agent.complete()["messages"][-1] == {"id": "1", "state": "waiting", "iteration": None}
        assert agent.complete()["waiting"] >= 1
        agent.release()
        await goes_on(agent)
        assert (await delivered(agent))[-1] == "1"
