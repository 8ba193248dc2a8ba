"""Cost of the interaction stack over each of its stores, and of the loop on it."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Benchmark, Row, Side
from benchmarks.loops import ours
from benchmarks.redis_process import redis_server
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.states import AssistantMessageState, UserMessageState
from orchestrator_interactive.interactions.stores import open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.harness import Operations
    from orchestrator_interactive.interactions.stores.base import LogStore

SMALL, LARGE = 10, 100_000
TURNS = 20
DISK_TURNS = 1000


@asynccontextmanager
async def operations(store: str) -> AsyncIterator[Operations]:
    """Provide the operations of a store: `memory`, `sqlite` or `redis`."""
    async with AsyncExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        url = {"memory": "memory:", "sqlite": f"sqlite:{folder}/log.db"}.get(store)
        log = await open_store(url or closing.enter_context(redis_server(folder)))
        closing.push_async_callback(log.aclose)
        small, large = await filled(log, "small", SMALL), await filled(log, "large", LARGE)
        numbers = count()
        yield {
            "push": partial(push, await filled(log, "pushed to", SMALL)),
            "read": partial(read_last_50, large),
            "fork_small": partial(fork, small),
            "fork_large": partial(fork, large),
            "rewind_small": partial(rewind, small),
            "rewind_large": partial(rewind, large),
            "turn": partial(turns, log, numbers, 0),
            "turn_10": partial(turns, log, numbers, 8),
            "turn_1000": partial(turns, log, numbers, 1000),
            **({"disk": partial(on_disk, folder)} if store == "sqlite" else {}),
        }


async def filled(store: LogStore, name: str, length: int) -> InteractionStack:
    stack = InteractionStack(store, name, "agent")
    for begin in range(0, length, 1000):
        states = [UserMessageState("What is new?"), AssistantMessageState("Nothing of note.")] * 500
        await stack.push(*states[: min(length - begin, 1000)])
    return stack


async def push(stack: InteractionStack) -> None:
    await stack.push(UserMessageState("What is new?"))


async def read_last_50(stack: InteractionStack) -> None:
    assert len([entry async for entry in stack.iter_last_n(50)]) == 50  # noqa: S101 - a short read would falsify the figure


async def fork(stack: InteractionStack) -> float:
    """Return the seconds of a fork; the branch is pruned afterwards."""
    began = time.perf_counter()
    name = await stack.fork(-2)
    elapsed_s = time.perf_counter() - began
    await stack.prune([name])
    return elapsed_s


async def rewind(stack: InteractionStack) -> float:
    """Return the seconds of a rewind by one pushed state; its branch is pruned afterwards."""
    await push(stack)
    began = time.perf_counter()
    left = await stack.rewind(-2)
    elapsed_s = time.perf_counter() - began
    await stack.prune([left] if left else [])
    return elapsed_s


async def turns(store: LogStore, numbers: count[int], messages: int) -> float:
    """Return the seconds of a run in a conversation with earlier runs."""
    conversation = await ours.logged(store, f"conversation {next(numbers)}", messages)
    await conversation.run(0)
    began = time.perf_counter()
    await conversation.run(TURNS)
    return time.perf_counter() - began


async def on_disk(folder: Path) -> float:
    """Return the size of a file with a conversation of that many turns, in bytes."""
    path = folder / "disk.db"
    path.unlink(missing_ok=True)
    store = await open_store(f"sqlite:{path}")
    conversation = await ours.logged(store, "a conversation", 0)
    await conversation.run(DISK_TURNS - 1)
    await store.aclose()
    return (await asyncio.to_thread(path.stat)).st_size


def side(name: str, store: str) -> Side:
    return Side(name, partial(operations, store))


BENCHMARK = Benchmark(
    title="A conversation's log",
    rows=(
        Row("push", "push a state"),
        Row("read", "read the last 50 of 100,000"),
        Row("fork_small", "fork at 10 states", meter="itself"),
        Row("fork_large", "fork at 100,000", meter="itself"),
        Row("fork_growth", "fork, growth", unit="times", target=1.5, of=("fork_large", "fork_small")),
        Row("rewind_small", "rewind at 10 states", meter="itself"),
        Row("rewind_large", "rewind at 100,000", meter="itself"),
        Row("rewind_growth", "rewind, growth", unit="times", target=1.5, of=("rewind_large", "rewind_small")),
        Row("turn", "a tool turn of the loop", meter="itself", per=TURNS, target=500),
        Row("turn_10", "the same after 10 messages", meter="itself", per=TURNS),
        Row("turn_1000", "the same after 1,000", meter="itself", per=TURNS),
        Row("turn_growth", "tool turn, growth", unit="times", target=1.1, of=("turn_1000", "turn_10")),
        Row("disk", f"{DISK_TURNS:,} turns on disk", unit="KiB", meter="itself", once=True),
    ),
    sides=(side("SQLite", "sqlite"), side("Redis, on this machine", "redis"), side("memory", "memory")),
    notes=(
        (
            "Each state contains a few words. The tool turn is that of the first table, in a session with "
            "context-stack: the answer with its call is committed before the tool starts, and the result before the "
            "next model call. SQLite uses write-ahead logging and leaves flushing to the system "
            "(`synchronous = NORMAL`): committed data survive any end of the process. Redis does not persist to disk "
            "here."
        ),
    ),
)
