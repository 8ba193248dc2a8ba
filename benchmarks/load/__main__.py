"""Options and output of `python -m benchmarks.load`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import uvloop

from benchmarks.load.concurrency import HEAD, Effort, measured, pictured
from benchmarks.load.failover import HEAD as HEAD_OF_REPLICAS
from benchmarks.load.failover import replicated
from benchmarks.load.site import Setting
from benchmarks.load.soak import soaked


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
@click.option("--replicas", default="", callback=_numbers, help="Measure so many replicas, by commas; needs a Redis.")
@click.option("--soak", default=0.0, metavar="MINUTES", help="Act for so long, and measure what grows.")
@click.option("--every-s", default=10.0, show_default=True, help="Interval of the samples of a soak.")
@click.option(
    "--picture", type=click.Path(dir_okay=False, path_type=Path), help="Draw curves as SVG: by runs, or of a soak."
)
def main(  # noqa: PLR0913, PLR0917 - one argument per option
    runs: tuple[int, ...],
    store: str,
    limits: bool,
    acts: int,
    per_s: float,
    seconds: float,
    replicas: tuple[int, ...],
    soak: float,
    every_s: float,
    picture: Path | None,
) -> None:
    """Measure the real service with a number of concurrent runs."""
    if max(replicas, default=0) > 1 and store == "sqlite":
        raise click.UsageError("Several replicas need --store redis or --store cluster.")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if soak:
            result = runner.run(soaked(soak, runs[0], store, per_s, every_s))
            click.echo(result.tabled())
            if picture is not None:
                picture.write_text(result.drawn(), encoding="utf-8")
            return
        click.echo(HEAD_OF_REPLICAS if replicas else HEAD)
        for number in replicas:
            click.echo(runner.run(replicated(Setting(store, number), runs[0], seconds)))
        loads = []
        for number in () if replicas else runs:
            loads.append(runner.run(measured(number, Setting(store, limits=limits), Effort(acts, per_s, seconds))))
            click.echo(loads[-1].row)
        if picture is not None and loads:
            picture.write_text(pictured(loads), encoding="utf-8")


if __name__ == "__main__":
    main()
