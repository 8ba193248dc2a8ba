"""A stop holds in every state, once, for its run only; and what it leaves behind is told exactly."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import (
    call,
    deaf_tool,
    delivered,
    echo,
    fail,
    gated,
    goes_on,
    having,
    make_agent,
    never,
    raising,
    say,
    soon,
    streaming,
    use,
)

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.errors import ProviderUnavailableError

if TYPE_CHECKING:
    from agents import Agent

# Far longer than a test takes: what ends by itself after this long would be a hang.
LONG_S = 600


class Nobody:
    """Is asked, and never answers."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def request_approval(self, *_: Any) -> str:
        self.asked.set()
        await asyncio.Event().wait()
        return "unreachable"


async def _setting_up() -> tuple[Agent, Any]:
    return await _at_hook("execution:start")


async def _being_asked_to_begin() -> tuple[Agent, Any]:
    return await _at_hook("prompt:submit")


async def _asking_hooks_about_the_request() -> tuple[Agent, Any]:
    return await _at_hook("provider:request")


async def _asking_hooks_about_the_answer() -> tuple[Agent, Any]:
    return await _at_hook("provider:response")


async def _at_hook(event: str) -> tuple[Agent, Any]:
    agent = await make_agent(say("unreachable"))
    agent.events.listen(agent.hooks, event).hold(event, asyncio.Event())
    run = agent.start()
    await agent.events.reached(event)
    return agent, run


async def _showing_that_it_begins() -> tuple[Agent, Any]:
    agent = await make_agent(say("unreachable"))
    agent.progress.hold("executing", asyncio.Event())
    run = agent.start()
    await agent.progress.reached("executing")
    return agent, run


async def _waiting_for_the_model() -> tuple[Agent, Any]:
    agent = await make_agent(never())
    run = agent.start()
    await agent.provider.asked(1)
    return agent, run


async def _streaming() -> tuple[Agent, Any]:
    agent = await make_agent(streaming("so far", then=never()))
    run = agent.start()
    await agent.provider.asked(1)
    return agent, run


async def _in_tools() -> tuple[Agent, Any]:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a")), tools=[tool], stop_grace_s=0)
    run = agent.start()
    await tool.started()
    return agent, run


async def _waiting_for_late_results() -> tuple[Agent, Any]:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a")), say("meanwhile"), tools=[tool], stop_grace_s=0)
    run = agent.start()
    await tool.started()
    agent.inject("!now")
    await agent.progress.reached("text")
    return agent, run


async def _waiting_for_an_approval() -> tuple[Agent, Any]:
    nobody = Nobody()
    agent = await make_agent(call(use("echo", "a")), tools=[echo()], approvals=nobody, stop_grace_s=LONG_S)
    agent.on_hook("tool:pre", HookResult(action="ask_user", approval_prompt="May I?", approval_timeout=LONG_S))
    run = agent.start()
    await soon(nobody.asked.wait())
    return agent, run


async def _retrying() -> tuple[Agent, Any]:
    agent = await make_agent(fail(ProviderUnavailableError("down")), retry_base_delay_s=LONG_S)
    run = agent.start()
    await agent.progress.reached("retrying")
    return agent, run


async def _compacting() -> tuple[Agent, Any]:
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


STATES = [
    _setting_up,
    _showing_that_it_begins,
    _being_asked_to_begin,
    _asking_hooks_about_the_request,
    _compacting,
    _waiting_for_the_model,
    _streaming,
    _retrying,
    _asking_hooks_about_the_answer,
    _waiting_for_an_approval,
    _in_tools,
    _waiting_for_late_results,
]
in_every_state = pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__.strip("_"))


def _let_go(agent: Agent) -> None:
    for recorder in (agent.events, agent.progress):
        recorder._gates.clear()


def _run_id(agent: Agent) -> str:
    run_id: str = agent.progress.of("executing")[-1]["run"]
    return run_id


