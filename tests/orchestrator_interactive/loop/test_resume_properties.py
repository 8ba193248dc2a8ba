"""A run that is killed after any row is resumed by another process, and its texts are numbered."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from agents import answer
from hypothesis import given, settings
from hypothesis import strategies as st
from killed_runs import HARMLESS, Process, SharedState, SnapshotStore, all_is_told, all_is_well, texts_in

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import HookResult, ResponseStream
from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    ChatResponse,
    ContentBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from orchestrator_interactive.transcript.rows import delivered_ids_in

TICKS = st.integers(0, 60)
# The same step says the same, whichever process asks for it, but for the ids of its calls.
SAYINGS = st.sampled_from(["say", "cut", "thought", "tools", "slow tool", "harmless", "refused"])


@dataclass(frozen=True)
class _Message:
    at: int
    urgent: bool


MESSAGES = st.lists(st.builds(_Message, TICKS, st.booleans()), max_size=4)
ENDS = st.none() | st.tuples(st.sampled_from(["graceful", "immediate", "suspend"]), TICKS)
# How an answer ends that is complete.
WHOLE = re.compile(r"(say|last words) \d+$")
# The events whose hooks inject something.
INJECTING = ("execution:start", "provider:response", "tool:post")


class _Played:
    """A process at whose every step something may happen."""

    def __init__(
        self, world: SharedState, sayings: list[str], messages: list[_Message], end: tuple[str, int] | None
    ) -> None:
        self._now, self._messages, self._end = -1, messages, end
        self.process = Process(world, lambda _: self._steps(sayings), stop_grace_s=0)
        self.process.on_tick = self.tick

    async def play(self, *, injects: bool = False) -> str:
        process = self.process
        tools = [process.tool(name, self._works(ticks)) for name, ticks in (("do", 1), (HARMLESS, 1), ("slow", 4))]
        await process.begin(*tools)
        for event in INJECTING:
            process.session.coordinator.hooks.register(event, self._injecting(on=injects))
        return await process.run()

    def _works(self, ticks: int) -> Callable[[dict[str, Any]], Awaitable[str]]:
        async def work(_given: dict[str, Any]) -> str:
            for _ in range(ticks):
                await self.tick()
            return "done"

        return work

    def _injecting(self, *, on: bool) -> Callable[[str, dict[str, Any]], Awaitable[HookResult]]:
        async def inject(event: str, _data: dict[str, Any]) -> HookResult:
            await self.tick()
            role = "assistant" if event == "provider:response" else "user"
            if not on:
                return HookResult()
            return HookResult(action="inject_context", context_injection=f"at {event}", context_injection_role=role)

        return inject

    async def tick(self) -> None:
        self._now += 1
        for number, message in enumerate(self._messages):
            if message.at == self._now:
                self.process.write(Injection(f"{'!' * message.urgent}more {number}", id=str(number)))
        match self._end:
            case ("suspend", self._now):
                self.process.suspend()
            case (stage, self._now):
                self.process.stop(immediate=stage == "immediate")
        await asyncio.sleep(0)

    def _steps(self, sayings: list[str]) -> list[Any]:
        steps = [self._step(kind, number) for number, kind in enumerate(sayings)]
        return steps + [self._says(f"last words {number}") for number in range(60)]

    def _step(self, kind: str, number: int) -> Any:
        if tools := {"tools": ("do", HARMLESS, "do"), "slow tool": ("slow", "do"), "harmless": (HARMLESS,) * 2}.get(
            kind
        ):
            return self._calls(number, *tools)
        match kind:
            case "cut":
                return self._says(f"half {number} ", finish_reason="max_tokens")
            case "thought":
                thinking = ThinkingBlock(thinking="hm", signature="s")
                return self._says(f"thought {number} ", thinking, finish_reason="max_tokens")
            case "refused":
                return self._says(f"no {number}", finish_reason="refusal")
        return self._says(f"say {number}")

    def _says(self, text: str, *blocks: ContentBlock, **more: Any) -> Any:
        async def step(request: ChatRequest, stream: ResponseStream) -> ChatResponse:
            for block in blocks:
                stream.block(block)
            for word in text:
                stream.text(word)
                await self.tick()
            return await answer(*blocks, TextBlock(text=text), **more)(request, stream)

        return step

    def _calls(self, number: int, *names: str) -> Any:
        made = [
            ToolCallBlock(id=f"{number}-{place}", name=name, input={"text": f"{name} {number}-{place}"})
            for place, name in enumerate(names)
        ]
        blocks = [TextBlock(text=f"beside {number}"), *made]

        async def step(request: ChatRequest, stream: ResponseStream) -> ChatResponse:
            for block in blocks:
                stream.block(block)
                await self.tick()
            return await answer(*blocks)(request, stream)

        return step


async def _photographed(world: SharedState, played: _Played, *, injects: bool) -> tuple[str, list[SharedState]]:
    """The answer, and the state of the log after each row, as the next process finds it."""
    world.store = store = SnapshotStore(world)
    store.on_commit = played.tick
    answered = await played.play(injects=injects)
    rows, shown = await world.rows(), played.process.texts(answered)
    if played.process.end["status"] == "suspended":  # the process that resumes it has more to settle
        assert texts_in(rows)[: len(shown)] == shown
    else:
        assert texts_in(rows) == shown
        all_is_well(rows, world)
        all_is_told(rows, played.process)
    store.take()
    return answered, store.pictures


async def _gone_on_with(world: SharedState, sayings: list[str], *, injects: bool) -> str:
    """The answer of the process that resumes the run."""
    played = _Played(world, sayings, [], None)
    answered = await played.play(injects=injects)
    rows, status = await world.rows(), played.process.end["status"]
    all_is_well(rows, world)
    all_is_told(rows, played.process)
    assert texts_in(rows) == played.process.texts(answered)
    assert all(text in played.process.texts(answered) for text in world.read)
    assert (status == "cancelled") == world.is_stopped
    assert status in ("incomplete", "cancelled") or WHOLE.search(answered)
    if not world.is_stopped:
        assert {each.id for each in world.written} <= {each for row in rows for each in delivered_ids_in(row)}
        again = _Played(world, sayings, [], None)
        assert await again.play() == answered
        assert await world.rows() == rows
        all_is_told(rows, again.process)
    return answered


async def _killed(sayings: list[str], messages: list[_Message], end: tuple[str, int] | None, *, injects: bool) -> None:
    world = SharedState()
    undisturbed, pictures = await _photographed(world, _Played(world, sayings, messages, end), injects=injects)
    for picture in pictures:
        answered = await _gone_on_with(picture, sayings, injects=injects)
        assert answered == undisturbed or messages or end


async def _killed_twice(
    sayings: list[str], messages: list[_Message], ends: list[tuple[str, int] | None], *, at: int
) -> None:
    world = SharedState()
    _, pictures = await _photographed(world, _Played(world, sayings, messages, ends[0]), injects=False)
    world = pictures[at % len(pictures)]
    _, pictures = await _photographed(world, _Played(world, sayings, [], ends[1]), injects=False)
    for picture in pictures:
        await _gone_on_with(picture, sayings, injects=False)


@settings(max_examples=30, deadline=None)
@given(st.lists(SAYINGS, max_size=5), MESSAGES, ENDS, st.booleans())
def test_a_run_that_is_killed_after_any_row_is_resumed(
    sayings: list[str], messages: list[_Message], end: tuple[str, int] | None, injects: bool
) -> None:
    asyncio.run(_killed(sayings, messages, end, injects=injects))


@settings(max_examples=30, deadline=None)
@given(st.lists(SAYINGS, max_size=5), MESSAGES, st.lists(ENDS, min_size=2, max_size=2), st.integers(0, 30))
def test_a_run_that_is_killed_twice_is_resumed(
    sayings: list[str], messages: list[_Message], ends: list[tuple[str, int] | None], at: int
) -> None:
    asyncio.run(_killed_twice(sayings, messages, ends, at=at))
