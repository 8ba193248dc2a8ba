"""Services under load, with their store, the local Slack, the model, and their figures."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import sqlite3
import sys
import tempfile
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import redis

from benchmarks.load.facts import CHANNELS, Facts, pss_kib, slack_process
from benchmarks.load.model import HeldModel
from benchmarks.messages_api import ALL_AT_ONCE, messages_api
from benchmarks.redis_process import redis_cluster, redis_server
from benchmarks.served import Service, cpu_s

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.load.facts import SlackWatch

# Each with a client of its own: that of the SDK has at most 1,000 connections.
_AGENTS = ("alpha", "beta", "gamma")
_METRIC = re.compile(r"^amplifier_slack_(\w+)(?:\{[^}]*\})? (\S+)$", re.MULTILINE)
_LOOK_EVERY_S = 5.0


@dataclass(frozen=True)
class Setting:
    """What is under load.

    Args:
        store: `sqlite`, `redis` or `cluster`.
        replicas: processes of the service.
        limits: whether Slack's rate limits apply.
        idle_evict_s: time that an idle agent session stays in memory.
    """

    store: str = "sqlite"
    replicas: int = 1
    limits: bool = False
    idle_evict_s: float = 900


class Replica(Service):
    """A process of the service, with its metrics."""

    def __init__(self, command: list[str], env: dict[str, str], http: aiohttp.ClientSession) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        super().__init__(command, {**env, "AMPLIFIER_SLACK_OBSERVE": self._address})
        self._http = http

    async def metric(self, name: str) -> float | None:
        """Return the value of a metric, summed over its labels; `None` if there is no such metric."""
        async with self._http.get(f"http://{self._address}/metrics") as response:
            values = [float(value) for found, value in _METRIC.findall(await response.text()) if found == name]
        return sum(values) if values else None


@dataclass
class Site:
    """Everything that is started; `lags_s` are the event loop's delays that the services have reported."""

    setting: Setting
    store: str
    facts: Facts
    slack: SlackWatch
    model: HeldModel
    replicas: list[Replica]
    lags_s: list[float] = field(default_factory=list)

    def memory_kib(self) -> int:
        return sum(pss_kib(replica.pid) for replica in self.replicas)

    def files(self) -> int:
        """Return the number of open files of the services, sockets included."""
        return sum(len(os.listdir(f"/proc/{replica.pid}/fd")) for replica in self.replicas)  # noqa: PTH208 - only the count

    def cpu_s(self) -> tuple[float, ...]:
        """Return the CPU time so far of the busiest service, the local Slack, and this process."""
        return max(replica.cpu_s() for replica in self.replicas), cpu_s(self.slack.pid), cpu_s(os.getpid())

    def rows(self) -> int:
        """Return the rows of all tables of an SQLite store, or the keys of a Redis."""
        if self.store.startswith("sqlite:"):
            with closing(sqlite3.connect(f"file:{self.store.removeprefix('sqlite:')}?mode=ro", uri=True)) as file:
                tables = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
                return sum(file.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in tables)  # noqa: S608
        if self.setting.store == "cluster":
            with redis.RedisCluster.from_url(self.store) as cluster:
                return int(sum(cluster.dbsize(target_nodes=[node]) for node in cluster.get_primaries()))
        with redis.Redis.from_url(self.store) as server:
            return int(server.dbsize())

    def redis_info(self) -> tuple[float, float, float]:
        """Return the commands of the Redis servers so far, their CPU time in seconds, and their data in KiB."""
        found: list[Any]
        if self.setting.store == "cluster":
            with redis.RedisCluster.from_url(self.store) as cluster:
                found = [cluster.info(target_nodes=[node]) for node in cluster.get_primaries()]
        else:
            with redis.Redis.from_url(self.store) as server:
                found = [server.info()]
        commands = sum(each["total_commands_processed"] for each in found)
        cpu_s = sum(each["used_cpu_sys"] + each["used_cpu_user"] for each in found)
        return commands, cpu_s, sum(each["used_memory_dataset"] for each in found) / 1024

    async def watch_lag(self) -> None:
        """Collect the lag of the event loops for ever; a figure is the longest of 15 seconds."""
        while True:
            for replica in self.replicas:
                with suppress(aiohttp.ClientError):  # it does not run at the moment
                    self.lags_s.append(await replica.metric("loop_lag_seconds") or 0.0)
            await asyncio.sleep(_LOOK_EVERY_S)


@asynccontextmanager
async def site(setting: Setting) -> AsyncIterator[Site]:
    """Start everything; at exit all processes are killed."""
    async with AsyncExitStack() as closing:
        folder = Path(tempfile.mkdtemp(prefix="benchmark-"))
        closing.callback(shutil.rmtree, folder, ignore_errors=True)
        match setting.store:
            case "redis":
                store = closing.enter_context(redis_server(folder))
            case "cluster":
                store = closing.enter_context(redis_cluster(folder))
            case _:
                store = f"sqlite:{folder}/runs.db"
        facts = Facts()
        model = HeldModel(facts)
        url = await closing.enter_async_context(messages_api(model.on_request))
        slack = await closing.enter_async_context(slack_process(facts, limits=setting.limits))
        http = await closing.enter_async_context(aiohttp.ClientSession())
        config = folder / "agents.yaml"
        config.write_text(json.dumps(_config(setting, folder, store, url)))
        env = {**os.environ, **slack.variables, "HOME": str(folder)}
        env.pop("AMPLIFIER_SLACK_STORE", None)
        command = [sys.executable, "-m", "service", "run", "--config", str(config)]
        there = Site(setting, store, facts, slack, model, [])
        for _ in range(setting.replicas):
            replica = Replica(command, env, http)
            closing.push_async_callback(replica.kill)
            there.replicas.append(replica)
        await asyncio.gather(*(replica.start() for replica in there.replicas))
        lag = asyncio.create_task(there.watch_lag())
        closing.callback(lag.cancel)
        yield there


def _config(setting: Setting, folder: Path, store: str, model_url: str) -> dict[str, Any]:
    """Return the configuration of the services: default tools, and an agent in every channel."""
    model = {"base_url": model_url, "model": ALL_AT_ONCE, "max_output_tokens": 2, "timeout_s": 7200}
    return {
        "instances": {
            name: {
                "persona": {"name": name.capitalize(), "emoji": ":owl:"},
                "providers": [{"module": "provider-anthropic", "config": {"api_key": f"no-key-{name}", **model}}],
            }
            for name in _AGENTS
        },
        "channels": {
            f"C0{channel.upper()}": {"instance": _AGENTS[number % len(_AGENTS)]}
            for number, channel in enumerate(CHANNELS)
        },
        "store": store,
        "workspace": {"root": f"{folder}/files"},
        "idle_evict_s": setting.idle_evict_s,
        "slack": {"rate_scale": 1 if setting.limits else 1000, "answers": "post"},
        "limits": {"runs": 10_000, "runs_per_channel": 10_000, "runs_per_person": 10_000},
    }
