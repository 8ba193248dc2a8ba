"""Ports for servers under test."""

import secrets
import socket
from contextlib import suppress


def free_port() -> int:
    """Return a free loopback port.

    It is below those that outgoing connections get, so that none takes it before the server listens.
    """
    while True:
        port = 10_000 + secrets.randbelow(20_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
