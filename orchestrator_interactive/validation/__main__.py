"""Main function of the validation process: reads its order from stdin and writes findings to a pipe."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from multiprocessing.connection import Connection
from pathlib import Path

import structlog

from orchestrator_interactive.validation.ipc import dump, parse_order
from orchestrator_interactive.validation.validator import run_checks


async def main() -> None:
    out = Connection(int(sys.argv[1]), readable=False)
    order = parse_order(sys.stdin.buffer.read())
    # Files that a module keeps for its sessions, such as logs, must not go into the user's home.
    os.environ["HOME"] = str(Path.cwd())
    # The last output line of this process is reported as the module's; it must not be ours.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    logging.basicConfig(level=logging.WARNING)
    await run_checks(order, lambda message: out.send_bytes(dump(message)), Path.cwd())
    out.send_bytes(b"")
    # Exit without waiting for the module's tasks, threads and exit handlers (those of amplifier-core may crash).
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
