"""Measure `tool-bash`: a command in each sandbox relative to a bare process in the same run.

Run `python -m benchmarks.commands`.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.modules import tool_bash

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_ROUNDS = 40
_COMMAND = "true"


async def _bare() -> None:
    process = await asyncio.create_subprocess_exec(
        "/bin/bash", "-c", _COMMAND, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    await process.communicate()


async def _seconds(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return time.perf_counter() - began


async def main() -> None:
    for kind in ("bubblewrap", "landlock"):
        session = AmplifierSession({"session": {"orchestrator": "o", "context": "c"}})
        with TemporaryDirectory() as folder:
            options = {"root": folder, "sandbox": kind, "without_approval": True}
            await tool_bash.mount(session.coordinator, options)
            tool = session.coordinator.get("tools")["bash"]
            bare, ours = [], []
            for _ in range(_ROUNDS):
                bare.append(await _seconds(_bare))
                ours.append(await _seconds(lambda: tool.execute({"command": _COMMAND})))  # noqa: B023 - called at once
        ratio = statistics.median(b / a for a, b in zip(bare, ours, strict=True))
        middle = [1000 * statistics.median(each) for each in (ours, bare)]
        print(f"{kind}: {middle[0]:.1f} ms, a bare process {middle[1]:.1f} ms, ratio {ratio:.1f}")
        await session.coordinator.cleanup()


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    asyncio.run(main())
