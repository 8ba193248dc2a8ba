"""`make bench`: the command and its workers."""

from __future__ import annotations

import asyncio
import os
import sys
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks.harness import Effort, measure

HERE = Path(__file__).parent
QUICK = ("--processes", "1", "--rounds", "1", "--round-ms", "0.1")


async def bench(*arguments, **env):
    """Run the command; return its exit code and its output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks", *arguments),
        cwd=HERE.parent.parent,
        env={**os.environ, "PYTHONPATH": str(HERE), **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


def cells(table, title):
    """Return the cells of a row; they are separated by two spaces."""
    (line,) = [line for line in table.splitlines() if line.startswith(f"{title}  ")]
    return [cell.strip() for cell in line.removeprefix(title).split("  ") if cell.strip()]


@pytest.fixture(scope="module")
def sample():
    return asyncio.run(bench("sample_benchmark", *QUICK))


async def test_the_kernel_benchmark_measures_every_row_on_both_sides():
    code, output, errors = await bench("kernel", *QUICK)
    assert (code, errors) == (0, "")
    for row in import_module("benchmarks.kernel").BENCHMARK.rows:
        ours, theirs, target = cells(output, f"{row.title}, µs")
        assert float(ours.replace(",", "")) > 0
        assert " x" in theirs
        assert (target == "-") is (row.target is None)


@pytest.mark.timeout(240)  # 26 s of an idle processor
async def test_the_memory_benchmark_measures_idle_and_evicted_conversations():
    code, output, errors = await bench("small_memory", *QUICK)
    assert (code, errors) == (0, "")

    def kib(side):
        """Return the memory of a conversation after its run and an hour later."""
        return [float(cell.split()[0]) for cell in cells(output, f"ours: {side}")]

    for side in ("a session with context-simple", "a session with context-stack, in SQLite"):
        assert all(1 < each <= 30 for each in kib(side)), output
    after_the_run, later = kib("in the service, which evicts idle sessions")
    assert 1 < after_the_run <= 30, output
    assert later < after_the_run / 4, output
    assert "langgraph: the messages alone is not installed; to compare: make bench" in output


@pytest.mark.parametrize("name", ["loop", "run_store", "streaming", "steering"])
async def test_the_operations_of_our_sides_work(name):
    benchmark = import_module(f"benchmarks.{name}").BENCHMARK
    done = set()
    for side in [side for side in benchmark.sides if not side.packages]:
        async with side.operations() as operations:
            for operation in operations.values():
                await operation()
            done |= operations.keys()
    assert done == {row.key for row in benchmark.rows if row.of is None}


def test_a_side_that_is_not_installed_is_left_out_with_a_hint(sample):
    code, output, _ = sample
    assert code == 0
    assert output.count("absent") == 1
    assert "absent is not installed; to compare: pip install it" in output
    assert "A note." in output
    assert "Written" not in output


def test_a_missing_operation_is_a_dash_and_targets_are_checked(sample):
    _, output, _ = sample
    assert cells(output, "done by both, µs")[-1].endswith(": met")
    assert cells(output, "done by one, µs")[1:] == ["-", "≤ 0.00: MISSED"]


def test_an_operation_may_return_its_cost_and_a_row_may_be_a_quotient(sample):
    _, output, _ = sample
    assert cells(output, "memory of it, KiB") == ["512", "512 x1.00", "-"]
    assert cells(output, "time of it, ms") == ["250", "250 x1.00", "-"]
    assert cells(output, "quotient, times") == ["1.00", "1.00", "≤ 1.00: met"]


def test_a_constant_is_measured_once_in_each_process(monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    results = measure("sample_benchmark", Effort(processes=2, rounds=3, round_s=0.0001))
    assert results["ours", "memory"] == [512, 512]
    assert results["ours", "time"] == [250] * 6
    assert results["ours", "quotient"] == [1] * 6


def test_the_output_of_a_side_goes_to_standard_error(sample):
    _, output, errors = sample
    assert "not an answer" in errors
    assert "not an answer" not in output


async def test_a_failing_side_ends_the_command_and_is_named():
    code, output, errors = await bench("sample_benchmark", *QUICK, SAMPLE_BROKEN="1")
    assert code == 1
    assert "LookupError: this side is broken" in errors
    assert "Error: The worker of 'broken' ended while measuring 'second', with code 1." in errors
    assert "done by one" not in output


async def test_an_unknown_benchmark_is_an_error_with_the_available_ones():
    code, _, errors = await bench("no_such_benchmark")
    assert code == 2
    assert "unknown benchmark 'no_such_benchmark'; available: benchmarks.loop, benchmarks.approvals" in errors


async def test_the_command_writes_the_page(tmp_path):
    code, output, _ = await bench("sample_benchmark", *QUICK, "--write", str(tmp_path))
    assert code == 0
    assert output.endswith(f"Written: {tmp_path}/benchmarks.md, {tmp_path}/benchmarks.svg\n")
    assert "## A sample" in (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
