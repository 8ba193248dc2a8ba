"""The process that measures one side: `python -m benchmarks.worker MODULE SIDE`. `WorkerProcess` has the protocol."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, TextIO, cast

import uvloop

from benchmarks.harness import load
from service.config.config import LogConfig
from service.logging import configure_logging

if TYPE_CHECKING:
    from benchmarks.harness import Benchmark, Meter, Operation, Side


async def _serve(benchmark: Benchmark, side: Side, answers: TextIO) -> None:
    meters = {row.key: row.meter for row in benchmark.rows}
    async with side.operations() as operations:
        gc.collect()
        gc.freeze()  # as in servers: objects from start-up are not collected
        _send(answers, {"keys": list(operations)})
        # Reading blocks the loop on purpose: this process must be idle while another side is measured.
        for line in sys.stdin:
            asked = json.loads(line)
            key = asked["measure"]
            _send(answers, await _measured(operations[key], asked["times"], meters[key]))


async def _measured(operation: Operation, times: int, meter: Meter) -> dict[str, float]:
    gc.collect()  # garbage of earlier operations must not count
    reported = 0.0
    began, began_cpu = time.perf_counter(), time.process_time()
    if meter == "itself":
        for _ in range(times):
            reported += cast("float", await operation())
    else:
        for _ in range(times):
            await operation()
    cpu_s, elapsed_s = time.process_time() - began_cpu, time.perf_counter() - began
    return {"elapsed_s": elapsed_s, "cost": {"clock": elapsed_s, "cpu": cpu_s, "itself": reported}[meter]}


def _send(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def main(module: str, side_name: str) -> int:
    # The parent handles Ctrl-C and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Output of measured code must not mix with the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    # The service's logging, without messages that only one side would write.
    configure_logging(LogConfig(level="error"))
    benchmark = load(module)
    side = next(side for side in benchmark.sides if side.name == side_name)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(benchmark, side, answers))
    except Exception:  # noqa: BLE001 - reported here, because the process exits below in any case
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    code = main(*sys.argv[1:])
    sys.stderr.flush()
    # Native threads of a side may crash the interpreter at exit.
    os._exit(code)
