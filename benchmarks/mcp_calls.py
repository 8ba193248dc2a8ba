"""Measure `tool-mcp`: a call relative to one by the SDK's client in the same run, and the cost of an idle server.

Run `python -m benchmarks.mcp_calls`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.modules import tool_mcp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_SERVER = """
import os, sys
from mcp.server.mcpserver import MCPServer
server = MCPServer("adds")
@server.tool()
def add(a: int, b: int) -> int:
    return a + b
open(sys.argv[1], "a").write(f"{os.getpid()} ")
server.run("stdio")
"""
_ROUNDS, _CALLS = 30, 20
_IDLE_S = 10.0
_ARGUMENTS = {"a": 1, "b": 2}


async def _seconds(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    for _ in range(_CALLS):
        await call()
    return (time.perf_counter() - began) / _CALLS


def _usage(pid: int) -> tuple[float, float]:
    """Return the resident memory in MB and the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    return int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20, ticks / os.sysconf("SC_CLK_TCK")


def _first_of(pids: Path) -> int:
    return int(pids.read_text(encoding="utf-8").split()[0])


async def main() -> None:
    with TemporaryDirectory() as folder:
        pids = Path(folder, "pids")
        args = ["-c", _SERVER, str(pids)]
        before, _ = _usage(os.getpid())
        session = AmplifierSession({"session": {"orchestrator": "o", "context": "c"}})
        began = time.perf_counter()
        servers = {"servers": {"adds": {"command": sys.executable, "args": args}}}
        close = await tool_mcp.mount(session.coordinator, servers)
        mounted_s = time.perf_counter() - began
        tool = session.coordinator.get("tools")["adds__add"]
        async with Client(StdioServerParameters(command=sys.executable, args=args), cache=None) as client:
            ratios, ours, theirs = [], [], []
            for _ in range(_ROUNDS):
                theirs.append(await _seconds(lambda: client.call_tool("add", _ARGUMENTS)))
                ours.append(await _seconds(lambda: tool.execute(_ARGUMENTS)))
                ratios.append(ours[-1] / theirs[-1])
        server = _first_of(pids)
        memory, cpu = _usage(server)
        own_memory, own_cpu = _usage(os.getpid())
        await asyncio.sleep(_IDLE_S)
        idle_cpu, own_idle_cpu = _usage(server)[1] - cpu, _usage(os.getpid())[1] - own_cpu
        await close()
    print(f"mount with the start of the server: {mounted_s:.2f} s")
    print(
        f"call: {statistics.median(ours) * 1e3:.2f} ms; by the SDK's client: {statistics.median(theirs) * 1e3:.2f} ms"
    )
    print(f"ratio, median of {_ROUNDS} rounds: {statistics.median(ratios):.2f}")
    print(f"idle server: {memory:.0f} MB, {idle_cpu:.2f} s of CPU in {_IDLE_S:g} s")
    print(f"this process: {own_memory - before:.0f} MB more with the SDK, {own_idle_cpu:.2f} s of CPU in {_IDLE_S:g} s")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    asyncio.run(main())
