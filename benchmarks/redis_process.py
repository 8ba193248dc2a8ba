"""A temporary Redis server, or a cluster of three."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import redis

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_READY_WITHIN_S = 10.0
_SLOTS = 16384
_NODES = 3


@contextmanager
def redis_cluster(folder: Path) -> Iterator[str]:
    """Start a cluster of three masters without persistence and give the URL of one.

    Raises:
        RuntimeError: redis-server is not installed, or the cluster does not form.
    """
    with ExitStack() as closing:
        buses, nodes = [_free_port() for _ in range(_NODES)], list[Any]()
        for number, bus in enumerate(buses):
            (home := folder / f"node-{number}").mkdir()
            options = {"cluster-enabled": "yes", "cluster-port": str(bus), "cluster-node-timeout": "5000"}
            url = closing.enter_context(redis_server(home, **options))
            nodes.append(closing.enter_context(redis.Redis.from_url(url)))
        ports = [node.connection_pool.connection_kwargs["port"] for node in nodes]
        for number, node in enumerate(nodes):
            first, last = (each * _SLOTS // _NODES for each in (number, number + 1))
            node.execute_command("CLUSTER ADDSLOTSRANGE", first, last - 1)
            node.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
            nodes[0].execute_command("CLUSTER MEET", "127.0.0.1", ports[number], buses[number])
        until = time.monotonic() + _READY_WITHIN_S
        while not all(map(_is_complete, nodes)):
            if time.monotonic() > until:
                raise RuntimeError("The Redis cluster does not form.")
            time.sleep(0.02)
        yield f"redis://127.0.0.1:{ports[0]}/0"


def _is_complete(node: Any) -> bool:
    info = node.execute_command("CLUSTER INFO")
    return bool(info["cluster_state"] == "ok" and info["cluster_known_nodes"] == str(_NODES))


@contextmanager
def redis_server(folder: Path, **settings: str) -> Iterator[str]:
    """Start a server without persistence and give its URL.

    Raises:
        RuntimeError: redis-server is not installed, or does not respond.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise RuntimeError("redis-server is missing: install Debian's package of that name.")
    port = _free_port()
    options = {"port": str(port), "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": str(folder)}
    options |= settings
    command = [program, *(word for name, value in options.items() for word in (f"--{name}", value))]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603 - the program that was looked up
    try:
        _wait_for(port)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    until = time.monotonic() + _READY_WITHIN_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > until:
                raise RuntimeError("The Redis server does not respond.") from None
            time.sleep(0.02)
        else:
            return
