"""The process that a module is examined in: its order comes on stdin, and what it finds goes into a pipe."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import structlog

from orchestrator_interactive.validation.ipc import packed, unpacked_order
from orchestrator_interactive.validation.validator import examine


async def main() -> None:
    out = Connection(int(sys.argv[1]), readable=False)
    order = unpacked_order(sys.stdin.buffer.read())
    # What a module keeps for its sessions, logs for instance, does not belong among the user's own.
    os.environ["HOME"] = str(Path.cwd())
    # The last line of this process is told as the last words of the module: they should not be ours.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    logging.basicConfig(level=logging.WARNING)
    await examine(order, lambda message: out.send_bytes(packed(message)), Path.cwd())
    out.send_bytes(b"")
    # Tasks, threads and exit handlers of a module (those of amplifier-core may crash) do not decide how this ends.
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
