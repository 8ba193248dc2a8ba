"""`python tests/whole/fuzz_test.py`: send many malformed events to the service, and print the violated checks."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from fuzzing.trial import Trial

_SHOWN_PER_KIND = 5


@click.command()
@click.option("--events", default=50_000, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--transport", type=click.Choice(["socket", "http"]), default="socket", show_default=True)
@click.option("--store", type=click.Choice(["sqlite", "redis"]), default="sqlite", show_default=True)
def main(events: int, seed: int, transport: str, store: str) -> None:
    """Send the events of a seed, and check the service afterwards."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-test-") as folder:
        trial = Trial(seed, events, "http" if transport == "http" else "socket", is_redis=store == "redis")
        findings = asyncio.run(trial.run(Path(folder)))
    for name, count in sorted(findings.counts.items()):
        click.echo(f"{count:8,}  {name}")
    shown = Counter[str]()
    for sentence in findings.wrong:
        kind = sentence.partition(":")[0]
        shown[kind] += 1
        if shown[kind] <= _SHOWN_PER_KIND:
            click.echo(f"WRONG: {sentence[:3000]}")
    click.echo(f"{trial}: {len(findings.wrong)} checks failed, {time.monotonic() - began_s:.0f} s.")
    sys.exit(1 if findings.wrong else 0)


if __name__ == "__main__":
    main()
