"""A Redis cluster of the tests' own: three masters on free loopback ports, each in a folder of its own."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import redis
from ports import free_port
from redis_server import RedisServer

_SLOTS = 16384
_PATIENCE_S = 20


class RedisCluster:
    """Three masters, among which the keys are shared; each can be killed and started again."""

    def __init__(self, folder: str, *options: str) -> None:
        self.nodes = []
        for number in range(3):
            home = Path(folder, str(number))
            home.mkdir()
            self.nodes.append(_Node(str(home), *options))

    @property
    def url(self) -> str:
        return self.nodes[0].url

    def start(self) -> None:
        for node in self.nodes:
            node.start()
        first = self.nodes[0]
        for number, node in enumerate(self.nodes):
            start, stop = number * _SLOTS // 3, (number + 1) * _SLOTS // 3 - 1
            node.ask("CLUSTER", "ADDSLOTSRANGE", str(start), str(stop))
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", str(number + 1))
        for node in self.nodes[1:]:
            first.ask("CLUSTER", "MEET", "127.0.0.1", str(node.port), str(node.bus_port))
        self.wait()

    def wait(self) -> None:
        """Return once all of it can be used."""
        until = time.monotonic() + _PATIENCE_S
        while not all(node.is_ok() for node in self.nodes):
            assert time.monotonic() < until, "the cluster did not come together"
            time.sleep(0.02)

    def empty(self) -> None:
        for node in self.nodes:
            node.ask("FLUSHALL")

    def node_of(self, key: str) -> RedisServer:
        """The node where a key lies."""
        slot = int(str(self.nodes[0].ask("CLUSTER", "KEYSLOT", key)))
        return self.nodes[min(slot * 3 // _SLOTS, 2)]

    def moving(self, key: str) -> Iterator[str]:
        """Move the slot of a key to another node and back, key by key; each that has moved is given."""
        slot, here = str(self.nodes[0].ask("CLUSTER", "KEYSLOT", key)), self.node_of(key)
        there = next(node for node in self.nodes if node is not here)
        for one, other in ((here, there), (there, here)):
            other.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", _id(one))
            one.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", _id(other))
            for name in _names(one.ask("CLUSTER", "GETKEYSINSLOT", slot, "100")):
                one.ask("MIGRATE", "127.0.0.1", str(other.port), name, "0", "5000")
                yield name.decode()
            for node in (other, one, *self.nodes):
                node.ask("CLUSTER", "SETSLOT", slot, "NODE", _id(other))

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()


class _Node(RedisServer):
    def __init__(self, folder: str, *options: str) -> None:
        self.bus_port = free_port()
        mine = ("--cluster-enabled", "yes", "--cluster-port", str(self.bus_port), "--cluster-node-timeout", "500")
        super().__init__(folder, *mine, *options)

    def is_ok(self) -> bool:
        with suppress(redis.ConnectionError):
            told = self.ask("CLUSTER", "INFO")
            words = told if isinstance(told, dict) else _fields(told)
            return words["cluster_state"] == "ok" and words["cluster_known_nodes"] == "3"
        return False


def _id(node: RedisServer) -> str:
    told = node.ask("CLUSTER", "MYID")
    return told.decode() if isinstance(told, bytes) else str(told)


def _names(told: object) -> list[bytes]:
    assert isinstance(told, list)
    return told


def _fields(told: object) -> dict[str, str]:
    assert isinstance(told, bytes)
    return dict(line.split(":", 1) for line in told.decode().split("\r\n") if ":" in line)


@contextmanager
def redis_cluster(*options: str) -> Iterator[RedisCluster]:
    """A cluster that is gone afterwards."""
    with ExitStack() as closing:
        folder = tempfile.mkdtemp(prefix="redis-cluster-")
        closing.callback(shutil.rmtree, folder, ignore_errors=True)
        cluster = RedisCluster(folder, *options)
        closing.callback(cluster.kill)
        cluster.start()
        yield cluster
