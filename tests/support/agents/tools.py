"""Tools with various behaviours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from orchestrator_interactive.kernel import (
    ToolResult,
)

from .milestones import Milestones, deaf_to_the_loop


class ScriptedTool:
    """A tool with a given behaviour. It records its inputs and cancellations."""

    def __init__(self, name: str, behave: Callable[[dict[str, Any]], Awaitable[Any]]) -> None:
        self._name = name
        self._behave = behave
        self._started = Milestones()
        self.inputs: list[dict[str, Any]] = []
        self.cancelled = 0
        self.finished = 0

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return f"Does what '{self._name}' does."

    @property
    def input_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"text": {"type": "string"}}}

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002 - the name is the contract's
        self.inputs.append(input)
        self._started.pass_one()
        try:
            result = await self._behave(input)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.finished += 1
        return result

    async def started(self, number: int = 1) -> None:
        """Wait until the tool has been started this many times."""
        await self._started.reached(number)


def returning(output: Any, name: str = "give") -> ScriptedTool:
    async def behave(_input: dict[str, Any]) -> Any:
        return output

    return ScriptedTool(name, behave)


def echo(name: str = "echo") -> ScriptedTool:
    async def behave(given: dict[str, Any]) -> ToolResult:
        return ToolResult(output=given.get("text", name))

    return ScriptedTool(name, behave)


def gated(gate: asyncio.Event, name: str = "wait") -> ScriptedTool:
    """A tool that answers once the gate is open."""

    async def behave(given: dict[str, Any]) -> ToolResult:
        await gate.wait()
        return ToolResult(output=given.get("text", name))

    return ScriptedTool(name, behave)


def raising(error: BaseException, name: str = "break") -> ScriptedTool:
    async def behave(_input: dict[str, Any]) -> ToolResult:
        raise error

    return ScriptedTool(name, behave)


def deaf_tool(release: asyncio.Event, name: str = "deaf") -> ScriptedTool:
    """A tool that ignores being cancelled."""

    async def behave(_input: dict[str, Any]) -> ToolResult:
        await deaf_to_the_loop(release)
        return ToolResult(output="late")

    return ScriptedTool(name, behave)


def acting(action: Callable[[], object], name: str = "act") -> ScriptedTool:
    async def behave(_input: dict[str, Any]) -> ToolResult:
        action()
        return ToolResult(output="done")

    return ScriptedTool(name, behave)


def having(tool: ScriptedTool, **attributes: Any) -> ScriptedTool:
    """The tool with attributes that the contract leaves to it: `side_effect_free`, `timeout_s`, `label`."""
    for name, value in attributes.items():
        setattr(tool, name, value)
    return tool


class Person:
    """An approval system that answers when `answer` is set; `asked` is set by the first question."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def request_approval(self, *_: Any) -> str:
        self.asked.set()
        return await self.answer
