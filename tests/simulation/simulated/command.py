"""Play conversations in simulated time, and tell the figures, and the story of the first one that fails."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from .campaign import campaign
from .features import FEATURES
from .trial import tried
from .world import Parts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .campaign import Figures

_MOST_FAILING = 30


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 1 where something is to blame."""
    given = _parser().parse_args(arguments)
    parts = Parts(features=frozenset(given.features))
    if len(given.seeds) == 1:
        print(told(given.seeds[0], parts))  # noqa: T201 - this is a command
        return 1 if tried(given.seeds[0], parts).blames else 0
    figures = campaign(given.seeds, given.jobs, parts)
    print("\n".join(_report(figures)))  # noqa: T201
    if figures.failing:
        print(told(next(iter(figures.failing)), parts))  # noqa: T201
    return 1 if figures.failing else 0


def told(seed: int, parts: Parts | None = None) -> str:
    """The story of a seed, what is to blame in it, and how to play it again."""
    verdict = tried(seed, parts)
    blames = [f"  {blame}" for blame in verdict.blames] or ["  nothing"]
    added = "".join(f" --with {feature!r}" for feature in sorted(parts.features)) if parts else ""
    again = f"Again: .venv/bin/python tests/simulation --seeds {seed}{added}"
    return "\n".join([verdict.story(), "", "To blame:", *blames, "", again])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=_seeds, default=range(1000), help="17 (tells its story), or 0:1000")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (all processors)")
    more = parser.add_argument("--with", dest="features", action="append", default=[], metavar="TROUBLE")
    more.choices = sorted(FEATURES)
    more.help = f"a kind of trouble for every seed: {', '.join(more.choices)}"
    return parser


def _seeds(text: str) -> range:
    first, colon, last = text.partition(":")
    return range(int(first), int(last) if colon else int(first) + 1)


def _report(figures: Figures) -> Iterator[str]:
    width = max(map(len, figures.tally))
    for what, count in sorted(figures.tally.items()):
        yield f"{what:<{width}} {count:>10}"
    yield f"{'seeds':<{width}} {figures.seeds:>10}   {figures.seeds / figures.seconds:.0f} per second"
    yield f"Never: {', '.join(figures.unreached()) or 'nothing that should be'}."
    yield f"Failing: {len(figures.failing)}."
    for seed, blame in list(figures.failing.items())[:_MOST_FAILING]:
        yield f"  seed {seed}: {blame.splitlines()[0]}"
