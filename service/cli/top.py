"""The command `amplifier-slack top`: the active runs of all services on a store, read from the store."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import termios
import time
import tty
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from connector.notes import admit_stop
from connector.records import RunRecord, active_run
from orchestrator_interactive.interactions.errors import DamagedLog
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.rows import row_of
from orchestrator_interactive.loop.resume import logged_run
from service.cli.store_access import StoreAccess, stack_of, with_store
from service.store import inspect_run_store
from service.tables import counted, table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from orchestrator_interactive.interactions.stores import LogStore
    from service.store.base import ConversationRecord, RunStore

_EVERY_S = 1.0
_ID_CHARS = 8
# States of a log that are read to find out what its run does.
_LOOKED_AT = 200
# Rows that a key can select.
_KEYS = "123456789"
_CLEAR = "\x1b[H\x1b[J"
_HEAD = ("#", "run", "instance", "channel", "age", "waiting", "owner", "does")


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A row of `top`.

    Args:
        age_s: time since the first message of the run was written.
        waiting: number of messages that the run has not read.
        owner: the process that works on it; blank: none.
        does: its current step.
    """

    run: str
    conversation: str
    instance: str
    channel: str
    age_s: float
    waiting: int
    owner: str
    does: str


@click.command()
@click.option("--once", is_flag=True, help="Print the table once.")
@click.option("--json", "as_json", is_flag=True, help="Print the runs once, as JSON.")
@click.option("--stop", "part", metavar="ID", help="Stop the run with this id, or a unique part of it.")
@with_store
async def top(access: StoreAccess, once: bool, as_json: bool, part: str | None) -> None:
    """Show the active runs of all services that use the store, and stop one.

    Key `s` and the number of a run stop it gracefully, a second time at once; `q` quits.
    """
    async with aclosing(await inspect_run_store(access.url)) as store:
        if part is not None:
            await _stop_by_id(store, part)
        elif as_json:
            runs = [run async for run, _ in _active_runs(store, access.store)]
            click.echo(json.dumps([asdict(run) for run in runs], indent=2))
        elif once or not (sys.stdin.isatty() and sys.stdout.isatty()):
            click.echo(_shown([run async for run, _ in _active_runs(store, access.store)]))
        else:
            await _watch(store, access.store)


async def _watch(store: RunStore, logs: LogStore) -> None:
    """Show the runs every second until `q` is pressed."""
    said, is_choosing, found = "", False, list[tuple[ActiveRun, RunRecord]]()
    async with _keys() as keys:
        while True:
            if not is_choosing:  # else the numbers would change under the finger
                found = [each async for each in _active_runs(store, logs)]
            hint = "Stop which run? Press its number, or any other key." if is_choosing else "s: stop a run  q: quit"
            click.echo(f"{_CLEAR}{_shown([run for run, _ in found])}\n\n{said or hint}")
            said = ""
            key = await _next_key(keys)
            if key == "q":
                return
            if is_choosing and key and key in _KEYS[: len(found)]:
                run, record = found[int(key) - 1]
                await admit_stop(store.admit, run.conversation, record)
                said = f"Requested the stop of {run.run[:_ID_CHARS]}."
            is_choosing = key == "s" or (is_choosing and not key)


async def _stop_by_id(store: RunStore, part: str) -> None:
    """Stop the only run whose id contains `part`."""
    found = [each async for each in _records(store) if part and part in each[2].id]
    if len(found) != 1:
        many = f"{counted(len(found), 'active run')} have" if found else "No active run has"
        raise click.ClickException(f"{many} {part!r} in the id. `amplifier-slack top --json` shows all ids.")
    ((conversation_id, _, run),) = found
    await admit_stop(store.admit, conversation_id, run)
    click.echo(f"Requested the stop of run {run.id} of {run.first.instance} in {conversation_id}.")


async def _records(store: RunStore) -> AsyncIterator[tuple[str, ConversationRecord, RunRecord]]:
    """Yield the conversations with an active run, oldest first."""
    found = []
    for conversation_id in await store.unfinished():
        try:
            record = await store.record(conversation_id)
        except DamagedLog:
            continue  # `doctor --store` reports it
        if record is not None and (run := active_run(record.run)) is not None:
            found.append((conversation_id, record, run))
    for each in sorted(found, key=lambda each: float(each[2].first.message.ts)):
        yield each


async def _active_runs(store: RunStore, logs: LogStore) -> AsyncIterator[tuple[ActiveRun, RunRecord]]:
    async for conversation_id, record, run in _records(store):
        first = run.first
        does = await _doing(logs, Key(conversation_id, first.instance), run)
        waiting = sum(each.kind == "message" and each.id != first.id for each in record.waiting)
        owner = record.owner if record.is_owned and record.owner else ""
        age_s = max(round(time.time() - float(first.message.ts), 1), 0.0)
        yield (
            ActiveRun(run.id, conversation_id, first.instance, first.message.channel, age_s, waiting, owner, does),
            run,
        )


async def _doing(logs: LogStore, key: Key, run: RunRecord) -> str:
    """Return the current step of a run, as the store has it."""
    if run.is_over:
        return "posts its answer"
    if run.stops:
        return "stops"
    try:
        entries = [entry async for entry in stack_of(logs, key).iter_last_n(_LOOKED_AT)]
        logged = logged_run([row for entry in entries if entry.state and (row := row_of(entry.state))])
    except DamagedLog:
        return "has a damaged log"
    except RuntimeError:  # the prompt is not in the log yet, or far back
        return "works" if entries else "starts"
    if logged.outcome is not None:  # of an earlier run
        return "starts"
    names = [call.name for call in logged.unanswered.values()]
    return f"runs {', '.join(names)}" if names else "calls the model"


def _shown(runs: Sequence[ActiveRun]) -> str:
    if not runs:
        return "No run is active."
    rows = [
        (
            f"{number}",
            run.run[:_ID_CHARS],
            run.instance,
            run.channel,
            _age(run.age_s),
            f"{run.waiting}",
            _short(run.owner),
            run.does,
        )
        for number, run in enumerate(runs, 1)
    ]
    return table(_HEAD, rows, numbers=("#", "age", "waiting"))


def _short(owner: str) -> str:
    """Shorten the random end of an owner's name."""
    machine, _, end = owner.rpartition("-")
    return f"{machine}-{end[:4]}" if machine else owner[:_ID_CHARS] or "-"


def _age(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


@asynccontextmanager
async def _keys() -> AsyncIterator[asyncio.Queue[str]]:
    """Return the queue of pressed keys; the terminal does not show them."""
    loop, keys, terminal = asyncio.get_running_loop(), asyncio.Queue[str](), sys.stdin.fileno()

    def read() -> None:
        for key in os.read(terminal, 100).decode(errors="replace"):
            keys.put_nowait(key)

    with _unbuffered(terminal):
        loop.add_reader(terminal, read)
        try:
            yield keys
        finally:
            loop.remove_reader(terminal)


@contextmanager
def _unbuffered(terminal: int) -> Iterator[None]:
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


async def _next_key(keys: asyncio.Queue[str]) -> str:
    """Return the next key; blank: none was pressed for a second."""
    try:
        async with asyncio.timeout(_EVERY_S):
            return await keys.get()
    except TimeoutError:
        return ""
