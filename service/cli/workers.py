"""The commands `amplifier-slack workers …`: list the workers of all threads, show one, and stop one."""

from __future__ import annotations

import time
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from connector.events import OPERATOR
from orchestrator_interactive.interactions.export import as_text
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.cli.store_access import StoreAccess, with_store
from service.sessions.workers import StoredWorkers, stop_worker, threads_with_workers
from service.store import inspect_run_store
from service.store.base import thread_of
from service.tables import moment, table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from connector.protocols import Worker
    from service.store.base import RunStore

_HEAD = ("id", "thread", "instance", "agent", "task", "begun", "state")


@click.group()
def workers() -> None:
    """List the workers of all threads, show one, or stop one.

    ID is the id of a worker, such as w3f2a9c.
    """


@workers.command("list")
@click.option("--all", "every", is_flag=True, help="Include those that have ended.")
@with_store
async def list_(access: StoreAccess, every: bool) -> None:
    """List the workers, the latest first."""
    async with _open(access) as (_, found):
        rows = [_row(each) for each in found if every or not each.ended_s]
    if rows:
        click.echo(table(_HEAD, rows))
    else:
        click.echo(f"No worker {'has worked' if every else 'is at work'} in {access.place}.", err=True)


@workers.command()
@click.argument("worker_id", metavar="ID")
@with_store
async def show(access: StoreAccess, worker_id: str) -> None:
    """Show the log of a worker, as `conversations show` does, and its report."""
    async with _open(access) as (_, found):
        worker = _named(found, worker_id)
    click.echo(table(_HEAD, [_row(worker)]))
    async for piece in as_text(access.store, Key(worker.conversation_id, worker.instance), None):
        click.echo(piece, nl=False)
    if worker.report:
        click.echo(f"\nReport:\n{worker.report}")


@workers.command()
@click.argument("worker_id", metavar="ID")
@with_store
async def stop(access: StoreAccess, worker_id: str) -> None:
    """Stop a worker. A second time stops it at once."""
    async with _open(access) as (store, found):
        worker = _named(found, worker_id)
        if worker.ended_s:
            raise click.ClickException(f"Worker {worker.id} has ended already ({worker.status}).")
        await stop_worker(store.admit, worker, OPERATOR, uuid4().hex)
    click.echo(f"Stored. A running service stops worker {worker.id} within seconds.")


@asynccontextmanager
async def _open(access: StoreAccess) -> AsyncIterator[tuple[RunStore, list[Worker]]]:
    """Open the run store, and yield it with its workers, the latest first."""
    async with aclosing(await inspect_run_store(access.url)) as store:
        stored = StoredWorkers(retrying(store, StoreRetryPolicy()))
        found = [each for thread in await threads_with_workers(store) for each in await stored.of_thread(thread)]
        yield store, sorted(found, key=lambda worker: -worker.created_s)


def _named(found: list[Worker], worker_id: str) -> Worker:
    named = [each for each in found if worker_id in (each.id, each.conversation_id)]
    if not named:
        raise click.ClickException(
            f"There is no worker {worker_id!r}. `amplifier-slack workers list --all` lists them."
        )
    if len(named) > 1:
        ids = ", ".join(each.conversation_id for each in named)
        raise click.ClickException(f"Several threads have a worker {worker_id}: name one of {ids}.")
    return named[0]


def _row(worker: Worker) -> tuple[str, ...]:
    state = worker.status or f"at work for {int((time.time() - worker.created_s) // 60)} min"
    thread = thread_of(worker.conversation_id)
    return worker.id, thread, worker.instance, worker.agent, worker.title, moment(worker.created_s), state
