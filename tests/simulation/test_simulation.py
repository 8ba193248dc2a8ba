"""Whatever the schedule, whoever fails, writes, stops, cancels or kills: what must hold holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from simulated.campaign import campaign
from simulated.command import main, told
from simulated.trial import tried
from simulated.worlds import WORLDS

if TYPE_CHECKING:
    from simulated.campaign import Figures

SEEDS = range(1200)
# In these everybody interferes with whatever takes long: hundreds of them reach what thousands of others do not.
TROUBLED_SEEDS = range(800)
TROUBLE = frozenset({"cancels", "compaction", "errors", "kills", "stops", "summaries"})
FOLDER = Path(__file__).parent


@pytest.mark.timeout(300)  # 10 s of two processors that have nothing else to do
def test_what_must_hold_holds_in_thousands_of_schedules_and_at_every_stage_of_a_run() -> None:
    figures = _tried(SEEDS, frozenset())
    figures.add(_tried(TROUBLED_SEEDS, TROUBLE))
    assert figures.unreached(WORLDS["agent"].wanted) == []


def _tried(seeds: range, trouble: frozenset[str]) -> Figures:
    figures = campaign(seeds, os.cpu_count() or 1, WORLDS["agent"].tried(trouble))
    if figures.failing:
        first, *more = figures.failing
        said = told(first, added=trouble)
        pytest.fail(f"{said}\n{len(figures.failing)} seeds fail; {more[:20]} do, too.", pytrace=False)
    return figures


@pytest.mark.parametrize("seed", range(20))
def test_a_seed_tells_the_same_story_each_time(seed: int) -> None:
    assert tried(seed).story() == tried(seed).story()


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    stories = {_story_of(17, hash_seed) for hash_seed in ("1", "2")}
    assert stories == {f"{told(17)}\n"}


def test_two_seeds_tell_different_stories() -> None:
    assert tried(1).lines[2:] != tried(2).lines[2:]


def test_the_command_tells_the_figures_and_what_was_never_reached(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--seeds", "0:20", "--jobs", "1"])
    said = capsys.readouterr().out
    assert "run ended: success" in said
    assert "per second" in said
    assert "Never: " in said


def _story_of(seed: int, hash_seed: str) -> str:
    command = [sys.executable, str(FOLDER), "--seeds", str(seed)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout  # noqa: S603
