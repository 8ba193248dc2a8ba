"""The command `amplifier-slack doctor`: what is wrong, if anything is."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator_interactive.interactions.stores import open_store
from service.cli.store_access import run_at
from service.config.config import ConfigError, Environment, LogConfig, load_config
from service.config.secrets import secrets
from service.doctor import FindingLevel
from service.doctor.delivery_audit import check
from service.doctor.findings import well
from service.logging import configure_logging, hide_secrets
from service.store import refuse_unprepared, visit_run_store
from service.tables import counted, table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from service.config.config import ServiceConfig
    from service.doctor import DoctorFinding
    from service.doctor.delivery_audit import DeliveryAudit, Tally

_NAMES = {
    "runs_on": "runs that are on, or whose traces are still to go",
    "leases": "conversations that a service owns",
    "unowned": "conversations that wait for a service",
    "posts_pending": "texts that are still to be posted",
}


@click.command()
@click.option(
    "--store",
    "url",
    metavar="[URL]",
    is_flag=False,
    flag_value="",
    default=None,
    help="Only whether every message has come to exactly one end. Without URL, in the store that the service uses.",
)
@click.option("--config", "config_path", type=click.Path(path_type=Path), help="The service's configuration file.")
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_context
def doctor(context: click.Context, url: str | None, config_path: Path | None, as_json: bool) -> None:
    """Look whether all is well: tokens, scopes, events, the way in, clock, store, agents and models.

    Nothing is changed and nothing is posted, and the service may run meanwhile. SLACK_CONFIG_TOKEN, where it is set,
    lets it look up the app's own settings, too.

    The exit code is 0 where all is well, 1 where something is wrong, and 2 where the configuration cannot be read, or
    with --store the store cannot be used.
    """
    if url is None:
        context.exit(_examine(config_path, as_json=as_json))
    found = run_at(config_path, url or None, _checked)
    click.echo(_as_json(found) if as_json else _as_text(found))
    context.exit(0 if found.holds else 1)


def _examine(config_path: Path | None, *, as_json: bool) -> int:
    """Say what is found; the exit code."""
    environment = Environment.take()
    known = secrets(environment)
    try:
        config = load_config(config_path)
    except ConfigError as e:
        raise _NotConfigured(hide_secrets(str(e), known)) from e
    known = secrets(environment, config)
    # What modules have to say while they are mounted is told by the findings.
    configure_logging(LogConfig(level="error"), known)
    source = "the default, without a file" if config_path is None else str(config_path)
    count = len(config.instances)
    first = well("configuration", f"{source}: {counted(count, 'agent')} ({', '.join(config.instances)}).")

    async def look() -> list[DoctorFinding]:
        every = []
        async for finding in _all(first, config, environment):
            shown = replace(finding, said=hide_secrets(finding.said, known))
            every.append(shown)
            if not as_json:
                click.echo(shown.line)
        return every

    every = asyncio.run(look())
    wrong = sum(finding.verdict is FindingLevel.WRONG for finding in every)
    if as_json:
        click.echo(json.dumps({"holds": not wrong, "findings": [asdict(finding) for finding in every]}, indent=2))
    else:
        click.echo(_conclusion(every, wrong))
    return 1 if wrong else 0


async def _all(first: DoctorFinding, config: ServiceConfig, environment: Environment) -> AsyncIterator[DoctorFinding]:
    from service.doctor.checkup import examined  # noqa: PLC0415 - with --store nobody asks Slack, or an agent

    yield first
    async for finding in examined(config, environment):
        yield finding


def _conclusion(every: list[DoctorFinding], wrong: int) -> str:
    if wrong:
        return f"{counted(wrong, 'thing')} must be changed (✗)."
    lacking = sum(finding.verdict is FindingLevel.LACKING for finding in every)
    is_all_known = not any(finding.verdict is FindingLevel.UNKNOWN for finding in every)
    so_far = "" if is_all_known else " as far as can be told (–)"  # noqa: RUF001 - a mark
    but = f", but {counted(lacking, 'thing')} could be better (!)" if lacking else ""
    return f"All is well{so_far}{but}."


class _NotConfigured(click.ClickException):
    exit_code = 2


async def _checked(url: str) -> DeliveryAudit:
    refuse_unprepared(url)
    async with aclosing(await open_store(url)) as logs, aclosing(await visit_run_store(url)) as runs:
        return await check(runs, logs)


def _as_json(found: DeliveryAudit) -> str:
    workspaces = {name: asdict(tally) for name, tally in sorted(found.workspaces.items())}
    told = {"holds": found.holds, **asdict(found.tally), "workspaces": workspaces, "violations": found.violations}
    return json.dumps(told, indent=2)


def _as_text(found: DeliveryAudit) -> str:
    tally = asdict(found.tally)
    unchecked = tally.pop("unchecked")
    lines = [table(("", "there are"), [(_NAMES.get(name, name), f"{count:,}") for name, count in tally.items()])]
    if len(found.workspaces) > 1:
        lines.append(_by_workspace(found.workspaces))
    lines += [
        f"{counted(each.unowned, 'conversation')} of {name} {'waits' if each.unowned == 1 else 'wait'} for a service "
        "of that workspace."
        for name, each in sorted(found.workspaces.items())
        if each.unowned
    ]
    if unchecked:
        there = counted(unchecked, "conversation")
        lines.append(f"Of {there} there is no log (any more): what was delivered there cannot be checked.")
    if found.holds:
        lines.append("Every message has come to exactly one end, or waits.")
    else:
        lines.append(f"{counted(len(found.violations), 'thing')} should not be:")
        lines += [f"- {each}" for each in found.violations]
    return "\n".join(lines)


def _by_workspace(workspaces: Mapping[str, Tally]) -> str:
    columns = ("conversations", "accepted", "waiting", "runs_on", "leases", "unowned")
    head = ("workspace", "conversations", "accepted", "waiting", "runs on", "owned", "without owner")
    rows = [(name, *(f"{getattr(each, column):,}" for column in columns)) for name, each in sorted(workspaces.items())]
    return table(head, rows, numbers=head[1:])
