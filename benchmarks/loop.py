"""Cost of a tool turn: the same conversation in our loop, in a handwritten one, and in public libraries."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Row, Side

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.harness import Operations
    from benchmarks.loops import NewConversation


@asynccontextmanager
async def operations(file: str, function: str) -> AsyncIterator[Operations]:
    new: NewConversation = getattr(import_module(f"benchmarks.loops.{file}"), function)
    yield {
        "turns_20": partial(timed, new, messages=0, turns=20),
        "turns_200": partial(timed, new, messages=0, turns=200),
        "messages_10": partial(timed, new, messages=8, turns=20),
        "messages_1000": partial(timed, new, messages=1000, turns=20),
        "loaded": partial(first_answer, new, messages=1000),
    }


async def timed(new: NewConversation, messages: int, turns: int) -> float:
    """Return the seconds of a run in a conversation with earlier runs."""
    conversation = await new(messages)
    await conversation.run(0)
    began = time.perf_counter()
    await conversation.run(turns)
    return time.perf_counter() - began


async def first_answer(new: NewConversation, messages: int) -> float:
    """Return the seconds from loading a conversation to its first answer."""
    conversation = await new(messages)
    began = time.perf_counter()
    await conversation.run(0)
    return time.perf_counter() - began


def side(name: str, file: str, function: str = "conversation", *packages: str) -> Side:
    return Side(name, partial(operations, file, function), packages, "make bench")


BENCHMARK = Benchmark(
    title="A tool turn",
    rows=(
        Row("turns_20", "20 turns", target=50, target_ratio=20, meter="itself", per=20),
        Row("turns_200", "200 turns", target=50, target_ratio=20, meter="itself", per=200),
        Row("messages_10", "20 turns after 10 messages", meter="itself", per=20),
        Row("messages_1000", "20 turns after 1,000", meter="itself", per=20),
        Row("growth", "growth", unit="times", target=1.1, of=("messages_1000", "messages_10")),
        Row("loaded", "first answer after loading 1,000", meter="itself"),
    ),
    sides=(
        side("ours", "ours", "with_list"),
        side("ours, in a session with context-simple", "ours", "in_session"),
        side("ours, the same with ten hooks listening", "ours", "listened_to"),
        side("ours, durable: context-stack in SQLite", "ours", "durable"),
        side("a bare loop", "bare", "bare"),
        side("a bare loop that can be steered and stopped", "bare", "steerable"),
        side("amplifier-core, the smallest loop on it", "amplifier", "conversation", "amplifier-core"),
        side("langgraph, create_agent", "langgraph", "conversation", "langgraph", "langchain"),
        side("pydantic-ai", "pydantic_ai", "conversation", "pydantic-ai-slim"),
        side("openai-agents", "openai_agents", "conversation", "openai-agents"),
    ),
    base="a bare loop",
    pictured=("turns_200", "messages_1000"),
    notes=(
        (
            "A model without latency requests a tool without work in every turn. The figures are per turn: one model "
            "call and one tool call. The conversation has had a run before, as in production, except in the last "
            "column. Every side creates the model's answers in its own types. Tracing is off."
        ),
    ),
)
