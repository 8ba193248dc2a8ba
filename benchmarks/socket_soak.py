"""Soak test of Socket Mode under faults: `python -m benchmarks.socket_soak --minutes 5`.

Users post at a steady rate. At random times the sockets get a refresh, a warning, a drop, a freeze, a switch-off, or
too many connections; events are delivered twice, late, or lost at the first attempt; the receiver is slow, returns 503,
or restarts. At the end every event must be stored, except those that Slack has given up after four deliveries. All
intervals, Slack's and ours, are a tenth of the real ones.
"""

from __future__ import annotations

import asyncio
import io
import json
import random
import sys
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import click
import structlog
import uvloop
from slack_sdk.web.async_client import AsyncWebClient

from connector.inbound.dispatcher import Reply
from connector.inbound.socket_mode import SocketMode, SocketTiming, address_source
from connector.slack_api.client import SlackClient
from connector.slack_api.errors import Backoff
from connector.slack_api.rate_limiter import RateLimiter
from local_slack import LocalSlack, RetrySchedule
from local_slack.delivery.faults import Delayed, Dropped, Duplicated
from local_slack.workspace.messages import Body

if TYPE_CHECKING:
    from collections.abc import Callable

# A tenth of the real delays.
PACE = SocketTiming(
    ping_every_s=0.5, silent_for_s=1.2, linger_s=0.8, min_lifetime_s=1, retry=Backoff(0.1, 3), refused=Backoff(1, 12)
)
SLACKS = RetrySchedule(0.3, (0, 6, 30))
CHANNEL = "general"
SLOTS = 100
_LET_IN_WITHIN_S = 90.0


@dataclass(slots=True)
class Tally:
    """What happened."""

    sent: dict[str, float] = field(default_factory=dict)
    kept: dict[str, float] = field(default_factory=dict)
    again: int = 0
    refused: int = 0
    overtaken: int = 0
    opened: int = 0
    longest_gap_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    given_up: set[str] = field(default_factory=set)
    _latest: float = 0.0

    def keep(self, ts: str) -> None:
        if ts in self.kept:
            self.again += 1
            return
        self.kept[ts] = asyncio.get_running_loop().time()
        self.overtaken += float(ts) < self._latest
        self._latest = max(self._latest, float(ts))

    @property
    def missing(self) -> int:
        return len(self.sent.keys() - self.kept.keys() - self.given_up)

    def rows(self) -> dict[str, str]:
        delays_s = sorted(self.kept[ts] - sent_s for ts, sent_s in self.sent.items() if ts in self.kept)
        shown = {
            f"delay, {share:.1%}": f"{delays_s[int(share * (len(delays_s) - 1))]:.3f} s" for share in (0.5, 0.99, 1.0)
        }
        return {
            "events sent": str(len(self.sent)),
            "events stored": str(len(self.kept.keys() & self.sent.keys())),
            "given up by Slack after 4 deliveries": str(len(self.given_up - self.kept.keys())),
            "missing": str(self.missing),
            "repeated, recognised as duplicates": str(self.again),
            "refused, then repeated": str(self.refused),
            "stored after a later event": str(self.overtaken),
            "connections opened": str(self.opened),
            "longest time without a connection": f"{self.longest_gap_s:.2f} s",
            **shown,
            "faults": ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())),
        }


class Replica:
    """A simulated process that receives events."""

    def __init__(self, slack: LocalSlack, tally: Tally, chance: random.Random) -> None:
        self._slack = slack
        self._tally = tally
        self._chance = chance
        self._exit = AsyncExitStack()

    async def start(self) -> None:
        http = await self._exit.enter_async_context(aiohttp.ClientSession())
        scheduler = await self._exit.enter_async_context(RateLimiter("T"))
        client = AsyncWebClient(self._slack.app_token, base_url=self._slack.api_url, session=http, retry_handlers=[])
        address = address_source(SlackClient(client, scheduler))
        transport = SocketMode(http, address, self._receive, asyncio.Semaphore(SLOTS), timing=PACE)
        await self._exit.enter_async_context(transport)
        self._exit.callback(lambda: self._count(transport))

    async def end(self) -> None:
        await self._exit.aclose()

    def _count(self, transport: SocketMode) -> None:
        self._tally.opened += transport.opened

    async def _receive(self, body: dict[str, Any]) -> Reply:
        event = body["event"]
        if event["type"] != "message":
            return Reply(200)
        chance = self._chance.random()
        await asyncio.sleep(0.35 if chance < 0.002 else 0.001)
        if chance > 0.98:
            self._tally.refused += 1
            return Reply(503)
        self._tally.keep(event["ts"])
        return Reply(200)


