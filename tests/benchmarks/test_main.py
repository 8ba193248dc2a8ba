"""`make bench`: the command, its workers, its table."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.harness import Benchmark, Effort, Row, Side, measure
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


@pytest.fixture(scope="module")
def sample() -> tuple[int, str, str]:
    return asyncio.run(bench("sample_benchmark", *QUICK))


async def test_the_benchmark_of_the_kernel_measures_every_row_on_both_sides():
    code, output, errors = await bench("kernel", *QUICK)
    assert (code, errors) == (0, "")
    for row in import_module("benchmarks.kernel").BENCHMARK.rows:
        ours, theirs, target = cells(output, f"{row.title}, µs")
        assert float(ours.replace(",", "")) > 0
        assert " x" in theirs
        assert (target == "-") is (row.target is None)


async def test_the_benchmark_of_memory_finds_little_left_of_an_idle_conversation():
    code, output, errors = await bench("small_memory", *QUICK)
    assert (code, errors) == (0, "")

    def kib(side: str) -> list[float]:
        """What is left of a conversation of this side, after its run and an hour later."""
        return [float(cell.split()[0]) for cell in cells(output, f"ours: {side}")]

    for kept in ("a session with context-simple", "a session with context-stack, in SQLite"):
        assert all(1 < left <= 30 for left in kib(kept)), output
    after_the_run, later = kib("in the service, which evicts idle sessions")
    assert 1 < after_the_run <= 30, output
    assert later < after_the_run / 4, output
    assert "langgraph: the messages alone is not installed; to compare: make bench" in output


@pytest.mark.parametrize("name", ["loop", "run_store", "streaming", "steering"])
async def test_what_a_benchmark_compares_without_other_packages_does_its_work(name):
    benchmark: Benchmark = import_module(f"benchmarks.{name}").BENCHMARK
    done = set()
    for side in [side for side in benchmark.sides if not side.packages]:
        async with side.operations() as operations:
            for operation in operations.values():
                await operation()
            done |= operations.keys()
    assert done == {row.key for row in benchmark.rows if row.of is None}


def test_a_side_that_is_not_installed_is_left_out_and_says_how_to_get_it(sample):
    code, output, _ = sample
    assert code == 0
    assert output.count("absent") == 1
    assert "absent is not installed; to compare: pip install it" in output
    assert "What one should know." in output
    assert "Written" not in output


def test_a_row_that_a_side_cannot_do_stays_blank_and_targets_are_judged(sample):
    _, output, _ = sample
    *_, target = cells(output, "what both can do, µs")
    assert target.endswith(": met")
    assert cells(output, "what one can do, µs")[1:] == ["-", "≤ 0.00: MISSED"]


def test_an_operation_may_tell_what_it_cost_and_a_row_may_be_two_divided(sample):
    _, output, _ = sample
    assert cells(output, "what it holds, KiB") == ["512", "512 x1.00", "-"]
    assert cells(output, "what it says, ms") == ["250", "250 x1.00", "-"]
    assert cells(output, "by itself, times") == ["1.00", "1.00", "≤ 1.00: met"]


def test_what_always_comes_to_the_same_is_measured_once_in_each_process(monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    results = measure("sample_benchmark", Effort(processes=2, rounds=3, round_s=0.0001))
    assert results["ours", "told"] == [512, 512]
    assert results["ours", "waited"] == [250] * 6
    assert results["ours", "quotient"] == [1] * 6


def test_what_a_side_prints_goes_to_standard_error(sample):
    _, output, errors = sample
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
    assert "unknown benchmark 'no_such_benchmark'; available: benchmarks.loop, benchmarks.compression" in errors


def test_the_table_shows_median_quartiles_and_ratio():
    sides = (Side("ours", _nothing), Side("theirs", _nothing))
    benchmark = Benchmark("Title", (Row("row", "what it costs", target=5), Row("other", "what else")), sides)
    results = {("ours", "row"): [4.0, 1.0, 2.0, 3.0, 90.0], ("theirs", "row"): [3000.0]}
    table = rendered(benchmark, results, Effort(processes=1, rounds=5, round_s=0.02))
    assert cells(table, "what it costs, µs") == ["3.00 [2.00-4.00]", "3,000 x1,000", "≤ 5.00: met"]
    assert cells(table, "what else, µs") == ["-", "-", "-"]
    assert "1 x 5 rounds of 20 ms" in table


@pytest.mark.parametrize(("cost", "verdict"), [(15.0, "met"), (25.0, "MISSED"), (35.0, "MISSED")])
def test_more_sides_than_rows_stand_one_below_the_other_and_a_target_may_be_a_ratio(cost, verdict):
    sides = (Side("ours", _nothing), Side("floor", _nothing))
    benchmark = Benchmark("Title", (Row("row", "what", target=30, target_ratio=20),), sides, base="floor")
    results = {("ours", "row"): [cost], ("floor", "row"): [1.0]}
    table = rendered(benchmark, results, Effort(processes=1, rounds=1, round_s=0.02))
    assert cells(table, "ours") == [f"{cost:.1f} x{cost:.1f}"]
    assert cells(table, "floor") == ["1.00"]
    assert cells(table, "target") == [f"≤ 30.0, ≤ x20.0: {verdict}"]


def test_a_target_that_was_not_measured_is_missed():
    benchmark = Benchmark("Title", (Row("row", "what", target=30), Row("b", "b")), (Side("ours", _nothing),))
    table = rendered(benchmark, {}, Effort(processes=1, rounds=1, round_s=0.02))
    assert cells(table, "what, µs") == ["-", "≤ 30.0: MISSED"]


def _nothing():
    raise AssertionError("a table needs no operations")
