"""The parent's end of a worker process."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Self, cast

if TYPE_CHECKING:
    from types import TracebackType


class WorkerError(Exception):
    """A worker ended unexpectedly; its traceback, if any, is on standard error."""


class WorkerProcess:
    """One side of a benchmark in its own process, which is idle between requests.

    Every line is JSON. The worker begins with `{"keys": [...]}`, the rows that it can measure; then each
    `{"measure": key, "times": n}` is answered by `{"elapsed_s": s, "cost": c}`, the cost in seconds or bytes. It ends
    when its input ends.
    """

    def __init__(self, module: str, side: str) -> None:
        self._side = side
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, with names from the benchmark files
            [sys.executable, "-m", "benchmarks.worker", module, side],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._requests = cast("IO[str]", self._process.stdin)
        self._answers = cast("IO[str]", self._process.stdout)
        self._times: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A hanging worker does not notice the end of its input.
        self._end(kill=error is not None)

    def wait_until_ready(self) -> None:
        """Wait until the worker is set up; `keys` are the rows that it can measure.

        Raises:
            WorkerError: the worker ended.
        """
        self.keys = frozenset(self._answer("setting up")["keys"])

    def mean(self, key: str, round_s: float) -> float:
        """Return the mean cost of an operation over a round of about `round_s` seconds, in seconds or bytes.

        With `round_s` 0 a round is a single operation without warm-up.

        Raises:
            WorkerError: the worker ended.
        """
        if key not in self._times:
            self._times[key] = self._repetitions(key, round_s) if round_s else 1
        times = self._times[key]
        return self._measured(key, times)["cost"] / times

    def _repetitions(self, key: str, round_s: float) -> int:
        """Return the number of operations of a round; measuring it is also the warm-up."""
        self._measured(key, 1)  # the first operation imports modules and fills caches
        times, elapsed_s = 1, self._measured(key, 1)["elapsed_s"]
        while elapsed_s < round_s / 2:
            times *= 2
            elapsed_s = self._measured(key, times)["elapsed_s"]
        return max(1, round(times * round_s / elapsed_s))

    def _measured(self, key: str, times: int) -> dict[str, float]:
        with suppress(BrokenPipeError):  # reading the missing answer reports the reason
            self._requests.write(json.dumps({"measure": key, "times": times}) + "\n")
            self._requests.flush()
        return self._answer(f"measuring '{key}'")

    def _answer(self, doing: str) -> dict[str, Any]:
        line = self._answers.readline()
        if not line:
            raise WorkerError(f"The worker of '{self._side}' ended while {doing}, with code {self._process.wait()}.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _end(self, *, kill: bool) -> None:
        if kill:
            self._process.kill()
        with suppress(BrokenPipeError), self._process:  # leaving the context closes its input and waits
            pass