class Trouble:
    """Injects faults at random times."""

    def __init__(self, slack: LocalSlack, replicas: list[Replica], tally: Tally, chance: random.Random) -> None:
        self._slack = slack
        self._replicas = replicas
        self._tally = tally
        self._chance = chance

    async def make(self, every_s: float) -> None:
        sockets, deliveries = self._slack.socket_mode, self._slack.deliveries
        kinds: dict[str, Callable[[], Any]] = {
            "refresh": lambda: sockets.disconnect("refresh_requested"),
            "warning": lambda: sockets.disconnect("warning"),
            "switched off": self._switch_off,
            "too many": lambda: sockets.disconnect("too_many_websockets"),
            "drop": sockets.drop,
            "freeze": sockets.freeze,
            "twice": lambda: deliveries.next(Duplicated(), times=10),
            "late": lambda: deliveries.next(Delayed(3), times=10),
            "lost": lambda: deliveries.next(Dropped(), times=10),
            "restart": self._restart,
        }
        while True:
            await asyncio.sleep(self._chance.uniform(0.2, 2) * every_s)
            name = self._chance.choice(list(kinds))
            self._tally.faults[name] += 1
            if asyncio.iscoroutine(doing := kinds[name]()):
                await doing

    async def _switch_off(self) -> None:
        self._slack.socket_mode.disconnect("link_disabled")
        try:
            await asyncio.sleep(self._chance.uniform(0.1, 2))
        finally:
            self._slack.socket_mode.enable()

    async def _restart(self) -> None:
        replica = self._chance.choice(self._replicas)
        await replica.end()
        await replica.start()


class RecordReader(io.StringIO):
    """Reads the record of the local Slack and collects the events that it gives up."""

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self._tally = tally
        self._ts: dict[str, str] = {}

    def write(self, line: str) -> int:
        match json.loads(line):
            case {"what": "event", "envelope": envelope, "event": {"ts": ts}}:
                self._ts[envelope] = ts
            case {"what": "acked", "envelope": envelope}:
                self._ts.pop(envelope, None)
            case {"what": "given_up", "envelope": envelope} if envelope in self._ts:
                self._tally.given_up.add(self._ts[envelope])
        return len(line)


class Presence:
    """Measures the longest time without a connection."""

    def __init__(self, slack: LocalSlack, tally: Tally) -> None:
        self._slack = slack
        self._tally = tally
        self._since_s: float | None = None
        slack.workspace.listen(lambda _: self._look())

    def _look(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if not self._slack.workspace.bot_online:
            self._since_s = self._since_s or now_s
        elif self._since_s is not None:
            self._tally.longest_gap_s = max(self._tally.longest_gap_s, now_s - self._since_s)
            self._since_s = None


async def soak(minutes: float, per_s: float, every_s: float, seed: int, replicas: int) -> Tally:
    chance, tally = random.Random(seed), Tally()  # noqa: S311 - the seed makes it reproducible
    async with LocalSlack(limits=None, retries=SLACKS, refresh_grace_s=5) as slack:
        processes = [Replica(slack, tally, chance) for _ in range(replicas)]
        for process in processes:
            await process.start()
        Presence(slack, tally)
        slack.record.write_to = RecordReader(tally)
        trouble = asyncio.create_task(Trouble(slack, processes, tally, chance).make(every_s))
        await _write(slack, tally, minutes * 60, per_s)
        trouble.cancel()
        await asyncio.wait((trouble,))
        with suppress(TimeoutError):
            await slack.until(lambda _: not slack.socket_mode.delivery.outstanding, _LET_IN_WITHIN_S)
        for process in processes:
            await process.end()
    return tally


async def _write(slack: LocalSlack, tally: Tally, for_s: float, per_s: float) -> None:
    clock, ana = asyncio.get_running_loop(), slack.person("ana")
    began_s, number = clock.time(), 0
    while (elapsed_s := clock.time() - began_s) < for_s:
        if number < elapsed_s * per_s:
            number += 1
            ts = slack.workspace.post(CHANNEL, ana, Body(f"event {number}")).ts
            tally.sent[ts] = clock.time()
        else:
            await asyncio.sleep(0.5 / per_s)


@click.command()
@click.option("--minutes", default=3.0, show_default=True, type=click.FloatRange(0.01))
@click.option("--per-s", default=50.0, show_default=True, type=click.FloatRange(0.1), help="Events per second.")
@click.option("--every-s", default=4.0, show_default=True, type=click.FloatRange(0.01), help="Mean interval of faults.")
@click.option("--seed", default=0, show_default=True)
@click.option("--replicas", default=2, show_default=True, type=click.IntRange(1, 4))
def main(minutes: float, per_s: float, every_s: float, seed: int, replicas: int) -> None:
    """Inject faults while users post, and count the stored events."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        tally = runner.run(soak(minutes, per_s, every_s, seed, replicas))
    for name, value in tally.rows().items():
        print(f"{name:40}{value}")
    sys.exit(1 if tally.missing else 0)


if __name__ == "__main__":
    main()
