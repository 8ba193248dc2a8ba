"""The command `amplifier-slack doctor`: check the installation and report problems."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from service.administration.audit import verify
from service.cli.setup import NotUsable, Setup, config_option
from service.cli.store_access import run_at
from service.config.config import Environment, LogConfig
from service.doctor import FindingLevel, passed
from service.doctor.delivery_audit import check
from service.logging import configure_logging
from service.store import inspect_run_store, open_log_store, refuse_unprepared
from service.tables import counted, table

if TYPE_CHECKING:
    from service.config.config import ServiceConfig
    from service.doctor import DoctorFinding
    from service.doctor.delivery_audit import DeliveryAudit

_NAMES = {
    "runs_on": "active runs, including unfinished cleanup",
    "leases": "conversations with an owner",
    "unowned": "conversations waiting for an owner",
    "posts_pending": "posts pending in the outbox",
}


@click.command()
@click.option(
    "--store",
    "url",
    metavar="[URL]",
    is_flag=False,
    flag_value="",
    default=None,
    help="Only audit the store: is every message accounted for exactly once? Default URL: the service's store.",
)
@click.option(
    "--audit",
    "audit_log",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Only verify this audit log: was an entry edited, removed, added or moved?",
)
@click.option("--checkpoint", metavar="SEQ:HASH", help="With --audit: an entry that the file must contain.")
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def doctor(  # noqa: PLR0913, PLR0917 - one argument per option
    context: click.Context,
    url: str | None,
    audit_log: Path | None,
    checkpoint: str | None,
    config_path: Path | None,
    as_json: bool,
) -> None:
    """Check tokens, scopes, events, the connection to Slack, clock, store, agents and models.

    The checks change nothing and post nothing. The service may be running. If SLACK_CONFIG_TOKEN is set, the app's
    settings in Slack are checked too.

    Exit codes: 0 no problems, 1 problems found, 2 the configuration cannot be read or, with --store or --audit, the
    store or the file cannot be used.
    """
    if checkpoint is not None and (audit_log is None or not re.fullmatch(r"[0-9]+:[0-9a-f]{64}", checkpoint)):
        raise click.UsageError("--checkpoint needs --audit, and the SEQ:HASH that it has printed.")
    if audit_log is not None:
        context.exit(_verify(audit_log, checkpoint, as_json=as_json))
    if url is None:
        context.exit(_examine(config_path, as_json=as_json))

    async def audit(store_url: str, _: ServiceConfig) -> DeliveryAudit:
        refuse_unprepared(store_url)
        async with (
            aclosing(await open_log_store(store_url)) as logs,
            aclosing(await inspect_run_store(store_url)) as runs,
        ):
            return await check(runs, logs)

    found = run_at(config_path, url or None, audit)
    if as_json:
        workspaces = {name: asdict(tally) for name, tally in sorted(found.workspaces.items())}
        result = {"holds": found.holds, **asdict(found.tally), "workspaces": workspaces}
        click.echo(json.dumps({**result, "violations": found.violations}, indent=2))
    else:
        click.echo(_as_text(found))
    context.exit(0 if found.holds else 1)


def _verify(path: Path, checkpoint: str | None, *, as_json: bool) -> int:
    """Print the state of an audit log, and return the exit code."""
    try:
        found = verify(path, checkpoint)
    except OSError as e:
        raise NotUsable(f"{path} cannot be read: {e.strerror}. Name the file of `audit:`.") from e
    if as_json:
        click.echo(json.dumps({"holds": not found.problems, **asdict(found)}, indent=2))
        return 1 if found.problems else 0
    for problem in found.problems:
        click.echo(f"- {problem}")
    if found.is_torn:
        click.echo("The last line is incomplete: its process was killed. The next start drops it.")
    if found.problems:
        click.echo(f"{counted(len(found.problems), 'problem')} found.")
        return 1
    click.echo(f"{counted(found.entries, 'entry', 'entries')}, each unchanged and in its place.")
    click.echo(f"Keep this checkpoint elsewhere, for the next --checkpoint:\n{found.checkpoint}")
    return 0


def _examine(config_path: Path | None, *, as_json: bool) -> int:
    """Print the findings and return the exit code."""
    setup = Setup(Environment.take_from_environ())
    with setup.errors():
        config = setup.load(config_path)
    # The findings report problems of mounting modules.
    configure_logging(LogConfig(level="error"), setup.secrets)
    source = "the default (no file)" if config_path is None else str(config_path)
    count = len(config.instances)
    first = passed("configuration", f"{source}: {counted(count, 'agent')} ({', '.join(config.instances)}).")

    async def look() -> list[DoctorFinding]:
        from service.doctor.checkup import examined  # noqa: PLC0415 - not needed with --store

        every: list[DoctorFinding] = []

        def add(finding: DoctorFinding) -> None:
            every.append(replace(finding, message=setup.hide(finding.message)))
            if not as_json:
                click.echo(every[-1].line)

        add(first)
        async for finding in examined(config, setup.environment):
            add(finding)
        return every

    every = asyncio.run(look())
    wrong = sum(finding.level is FindingLevel.FAILED for finding in every)
    if as_json:
        click.echo(json.dumps({"holds": not wrong, "findings": [asdict(finding) for finding in every]}, indent=2))
    else:
        click.echo(f"{counted(wrong, 'problem')} found (✗)." if wrong else _conclusion(every))
    return 1 if wrong else 0


def _conclusion(every: list[DoctorFinding]) -> str:
    lacking = sum(finding.level is FindingLevel.WARNING for finding in every)
    skipped = sum(finding.level is FindingLevel.SKIPPED for finding in every)
    details = [counted(lacking, "warning") + " (!)"] if lacking else []
    details += [counted(skipped, "check") + " skipped (–)"] if skipped else []  # noqa: RUF001 - a mark
    return f"No problems found{''.join(f', {detail}' for detail in details)}."


def _as_text(found: DeliveryAudit) -> str:
    tally = asdict(found.tally)
    unchecked = tally.pop("unchecked")
    lines = [table(("", "count"), [(_NAMES.get(name, name), f"{count:,}") for name, count in tally.items()])]
    if len(found.workspaces) > 1:
        head = ("workspace", "conversations", "accepted", "waiting", "runs on", "owned", "without owner")
        columns = ("conversations", "accepted", "waiting", "runs_on", "leases", "unowned")
        tallies = sorted(found.workspaces.items())
        rows = [(name, *(f"{getattr(each, column):,}" for column in columns)) for name, each in tallies]
        lines.append(table(head, rows, numbers=head[1:]))
    lines += [
        f"{counted(each.unowned, 'conversation')} of {name} {'waits' if each.unowned == 1 else 'wait'} for a service "
        "that serves this workspace."
        for name, each in sorted(found.workspaces.items())
        if each.unowned
    ]
    if unchecked:
        there = counted(unchecked, "conversation")
        lines.append(f"{there} without a log: deliveries cannot be checked.")
    if found.holds:
        lines.append("Every message is delivered, withdrawn or refused exactly once, or pending.")
    else:
        lines.append(f"{counted(len(found.violations), 'violation')}:")
        lines += [f"- {each}" for each in found.violations]
    return "\n".join(lines)
