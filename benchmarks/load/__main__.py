"""Options and output of `python -m benchmarks.load`."""

from __future__ import annotations

import asyncio

import click
import uvloop

from benchmarks.load.concurrency import HEAD, Effort, measured
from benchmarks.load.site import Setting


def _numbers(_context: click.Context, _option: click.Parameter, given: str) -> tuple[int, ...]:
    try:
        return tuple(int(each) for each in given.split(",") if each.strip())
    except ValueError as e:
        raise click.BadParameter("must be numbers, separated by commas") from e


@click.command()
@click.option("--runs", default="10,100", show_default=True, callback=_numbers, help="Concurrent runs, by commas.")
@click.option("--store", default="sqlite", show_default=True, type=click.Choice(["sqlite", "redis", "cluster"]))
@click.option("--limits", is_flag=True, help="Apply Slack's rate limits.")
@click.option("--acts", default=200, show_default=True, help="Runs that are steered, and then stopped or ended.")
@click.option("--per-s", default=5.0, show_default=True, help="Such acts in a second.")
@click.option("--seconds", default=10.0, show_default=True, help="Duration of each measurement of throughput.")
def main(  # noqa: PLR0913, PLR0917 - one argument per option
    runs: tuple[int, ...], store: str, limits: bool, acts: int, per_s: float, seconds: float
) -> None:
    """Measure the real service with a number of concurrent runs."""
    effort = Effort(acts, per_s, seconds)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        click.echo(HEAD)
        for number in runs:
            click.echo(runner.run(measured(number, Setting(store, limits=limits), effort)))


if __name__ == "__main__":
    main()
