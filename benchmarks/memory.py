"""Memory of an idle conversation."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Row, Side

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.harness import Operations
    from benchmarks.loops import NewConversation

CONVERSATIONS = 20
TURNS = 20
A_MOMENT_S = 2.0
AN_HOUR_S = 3600.0


class ClockedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock can be advanced, to test eviction after a time."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


@asynccontextmanager
async def operations(file: str, function: str) -> AsyncIterator[Operations]:
    new: NewConversation = getattr(import_module(f"benchmarks.loops.{file}"), function)
    yield {
        "soon": partial(asyncio.to_thread, in_a_loop, new, A_MOMENT_S),
        "at_rest": partial(asyncio.to_thread, in_a_loop, new, AN_HOUR_S),
    }


def in_a_loop(new: NewConversation, later_s: float) -> float:
    loop = ClockedLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(kept(new, loop, later_s))


async def kept(new: NewConversation, loop: ClockedLoop, later_s: float) -> float:
    """Return the bytes per conversation, that many seconds after its run."""
    tracemalloc.start()
    try:
        for _ in range(CONVERSATIONS):  # warm-up: imports, caches, free lists, which conversations share
            await lived(new)
        before = await allocated(loop, AN_HOUR_S)
        conversations = [await lived(new) for _ in range(CONVERSATIONS)]
        after = await allocated(loop, later_s)
        return (after - before) / len(conversations)
    finally:
        tracemalloc.stop()


async def allocated(loop: ClockedLoop, later_s: float) -> int:
    """Return the bytes that Python has allocated, after advancing the clock."""
    loop.ahead_s += later_s
    await asyncio.sleep(0.2)  # runs the timers that are due
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def lived(new: NewConversation) -> object:
    conversation = await new(0)
    await conversation.run(TURNS)
    return conversation.remains


def side(name: str, file: str, function: str = "conversation", *packages: str) -> Side:
    return Side(name, partial(operations, file, function), packages, "make bench")


BENCHMARK = Benchmark(
    title="An idle conversation",
    rows=(
        Row("soon", f"after {TURNS} turns", unit="KiB", meter="itself", once=True),
        Row("at_rest", "an hour later", unit="KiB", target=30, meter="itself", once=True),
    ),
    sides=(
        side("ours: a session with context-simple", "ours", "in_session"),
        side("ours: a session with context-stack, in SQLite", "ours", "durable"),
        side("ours: in the service, which evicts idle sessions", "served", "served"),
        side("a bare loop: a list of messages", "bare", "bare"),
        side("amplifier-core: a session with a list", "amplifier", "conversation", "amplifier-core"),
        side("langgraph: the messages alone", "langgraph", "conversation", "langgraph", "langchain"),
        side("pydantic-ai: the messages alone", "pydantic_ai", "conversation", "pydantic-ai-slim"),
        side("openai-agents: the messages alone", "openai_agents", "conversation", "openai-agents"),
    ),
    notes=(
        (
            f"The conversation of the first table: a prompt, {TURNS} tool turns and an answer, of a few words each, so "
            "the figures show mainly the cost of the objects around the text. Memory allocated by Python "
            f"(tracemalloc), the mean of {CONVERSATIONS} conversations. Memory that they share is not included, nor "
            "are amplifier-core's allocations in Rust."
        ),
        (
            "Our context compresses the messages one second after their run (one minute if there are more than a "
            "hundred), and decompresses them for the next run. These messages repeat, so almost only the session "
            "itself remains; varied text shrinks to about a third. The service evicts a session 15 minutes after its "
            "last run (`idle_evict_s`); the conversation is then only in its store. The remaining memory is a cache "
            "of Python's SQLite, which does not grow with the number of conversations."
        ),
    ),
)