class TestEveryState:
    @in_every_state
    @pytest.mark.parametrize("immediate", [False, True])
    async def test_a_stop_ends_the_run_from_every_state_and_twice_is_once(self, state: Any, *, immediate: bool) -> None:
        agent, run = await state()
        assert agent.stop(immediate=immediate)
        assert not agent.stop(immediate=immediate)
        assert not agent.stop()
        await soon(run)
        assert not agent.stop(immediate=True)
        [complete] = agent.progress.of("complete")
        assert complete["status"] == "cancelled"
        _let_go(agent)
        await goes_on(agent)

    @in_every_state
    async def test_a_graceful_stop_can_be_made_an_immediate_one(self, state: Any) -> None:
        agent, run = await state()
        assert [agent.stop(), agent.stop(immediate=True), agent.stop(immediate=True)] == [True, True, False]
        await soon(run)
        assert agent.progress.of("complete")[0]["status"] == "cancelled"

    @in_every_state
    async def test_a_message_that_waits_is_named_and_leads_the_next_run(self, state: Any) -> None:
        agent, run = await state()
        agent.inject(Injection("more", id="1"))
        agent.stop(immediate=True)
        await soon(run)
        [complete] = agent.progress.of("complete")
        assert complete["waiting"] == 1
        assert complete["messages"][-1] == {"id": "1", "state": "waiting", "iteration": None}
        _let_go(agent)
        await goes_on(agent)
        assert (await delivered(agent))[-1:] == ["1"]

    @in_every_state
    async def test_every_tool_that_began_has_ended_for_whoever_watches(self, state: Any) -> None:
        agent, run = await state()
        agent.stop(immediate=True)
        await soon(run)
        begun, ended = (agent.progress.of(event) for event in ("tool:start", "tool:end"))
        assert [data["id"] for data in begun] == [data["id"] for data in ended]

    @in_every_state
    async def test_no_task_is_left(self, state: Any) -> None:
        before = asyncio.all_tasks()
        agent, run = await state()
        agent.stop(immediate=True)
        await soon(run)
        assert asyncio.all_tasks() - {run} <= before


class TestTheFence:
    async def test_a_stop_for_this_run_stops_it(self) -> None:
        agent, run = await _streaming()
        assert agent.stop(run_id=_run_id(agent))
        assert await soon(run) == "so far"

    @pytest.mark.parametrize("immediate", [False, True])
    async def test_a_stop_that_is_older_than_the_run_does_nothing_to_it(self, *, immediate: bool) -> None:
        gate = asyncio.Event()
        agent = await make_agent(say("one"), streaming(gate, then=say("two")))
        await agent.run()
        old = _run_id(agent)
        run = agent.start()
        await agent.provider.asked(2)
        assert _run_id(agent) != old
        assert not agent.stop(immediate=immediate, run_id=old)
        gate.set()
        assert await soon(run) == "two"
        assert agent.progress.of("complete")[-1]["status"] == "success"

    async def test_it_does_not_make_a_graceful_stop_an_immediate_one_either(self) -> None:
        gate = asyncio.Event()
        tool = gated(gate)
        agent = await make_agent(call(use("wait", "a")), tools=[tool], stop_grace_s=LONG_S)
        run = agent.start()
        await tool.started()
        assert agent.stop(run_id=_run_id(agent))
        assert not agent.stop(immediate=True, run_id="another")
        gate.set()
        await soon(run)
        assert tool.cancelled == 0

    async def test_a_stop_by_name_is_known_from_the_first_event_on(self) -> None:
        agent = await make_agent()
        agent.progress.act_on("executing", lambda: stopped.append(agent.stop(run_id=_run_id(agent))))
        stopped: list[bool] = []
        await agent.run()
        assert stopped == [True]
        assert agent.provider.requests == []


