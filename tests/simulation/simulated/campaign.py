"""Run many seeds and print counts, or one seed and print its trace: `python tests/simulation --seeds 0:1000`."""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import partial
from hashlib import blake2b
from pathlib import Path

from . import agent, service
from .simulation import STAGES
from .trial import Verdict

_SEEDS_AT_ONCE = 20
_MAX_FAILING = 30
# The coverage is reported after a tenth of a campaign, but at least after each 100,000 seeds.
_REPORTS, _MAX_BETWEEN_REPORTS = 10, 100_000
_SECONDS_BETWEEN_CHECKPOINTS = 60.0
_ACTIONS = ("steer accepted", "urgent steer accepted", "stop graceful", "stop immediate", "cancel", "kill")
# A run that reports its end accepts no messages.
_NEVER = ("steer accepted finishing", "urgent steer accepted finishing")


@dataclass(frozen=True, slots=True)
class WorldKind:
    """A kind of world, its kinds of faults, and the counts that a campaign must reach to be meaningful."""

    features: tuple[str, ...]
    wanted: tuple[str, ...]
    run: Callable[[int, object], Verdict]
    parts: agent.Parts | service.Parts

    def with_faults(self, features: frozenset[str]) -> Callable[[int], Verdict]:
        """Return a function that runs a seed with these faults added."""
        return partial(self.run, parts=replace(self.parts, features=features))


WORLDS = {
    "agent": WorldKind(
        tuple(agent.FEATURES),
        tuple(what for a in _ACTIONS for s in (*STAGES, "between steps") if (what := f"{a} {s}") not in _NEVER),
        agent.run,
        agent.Parts(),
    ),
    "service": WorldKind(tuple(service.FEATURES), service.WANTED, service.run, service.Parts()),
    "service-on-sqlite": WorldKind(
        tuple(service.FEATURES.keys() - service.ON_SQLITE.without),
        service.WANTED_ON_SQLITE,
        service.run,
        service.ON_SQLITE,
    ),
}


@dataclass(slots=True)
class Figures:
    """Totals of a campaign. `failing` maps a seed to its first violation, `steps` a kind of step to its seeds."""

    seeds: int = 0
    seconds: float = 0.0
    failing: dict[int, str] = field(default_factory=dict)
    tally: Counter[str] = field(default_factory=Counter)
    steps: Counter[int] = field(default_factory=Counter)

    def add(self, other: Figures) -> None:
        self.seeds += other.seeds
        self.failing |= other.failing
        self.tally += other.tally
        self.steps.update(other.steps)

    def coverage(self) -> str:
        """Return a row: seeds, kinds of steps, those of one seed only, and the kinds that another seed would add."""
        once = sum(1 for seeds in self.steps.values() if seeds == 1)
        return f"{self.seeds:>10} {len(self.steps):>10} {once:>10} {once / max(self.seeds, 1):>10.2f}"

    def unreached(self, wanted: Iterable[str]) -> list[str]:
        return [each for each in wanted if not self.tally[each]]


class Checkpoint:
    """A file with the totals of an unfinished campaign, so that a later command can continue it.

    `what` says which campaign it is: its world, first seed and faults. Without a file nothing is kept.
    """

    def __init__(self, file: Path | None = None, what: str = ""):
        self._file = file
        self._what = what
        self._saved_s = time.monotonic()

    def read(self) -> Figures:
        """Return the totals so far.

        Raises:
            ValueError: the file is of another campaign, or has no totals.
        """
        if self._file is None or not self._file.exists():
            return Figures()
        try:
            kept = json.loads(self._file.read_text())
        except ValueError:
            kept = None
        if not isinstance(kept, dict) or kept.keys() != {"what", *(each.name for each in fields(Figures))}:
            raise ValueError(f"{self._file} has no totals of a campaign.")
        if kept["what"] != self._what:
            raise ValueError(f"{self._file} has a campaign of {kept['what']}, and this one is of {self._what}.")
        failing = {int(seed): violation for seed, violation in kept["failing"].items()}
        steps = Counter({int(step): seeds for step, seeds in kept["steps"].items()})
        return Figures(kept["seeds"], kept["seconds"], failing, Counter(kept["tally"]), steps)

    def keep(self, figures: Figures, *, now: bool = False) -> None:
        """Replace the totals, if the last ones are older than a minute or `now` is set."""
        if self._file is None or not (now or time.monotonic() - self._saved_s >= _SECONDS_BETWEEN_CHECKPOINTS):
            return
        new = self._file.with_name(f"{self._file.name}.new")
        new.write_text(
            json.dumps({"what": self._what} | {each.name: getattr(figures, each.name) for each in fields(figures)})
        )
        new.replace(self._file)
        self._saved_s = time.monotonic()


