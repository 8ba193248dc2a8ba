"""`python tests/whole/fault_test.py`: a crowd, replicas of the service, and harm; prints the tally of it all."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[2]))

from crowd.trial import Trial  # noqa: E402 - the path must be known first


@click.command()
@click.option("--minutes", default=5.0, show_default=True, help="How long harm is done.")
@click.option("--conversations", default=200, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--replicas", default=2, show_default=True, help="1 is over SQLite, more are over Redis.")
@click.option("--pace-s", default=8.0, show_default=True, help="Between two things that people do in a conversation.")
@click.option("--harm-s", default=4.0, show_default=True, help="Between two harms.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="For the logs of the processes.")
def main(  # noqa: PLR0913 - they are options
    minutes: float,
    conversations: int,
    seed: int,
    replicas: int,
    pace_s: float,
    harm_s: float,
    folder: Path | None,
) -> None:
    """Let a crowd write while processes are killed, and count everything at the end."""
    folder = folder or Path(tempfile.mkdtemp(prefix="fault-test-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise click.BadParameter(f"{folder} is not empty: what lies there would be counted, too")
    trial = Trial(seed, conversations, 60 * minutes, replicas, pace_s, harm_s, close_within_s=60)
    tally = asyncio.run(trial.run(folder))
    click.echo(f"{trial}\n\n{tally.table()}\n")
    for sentence, _ in tally.wrong[:30]:
        click.echo(f"WRONG: {sentence}")
    click.echo(f"{len(tally.wrong)} things are wrong. Logs, and what they say of each: {folder}")
    sys.exit(0 if tally.holds else 1)


if __name__ == "__main__":
    main()
