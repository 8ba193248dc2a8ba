"""The page that `make bench` writes: every table, a picture, and the section that is written by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.picture import drawn
from benchmarks.table import circumstances, figure, markdown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.harness import Benchmark, Effort, Results

    Measured = Sequence[tuple[Benchmark, Results]]

# Its figures need hours, so they are measured with commands of their own.
LOAD = "## The service under load\n"


def write(folder: Path, measured: Measured, effort: Effort) -> list[Path]:
    """Write `benchmarks.md`, and `benchmarks.svg` for the benchmark with pictured rows; returns both paths.

    The section about the load stays as it is.
    """
    page, picture = folder / "benchmarks.md", folder / "benchmarks.svg"
    drawings = [(benchmark, drawn(benchmark, results)) for benchmark, results in measured if benchmark.pictured]
    for _, drawing in drawings:
        picture.write_text(drawing, encoding="utf-8")
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    kept = "".join(before.partition(LOAD)[1:])
    page.write_text(_text(measured, effort) + (kept and f"\n{kept}"), encoding="utf-8")
    return [page, picture][: 1 + len(drawings)]


def _text(measured: Measured, effort: Effort) -> str:
    pictured = [(benchmark, results) for benchmark, results in measured if benchmark.pictured]
    today = datetime.now(tz=UTC).date()
    head = (
        "# Benchmarks\n\n"
        f"{''.join(_summary(*each) for each in pictured)}"
        f"Made by `make bench` on {today:%d %B %Y} ({circumstances(effort)}). All sides of a table are measured in "
        "one run, alternately and each in its own process, so load on the machine affects all sides. Compare the "
        "ratios; the absolute figures depend on this machine.\n"
    )
    pictures = [f"![{benchmark.title}, in each of the loops](benchmarks.svg)\n" for benchmark, _ in pictured]
    return "\n".join([head, *pictures, *(markdown(benchmark, results) for benchmark, results in measured)])


def _summary(benchmark: Benchmark, results: Results) -> str:
    """Return the first figure of the picture in a sentence: ours, and the range of the others."""
    row = next(row for row in benchmark.rows if row.key == benchmark.pictured[0])
    costs = {name: median(each) for (name, key), each in results.items() if key == row.key}
    others = sorted((cost, name) for name, cost in costs.items() if not name.startswith(benchmark.ours.name))
    if benchmark.ours.name not in costs or not others:
        return ""
    low, high = (f"{figure(cost)} ({name})" for cost, name in (others[0], others[-1]))
    ours = figure(costs[benchmark.ours.name])
    return f"{benchmark.title} costs {ours} {row.unit} in our loop, {low} to {high} in the others ({row.title}). "
