"""The stage of these tests, and the event loop in virtual time, which lies beside the simulation."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from stage import Stage

from local_slack import LocalSlack

sys.path.insert(0, str(Path(__file__).parents[1] / "simulation"))


@pytest.fixture
async def slack() -> AsyncIterator[LocalSlack]:
    async with LocalSlack() as slack:
        yield slack


@pytest.fixture
def stage(slack: LocalSlack, tmp_path: Path) -> Stage:
    return Stage.of(slack, tmp_path)
