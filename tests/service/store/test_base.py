"""What a run store promises, asked of SQLite, of Redis, and of a Redis cluster."""

from __future__ import annotations

import pytest
from run_store_cases import CASES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
async def test_of_each_store(store, case):
    await case(store)
