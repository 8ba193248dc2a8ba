"""`python -m benchmarks`: run the benchmarks, print their tables, and optionally write the page."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import click

import benchmarks
from benchmarks.harness import Effort, load, measure
from benchmarks.page import write
from benchmarks.process import WorkerError
from benchmarks.table import rendered

_FIRST = "benchmarks.loop"


@click.command()
@click.argument("modules", nargs=-1)
@click.option("--processes", default=3, show_default=True, type=click.IntRange(1), help="Processes for each side.")
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(1), help="Rounds in each process.")
@click.option(
    "--round-ms",
    default=20.0,
    show_default=True,
    type=click.FloatRange(0.01),
    help="Approximate length of a round, for each row.",
)
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Also write benchmarks.md and its picture into this folder.",
)
def main(modules: tuple[str, ...], processes: int, rounds: int, round_ms: float, folder: Path | None) -> None:
    """Run the benchmarks of MODULES (by default all) and print a table for each."""
    effort = Effort(processes, rounds, round_ms / 1000)
    measured = []
    for name in [_found(name) for name in modules] or _all():
        try:
            results = measure(name, effort)
        except WorkerError as e:
            raise click.ClickException(str(e)) from e
        measured.append((load(name), results))
        click.echo(rendered(*measured[-1], effort) + "\n")
    if folder is not None:
        click.echo(f"Written: {', '.join(str(path) for path in write(folder, measured, effort))}")


def _found(name: str) -> str:
    module = next(filter(_is_benchmark, (f"benchmarks.{name}", name)), None)
    if module is None:
        raise click.BadParameter(f"unknown benchmark '{name}'; available: {', '.join(_all())}")
    return module


def _is_benchmark(module: str) -> bool:
    """Return whether a module of this name exists. A missing dependency is an error, not a skipped benchmark."""
    try:
        found = find_spec(module)
    except ModuleNotFoundError:  # a part of the name is not a package
        return False
    return found is not None and hasattr(import_module(module), "BENCHMARK")


def _all() -> list[str]:
    """Return the names of all benchmarks, the most important ones first."""
    names = (f"benchmarks.{found.name}" for found in pkgutil.iter_modules(benchmarks.__path__))
    there = [name for name in names if name != "benchmarks.__main__" and _is_benchmark(name)]
    return sorted(there, key=lambda name: (name != _FIRST, name))


main()
