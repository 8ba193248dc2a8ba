"""A process that has loaded the command `amplifier-slack`, and forks a process that runs it for each request.

Loading takes far longer than most commands. A fork is a process like any other: it has its own environment,
signals and exit code, and it can be killed at any time.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import selectors
import signal
import socket
import sys
from importlib import import_module
from typing import Any, NoReturn

from service.cli.main import main

# Commands load them when they come to need them.
_LOADED_LATER = (
    "orchestrator_interactive.modules.context_simple",
    "orchestrator_interactive.modules.context_stack",
    "orchestrator_interactive.modules.provider_anthropic",
    "orchestrator_interactive.modules.provider_demo",
    "orchestrator_interactive.modules.tool_filesystem",
    "orchestrator_interactive.modules.tool_todo",
    "service.store.redis",
    "service.store.sqlite",
)
_LONGEST_ORDER = 1_000_000


class ForkServer:
    """Hears orders at a socket: a command and its environment, and the ends of its output and of the report on it."""

    def __init__(self, orders: socket.socket) -> None:
        self._orders = orders
        self._reports: dict[int, socket.socket] = {}
        self._woken, self._waking = socket.socketpair()
        self._waking.setblocking(False)
        signal.set_wakeup_fd(self._waking.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def serve(self) -> dict[str, Any] | None:
        """Fork until the socket is closed. Returns in each fork, too, with its order."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._orders, selectors.EVENT_READ, self._hear)
            selector.register(self._woken, selectors.EVENT_READ, self._report)
            while True:
                for key, _ in selector.select():
                    try:
                        order = key.data()
                    except EOFError:
                        return None
                    if order:
                        return order

    def _hear(self) -> dict[str, Any] | None:
        message, ends, _, _ = socket.recv_fds(self._orders, _LONGEST_ORDER, 2)
        if not message:
            raise EOFError
        return json.loads(message) if self._fork(*ends) else None

    def _fork(self, output: int, report: int) -> bool:
        """Returns True in the fork, which has closed the sockets of this process."""
        pid = os.fork()
        if pid:
            os.close(output)
            self._reports[pid] = socket.socket(fileno=report)
            _tell(self._reports[pid], pid)
            return False
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for other in (self._orders, self._woken, self._waking, *self._reports.values()):
            other.close()
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.close(report)
        return True

    def _report(self) -> None:
        """Tell how forks have ended."""
        self._woken.recv(4096)
        while self._reports:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with self._reports.pop(pid) as report:
                _tell(report, os.waitstatus_to_exitcode(status))


def _tell(report: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # the client may have exited
        report.sendall(f"{number}\n".encode())


def _load() -> None:
    for command in main.list_commands(None):
        main.get_command(None, command)
    for name in _LOADED_LATER:
        import_module(name)
    gc.freeze()


def _unbuffered(number: int, errors: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.FileIO(number, "w", closefd=False), errors=errors, write_through=True)


def _run(order: dict[str, Any]) -> NoReturn:
    os.environ.clear()
    os.environ.update(order["env"])
    sys.stdout, sys.stderr = _unbuffered(1, "strict"), _unbuffered(2, "backslashreplace")
    sys.argv = order["command"]
    sys.exit(main())


if __name__ == "__main__":
    _load()
    if received := ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve():
        _run(received)
