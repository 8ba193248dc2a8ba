"""One fault test: people, the service in real processes, faults, and the audit at the end."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from marking_tools import MARKING_TOOLS
from redis_server import RedisServer, redis_server
from replicas import Replica, Replicas
from router import Router

from fault_injection.audit import Audit, Sides
from fault_injection.model import InstructedModel
from fault_injection.observations import Observations
from fault_injection.people import CHANNEL, People
from local_slack import DropAfterCall, DropBeforeCall, LocalSlack, RateLimited, RetrySchedule, ServerError
from orchestrator_interactive.interactions.stores import open_store
from service.store import inspect_run_store

LEASE_S = 2.0
# The cleanup after a takeover is repeated 15 s later.
_SETTLED_WITHIN_S = 60.0
# Every write is on disk before its reply, so a kill loses no acknowledged write.
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")
_CONFIG = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    tools: [{{module: marking-tools, source: {tools}, config: {{path: {marks}}}}}]
    orchestrator: {{module: loop-interactive, config: {{stop_grace_s: 1}}}}
store: sqlite:{folder}/service.db
workspace: {{root: {folder}/files}}
log: {{format: json}}
lease_s: {lease_s}
idle_evict_s: {idle_evict_s}
shutdown_grace_s: 3
slack: {{rate_scale: 1000}}
"""

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
        """Begin a fault: kill, terminate, freeze, agents (kill their process), redis, sockets, calls.

        `heal` waits for its end.
        """
        down_s = self._dice.uniform(*_DOWN_S)
        match kind:
            case "kill" | "terminate" | "freeze":
                steps = self._to_a_replica(kind, down_s, self._replicas.all)
            case "agents":
                steps = self._to_a_replica("kill", down_s, self._replicas.all[-1:])
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
        for replica in self._replicas.all:
            if not replica.is_up:
                await replica.start()

    async def _to_a_replica(self, kind: str, down_s: float, replicas: Sequence[Replica]) -> None:
        free = [each for each in replicas if each.is_up and each.name not in self._busy]
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


@dataclass(frozen=True, slots=True)
class Trial:
    """The parameters of a fault test.

    Args:
        replicas: more than one are over Redis, one is over SQLite.
        seconds: how long harm is done.
        pace_s: between two things that people do in one conversation, in the mean.
        harm_s: between two harms, in the mean.
        harms: faults at the start, in this order, independent of the seed.
        remote: whether the agents run in a process of their own.
    """

    seed: int
    conversations: int
    seconds: float
    replicas: int = 2
    pace_s: float = 4.0
    harm_s: float = 3.0
    harms: tuple[str, ...] = ()
    close_within_s: float = 90.0
    remote: bool = False

    async def run(self, folder: Path) -> Audit:
        """Run it. Afterwards the folder has the logs of the processes, and the results in `tally.txt`."""
        async with AsyncExitStack() as stack:
            redis = stack.enter_context(redis_server(*DURABLE)) if self.replicas > 1 else None
            store = redis.url if redis else f"sqlite:{folder}/service.db"
            model = InstructedModel()
            await stack.enter_async_context(model.server)
            # Slack gives up after a few minutes; here nothing is given up, and all of it must be found.
            slack = await stack.enter_async_context(
                LocalSlack(retries=RetrySchedule(1.0, (0.2,) * 1000), refresh_grace_s=2.0, limits=None)
            )
            board, record = Router(slack), Observations.of(slack)
            replicas = await stack.enter_async_context(
                Replicas.of(
                    self.replicas, self._env(slack, model, store, folder), self._config(folder), remote=self.remote
                )
            )
            await asyncio.gather(*(replica.start() for replica in replicas.all))
            crowd = People(slack, board, record, self.pace_s)
            crowd.gather(self.seed, self.conversations)
            harm = Faults(slack, replicas, redis, self.seed, 1.6 * LEASE_S)
            unanswered = await self._live(crowd, harm)
            logs = await stack.enter_async_context(aclosing(await open_store(store)))
            runs = await stack.enter_async_context(aclosing(await inspect_run_store(store)))
            channel, marks = slack.channel(CHANNEL).id, folder / "marks.txt"
            sides = Sides(slack.team_id, channel, record, board, runs, logs, model, marks, self.replicas, unanswered)
            await sides.settled(_SETTLED_WITHIN_S)
            tally = await sides.counted()
            tally.counts |= {f"harm: {kind}": count for kind, count in harm.done.items()}
            self._write(tally, replicas, folder)
            return tally

    async def _live(self, crowd: People, harm: Faults) -> list[str]:
        over = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(crowd.live(over))
            for kind in self.harms:
                await asyncio.sleep(self.harm_s)
                harm.do(kind)
            tasks.create_task(harm.go_on(over, self.harm_s))
            await asyncio.sleep(self.seconds)
            over.set()
        return await crowd.close(self.close_within_s)

    def _env(self, slack: LocalSlack, model: InstructedModel, store: str, folder: Path) -> dict[str, str]:
        return {
            "SLACK_APP_TOKEN": slack.app_token,
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_API_URL": slack.api_url,
            **model.server.env,
            "AMPLIFIER_SLACK_STORE": store,
            "HOME": str(folder),
        }

    @staticmethod
    def _config(folder: Path) -> Path:
        config = folder / "agents.yaml"
        marks = folder / "marks.txt"
        config.write_text(
            _CONFIG.format(tools=MARKING_TOOLS, marks=marks, folder=folder, lease_s=LEASE_S, idle_evict_s=5)
        )
        return config

    @staticmethod
    def _write(tally: Audit, replicas: Replicas, folder: Path) -> None:
        replicas.write_logs()
        lines = [tally.table(), ""]
        for sentence, words in tally.wrong:
            lines += [sentence, *(f"    {line}" for line in replicas.lines_about(*words))]
            for place in [place for place in tally.stories if any(place.endswith(word) for word in words)]:
                (folder / f"{place}.txt").write_text(tally.stories[place])
        (folder / "tally.txt").write_text("\n".join(lines) + "\n")
