"""The commands `amplifier-slack backup`, `restore` and `people`, which are about the whole store."""

from __future__ import annotations

import json
import re
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from service.administration.audit import audit_log
from service.administration.backup import back_up
from service.administration.backup import restore as put_back
from service.administration.people import erase as erase_messages
from service.administration.people import messages_of, overwrite_deleted
from service.cli.conversations import atomic_output
from service.cli.setup import config_option
from service.cli.store_access import StoreAccess, place_of, run_at, store_option, with_store
from service.store import inspect_run_store
from service.tables import counted, moment

if TYPE_CHECKING:
    from service.administration.backup import Restored
    from service.config.config import ServiceConfig
    from service.doctor.delivery_audit import DeliveryAudit

_LEFT = (
    "Not erased: what agents quote in answers, summaries and tool calls, files in workspaces, other people's messages "
    "about this person, Slack itself, the model provider, logs, and backups."
)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@config_option
@store_option
@click.pass_context
def backup(context: click.Context, file: Path, config_path: Path | None, url: str | None) -> None:
    """Copy an SQLite store to FILE at one moment, also while the service runs.

    FILE appears once it is complete, on the disk, and verified. It has all conversations, with their inboxes and
    outboxes. The workspace folders are not in it.

    Exit codes: 0 written, 1 written, but the audit of the store found violations, 2 not written.
    """

    async def copy(store: str, _config: ServiceConfig) -> DeliveryAudit:
        click.echo(f"Store: {place_of(store)}", err=True)
        return await back_up(store, file)

    audit = run_at(config_path, url, copy)
    click.echo(f"Wrote {file}: {_found(audit)}.")
    context.exit(_violations(audit))


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@config_option
@store_option
@click.pass_context
def restore(context: click.Context, file: Path, config_path: Path | None, url: str | None) -> None:
    """Replace an SQLite store by the backup FILE. The service must be stopped; the present store is kept next to it.

    At its start, the service looks into Slack before it continues runs and answers messages of the backup: messages
    that were answered after the backup are not answered again.

    Exit codes: 0 restored, 1 restored, but the audit found violations, 2 nothing was changed.
    """

    async def put(store: str, config: ServiceConfig) -> Restored:
        async with audit_log(config.audit) as record:
            _warn_of_no_audit(config.audit)
            found = await put_back(store, file)
            record("store.restored", conversations=found.audit.tally.conversations)
        return found

    found = run_at(config_path, url, put, may_be_new=True)
    kept = f" The earlier store is {found.aside}." if found.aside else ""
    last = f"; the last change is of {moment(found.since_s)}" if found.since_s else ""
    click.echo(f"Restored {_found(found.audit)}{last}.{kept}")
    context.exit(_violations(found.audit))


def _warn_of_no_audit(path: Path | None) -> None:
    if path is None:
        click.echo(
            "This is in no audit log: set `audit` in the configuration, and give that of the service as --config.",
            err=True,
        )


def _found(audit: DeliveryAudit) -> str:
    return f"{counted(audit.tally.conversations, 'conversation')}, {counted(audit.tally.waiting, 'pending message')}"


def _violations(audit: DeliveryAudit) -> int:
    """Print the violations; return the exit code."""
    for violation in audit.violations:
        click.echo(f"- {violation}", err=True)
    return 0 if audit.holds else 1


@click.group()
def people() -> None:
    """Export or erase what one person wrote. USER is a user id such as U012AB3CD."""


def _user_id(_context: click.Context, _parameter: click.Parameter, given: str) -> str:
    if not re.fullmatch(r"[UW][A-Z0-9]{2,}", given):
        raise click.BadParameter("must be a user id such as U012AB3CD; Slack shows it in the user's profile under ⋮.")
    return given


_user = click.argument("user", callback=_user_id)


@people.command()
@_user
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Default: standard output.")
@with_store
async def export(access: StoreAccess, user: str, output: Path | None) -> None:
    """Export the messages of USER that the store holds, as JSON Lines."""
    async with aclosing(await inspect_run_store(access.url)) as runs:
        lines = [json.dumps(each, ensure_ascii=False) async for each in messages_of(user, access.store, runs)]
    if output is None:
        sys.stdout.writelines(f"{line}\n" for line in lines)
    else:
        with atomic_output(output, access.files) as file:
            file.writelines(f"{line}\n" for line in lines)
    click.echo(f"{counted(len(lines), 'message')} of {user}.", err=True)


@people.command()
@_user
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_store
async def erase(access: StoreAccess, user: str, yes: bool) -> None:
    """Erase the texts, names and file names of USER's messages in the store; pending messages are withdrawn.

    Services may use the store. Messages of other people stay, and so do the conversations. Each conversation records
    the erasure, and so does the audit log of the configuration.

    Exit codes: 0 erased, 1 some conversations are in use: repeat the command later, 2 the store cannot be used.
    """
    async with (
        audit_log(access.audit_log) as record,
        aclosing(await inspect_run_store(access.url)) as runs,
    ):
        _warn_of_no_audit(access.audit_log)
        click.echo(f"Store: {access.place}", err=True)
        if not yes:
            count = sum([1 async for _ in messages_of(user, access.store, runs)])
            click.confirm(f"Erase {counted(count, 'message')} of {user}? This cannot be undone.", abort=True)
        done = await erase_messages(user, access.store, runs)
        record("people.erased", user=user, messages=done.messages, conversations=len(done.conversations))
    if not await overwrite_deleted(access.url):
        done.kept["the file"] = "it is in use, so deleted bytes may be left in it; repeat the command"
    where = counted(len(done.conversations), "conversation")
    click.echo(f"Erased {counted(done.messages, 'message')} of {user} in {where}.\n{_LEFT}")
    if done.kept:
        raise click.ClickException("\n".join(f"{place}: {why.rstrip('.')}." for place, why in done.kept.items()))
