"""What a conversation keeps in memory while nobody writes."""

from __future__ import annotations

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

CONVERSATIONS = 30
TURNS = 20


@asynccontextmanager
async def operations(file: str, function: str) -> AsyncIterator[Operations]:
    new: NewConversation = getattr(import_module(f"benchmarks.loops.{file}"), function)
    yield {"idle": partial(kept, new)}


async def kept(new: NewConversation) -> float:
    """Bytes for each conversation."""
    await _lived(new)  # imports, caches, and whatever else conversations share
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        conversations = [await _lived(new) for _ in range(CONVERSATIONS)]
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        return (after - before) / len(conversations)
    finally:
        tracemalloc.stop()


async def _lived(new: NewConversation) -> object:
    conversation = await new(0)
    await conversation.run(TURNS)
    return conversation.remains


def side(name: str, file: str, function: str = "conversation", *packages: str) -> Side:
    return Side(name, partial(operations, file, function), packages, "make bench")


BENCHMARK = Benchmark(
    title="An idle conversation",
    rows=(Row("idle", f"after {TURNS} turns", unit="KiB", target=30, meter="itself", once=True),),
    sides=(
        side("ours: a session with context-simple", "ours", "in_session"),
        side("a bare loop: a list of messages", "bare", "bare"),
        side("amplifier-core: a session with a list", "amplifier", "conversation", "amplifier-core"),
        side("langgraph: the messages alone", "langgraph", "conversation", "langgraph", "langchain"),
        side("pydantic-ai: the messages alone", "pydantic_ai", "conversation", "pydantic-ai-slim"),
        side("openai-agents: the messages alone", "openai_agents", "conversation", "openai-agents"),
    ),
    notes=(
        (
            f"The conversation of the first table: a prompt, {TURNS} tool turns and an answer, all of a few words, so "
            "that what counts is what the messages are wrapped in. What Python has allocated (tracemalloc), the mean "
            f"of {CONVERSATIONS} conversations; what they share does not count, and what amplifier-core allocates in "
            "Rust is not seen."
        ),
    ),
)
