"""The invariants of the agent and of the service hold in every schedule, whatever fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_store_cases import CASES
from run_store_model import RunStoreMachine, assert_behaves_as_the_model
from simulated.campaign import WORLDS, Figures, campaign, main, report_of_seed
from simulated.engine import InOrder, SimulatedLoop
from simulated.service import WANTED
from simulated.service.network import NetworkRunStore, Server
from simulated.service.run_table import RunTable
from simulated.service.store_observer import ConversationState
from simulated.simulation import Simulation, rng_for

# With these faults, hundreds of seeds reach what thousands of others do not.
MANY_FAULTS = frozenset(
    {"approval hooks", "cancels", "compaction", "errors", "kills", "stops", "summaries", "urgent steers"}
)
# These counts do not depend on details of the code, even in few seeds.
RELIABLE = [
    each
    for each in WANTED
    if each.startswith(("kill", "accepted", "takeover of a run with", "store")) and each != "accepted: consent"
]


@pytest.mark.timeout(300)  # 10 s of two idle processors
def test_the_invariants_of_the_agent_hold_at_every_stage_of_a_run() -> None:
    figures = passing_campaign("agent", 800, MANY_FAULTS)
    figures.add(passing_campaign("agent", 250))
    assert figures.unreached(WORLDS["agent"].wanted) == []


@pytest.mark.timeout(300)  # 10 s of an idle processor
def test_the_invariants_of_the_service_hold_at_every_stage_of_a_run() -> None:
    figures = passing_campaign("service", 200, frozenset({"kills"}))
    figures.add(passing_campaign("service", 60))
    assert figures.unreached(RELIABLE) == []


@pytest.mark.timeout(300)  # 5 s of an idle processor
def test_the_invariants_of_the_service_hold_over_an_sqlite_file() -> None:
    assert passing_campaign("service-on-sqlite", 40).seeds == 40


@pytest.mark.parametrize(
    "seed",
    [
        3208,
        5717,
        15046,
        21823,
        23317,
        25065,
        29164,
        55447,
        55749,
        56672,
        58464,
        91105,
        95941,
        115430,
        119529,
        139707,
        179543,
        194554,
        196704,
        203415,
        214774,
        219481,
        225251,
        250300,
        289400,
        310909,
        328020,
        517536,
    ],
)
def test_a_seed_that_found_a_defect_of_the_service_passes(seed: int) -> None:
    assert WORLDS["service"].with_faults(frozenset())(seed).violations == ()


def passing_campaign(world: str, seeds: int, faults: frozenset[str] = frozenset()) -> Figures:
    figures = campaign(range(seeds), os.cpu_count() or 1, WORLDS[world].with_faults(faults))
    if figures.failing:
        first, *more = figures.failing
        pytest.fail(f"{report_of_seed(first, world, faults)}\nSeeds that fail, too: {more[:20]}", pytrace=False)
    return figures


@pytest.mark.parametrize(("world", "seeds"), [("agent", 20), ("service", 10)])
def test_a_seed_gives_the_same_trace_each_time(world: str, seeds: int) -> None:
    for seed in range(seeds):
        assert report_of_seed(seed, world) == report_of_seed(seed, world)


@pytest.mark.parametrize(("world", "seed"), [("agent", 17), ("service", 14), ("service", 68), ("service", 69)])
def test_a_seed_gives_the_same_trace_in_every_process(world: str, seed: int) -> None:
    command = [sys.executable, str(Path(__file__).parent), "--world", world, "--seeds", str(seed)]
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
        assert done.stdout == f"{report_of_seed(seed, world)}\n"


def test_two_seeds_give_different_traces() -> None:
    run = WORLDS["agent"].with_faults(frozenset())
    assert run(1).lines[2:] != run(2).lines[2:]


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["--seeds", "0:20"], "run ended: success"),
        (["--world", "service", "--seeds", "0:10", "--with", "kills"], "takeover of a run"),
    ],
)
def test_the_command_prints_counts_and_what_was_never_reached(arguments, count, capsys) -> None:
    main([*arguments, "--jobs", "1"])
    printed = capsys.readouterr().out
    assert all(each in printed for each in (count, "per second", "Never: "))


def test_the_command_continues_from_a_checkpoint(tmp_path, capsys) -> None:
    def counts(*arguments: str) -> list[str]:
        main(["--seeds", *arguments])
        return [each for each in capsys.readouterr().out.splitlines() if "per second" not in each]

    kept = ["--checkpoint", str(tmp_path / "totals")]
    counts("0:40", *kept)
    _header, *continued = counts("0:100", *kept)
    assert continued == [each for each in counts("0:100")[1:] if each.split()[0] not in ("10", "20", "30", "40")]


@pytest.mark.parametrize("kept", ["[]", "x", "{}", '{"what": "the world \'agent\', seeds from 0"}'])
def test_the_command_refuses_a_checkpoint_of_another_campaign(kept, tmp_path, capsys) -> None:
    (file := tmp_path / "totals").write_text(kept)
    with pytest.raises(SystemExit):
        main(["--seeds", "0:30", "--checkpoint", str(file)])
    assert "Give another --checkpoint, or delete the file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["--seeds", "9:3"], "9:3 has no seeds"),
        (["--seeds", "0:9", "--checkpoint", "/nowhere/totals"], "Give another --checkpoint: "),
    ],
)
def test_the_command_refuses_wrong_arguments_before_it_begins(given, problem, capsys) -> None:
    with pytest.raises(SystemExit):
        main(given)
    assert problem in capsys.readouterr().err


def test_the_command_refuses_faults_of_another_world(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["--seeds", "1", "--with", "store outages"])
    assert "the world 'agent' has no 'store outages'" in capsys.readouterr().err


@pytest.mark.parametrize(("written", "is_held"), [("1.5", True), ("2.5", False)])
def test_the_observer_holds_back_by_one_stop_and_not_by_two_together(written, is_held) -> None:
    newer_stop_before_the_message, older_stop_after_it = {3: "9.0"}, {10: "2.0"}
    state = ConversationState(written={7: written}, holds=newer_stop_before_the_message | older_stop_after_it)
    assert state.is_held(7) == is_held


class NoObserver:
    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


class SimulatedStoreMachine(RunStoreMachine):
    def open(self) -> Any:
        self.runner = SimulatedLoop(InOrder(rng_for(0, "order")))
        self.sim = Simulation(0, self.runner)
        return NetworkRunStore(Server(self.sim, "store", "", (0.001,)), RunTable(self.sim.now), NoObserver(), 1)

    def run(self, work: Any) -> Any:
        return self.runner.run_until_complete(self.sim.spawn(work, "step"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_simulated_run_store_fulfills_the_contract(case) -> None:
    machine = SimulatedStoreMachine()
    machine.run(case(machine.store))
    machine.teardown()


def test_the_simulated_run_store_behaves_as_the_model() -> None:
    assert_behaves_as_the_model(SimulatedStoreMachine, 50)
