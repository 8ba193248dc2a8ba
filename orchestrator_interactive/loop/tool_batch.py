"""Run the tool calls of one answer in parallel, and commit a result for every call on every exit path."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.loop.tool_results import still_running_row

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ToolCall
    from orchestrator_interactive.loop.injection_queue import Injection, InjectionQueue
    from orchestrator_interactive.loop.run import Run
    from orchestrator_interactive.loop.tool_call import ToolExecution
    from orchestrator_interactive.loop.tool_calls import ToolExecutor


class ToolBatch:
    """The calls of one answer."""

    def __init__(self, run: Run, calls: ToolExecutor) -> None:
        self._run = run
        self._calls = calls
        self._executions: list[ToolExecution] = []
        self._ended: deque[ToolExecution] = deque()
        self._is_urgent = False
        self._changed = asyncio.Event()

    async def run(self, row: dict[str, Any], calls: Sequence[ToolCall], inbox: InjectionQueue) -> None:
        """Commit the answer's row, run the calls, and commit each result as it arrives.

        An urgent message ends the wait: running calls are postponed. A stop cancels them. Once the answer is
        committed, each call gets a result. A suspended run still runs all calls, so that the next owner knows that each
        call started.
        """
        await self._run.write(row)
        self._executions = self._calls.begin(calls)
        await self._run.emit_text(row)
        await self._calls.drop_early()
        await self._collect(inbox)

    async def repeat(self, calls: Sequence[ToolCall], earlier_calls: int, inbox: InjectionQueue) -> None:
        """Run calls of an answer that is in the log already, and commit their results like `run`.

        `earlier_calls` is the number of the answer's other calls.
        """
        self._executions = self._calls.begin(calls, earlier_calls)
        await self._collect(inbox)

    async def _collect(self, inbox: InjectionQueue) -> None:
        left = dict.fromkeys(self._executions)
        with inbox.watch(self._on_injection), self._listening():
            while left:
                if self._ended:
                    execution = self._ended.popleft()
                    del left[execution]
                    await self._calls.complete(execution, execution.close())
                    await asyncio.sleep(0)  # a store without real I/O does not yield to other tasks
                elif self._is_urgent:
                    await self._postpone(left)
                    break
                else:
                    self._changed.clear()
                    await self._changed.wait()
        await self._calls.route_hook_results([execution for execution in self._executions if execution not in left])

    async def _postpone(self, executions: Collection[ToolExecution]) -> None:
        for execution in executions:
            await self._run.commit(still_running_row(execution.call))
        self._calls.postpone(executions)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        for execution in self._executions:
            if execution.is_over:
                self._ended.append(execution)
            else:
                execution.watch(partial(self._end, execution))
        try:
            yield
        finally:
            for execution in self._executions:
                execution.watch(None)

    def _end(self, execution: ToolExecution) -> None:
        self._ended.append(execution)
        self._changed.set()

    def _on_injection(self, injection: Injection) -> None:
        if injection.urgent:
            self._is_urgent = True
            self._changed.set()
