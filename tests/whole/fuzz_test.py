"""`python tests/whole/fuzz_test.py`: send many odd events into the service, and print what was wrong."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from fuzzing.trial import Trial


@click.command()
@click.option("--events", default=50_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--transport", type=click.Choice(["socket", "http"]), default="socket", show_default=True)
@click.option("--store", type=click.Choice(["sqlite", "redis"]), default="sqlite", show_default=True)
def main(events: int, seed: int, transport: str, store: str) -> None:
    """Send events of a seed, and check that everything holds afterwards."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-test-") as folder:
        trial = Trial(seed, events, "http" if transport == "http" else "socket", is_redis=store == "redis")
        findings = asyncio.run(trial.run(Path(folder)))
    for name, count in sorted(findings.counts.items()):
        click.echo(f"{count:8,}  {name}")
    for sentence in findings.wrong[:30]:
        click.echo(f"WRONG: {sentence[:2000]}")
    click.echo(f"{trial}: {len(findings.wrong)} things are wrong, {time.monotonic() - began_s:.0f} s.")
    sys.exit(1 if findings.wrong else 0)


if __name__ == "__main__":
    main()
