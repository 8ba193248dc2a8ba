"""The stage of these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from slack_environment import SlackEnvironment

from local_slack import LocalSlack


@pytest.fixture
async def slack() -> AsyncIterator[LocalSlack]:
    async with LocalSlack() as slack:
        yield slack


@pytest.fixture
def stage(slack: LocalSlack, tmp_path: Path) -> SlackEnvironment:
    return SlackEnvironment.of(slack, tmp_path)
