from __future__ import annotations

import pytest

from benchmarks.harness import Benchmark, Effort, Row, Side
from benchmarks.table import rendered

ONE_ROUND = Effort(processes=1, rounds=1, round_s=0.02)


def cells(table, title):
    """Return the cells of a row; they are separated by two spaces."""
    (line,) = [line for line in table.splitlines() if line.startswith(f"{title}  ")]
    return [cell.strip() for cell in line.removeprefix(title).split("  ") if cell.strip()]


def test_the_table_has_median_quartiles_and_ratio():
    rows = (Row("row", "cost of it", target=5), Row("other", "other cost"))
    benchmark = Benchmark("Title", rows, (Side("ours", None), Side("theirs", None)))
    results = {("ours", "row"): [4.0, 1.0, 2.0, 3.0, 90.0], ("theirs", "row"): [3000.0]}
    table = rendered(benchmark, results, Effort(processes=1, rounds=5, round_s=0.02))
    assert cells(table, "cost of it, µs") == ["3.00 [2.00-4.00]", "3,000 x1,000", "≤ 5.00: met"]
    assert cells(table, "other cost, µs") == ["-", "-", "-"]
    assert "1 x 5 rounds of 20 ms" in table


def test_a_base_of_zero_has_no_ratio():
    rows = (Row("row", "calls"), Row("other", "other calls"))
    benchmark = Benchmark("Title", rows, (Side("ours", None), Side("theirs", None)))
    results = {("ours", "row"): [0.0], ("theirs", "row"): [2.0]}
    assert cells(rendered(benchmark, results, ONE_ROUND), "calls, µs") == ["0.00", "2.00", "-"]


@pytest.mark.parametrize(("cost", "verdict"), [(15.0, "met"), (25.0, "MISSED"), (35.0, "MISSED")])
def test_more_sides_than_rows_are_lines_and_a_target_may_be_a_ratio(cost, verdict):
    rows = (Row("row", "what", target=30, target_ratio=20),)
    benchmark = Benchmark("Title", rows, (Side("ours", None), Side("floor", None)), base="floor")
    table = rendered(benchmark, {("ours", "row"): [cost], ("floor", "row"): [1.0]}, ONE_ROUND)
    assert cells(table, "ours") == [f"{cost:.1f} x{cost:.1f}"]
    assert cells(table, "floor") == ["1.00"]
    assert cells(table, "target") == [f"≤ 30.0, ≤ x20.0: {verdict}"]


def test_a_target_that_was_not_measured_is_missed():
    benchmark = Benchmark("Title", (Row("row", "what", target=30), Row("b", "b")), (Side("ours", None),))
    assert cells(rendered(benchmark, {}, ONE_ROUND), "what, µs") == ["-", "≤ 30.0: MISSED"]
