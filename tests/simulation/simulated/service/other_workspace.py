"""A service of another workspace over the same store: its conversations wait while it is dead."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from connector.protocols import InboxEntry, LeaseLost, StateChanges
from service.runs.runs import StoredRuns
from service.store.retry import StoreRetryPolicy

if TYPE_CHECKING:
    from .environment import Ground

TEAM = "T2"
# Its processes have numbers from here on.
FIRST = 1001
_CONVERSATIONS = 3


def serves(process: int, workspace: str) -> bool:
    """Whether a process is connected to a workspace."""
    return (process >= FIRST) == (workspace == TEAM)


class Neighbour:
    """Has a run in each of its conversations, is killed, and comes back after their leases have run out."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._owned: set[str] = set()

    async def live(self) -> None:
        scene = self._ground.scene
        scene.spawn(self._serve(FIRST), "neighbour", FIRST)
        await asyncio.sleep(scene.some_s(1, 4))
        scene.loop.kill(FIRST)
        self._ground.stores.dead(FIRST)
        self._owned.clear()
        await asyncio.sleep(self._ground.lease_s + scene.some_s(1, 10))
        scene.spawn(self._serve(FIRST + 1), "neighbour", FIRST + 1)

    async def _serve(self, process: int) -> None:
        ground = self._ground
        store, _ = await ground.stores.doors(process)
        async with StoredRuns(store, f"process {process}", ground.lease_s, StoreRetryPolicy()) as runs:

            def on_work(conversation_id: str) -> None:
                ground.scene.spawn(self._work(process, runs, conversation_id), conversation_id, process)

            runs.watch(TEAM, on_work)
            for number in range(_CONVERSATIONS):
                entry = InboxEntry(f"{TEAM}:C1:{number}.0", "message", {})
                await runs.admit(f"{TEAM}:C1:{number}.0", entry, "alpha")
            await asyncio.Event().wait()

    async def _work(self, process: int, runs: StoredRuns, conversation_id: str) -> None:
        """Begin a run and never end it, or end the one that the process before this one has begun."""
        if conversation_id in self._owned:
            return
        self._owned.add(conversation_id)
        with suppress(LeaseLost):
            lease = await runs.claim(conversation_id)
            if lease is None:
                self._owned.discard(conversation_id)
            elif process == FIRST:
                await lease.write(StateChanges(run={"id": conversation_id}))
            else:
                self._ground.scene.count(f"run of another workspace {'waited' if lease.claim.run else 'never begun'}")
                closed = {entry.seq: "done" for entry in lease.claim.entries}
                await lease.write(StateChanges(run={}, closed=closed))
                await lease.release(max(closed, default=0))
