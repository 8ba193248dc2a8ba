"""The commands `amplifier-slack schedules …`: list the schedules of people, and remove one."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import click

from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.cli.store_access import StoreAccess, with_store
from service.schedules.stored import StoredSchedules
from service.store import inspect_run_store
from service.store.base import workspace_of, workspaces_of_documents
from service.tables import moment, table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from connector.schedules import Schedule

_HEAD = ("id", "place", "instance", "by", "next", "when", "message")


@click.group()
def schedules() -> None:
    """List the schedules of people, or remove one."""


@schedules.command("list")
@with_store
async def list_(access: StoreAccess) -> None:
    """List the schedules, the next one first. Times are those of this machine."""
    async with _open(access) as (_, found):
        rows = [_row(each) for each in found]
    if rows:
        click.echo(table(_HEAD, rows))
    else:
        click.echo(f"There are no schedules in {access.place}.", err=True)


@schedules.command()
@click.argument("schedule_id", metavar="ID")
@with_store
async def remove(access: StoreAccess, schedule_id: str) -> None:
    """Remove a schedule. ID is an id that `list` prints."""
    async with _open(access) as (stored, found):
        for each in found:
            if each.id == schedule_id and await stored.delete(workspace_of(each.place), each.id):
                click.echo(f"Removed {schedule_id}.")
                return
    raise click.ClickException(f"There is no schedule {schedule_id!r}. `amplifier-slack schedules list` lists them.")


@asynccontextmanager
async def _open(access: StoreAccess) -> AsyncIterator[tuple[StoredSchedules, list[Schedule]]]:
    async with aclosing(await inspect_run_store(access.url)) as store:
        stored = StoredSchedules(retrying(store, StoreRetryPolicy()))
        yield stored, [each for team in await workspaces_of_documents(store) for each in await stored.current(team)]


def _row(schedule: Schedule) -> tuple[str, ...]:
    following = "suspended" if schedule.suspended else moment(schedule.due_s) if schedule.due_s else "-"
    return schedule.id, schedule.place, schedule.instance, schedule.user, following, schedule.when, schedule.text
