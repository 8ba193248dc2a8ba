"""Systematic corruption of a store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path

from redis import Redis
from redis_server import RedisServer

from connector.protocols import InboxEntry, StateChanges
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.rows import states_of
from orchestrator_interactive.interactions.states import AssistantMessageState
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.storage.sqlite import sqlite_path
from orchestrator_interactive.transcript.rows import user_row
from service.store import open_run_store

HERE = "T:C:1.0"


async def populate(url: str) -> None:
    """Store six messages: three delivered, one refused, two pending, and an active run."""
    async with aclosing(await open_run_store(url)) as runs, aclosing(await open_store(url)) as logs:
        stack = InteractionStack(logs, HERE, "alpha")
        for number in range(1, 7):
            await runs.admit(HERE, InboxEntry(f"m{number}", "message", {"text": "hello"}), "alpha")
        claim = await runs.claim(HERE, "owner", 1000)
        for number in range(1, 4):
            await stack.push(*states_of(user_row("hello", f"m{number}"), {}), AssistantMessageState("fine"))
        changes = StateChanges(
            run={"id": "r"}, posts={"1": {"text": "fine"}}, closed={1: "", 2: "", 3: "", 4: "refused"}
        )
        await runs.write(HERE, claim.token, changes)
        await runs.release(HERE, claim.token, None)


def damage_inbox(url: str, conversation_id: str) -> None:
    """Make the inbox of a conversation unreadable."""
    if url.startswith("redis"):
        with Redis.from_url(url) as server:
            server.hset(f"runs:{{{conversation_id}}}", "held_seq", b"\xff")
        return
    with closing(sqlite3.connect(sqlite_path(url), isolation_level=None)) as file:
        file.execute(
            """UPDATE run_entries SET id = CAST(? AS TEXT), "end" = NULL
                WHERE conversation = (SELECT id FROM run_conversations WHERE conversation = ?)""",
            (b"\xff", conversation_id),
        )


def corrupted_files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield truncated and partly overwritten versions of a file, each with a name."""
    whole = path.read_bytes()
    size = len(whole)
    for end in (0, 1, 15, 16, 99, 100, 4095, 4096, 4097, size // 2, size - 4096, size - 1):
        yield f"cut at {end}", whole[:end]
    for start, length in ((0, 16), (0, 100), (16, 2), (18, 2), (28, 4), (52, 48), (96, 4), (100, 8), (100, 300)):
        yield f"bytes {start} to {start + length}", whole[:start] + b"\xff" * length + whole[start + length :]
    for start in range(4096, size, 4096):
        for fill in (b"\0", b"\xff"):
            yield f"page at {start} {fill!r}", whole[:start] + fill * 4096 + whole[start + 4096 :]


def corrupting_commands(server: RedisServer) -> Iterator[tuple[str, ...]]:
    """Yield commands that delete keys, change their types, or write invalid members and fields."""
    for key in sorted(server.ask("KEYS", "*")):
        kind = server.ask("TYPE", key).decode()
        yield ("DEL", key)
        yield ("EVAL", "redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], 'x')", "1", key)
        yield ("EVAL", "redis.call('DEL', KEYS[1]) redis.call('RPUSH', KEYS[1], 'x')", "1", key)
        if kind == "zset":
            for member in (r"\255\254", "garbage", "%", "", r"1\nmessage\nx\nm1{}"):
                for score in ("0", "1e300", "inf"):
                    yield ("EVAL", f"redis.call('ZADD', KEYS[1], '{score}', '{member}')", "1", key)
        if kind == "hash":
            yield ("EVAL", r"redis.call('HSET', KEYS[1], '\255\254', '\255', 'p:\255', 'x', 'n:\255', 'x')", "1", key)
            for field in server.ask("HKEYS", key):
                for value in (r"\255\254", "text", "", "-1", "1e300", "[]"):
                    yield ("EVAL", f"redis.call('HSET', KEYS[1], ARGV[1], '{value}')", "1", key, field)
