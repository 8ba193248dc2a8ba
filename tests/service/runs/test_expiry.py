from __future__ import annotations

import asyncio

from structlog.testing import capture_logs
from virtual_time import in_virtual_time

from orchestrator_interactive.storage.errors import StoreUnavailable
from service.store.maintenance import expiring


class Store:
    def __init__(self, problem=None):
        self.tidied = 0
        self._problem = problem

    async def delete_expired(self):
        self.tidied += 1
        if self._problem is not None:
            raise self._problem


@in_virtual_time
async def test_each_store_is_tidied_about_hourly_even_if_another_one_fails():
    away, there = Store(StoreUnavailable("It is away.")), Store()
    with capture_logs() as lines:
        async with expiring(away, there):
            await asyncio.sleep(10 * 3600)
    assert 6 <= there.tidied == away.tidied <= 20
    assert {line["problem"] for line in lines if line["event"] == "store.expiry_failed"} == {"It is away."}
    await asyncio.sleep(10 * 3600)
    assert there.tidied <= 20
