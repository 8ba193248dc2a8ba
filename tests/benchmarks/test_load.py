"""`python -m benchmarks.load`: the real service, the local Slack and the model in processes of their own."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

import pytest

from benchmarks.distribution import Distribution

ROOT = Path(__file__).parent.parent.parent


async def load(*arguments):
    """Run the command; return its exit code and the cells of its table, by row."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.load", *arguments), cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    rows = re.findall(r"^\| (.*) \|$", output.decode(), re.MULTILINE)
    return process.returncode, {cells[0]: cells[1:] for cells in (row.split(" | ") for row in rows)}, output.decode()


@pytest.mark.parametrize(
    ("count", "share", "rank"),
    [(1, 0.5, 1), (2, 0.5, 1), (3, 0.5, 2), (100, 0.99, 99), (101, 0.99, 100), (100, 1.0, 100)],
)
def test_a_quantile_is_the_time_of_the_nearest_rank(count, share, rank):
    assert Distribution(range(count, 0, -1)).at(share) == rank


async def test_every_latency_of_concurrent_runs_is_measured_and_drawn_and_nothing_is_lost(tmp_path):
    picture = tmp_path / "load.svg"
    code, rows, output = await load("--runs", "3", "--acts", "4", "--seconds", "0.2", "--picture", str(picture))
    begun, *latencies, read, events, memory, _lag, _cpu, counts = rows["3"]
    assert (code, counts) == (0, "0, 0"), output
    assert len(latencies) == 4
    assert all(float(p50) > 0 for p50 in (each.split(" / ")[0] for each in latencies))
    assert all(float(each.replace(",", "")) > 0 for each in (begun, read, events, memory))
    assert picture.read_text().count("99th percentile") == len(latencies)


async def test_another_replica_continues_the_runs_of_a_killed_one_and_nothing_is_lost():
    code, rows, output = await load("--replicas", "2", "--store", "cluster", "--runs", "2", "--seconds", "0.2")
    _short_runs, _cpu, of_a_run, killed, ended, _restarted, counts = rows["2, cluster"]
    assert (code, counts) == (0, "0, 0"), output
    assert float(killed.rpartition(" / ")[2]) < 8, "before the leases expire"
    assert all(float(each) > 0 for each in of_a_run.split(", "))
    assert all(int(each.partition(":")[0]) > 0 for each in (killed, ended))


async def test_a_soak_samples_memory_tasks_files_and_rows_and_draws_the_memory(tmp_path):
    picture = tmp_path / "soak.svg"
    code, rows, output = await load(
        *("--soak", "0.02", "--runs", "2", "--per-s", "3", "--every-s", "0.2", "--picture", str(picture))
    )
    assert (code, "lost 0, doubled 0" in output) == (0, True), output
    assert rows.keys() >= {"memory, MiB", "tasks", "open files", "rows in the store"}
    assert all(float(rows[name][0].replace(",", "")) > 0 for name in ("memory, MiB", "tasks", "open files"))
    assert picture.read_text().startswith("<svg ")
