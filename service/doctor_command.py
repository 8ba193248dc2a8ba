"""The command `amplifier-slack doctor`: what is wrong, if anything is."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator_interactive.interactions.stores import open_store
from service.conservation import check
from service.shelf import run_at
from service.store import refuse_unprepared, visit_run_store
from service.tables import counted, table

if TYPE_CHECKING:
    from service.conservation import Conservation

_NAMES = {
    "runs_on": "runs that are on",
    "leases": "conversations that a service owns",
    "posts_pending": "texts that are still to be posted",
}


@click.command()
@click.option(
    "--store",
    "url",
    metavar="[URL]",
    is_flag=False,
    flag_value="",
    default="",
    help="Whether every message has come to exactly one end. Without URL, in the store that the service uses.",
)
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="The service's configuration file, which names the store.",
)
@click.option("--json", "as_json", is_flag=True, help="For machines.")
@click.pass_context
def doctor(context: click.Context, url: str, config_path: Path | None, as_json: bool) -> None:
    """Look whether all is well. Nothing is changed, and the service may run meanwhile.

    The exit code is 0 where all is well, 1 where something is wrong, and 2 where the store cannot be used.
    """
    found = run_at(config_path, url or None, _examined)
    click.echo(_as_json(found) if as_json else _as_text(found))
    context.exit(0 if found.holds else 1)


async def _examined(url: str) -> Conservation:
    refuse_unprepared(url)
    async with aclosing(await open_store(url)) as logs, aclosing(await visit_run_store(url)) as runs:
        return await check(runs, logs)


def _as_json(found: Conservation) -> str:
    return json.dumps({"holds": found.holds, **asdict(found.tally), "violations": found.violations}, indent=2)


def _as_text(found: Conservation) -> str:
    tally = asdict(found.tally)
    unchecked = tally.pop("unchecked")
    lines = [table(("", "there are"), [(_NAMES.get(name, name), f"{count:,}") for name, count in tally.items()])]
    if unchecked:
        there = counted(unchecked, "conversation")
        lines.append(f"Of {there} there is no log (any more): what was delivered there cannot be checked.")
    if found.holds:
        lines.append("Every message has come to exactly one end, or waits.")
    else:
        lines.append(f"{counted(len(found.violations), 'thing')} should not be:")
        lines += [f"- {each}" for each in found.violations]
    return "\n".join(lines)
