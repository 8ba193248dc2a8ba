"""Whatever a run was at when its process was killed, another one goes on with it; and what people read is numbered."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agents import answer
from hypothesis import given, settings
from hypothesis import strategies as st
from killed_runs import HARMLESS, Photographed, Process, World, all_is_well, texts_in

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.messages import TextBlock, ThinkingBlock, ToolCallBlock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agents.provider import Step

    from orchestrator_interactive.kernel import ResponseStream
    from orchestrator_interactive.kernel.messages import ChatRequest, ChatResponse, ContentBlock

TICKS = st.integers(0, 60)
# The same step says the same, whichever process asks for it, but for the ids of its calls.
SAYINGS = st.sampled_from(["say", "cut", "thought", "tools", "slow tool", "harmless", "refused"])


@dataclass(frozen=True)
class _Message:
    at: int
    urgent: bool


MESSAGES = st.lists(st.builds(_Message, TICKS, st.booleans()), max_size=4)
ENDS = st.none() | st.tuples(st.sampled_from(["graceful", "immediate", "suspend"]), TICKS)


# Where hooks have something to add to the conversation.
REMARKS = ("execution:start", "provider:response", "tool:post")


class _Played:
    """A process at whose every step something may happen."""

    def __init__(self, world: World, sayings: list[str], messages: list[_Message], end: tuple[str, int] | None) -> None:
        self._now, self._messages, self._end = -1, messages, end
        self.process = Process(world, lambda _: self._steps(sayings), stop_grace_s=0)
        self.process.on_tick = self.tick

    async def play(self, *, remarks: bool = False) -> str:
        process = self.process
        tools = [process.tool(name, self._works(ticks)) for name, ticks in (("do", 1), (HARMLESS, 1), ("slow", 4))]
        await process.begin(*tools)
        for event in REMARKS:
            process.session.coordinator.hooks.register(event, self._remarking(on=remarks))
        return await process.run()

    def _works(self, ticks: int) -> Callable[[dict[str, Any]], Awaitable[str]]:
        async def work(_given: dict[str, Any]) -> str:
            for _ in range(ticks):
                await self.tick()
            return "done"

        return work

    def _remarking(self, *, on: bool) -> Callable[[str, dict[str, Any]], Awaitable[HookResult]]:
        async def remark(event: str, _data: dict[str, Any]) -> HookResult:
            await self.tick()
            role = "assistant" if event == "provider:response" else "user"
            if not on:
                return HookResult()
            return HookResult(action="inject_context", context_injection=f"at {event}", context_injection_role=role)

        return remark

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

    def _steps(self, sayings: list[str]) -> list[Step]:
        steps = [self._step(kind, number) for number, kind in enumerate(sayings)]
        return steps + [self._says(f"last words {number}") for number in range(60)]

    def _step(self, kind: str, number: int) -> Step:
        match kind:
            case "cut":
                return self._says(f"half {number} ", finish_reason="max_tokens")
            case "thought":
                thinking = ThinkingBlock(thinking="hm", signature="s")
                return self._says(f"thought {number} ", thinking, finish_reason="max_tokens")
            case "tools":
                return self._calls(number, "do", HARMLESS, "do")
            case "slow tool":
                return self._calls(number, "slow", "do")
            case "harmless":
                return self._calls(number, HARMLESS, HARMLESS)
            case "refused":
                return self._says(f"no {number}", finish_reason="refusal")
        return self._says(f"say {number}")

    def _says(self, text: str, *blocks: ContentBlock, **more: Any) -> Step:
        async def step(request: ChatRequest, stream: ResponseStream) -> ChatResponse:
            for block in blocks:
                stream.block(block)
            for word in text:
                stream.text(word)
                await self.tick()
            return await answer(*blocks, TextBlock(text=text), **more)(request, stream)

        return step

    def _calls(self, number: int, *names: str) -> Step:
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


async def _numbered(
    sayings: list[str], messages: list[_Message], end: tuple[str, int] | None, *, remarks: bool
) -> None:
    world = World()
    played = _Played(world, sayings, messages, end)
    world.store = store = Photographed(world)
    store.on_commit = played.tick
    answered = await played.play(remarks=remarks)
    rows = await world.rows()
    if played.process.end["status"] == "suspended":
        assert texts_in(rows)[: len(played.process.texts(answered))] == played.process.texts(answered)
    else:
        assert texts_in(rows) == played.process.texts(answered)


@settings(max_examples=200, deadline=None)
@given(st.lists(SAYINGS, max_size=6), MESSAGES, ENDS, st.booleans())
def test_what_people_were_told_in_which_order_stands_in_the_rows(
    sayings: list[str], messages: list[_Message], end: tuple[str, int] | None, remarks: bool
) -> None:
    asyncio.run(_numbered(sayings, messages, end, remarks=remarks))


async def _resumed_from_everywhere(
    sayings: list[str], messages: list[_Message], end: tuple[str, int] | None, *, remarks: bool
) -> None:
    world = World()
    world.store = store = Photographed(world)
    first = _Played(world, sayings, messages, end)
    store.on_commit = first.tick
    await first.play(remarks=remarks)
    all_is_well(await world.rows(), world)
    store.take()
    for picture in store.pictures:
        second = _Played(picture, sayings, [], None)
        answered = await second.play(remarks=remarks)
        rows = await picture.rows()
        picture.read = [*dict.fromkeys([*picture.read, *second.process.texts(answered)])]
        all_is_well(rows, picture, picture)
        assert texts_in(rows) == second.process.texts(answered)
        assert second.process.end["status"] in ("success", "incomplete", "cancelled")
        assert (second.process.end["status"] == "cancelled") == picture.is_stopped
        if not picture.is_stopped:
            assert await _Played(picture, sayings, [], None).play() == answered
            assert await picture.rows() == rows


@settings(max_examples=60, deadline=None)
@given(st.lists(SAYINGS, max_size=5), MESSAGES, ENDS, st.booleans())
def test_killed_after_any_row_it_is_gone_on_with(
    sayings: list[str], messages: list[_Message], end: tuple[str, int] | None, remarks: bool
) -> None:
    asyncio.run(_resumed_from_everywhere(sayings, messages, end, remarks=remarks))
