"""The simulation of one agent. It uses public interfaces only: `session.execute`, the orchestrator's capabilities, the
cancellation token, hooks, and the contracts of providers, tools and contexts.
"""

from simulated.trial import Verdict, run_seed

from .world import FEATURES, Parts, World

__all__ = ["FEATURES", "Parts", "run"]


def run(seed: int, parts: Parts | None = None) -> Verdict:
    return run_seed(seed, lambda sim: World(sim, parts or Parts()), max_callbacks=100_000)