class TestTheReceipt:
    async def test_it_names_tools_by_what_became_of_them(self) -> None:
        gate, held, release = asyncio.Event(), asyncio.Event(), asyncio.Event()
        stuck, deaf = gated(gate, "stuck"), deaf_tool(release)
        looking = having(gated(gate, "look"), side_effect_free=True, label=lambda given: f"Looking at {given['at']}")
        batch = call(
            use("echo", "done"),
            use("break", "broken"),
            use("nope", "unknown to us"),
            use("stuck", "running"),
            use("deaf", "deaf"),
            use("look", "looking", at="it"),
            use("held", "held"),
        )
        tools = [echo(), raising(OSError("no disk")), stuck, deaf, looking, echo("held")]
        agent = await make_agent(batch, tools=tools)

        async def hold(_event: str, data: dict[str, Any]) -> HookResult:
            if data["tool_name"] == "held":
                held.set()
                await asyncio.Event().wait()
            return HookResult()

        agent.hooks.register("tool:pre", hold)
        run = agent.start()
        await soon(asyncio.gather(held.wait(), stuck.started(), deaf.started(), looking.started()))
        await agent.progress.reached("tool:end", 2)
        agent.stop(immediate=True)
        await soon(run)
        release.set()
        tools_told = agent.progress.of("complete")[0]["tools"]
        assert {each["id"]: each["outcome"] for each in tools_told} == {
            "done": "finished",
            "broken": "failed",
            "unknown to us": "failed",
            "running": "unknown",
            "deaf": "unknown",
            "looking": "cancelled",
            "held": "cancelled",
        }
        assert {each["id"]: each["tool"] for each in tools_told}["deaf"] == "deaf"
        assert [each["label"] for each in tools_told if each["label"]] == ["Looking at it"]

    async def test_a_tool_that_ends_within_the_grace_period_has_finished(self) -> None:
        gate = asyncio.Event()
        tool = gated(gate)
        agent = await make_agent(call(use("wait", "a")), tools=[tool], stop_grace_s=LONG_S)
        run = agent.start()
        await tool.started()
        agent.stop()
        gate.set()
        await soon(run)
        assert [each["outcome"] for each in agent.progress.of("complete")[0]["tools"]] == ["finished"]

    async def test_a_result_that_nobody_has_checked_was_an_end_all_the_same(self) -> None:
        agent = await make_agent(call(use("echo", "a")), tools=[echo()])
        agent.events.listen(agent.hooks, "tool:post").hold("tool:post", asyncio.Event())
        run = agent.start()
        await agent.events.reached("tool:post")
        agent.stop(immediate=True)
        await soon(run)
        assert [each["outcome"] for each in agent.progress.of("complete")[0]["tools"]] == ["finished"]

    async def test_tools_of_all_the_turns_are_named_in_order(self) -> None:
        agent = await make_agent(call(use("echo", "a")), call(use("echo", "b")), say("ok"), tools=[echo()])
        await agent.run()
        assert [each["id"] for each in agent.progress.of("complete")[0]["tools"]] == ["a", "b"]
        agent.provider.add(say("next"))
        await agent.run()
        assert agent.progress.of("complete")[1]["tools"] == []

    async def test_each_message_stands_where_it_ended(self) -> None:
        agent = await make_agent(call(use("echo", "a")), streaming("so far", then=never()), tools=[echo()])
        agent.inject(Injection("read", id="1"))
        run = agent.start()
        await agent.provider.asked(2)
        for number in "23":
            agent.inject(Injection("more", id=number))
        agent.withdraw("2")
        agent.stop()
        assert await soon(run) == "so far"
        assert agent.progress.of("complete")[0]["messages"] == [
            {"id": "1", "state": "delivered", "iteration": 1},
            {"id": "2", "state": "withdrawn", "iteration": None},
            {"id": "3", "state": "waiting", "iteration": None},
        ]

    @pytest.mark.parametrize("moment", ["while it streams", "after it was cut"])
    async def test_the_text_so_far_is_kept_returned_and_not_shown_as_an_answer(self, moment: str) -> None:
        agent = await make_agent(streaming("so far", then=never()), streaming(" and on", then=never()))
        run = agent.start()
        await agent.provider.asked(1)
        if moment == "after it was cut":
            agent.inject(Injection("!now", id="1"))
            agent.withdraw("1")
            await agent.provider.asked(2)
        agent.stop()
        text = "so far and on" if moment == "after it was cut" else "so far"
        assert await soon(run) == text
        assert "".join(said for role, said in await agent.told() if role == "assistant") == text
        assert agent.progress.of("text") == []

    async def test_its_reason_is_nobodys_limit(self) -> None:
        agent, run = await _streaming()
        agent.stop()
        await soon(run)
        assert "reason" not in agent.progress.of("complete")[0]
