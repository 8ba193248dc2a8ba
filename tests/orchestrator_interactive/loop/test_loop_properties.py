"""No message is lost, and history and requests stay valid, whenever messages, hooks and stops come."""

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agents import Agent, ScriptedProvider, ScriptedTool, call, echo, faults, gated, make_agent, say, soon, use
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from orchestrator_interactive import Injection, RunFinished
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts.request_validation import problems_of

EVENTS = (
    "execution:start",
    "prompt:submit",
    "provider:request",
    "provider:response",
    "tool:pre",
    "tool:post",
    "tool:error",
    "injection:applied",
    "cancel:requested",
    "execution:end",
    "orchestrator:complete",
)
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
        for event in EVENTS:
            self.agent.hooks.register(event, self._on_hook, name="ticks")
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
    world.agent.hooks.unregister("ticks")
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


class _Random:
    """The delays of all parts and the results of the hooks, both from a seed."""

    def __init__(self, number: int) -> None:
        self._random = random.Random(number)  # noqa: S311 - nothing secret

    async def delay(self, *_: Any) -> None:
        for _step in range(self._random.randrange(4)):
            await asyncio.sleep(0)

    async def result(self, event: str, data: dict[str, Any]) -> HookResult:
        await self.delay()
        if event == "tool:pre" and data["tool_call_id"] == "d" and self._likely():
            return HookResult(action="deny", reason="no")
        return HookResult(
            action="inject_context",
            context_injection=f"noted at {event}",
            context_injection_role=self._random.choice(["system", "user", "assistant"]),
            ephemeral=self._likely(),
            append_to_last_tool_result=self._likely(),
        )

    def _likely(self) -> bool:
        return self._random.random() < 0.5


async def _agent(seeded: _Random) -> Agent:
    batch = call(use("slow", "a"), use("echo", "b"), use("nope", "c"), use("slow", "d"), text="Let me see.")
    tools = [ScriptedTool("slow", seeded.delay), echo()]
    agent = await make_agent(batch, call(use("slow", "e")), *(say("ok") for _ in range(3)), tools=tools, stop_grace_s=0)
    agent.context.before = agent.context.after = seeded.delay
    for event in EVENTS:
        agent.hooks.register(event, seeded.result, name="noter")
    return agent


def _interrupt(agent: Agent, run: asyncio.Task[str], how: str) -> None:
    match how:
        case "graceful" | "immediate":
            agent.stop(immediate=how == "immediate")
        case "cancel":
            run.cancel()
        case "steer":
            with suppress(RunFinished):
                agent.inject("more")


async def _valid(how: str, step: int, number: int) -> None:
    agent = await _agent(_Random(number))
    run = agent.start()
    for _ in range(step):
        await asyncio.sleep(0)
    _interrupt(agent, run, how)
    await soon(asyncio.wait([run]))
    if not run.cancelled():
        run.result()
    found = faults(await agent.history())
    with capture_logs() as logs:
        agent.hooks.unregister("noter")
        agent.provider.drop_the_rest()
        agent.provider.add(say("next answer"))
        assert await agent.run("next") == "next answer"
    assert [refusal for request in agent.provider.requests for refusal in problems_of(request)] == []
    # A run that is cancelled while the calls are committed has no results: the next request adds them.
    assert found == [] or (how == "cancel" and all(fault.startswith("call without") for fault in found))
    assert found or "request.repaired" not in {entry["event"] for entry in logs}


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(["graceful", "immediate", "cancel", "steer"]), st.integers(0, 150), st.integers(0, 1_000_000))
def test_history_and_requests_are_valid_whenever_a_run_is_interrupted(how: str, step: int, number: int) -> None:
    asyncio.run(_valid(how, step, number))
