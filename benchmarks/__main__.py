"""`python -m benchmarks`: runs the benchmarks and prints their tables."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from importlib.util import find_spec

import click

import benchmarks
from benchmarks.harness import Effort, load, measure
from benchmarks.process import WorkerError
from benchmarks.table import rendered

_MACHINERY = {"__main__", "harness", "process", "table", "worker"}


@click.command()
@click.argument("modules", nargs=-1)
@click.option("--processes", default=3, show_default=True, type=click.IntRange(1), help="For each side, in succession.")
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1), help="In each process.")
@click.option("--round-ms", default=20.0, show_default=True, type=click.FloatRange(0.01), help="About, for each row.")
def main(modules: tuple[str, ...], processes: int, rounds: int, round_ms: float) -> None:
    """Measure what the benchmark MODULES declare (all of this folder if none is named) and print a table for each."""
    effort = Effort(processes, rounds, round_ms / 1000)
    for name in modules or _all():
        module = next(filter(_is_benchmark, (f"benchmarks.{name}", name)), None)
        if module is None:
            raise click.BadParameter(f"there is no '{name}'; here are: {', '.join(_all())}")
        try:
            results = measure(module, effort)
        except WorkerError as e:
            raise click.ClickException(str(e)) from e
        click.echo(rendered(load(module), results, effort) + "\n")


def _is_benchmark(module: str) -> bool:
    try:
        return find_spec(module) is not None and hasattr(import_module(module), "BENCHMARK")
    except ImportError:
        return False


def _all() -> list[str]:
    names = {found.name for found in pkgutil.iter_modules(benchmarks.__path__)} - _MACHINERY
    return [f"benchmarks.{name}" for name in sorted(names)]


main()
