from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from service.store import open_run_store
from service.store.base import RunStore


@pytest.fixture(params=["sqlite", "redis", "cluster"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of each kind of store, empty."""
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[RunStore]:
    """Each kind of run store, open and empty."""
    store = await open_run_store(store_url)
    yield store
    await store.aclose()
