"""A stop ends a run in every state, and twice is once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import (
    call,
    delivered,
    echo,
    fail,
    gated,
    goes_on,
    make_agent,
    never,
    say,
    soon,
    streaming,
    use,
)
from virtual_time import in_virtual_time

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError

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


class TestEveryState:
    @in_every_state
    @pytest.mark.parametrize("immediate", [False, True])
    @in_virtual_time
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
    @in_virtual_time
    async def test_a_graceful_stop_can_be_made_an_immediate_one(self, state: Any) -> None:
        agent, run = await state()
        assert [agent.stop(), agent.stop(immediate=True), agent.stop(immediate=True)] == [True, True, False]
        await soon(run)
        assert agent.progress.of("complete")[0]["status"] == "cancelled"

    @in_every_state
    @in_virtual_time
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
    @in_virtual_time
    async def test_every_tool_that_began_has_ended_for_whoever_watches(self, state: Any) -> None:
        agent, run = await state()
        agent.stop(immediate=True)
        await soon(run)
        begun, ended = (agent.progress.of(event) for event in ("tool:start", "tool:end"))
        assert [data["id"] for data in begun] == [data["id"] for data in ended]

    @in_every_state
    @in_virtual_time
    async def test_no_task_is_left(self, state: Any) -> None:
        before = asyncio.all_tasks()
        agent, run = await state()
        agent.stop(immediate=True)
        await soon(run)
        assert asyncio.all_tasks() - {run} <= before
