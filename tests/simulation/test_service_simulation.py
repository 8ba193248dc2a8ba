"""Whatever dies, hangs, comes twice or comes late: what the service promises holds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from run_store_cases import CASES
from simulated.campaign import campaign
from simulated.command import main, told
from simulated.engine import InOrder, SimulatedLoop
from simulated.scenario import Scenario, chance_of
from simulated.service import WANTED, tried
from simulated.service.network import Server
from simulated.service.run_store import SimulatedRunStore
from simulated.service.run_table import RunTable
from simulated.service.store_observer import Nobody
from simulated.worlds import WORLDS

if TYPE_CHECKING:
    from run_store_cases import Case
    from simulated.campaign import Figures

SEEDS = range(300)
SEEDS_WITH_A_FILE = range(60)
# What happens in so few seeds whatever the code does; the command names the rest.
RELIABLY = [each for each in WANTED if each.startswith(("kill", "accepted", "run taken up with", "store"))]
FOLDER = Path(__file__).parent


@pytest.mark.timeout(300)  # 10 s of a processor that has nothing else to do
def test_what_the_service_promises_holds_whatever_happens_at_every_stage_of_a_run() -> None:
    assert _tried("service", SEEDS).unreached(RELIABLY) == []


@pytest.mark.timeout(300)  # 5 s of a processor that has nothing else to do
def test_what_the_service_promises_holds_over_an_sqlite_file() -> None:
    assert _tried("service-on-sqlite", SEEDS_WITH_A_FILE).seeds == len(SEEDS_WITH_A_FILE)


def _tried(world: str, seeds: range) -> Figures:
    figures = campaign(seeds, os.cpu_count() or 1, WORLDS[world].tried(frozenset()))
    if figures.failing:
        first, *more = figures.failing
        pytest.fail(f"{told(first, world)}\n{len(figures.failing)} seeds fail; {more[:20]} do, too.", pytrace=False)
    return figures


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_simulated_store_is_one(case: Case) -> None:
    loop = SimulatedLoop(InOrder(chance_of(0, "order")))
    scene = Scenario(0, loop)
    store = SimulatedRunStore(Server(scene, "store", "", (0.001,)), RunTable(scene.now), Nobody(scene), 1)
    loop.run_until_complete(scene.spawn(case(store), case.__name__))
    loop.close()


@pytest.mark.parametrize("seed", range(10))
def test_a_seed_of_the_service_tells_the_same_story_each_time(seed: int) -> None:
    assert tried(seed).story() == tried(seed).story()


def test_a_seed_of_the_service_tells_the_same_story_in_every_process() -> None:
    stories = {_story_of(17, hash_seed) for hash_seed in ("1", "2")}
    assert stories == {f"{told(17, 'service')}\n"}


def test_the_command_tells_what_happened_to_the_service(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--world", "service", "--seeds", "0:10", "--jobs", "1", "--with", "kills"])
    said = capsys.readouterr().out
    assert "run taken up" in said
    assert "per second" in said


def test_kinds_of_trouble_belong_to_a_world(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--seeds", "1", "--with", "outages"])
    assert "the world 'agent' has no 'outages'" in capsys.readouterr().err


def _story_of(seed: int, hash_seed: str) -> str:
    command = [sys.executable, str(FOLDER), "--world", "service", "--seeds", str(seed)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout  # noqa: S603
