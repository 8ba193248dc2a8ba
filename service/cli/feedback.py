"""The command `amplifier-slack feedback list`: how people rated the answers of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator_interactive.interactions.feedback import feedback as ratings
from orchestrator_interactive.interactions.feedback import is_feedback, latest
from orchestrator_interactive.interactions.records import Key
from service.cli.store_access import StoreAccess, with_store
from service.tables import moment, table

if TYPE_CHECKING:
    from datetime import datetime


@click.group()
def feedback() -> None:
    """Show how people rated the answers of agents."""


@feedback.command("list")
@click.option("--instance", metavar="NAME", help="Only answers of this agent.")
@click.option("--since", type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M"]), help="Only ratings since then.")
@click.option("--negative", is_flag=True, help="Only ratings by 👎.")
@with_store
async def list_(access: StoreAccess, instance: str | None, since: datetime | None, negative: bool) -> None:
    """List the last rating of each person for each answer, the oldest first."""
    rows = []
    for key in await access.store.keys():
        if not is_feedback(key) or instance not in (None, key.agent_id):
            continue
        conversation_id = key.conversation_id.rpartition("/")[0]
        found = latest([each async for each in ratings(access.store, Key(conversation_id, key.agent_id))])
        rows += [
            (each.at, (moment(each.at), f"{each.reward:+g}", key.agent_id, each.user, each.answer, each.comment))
            for each in found
            if each.at >= (since.timestamp() if since else 0) and (each.reward < 0 or not negative)
        ]
    if not rows:
        click.echo(f"There is no such feedback in {access.place}.", err=True)
        return
    click.echo(table(("when", "rating", "agent", "user", "answer", "comment"), [row for _, row in sorted(rows)]))
