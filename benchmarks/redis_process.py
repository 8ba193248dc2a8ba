"""A temporary Redis server."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_READY_WITHIN_S = 10.0


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Start a server without persistence and give its URL.

    Raises:
        RuntimeError: redis-server is not installed, or does not respond.
    """
    program = shutil.which("redis-server")
    if program is None:
        raise RuntimeError("redis-server is missing: install Debian's package of that name.")
    port = _free_port()
    options = {"port": str(port), "bind": "127.0.0.1", "save": "", "appendonly": "no", "dir": str(folder)}
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