def campaign(
    seeds: range,
    jobs: int,
    run: Callable[[int], Verdict],
    on_progress: Callable[[Figures], object] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Figures:
    """Run every seed in `jobs` processes; report the totals so far from time to time, and each seed that fails."""
    checkpoint = checkpoint or Checkpoint()
    figures = checkpoint.read()
    earlier_s, began_s = figures.seconds, time.perf_counter()
    chunks = [seeds[start : start + _SEEDS_AT_ONCE] for start in range(figures.seeds, len(seeds), _SEEDS_AT_ONCE)]
    every = max(1, min(len(seeds) // _REPORTS, _MAX_BETWEEN_REPORTS))
    for chunk in _run_chunks(jobs, chunks, run):
        is_due = (figures.seeds + chunk.seeds) // every > figures.seeds // every
        figures.add(chunk)
        figures.seconds = earlier_s + time.perf_counter() - began_s
        checkpoint.keep(figures)
        if on_progress is not None and (is_due or chunk.failing):
            on_progress(figures)
    checkpoint.keep(figures, now=True)
    return figures


def _run_chunks(jobs: int, chunks: list[range], run: Callable[[int], Verdict]) -> Iterator[Figures]:
    run_chunk = partial(_run_chunk, run=run)
    if jobs == 1:
        yield from map(run_chunk, chunks)
        return
    # Spawned: a process with threads, such as pytest's, must not be forked.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _prepare_worker, (run,)) as pool:
        yield from pool.map(run_chunk, chunks)


def _prepare_worker(run: Callable[[int], Verdict]) -> None:
    """Load and freeze all modules, so that later collections skip them."""
    run(0)
    gc.collect()
    gc.freeze()


def _run_chunk(seeds: Iterable[int], run: Callable[[int], Verdict]) -> Figures:
    figures = Figures()
    for seed in seeds:
        verdict = run(seed)
        figures.seeds += 1
        figures.tally += verdict.tally
        figures.steps.update(_digest(step) for step in verdict.steps)
        if verdict.violations:
            figures.failing[seed] = verdict.violations[0]
    return figures


def _digest(step: str) -> int:
    """Return a number that stands for a text in every process."""
    return int.from_bytes(blake2b(step.encode(), digest_size=8).digest())


def _print_progress(figures: Figures) -> None:
    failing = "".join(f", seed {seed}" for seed in figures.failing)
    print(f"{figures.coverage()}   failing: {len(figures.failing)}{failing}", flush=True)  # noqa: T201


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code is 1 if an invariant is violated."""
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--world", choices=WORLDS, default="agent", help="an agent alone, or the whole service")
    parser.add_argument("--seeds", type=_seeds, default=range(1000), help="17 prints its trace; 0:1000 prints counts")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per processor)")
    kinds = "; ".join(f"{name}: {', '.join(sorted(world.features))}" for name, world in WORLDS.items())
    more = parser.add_argument("--with", dest="features", action="append", default=[], metavar="FAULT")
    more.help = f"a kind of fault for every seed; {kinds}"
    more = parser.add_argument("--checkpoint", type=Path, metavar="FILE")
    more.help = "keep the totals in this file each minute, and continue from it"
    given = parser.parse_args(arguments)
    world, added = WORLDS[given.world], frozenset(given.features)
    if unknown := added.difference(world.features):
        parser.error(f"the world {given.world!r} has no {min(unknown)!r}; it has: {', '.join(sorted(world.features))}")
    if len(given.seeds) == 1:
        print(report_of_seed(given.seeds[0], given.world, added))  # noqa: T201 - this is a command
        return 1 if world.with_faults(added)(given.seeds[0]).violations else 0
    what = ", ".join([f"the world {given.world!r}", f"seeds from {given.seeds.start}", *sorted(added)])
    checkpoint = Checkpoint(given.checkpoint, what)
    try:
        kept = checkpoint.read()
        if kept.seeds > len(given.seeds):
            parser.error("The checkpoint has more seeds than these. Give the --seeds of its campaign, or more.")
        checkpoint.keep(kept, now=True)
    except ValueError as e:
        parser.error(f"Give another --checkpoint, or delete the file: {e}")
    except OSError as e:
        parser.error(f"Give another --checkpoint: {e}")
    print(f"{'seeds':>10} {'steps':>10} {'seen once':>10} {'new a seed':>10}", flush=True)  # noqa: T201
    figures = campaign(given.seeds, given.jobs, world.with_faults(added), _print_progress, checkpoint)
    print("\n".join(_report(figures, world)))  # noqa: T201
    if figures.failing:
        print(report_of_seed(next(iter(figures.failing)), given.world, added))  # noqa: T201
    return 1 if figures.failing else 0


def report_of_seed(seed: int, world: str = "agent", added: frozenset[str] = frozenset()) -> str:
    """Return the trace of a seed, its violations, and the command that repeats it."""
    verdict = WORLDS[world].with_faults(added)(seed)
    violations = [f"  {each}" for each in verdict.violations] or ["  none"]
    options = ("" if world == "agent" else f" --world {world}") + f" --seeds {seed}"
    options += "".join(f" --with {feature!r}" for feature in sorted(added))
    repeat = f"Repeat: .venv/bin/python tests/simulation{options}"
    return "\n".join([verdict.trace(), "", "Violations:", *violations, "", repeat])


def _seeds(text: str) -> range:
    first, colon, last = text.partition(":")
    found = range(int(first), int(last) if colon else int(first) + 1)
    if not found:
        raise argparse.ArgumentTypeError(f"{text} has no seeds: the second number must be greater than the first.")
    return found


def _report(figures: Figures, world: WorldKind) -> Iterator[str]:
    width = max(map(len, figures.tally))
    for what, count in sorted(figures.tally.items()):
        yield f"{what:<{width}} {count:>10}"
    yield f"{'seeds':<{width}} {figures.seeds:>10}   {figures.seeds / figures.seconds:.1f} per second"
    yield f"Never: {', '.join(figures.unreached(world.wanted)) or 'nothing that is wanted'}."
    yield f"Failing: {len(figures.failing)}."
    for seed, violation in list(figures.failing.items())[:_MAX_FAILING]:
        yield f"  seed {seed}: {violation.splitlines()[0]}"
