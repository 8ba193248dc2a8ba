"""The stage of these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from stage import Stage

from local_slack import LocalSlack


@pytest.fixture
async def slack() -> AsyncIterator[LocalSlack]:
    async with LocalSlack() as slack:
        yield slack


@pytest.fixture
def stage(slack: LocalSlack, tmp_path: Path) -> Stage:
    return Stage.of(slack, tmp_path)
