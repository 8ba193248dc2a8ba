"""A Redis server for tests: on a free loopback port, in its own folder, without persistence."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import redis
from ports import free_port


class RedisServer:
    """A server that can be killed and started again on its port, with additional options."""

    def __init__(self, folder: str, *options: str) -> None:
        self.port = free_port()
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Start the server; it answers when this returns."""
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", self._folder]
        self._process = subprocess.Popen(  # noqa: S603 - a constant command
            [*command, "--save", "", "--appendonly", "no", "--daemonize", "no", *self._options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._process.stdout is not None
        said = b""
        for line in self._process.stdout:
            said += line
            if b"Ready to accept connections" in line:
                return self
        raise AssertionError(f"redis-server did not start:\n{said.decode()}")

    def kill(self) -> None:
        """End the server at once, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def ask(self, *command: str | bytes) -> object:
        """Send a command as another client, and return the reply."""
        with redis.Redis(port=self.port, db=0) as client:
            return client.execute_command(*command)


@contextmanager
def redis_server(*options: str) -> Iterator[RedisServer]:
    """A server that is gone afterwards."""
    folder = tempfile.mkdtemp(prefix="redis-")
    server = RedisServer(folder, *options)
    try:
        yield server.start()
    finally:
        server.kill()
        shutil.rmtree(folder)
