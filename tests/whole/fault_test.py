"""`python tests/whole/fault_test.py`: many people, replicas of the service, and faults; prints the counts."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from fault_injection.trial import Trial


@click.command()
@click.option("--minutes", default=5.0, show_default=True, help="How long faults are injected.")
@click.option("--conversations", default=200, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--replicas", default=2, show_default=True, help="1 is over SQLite, more are over Redis.")
@click.option("--pace-s", default=8.0, show_default=True, help="Between two actions of people in a conversation.")
@click.option("--harm-s", default=4.0, show_default=True, help="Between two harms.")
@click.option("--close-within-s", default=120.0, show_default=True, help="In which all must be answered at the end.")
@click.option("--remote", is_flag=True, help="The agents run in a process of their own, which is killed as well.")
@click.option(
    "--folder", type=click.Path(path_type=Path, file_okay=False), help="An empty folder for the logs and the store."
)
def main(minutes: float, folder: Path | None, **given: Any) -> None:
    """Let many people post while processes are killed, and check every message at the end."""
    folder = folder or Path(tempfile.mkdtemp(prefix="fault-test-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise click.BadParameter(f"{folder} is not empty: its files would be checked, too.")
    trial = Trial(seconds=60 * minutes, **given)
    tally = asyncio.run(trial.run(folder))
    click.echo(f"{trial}\n\n{tally.table()}\n")
    for sentence, _ in tally.wrong[:30]:
        click.echo(f"WRONG: {sentence}")
    click.echo(f"{len(tally.wrong)} checks failed. Logs and details: {folder}")
    sys.exit(0 if tally.holds else 1)


if __name__ == "__main__":
    main()
