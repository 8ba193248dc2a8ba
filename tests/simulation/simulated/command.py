"""The command: figures of many seeds, and the story of the first one that fails."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from .campaign import campaign
from .worlds import WORLDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .campaign import Figures
    from .worlds import Kind

_MOST_FAILING = 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 1 where something is to blame."""
    parser = _parser()
    given = parser.parse_args(arguments)
    world, added = WORLDS[given.world], frozenset(given.features)
    if unknown := added.difference(world.features):
        parser.error(f"the world {given.world!r} has no {min(unknown)!r}; it has: {', '.join(sorted(world.features))}")
    if len(given.seeds) == 1:
        print(told(given.seeds[0], given.world, added))  # noqa: T201 - this is a command
        return 1 if world.tried(added)(given.seeds[0]).blames else 0
    figures = campaign(given.seeds, given.jobs, world.tried(added))
    print("\n".join(_report(figures, world)))  # noqa: T201
    if figures.failing:
        print(told(next(iter(figures.failing)), given.world, added))  # noqa: T201
    return 1 if figures.failing else 0


def told(seed: int, world: str = "agent", added: frozenset[str] = frozenset()) -> str:
    """The story of a seed, what is to blame in it, and how to play it again."""
    verdict = WORLDS[world].tried(added)(seed)
    blames = [f"  {blame}" for blame in verdict.blames] or ["  nothing"]
    where = "" if world == "agent" else f" --world {world}"
    options = "".join(f" --with {feature!r}" for feature in sorted(added))
    again = f"Again: .venv/bin/python tests/simulation{where} --seeds {seed}{options}"
    return "\n".join([verdict.story(), "", "To blame:", *blames, "", again])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--world", choices=WORLDS, default="agent", help="an agent alone, or the whole service")
    parser.add_argument("--seeds", type=_seeds, default=range(1000), help="17 (tells its story), or 0:1000")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (all processors)")
    more = parser.add_argument("--with", dest="features", action="append", default=[], metavar="TROUBLE")
    kinds = (f"{name}: {', '.join(sorted(world.features))}" for name, world in WORLDS.items())
    more.help = f"a kind of trouble for every seed; {'; '.join(kinds)}"
    return parser


def _seeds(text: str) -> range:
    first, colon, last = text.partition(":")
    return range(int(first), int(last) if colon else int(first) + 1)


def _report(figures: Figures, world: Kind) -> Iterator[str]:
    width = max(map(len, figures.tally))
    for what, count in sorted(figures.tally.items()):
        yield f"{what:<{width}} {count:>10}"
    yield f"{'seeds':<{width}} {figures.seeds:>10}   {figures.seeds / figures.seconds:.0f} per second"
    yield f"Never: {', '.join(figures.unreached(world.wanted)) or 'nothing that should be'}."
    yield f"Failing: {len(figures.failing)}."
    for seed, blame in list(figures.failing.items())[:_MOST_FAILING]:
        yield f"  seed {seed}: {blame.splitlines()[0]}"
