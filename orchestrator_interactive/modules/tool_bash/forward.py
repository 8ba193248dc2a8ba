"""Begin a command whose only way to the network is a proxy: pass connections to a local port on to a Unix socket.

`argv[1]` is the port, `argv[2]` the socket, the rest is the command. It runs in the sandbox, and imports only the
standard library.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _serve(client: socket.socket, path: str) -> None:
    with client, socket.socket(socket.AF_UNIX) as proxy, contextlib.suppress(OSError):
        proxy.connect(path)
        answers = threading.Thread(target=_copy, args=(proxy, client), daemon=True)
        answers.start()
        _copy(client, proxy)
        answers.join()


def main() -> None:
    port, path, *command = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", int(port)))
    if os.fork():
        listener.close()
        os.execv(command[0], command)  # noqa: S606 - the words of the caller
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_serve, args=(client, path), daemon=True).start()


if __name__ == "__main__":
    main()
