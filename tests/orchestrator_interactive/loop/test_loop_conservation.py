"""Whenever messages come, urgent or not, change or are taken back, and whenever the run is stopped: none is lost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from agents import ScriptedProvider, call, echo, faults, gated, make_agent, say, soon, use
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator_interactive import Injection, RunFinished
from orchestrator_interactive.kernel import HookResult

EVENTS = ("execution:start", "prompt:submit", "provider:request", "provider:response", "tool:pre", "tool:post")
ENDS = ("injection:applied", "execution:end", "orchestrator:complete")
TICKS = st.integers(0, 45)


@dataclass(frozen=True)
class _Message:
    """When it is written, and when its author edits it or takes it back, if they do."""

    at: int
    urgent: bool
    edited_at: int | None
    withdrawn_at: int | None


MESSAGES = st.builds(_Message, TICKS, st.booleans(), st.none() | TICKS, st.none() | TICKS)


class _World:
    """An agent whose every step is a tick, at which something may happen."""

    def __init__(self, messages: list[_Message], end: tuple[str, int] | None) -> None:
        self._messages, self._end = messages, end
        self._now = -1
        self.accepted: list[str] = []
        self.texts: dict[str, str] = {}

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
        for number, message in enumerate(self._messages):
            self._act(str(number), message)
        match self._end:
            case ("graceful", self._now):
                self.agent.stop()
            case ("immediate", self._now):
                self.agent.stop(immediate=True)
            case ("cancel", self._now):
                self._run.cancel()
        await asyncio.sleep(0)

    def _act(self, message_id: str, message: _Message) -> None:
        if message.at == self._now:
            self._offer(message_id, f"{'!' * message.urgent}more of {message_id}")
        if message.edited_at == self._now and self.agent.edit(message_id, f"edited {message_id}"):
            self.texts[message_id] = f"edited {message_id}"
        if message.withdrawn_at == self._now and self.agent.withdraw(message_id):
            self.accepted.remove(message_id)

    def _offer(self, message_id: str, text: str) -> None:
        try:
            self.agent.inject(Injection(text, id=message_id))
        except RunFinished:
            return
        self.accepted.append(message_id)
        self.texts[message_id] = text

    async def _on_hook(self, _event: str, _data: dict[str, Any]) -> HookResult:
        await self.tick()
        return HookResult()

    async def _on_progress(self, _event: str, _data: dict[str, Any]) -> None:
        await self.tick()

    async def _on_row(self, _row: dict[str, Any]) -> None:
        await self.tick()


async def _conserved(messages: list[_Message], end: tuple[str, int] | None) -> None:
    world = _World(messages, end)
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
    rows = [row for row in await world.agent.history() if "injections" in (row.get("metadata") or {})]
    assert [i for row in rows for i in row["metadata"]["injections"]] == world.accepted
    lines = [line for row in rows for line in row["content"].splitlines()[1:]]
    assert lines == [f"- {world.texts[i]}" for i in world.accepted]
    assert world.agent.provider.prefix_breaks() == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(MESSAGES, max_size=6), st.none() | st.tuples(st.sampled_from(["graceful", "immediate", "cancel"]), TICKS)
)
def test_each_accepted_message_is_delivered_exactly_once_and_in_order(
    messages: list[_Message], end: tuple[str, int] | None
) -> None:
    asyncio.run(_conserved(messages, end))
