"""Tools that are fast, slow, failing, uncancellable or odd."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from orchestrator_interactive.kernel import ToolResult
from orchestrator_interactive.kernel.contracts.messages import TextBlock
from orchestrator_interactive.kernel.tool_support import report_progress
from simulated.simulation import InjectedError, Simulation

from .invariants import Invariants, ToolCallRecord, result_mark

Behaviour = Callable[["Tool", str], Awaitable[Any]]


class Tool:
    """A tool with one behaviour. Only some tools have the optional attributes `side_effect_free` and `timeout_s`."""

    def __init__(self, name: str, behaviour: Behaviour, sim: Simulation, invariants: Invariants):
        self.name = name
        self.description = f"A tool that is {name}."
        self.input_schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        self.sim = sim
        self.invariants = invariants
        self._behaviour = behaviour
        self._is_side_effect_free = sim.occurs("side-effect-free tools", 0.6)
        if self._is_side_effect_free:
            self.side_effect_free = True
        if sim.occurs("tool timeouts", 0.5):
            self.timeout_s = sim.rng.choice([0.05, 1.0, 30.0])

    def label(self, arguments: dict[str, Any]) -> str:
        if self.sim.occurs("odd tools", 0.1):
            raise InjectedError("no label")
        return f"{self.name} {arguments.get('text')}"

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002 - the contract's name
        sim, invariants = self.sim, self.invariants
        sim.count(f"tool {self.name}")
        timeout_s = getattr(self, "timeout_s", invariants.options.tool_timeout_s)
        call = ToolCallRecord(
            input["call"], self.name, self._is_side_effect_free, timeout_s, sim.now(), asyncio.current_task()
        )
        invariants.emit("tool_started", call)
        activity = invariants.stops.started("tool", self.name, invariants.run, timeout_s)
        try:
            with sim.at("in a tool"):
                sim.log(self.name, "starts")
                result = await self._behaviour(self, call.mark)
        except BaseException as e:
            sim.log(self.name, f"ends: {e!r}")
            call.end = "raised"
            if isinstance(e, asyncio.CancelledError):
                call.end = "cancelled itself" if e.args else "cancelled"
                sim.count(f"tool {call.end}")
            raise
        else:
            sim.log(self.name, "ends")
            call.end = "refused" if isinstance(result, ToolResult) and not result.success else "returned"
            call.text = result.output if isinstance(result, ToolResult) and isinstance(result.output, str) else None
            return result
        finally:
            call.ended_s = sim.now()
            invariants.stops.ended(activity, uncancellable=call.task in sim.uncancellable)

    def report(self, text: str) -> None:
        if self.sim.occurs("tool reports", 0.7):
            report_progress(text)


async def _quick(tool: Tool, mark: str) -> Any:
    tool.report("quick")
    return ToolResult(output=f"quick {result_mark(mark)}")


async def _hopping(tool: Tool, _mark: str) -> Any:
    for hop in range(tool.sim.rng.randrange(5)):
        tool.report(f"hop {hop}")
        await asyncio.sleep(0)
    return ToolResult(output={"hops": "done", "list": [1, 2]})


async def _slow(tool: Tool, mark: str) -> Any:
    tool.report("slowly")
    await asyncio.sleep(tool.sim.delay_s(0.1, 3))
    tool.report("\n almost\x00 there ")
    return ToolResult(output=f"slow {result_mark(mark)}")


def _silent_for(*means_s: float) -> Behaviour:
    async def work(tool: Tool, mark: str) -> Any:
        await asyncio.sleep(tool.sim.delay_s(*means_s))
        return ToolResult(output=f"at last {result_mark(mark)}")

    return work


async def _failing(tool: Tool, _mark: str) -> Any:
    await asyncio.sleep(tool.sim.delay_s(0.05))
    raise tool.sim.rng.choice(
        [InjectedError("the tool broke"), TimeoutError("its server"), ValueError(""), KeyError("x")]
    )


async def _refusing(_tool: Tool, _mark: str) -> Any:
    return ToolResult(success=False, error={"message": "not like that"})


async def _uncancellable(tool: Tool, mark: str) -> Any:
    seconds = tool.sim.delay_s(0.1, 5)
    with tool.invariants.child_processes.child():
        await tool.sim.sleep_uncancellable(seconds, "deaf")
    tool.report("still here")
    if tool.sim.rng.random() < 0.3:
        raise InjectedError("the deaf tool broke")
    return ToolResult(output=f"late {result_mark(mark)}")


async def _odd_results(tool: Tool, _mark: str) -> Any:
    results: list[Any] = [None, 7, "text", b"bytes", {"a": {1}}, object, [], "", ToolResult(output="\x00\ud800")]
    return tool.sim.rng.choice(results)


async def _huge(_tool: Tool, mark: str) -> Any:
    return ToolResult(output=f"{result_mark(mark)} {'x' * 20_000}")


async def _self_cancelling(tool: Tool, _mark: str) -> Any:
    await asyncio.sleep(tool.sim.delay_s(0.05))
    raise asyncio.CancelledError("the tool cancelled itself")


async def _with_subtasks(tool: Tool, mark: str) -> Any:
    async def subtask(number: int) -> None:
        await asyncio.sleep(tool.sim.delay_s(0.2, 2))
        tool.report(f"child {number}")

    async with asyncio.TaskGroup() as group:
        for number in range(2):
            group.create_task(subtask(number))
    return ToolResult(output=f"both are back {result_mark(mark)}")


async def _cleaning_up(tool: Tool, mark: str) -> Any:
    try:
        await asyncio.sleep(tool.sim.delay_s(0.5, 5))
    finally:
        await asyncio.sleep(0.02)
    return ToolResult(output=f"tidy {result_mark(mark)}")


async def _with_child_process(tool: Tool, mark: str) -> Any:
    with tool.invariants.child_processes.child():
        return await _cleaning_up(tool, mark)


async def _image(_tool: Tool, mark: str) -> Any:
    return ToolResult(content=[TextBlock(text=f"a picture {result_mark(mark)}")])


_ALWAYS: dict[str, Behaviour] = {"quick": _quick, "hopping": _hopping, "slow": _slow, "dispatch_worker": _slow}
_BY_FEATURE: dict[str, dict[str, Behaviour]] = {
    "urgent steers": {"long": _silent_for(3, 20)},
    "endless tools": {"endless": _silent_for(60, 600), "tidying": _cleaning_up},
    "failing tools": {"failing": _failing, "refusing": _refusing},
    "uncancellable tools": {"deaf": _uncancellable},
    "odd tools": {"nonsense": _odd_results, "huge": _huge, "self_cancelling": _self_cancelling, "painting": _image},
    "tools with children": {"nursing": _with_subtasks, "spawning": _with_child_process},
}
FEATURES = (*_BY_FEATURE, "side-effect-free tools", "tool timeouts", "tool reports")


def make_tools(sim: Simulation, invariants: Invariants) -> list[Tool]:
    behaviours = dict(_ALWAYS)
    for feature, more in _BY_FEATURE.items():
        if feature in sim.features:
            behaviours.update(more)
    return [Tool(name, behaviour, sim, invariants) for name, behaviour in behaviours.items()]


def tool_weights(sim: Simulation, tools: list[Tool]) -> list[str]:
    """Return the names that a model draws from; with urgent steers, long calls are frequent."""
    names = [tool.name for tool in tools]
    return names + ["long"] * 3 if "urgent steers" in sim.features else names
