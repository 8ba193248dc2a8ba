"""`make bench`: the command, its workers, its table."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from benchmarks.harness import Benchmark, Effort, Row, Side
from benchmarks.kernel import BENCHMARK as KERNEL
from benchmarks.table import rendered

HERE = Path(__file__).parent
QUICK = ("--processes", "1", "--rounds", "1", "--round-ms", "0.1")


async def bench(*arguments: str, **env: str) -> tuple[int, str, str]:
    """Run the command as `make bench` does; gives its code and what it wrote."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks", *arguments),
        cwd=HERE.parent.parent,
        env={**os.environ, "PYTHONPATH": str(HERE), **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


def cells(table: str, title: str) -> list[str]:
    """What stands behind a row's title, with two spaces between."""
    (line,) = [line for line in table.splitlines() if line.startswith(f"{title}  ")]
    return [cell.strip() for cell in line.removeprefix(title).split("  ") if cell.strip()]


async def test_all_benchmarks_run_and_measure_every_row_on_both_sides():
    code, output, errors = await bench(*QUICK)
    assert (code, errors) == (0, "")
    for row in KERNEL.rows:
        ours, theirs, ratio, target, *_ = cells(output, row.title)
        assert "[" in ours
        assert "[" in theirs
        assert ratio.startswith("x")
        assert (target == "-") is (row.target_us is None)


async def test_a_side_that_is_not_installed_has_no_column_and_says_how_to_get_it():
    code, output, _ = await bench("sample_benchmark", *QUICK)
    assert code == 0
    assert output.count("absent") == 1
    assert "absent is not installed; to compare: pip install it" in output
    assert "What one should know." in output


async def test_a_row_that_a_side_cannot_do_stays_blank_and_targets_are_judged():
    _, output, _ = await bench("sample_benchmark", *QUICK)
    *_, ratio, _target, verdict = cells(output, "what both can do")
    assert (ratio[0], verdict) == ("x", "met")
    assert cells(output, "what one can do")[1:] == ["-", "-", "≤ 0.00", "MISSED"]


async def test_what_a_side_prints_goes_to_standard_error():
    _, output, errors = await bench("sample_benchmark", *QUICK)
    assert "not an answer" in errors
    assert "not an answer" not in output


async def test_a_side_that_fails_ends_the_command_and_is_named():
    code, output, errors = await bench("sample_benchmark", *QUICK, SAMPLE_BROKEN="1")
    assert code == 1
    assert "LookupError: this side is broken" in errors
    assert "Error: The worker of 'broken' ended while measuring 'second', with code 1." in errors
    assert "what one can do" not in output


async def test_a_benchmark_that_is_not_there_is_named_with_those_that_are():
    code, _, errors = await bench("no_such_benchmark")
    assert code == 2
    assert "there is no 'no_such_benchmark'; here are: benchmarks.kernel" in errors


def test_the_table_shows_median_quartiles_and_ratio():
    sides = (Side("ours", _nothing), Side("theirs", _nothing))
    benchmark = Benchmark("Title", (Row("row", "what it costs", target_us=5),), sides)
    results = {("ours", "row"): [4.0, 1.0, 2.0, 3.0, 90.0], ("theirs", "row"): [3000.0]}
    table = rendered(benchmark, results, Effort(processes=1, rounds=5, round_s=0.02))
    assert cells(table, "what it costs") == ["3.00 [2.00-4.00]", "3,000 [3,000-3,000]", "x1,000", "≤ 5.00", "met"]
    assert "1 x 5 rounds of 20 ms" in table


def _nothing():
    raise AssertionError("a table needs no operations")
