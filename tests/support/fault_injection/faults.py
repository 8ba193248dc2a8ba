"""Faults of the service: kills, restarts, pauses, and network errors."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from redis_server import RedisServer
from replicas import Replicas

from local_slack import DropAfterCall, DropBeforeCall, LocalSlack, RateLimited, ServerError

_METHODS = ("chat.postMessage", "chat.postMessage", "chat.update", "chat.delete", "reactions.add", "users.info")
# The range of the time until a killed process is started again, in seconds.
_DOWN_S = (0.0, 2.5)


class Faults:
    """Injects faults in the order of a seed; `done` counts them.

    `frozen_s` is how long a process is paused: longer than its leases.
    """

    def __init__(
        self, slack: LocalSlack, replicas: Replicas, redis: RedisServer | None, seed: int, frozen_s: float
    ) -> None:
        self.done: Counter[str] = Counter()
        self._slack = slack
        self._replicas = replicas
        self._redis = redis
        self._frozen_s = frozen_s
        self._dice = random.Random(f"harm {seed}")  # noqa: S311 - a seed, no secret
        self._busy: set[str] = set()
        self._healing: set[asyncio.Task[None]] = set()

    async def go_on(self, over: asyncio.Event, every_s: float) -> None:
        """Inject a fault about every `every_s` seconds until `over` is set, then repair all."""
        kinds = {"kill": 6, "terminate": 2, "sockets": 2, "calls": 4}
        kinds |= {"redis": 2} if self._redis is not None else {}
        kinds |= {"freeze": 2} if len(self._replicas.each) > 1 else {}
        while not over.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._dice.expovariate(1 / every_s)):
                    await over.wait()
            if not over.is_set():
                self.do(self._dice.choices(list(kinds), list(kinds.values()))[0])
        await self.heal()

    def do(self, kind: str) -> None:
        """Begin a fault: kill, terminate, freeze, redis, sockets, calls. `heal` waits for its end."""
        down_s = self._dice.uniform(*_DOWN_S)
        match kind:
            case "kill" | "terminate" | "freeze":
                steps = self._to_a_replica(kind, down_s)
            case "redis":
                steps = self._to_redis(down_s)
            case "sockets":
                steps = self._to_the_sockets()
            case _:
                steps = self._to_calls()
        self._healing.add(asyncio.create_task(steps))

    async def heal(self) -> None:
        """Wait until everything is repaired."""
        while self._healing:
            healing, self._healing = self._healing, set()
            await asyncio.gather(*healing)
        self._slack.faults.clear()
        for replica in self._replicas.each:
            if not replica.is_up:
                await replica.start()

    async def _to_a_replica(self, kind: str, down_s: float) -> None:
        free = [each for each in self._replicas.each if each.is_up and each.name not in self._busy]
        if not free:
            return
        replica = self._dice.choice(free)
        with self._held(replica.name):
            self.done[kind] += 1
            if kind == "freeze":
                replica.freeze()
                await asyncio.sleep(self._frozen_s)
                replica.thaw()
                return
            if kind == "kill":
                await replica.kill()
            elif await replica.terminate():
                self.done["terminate, and it was cut at the end of its grace"] += 1
            await asyncio.sleep(down_s)
            await replica.start()

    async def _to_redis(self, down_s: float) -> None:
        redis = self._redis
        if redis is None or "redis" in self._busy:
            return
        with self._held("redis"):
            self.done["redis"] += 1
            await asyncio.to_thread(redis.kill)
            await asyncio.sleep(down_s)
            await asyncio.to_thread(redis.start)

    async def _to_the_sockets(self) -> None:
        self.done["sockets"] += 1
        if self._dice.random() < 0.5:
            self._slack.socket_mode.drop()
        else:
            self._slack.socket_mode.disconnect("refresh_requested")

    async def _to_calls(self) -> None:
        self.done["calls"] += 1
        fault = self._dice.choice((DropAfterCall(), DropBeforeCall(), ServerError(), RateLimited(1)))
        self._slack.faults.next(self._dice.choice(_METHODS), fault, times=self._dice.randrange(1, 4))

    @contextmanager
    def _held(self, name: str) -> Iterator[None]:
        self._busy.add(name)
        try:
            yield
        finally:
            self._busy.discard(name)
