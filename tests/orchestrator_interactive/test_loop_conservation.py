"""Whenever messages come and whenever the run is stopped: each accepted message is delivered once, in order."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import ScriptedProvider, call, echo, faults, gated, make_agent, say, soon, use
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator_interactive import Injection, RunFinished
from orchestrator_interactive.kernel import HookResult

EVENTS = ("execution:start", "prompt:submit", "provider:request", "provider:response", "tool:pre", "tool:post")
ENDS = ("injection:applied", "execution:end", "orchestrator:complete")
TICKS = st.integers(0, 45)


class _World:
    """An agent whose every step is a tick, at which something may happen."""

    def __init__(self, offers: list[int], end: tuple[str, int] | None) -> None:
        self._offers, self._end = offers, end
        self._now = -1
        self.accepted: list[str] = []

    async def set_up(self) -> None:
        open_gate = asyncio.Event()
        open_gate.set()
        tools = [echo(), gated(open_gate)]
        steps = (call(use("echo", "a"), use("wait", "b")), call(use("wait", "c")), *(say(str(n)) for n in range(60)))
        self.agent = await make_agent(provider=ScriptedProvider(*steps), tools=tools, stop_grace_s=0)
        for event in (*EVENTS, *ENDS):
            self.agent.hooks.register(event, self._on_hook)
        self.agent.context.before = self._on_row

    async def first_run(self) -> None:
        self._run = asyncio.create_task(self.agent.session.execute("go", on_progress=self._on_progress))
        await soon(asyncio.wait([self._run]))
        if not self._run.cancelled():
            self._run.result()

    async def tick(self) -> None:
        self._now += 1
        for number, at in enumerate(self._offers):
            if at == self._now:
                self._offer(f"{at}.{number}")
        match self._end:
            case ("graceful", self._now):
                self.agent.stop()
            case ("immediate", self._now):
                self.agent.stop(immediate=True)
            case ("cancel", self._now):
                self._run.cancel()
        await asyncio.sleep(0)

    def _offer(self, message_id: str) -> None:
        try:
            self.agent.inject(Injection("more", id=message_id))
        except RunFinished:
            return
        self.accepted.append(message_id)

    async def _on_hook(self, _event: str, _data: dict[str, Any]) -> HookResult:
        await self.tick()
        return HookResult()

    async def _on_progress(self, _event: str, _data: dict[str, Any]) -> None:
        await self.tick()

    async def _on_row(self, _row: dict[str, Any]) -> None:
        await self.tick()


async def _conserved(offers: list[int], end: tuple[str, int] | None) -> None:
    world = _World(offers, end)
    await world.set_up()
    await world.first_run()
    history = await world.agent.history()
    if end is None or end[0] != "cancel":
        assert faults(history) == []
    world.agent.context.before = None
    for event in (*EVENTS, *ENDS):
        for name in world.agent.hooks.list_handlers(event)[event]:
            world.agent.hooks.unregister(name)
    await world.agent.run("next")
    rows = await world.agent.history()
    delivered = [i for row in rows for i in (row.get("metadata") or {}).get("injections", ())]
    assert delivered == world.accepted


@settings(max_examples=100, deadline=None)
@given(st.lists(TICKS, max_size=6), st.none() | st.tuples(st.sampled_from(["graceful", "immediate", "cancel"]), TICKS))
def test_each_accepted_message_is_delivered_exactly_once_and_in_order(
    offers: list[int], end: tuple[str, int] | None
) -> None:
    asyncio.run(_conserved(offers, end))
