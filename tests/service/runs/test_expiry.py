"""What nobody needs any more goes while the service runs."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs
from virtual_time import in_virtual_time

from orchestrator_interactive.storage.errors import StoreUnavailable
from service.runs.expiry import expiring


class Store:
    def __init__(self, problem: Exception | None = None) -> None:
        self.tidied: list[float] = []
        self._problem = problem

    async def delete_expired(self) -> None:
        self.tidied.append(asyncio.get_running_loop().time())
        if self._problem is not None:
            raise self._problem


@in_virtual_time
async def test_every_store_is_tidied_about_every_hour_whatever_is_wrong_with_another():
    away, there = Store(StoreUnavailable("It is away.")), Store()
    with capture_logs() as lines:
        async with expiring(away, there):
            await asyncio.sleep(10 * 3600)
    assert 6 <= len(there.tidied) == len(away.tidied) <= 20
    assert {line["problem"] for line in lines if line["event"] == "store.expiry_failed"} == {"It is away."}
    await asyncio.sleep(10 * 3600)
    assert len(there.tidied) <= 20
