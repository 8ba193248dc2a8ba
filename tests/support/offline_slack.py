"""A workspace without Slack, for runs that no event begins: admitted entries are read from the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from connector.inbound.unattended import Obstacle, Unattended
from service.runs import StoredRuns


@dataclass(frozen=True)
class OfflineSlack(Unattended):
    """Everyone may use the bot, unless there is an obstacle. With a client, all channels are closed."""

    found: Obstacle | None = None

    @classmethod
    def of(
        cls, store: Any, now_s: Callable[[], float], obstacle: Obstacle | None = None, client: Any = None, **runs: Any
    ) -> OfflineSlack:
        background = SimpleNamespace(now_s=now_s, options=SimpleNamespace(dm_threads=True), client=client)
        router = SimpleNamespace(team="T1", names=lambda: ["alpha"])
        return cls(StoredRuns(store, "one", 10, **runs), router, None, background, obstacle)

    async def obstacle(self, user, channel, instance):
        return self.found

    async def _is_closed(self, channel):
        return self.background.client is not None

    async def name_of(self, user):
        return "Ana"

    async def instance_at(self, place):
        return "alpha"
