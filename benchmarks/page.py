"""The page that `make bench` writes: every table, and a picture."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from benchmarks.picture import drawn
from benchmarks.table import circumstances, markdown

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.harness import Benchmark, Effort, Results

    Measured = Sequence[tuple[Benchmark, Results]]


def write(folder: Path, measured: Measured, effort: Effort) -> list[Path]:
    """Write `benchmarks.md`, and `benchmarks.svg` for the benchmark with pictured rows; returns both paths."""
    page, picture = folder / "benchmarks.md", folder / "benchmarks.svg"
    drawings = [(benchmark, drawn(benchmark, results)) for benchmark, results in measured if benchmark.pictured]
    for _, drawing in drawings:
        picture.write_text(drawing, encoding="utf-8")
    page.write_text(_text(measured, effort, [benchmark for benchmark, _ in drawings]), encoding="utf-8")
    return [page, picture][: 1 + len(drawings)]


def _text(measured: Measured, effort: Effort, pictured: Sequence[Benchmark]) -> str:
    today = datetime.now(tz=UTC).date()
    head = (
        "# Benchmarks\n\n"
        f"Made by `make bench` on {today:%d %B %Y} ({circumstances(effort)}). All sides of a table are measured in "
        "one run, alternately and each in its own process, so load on the machine affects all sides. Compare the "
        "ratios; the absolute figures depend on this machine.\n"
    )
    pictures = [f"![{benchmark.title}, in each of the loops](benchmarks.svg)\n" for benchmark in pictured]
    return "\n".join([head, *pictures, *(markdown(benchmark, results) for benchmark, results in measured)])
