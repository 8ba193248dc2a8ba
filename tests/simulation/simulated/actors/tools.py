"""Tools of all tempers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel import ToolResult
from orchestrator_interactive.kernel.contracts.messages import TextBlock
from orchestrator_interactive.kernel.tool_progress import report_progress
from simulated.invariants import Use
from simulated.invariants.results import mark_of
from simulated.scenario import InjectedFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from simulated.invariants import Invariants
    from simulated.scenario import Scenario

    Temper = Callable[["Tool", str], Awaitable[Any]]


class Tool:
    """A tool whose behaviour is its temper.

    What it says of itself, not every tool does: `side_effect_free`, `timeout_s`.
    """

    def __init__(self, name: str, temper: Temper, scene: Scenario, judges: Invariants) -> None:
        self.name = name
        self.description = f"A tool that is {name}."
        self.input_schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        self.scene = scene
        self.judges = judges
        self._temper = temper
        self._is_harmless = scene.happens("harmless tools", 0.6)
        if self._is_harmless:
            self.side_effect_free = True
        if scene.happens("impatient tools", 0.5):
            self.timeout_s = scene.chance.choice([0.05, 1.0, 30.0])

    def label(self, arguments: dict[str, Any]) -> str:
        if self.scene.happens("odd tools", 0.1):
            raise InjectedFault("no label")
        return f"{self.name} {arguments.get('text')}"

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002 - the contract's name
        scene, judges = self.scene, self.judges
        scene.count(f"tool {self.name}")
        use = judges.tool_began(self._use(input["call"]))
        activity = judges.quiet.began("tool", self.name, judges.run, use.timeout_s)
        try:
            with scene.at("in a tool"):
                scene.tell(self.name, "starts")
                result = await self._temper(self, use.mark)
        except BaseException as e:
            scene.tell(self.name, f"ends: {e!r}")
            use.end = "raised"
            if isinstance(e, asyncio.CancelledError):
                use.end = "cancelled itself" if e.args else "cancelled"
                scene.count(f"tool {use.end}")
            raise
        else:
            scene.tell(self.name, "ends")
            use.end = "refused" if isinstance(result, ToolResult) and not result.success else "returned"
            use.text = result.output if isinstance(result, ToolResult) and isinstance(result.output, str) else None
            return result
        finally:
            use.ended_s = scene.now()
            judges.quiet.ended(activity, deaf=use.task in scene.deaf)

    def say(self, text: str) -> None:
        """Say how far it is, as some tools do."""
        if self.scene.happens("talkative tools", 0.7):
            report_progress(text)

    def _use(self, mark: str) -> Use:
        timeout_s = getattr(self, "timeout_s", self.judges.terms.tool_timeout_s)
        return Use(
            mark=mark,
            tool=self.name,
            is_harmless=self._is_harmless,
            timeout_s=timeout_s,
            began_s=self.scene.now(),
            task=asyncio.current_task(),
        )


async def _quick(tool: Tool, mark: str) -> Any:
    tool.say("quick")
    return ToolResult(output=f"quick {mark_of(mark)}")


async def _hopping(tool: Tool, _mark: str) -> Any:
    for hop in range(tool.scene.chance.randrange(5)):
        tool.say(f"hop {hop}")
        await asyncio.sleep(0)
    return ToolResult(output={"hops": "done", "list": [1, 2]})


async def _slow(tool: Tool, mark: str) -> Any:
    tool.say("slowly")
    await asyncio.sleep(tool.scene.some_s(0.1, 3))
    tool.say("\n almost\x00 there ")
    return ToolResult(output=f"slow {mark_of(mark)}")


async def _long(tool: Tool, mark: str) -> Any:
    await asyncio.sleep(tool.scene.some_s(3, 20))
    return ToolResult(output=f"after a long time {mark_of(mark)}")


async def _endless(tool: Tool, mark: str) -> Any:
    await asyncio.sleep(tool.scene.some_s(60, 600))
    return ToolResult(output=f"at last {mark_of(mark)}")


async def _failing(tool: Tool, _mark: str) -> Any:
    await asyncio.sleep(tool.scene.some_s(0.05))
    raise tool.scene.chance.choice(
        [InjectedFault("the tool broke"), TimeoutError("its server"), ValueError(""), KeyError("x")]
    )


async def _refusing(_tool: Tool, _mark: str) -> Any:
    return ToolResult(success=False, error={"message": "not like that"})


async def _deaf(tool: Tool, mark: str) -> Any:
    seconds = tool.scene.some_s(0.1, 5)
    with tool.judges.children.child():
        await tool.scene.sleep_deaf(seconds, "deaf")
    tool.say("still here")
    if tool.scene.chance.random() < 0.3:
        raise InjectedFault("the deaf tool broke")
    return ToolResult(output=f"late {mark_of(mark)}")


async def _talking_nonsense(tool: Tool, _mark: str) -> Any:
    nonsense: list[Any] = [None, 7, "text", b"bytes", {"a": {1}}, object, [], "", ToolResult(output="\x00\ud800")]
    return tool.scene.chance.choice(nonsense)


async def _huge(_tool: Tool, mark: str) -> Any:
    return ToolResult(output=f"{mark_of(mark)} {'x' * 20_000}")


async def _cancelling_itself(tool: Tool, _mark: str) -> Any:
    await asyncio.sleep(tool.scene.some_s(0.05))
    raise asyncio.CancelledError("the tool cancelled itself")


async def _nursing(tool: Tool, mark: str) -> Any:
    async with asyncio.TaskGroup() as group:
        for number in range(2):
            group.create_task(_child(tool, number))
    return ToolResult(output=f"both are back {mark_of(mark)}")


async def _child(tool: Tool, number: int) -> None:
    await asyncio.sleep(tool.scene.some_s(0.2, 2))
    tool.say(f"child {number}")


async def _tidying(tool: Tool, mark: str) -> Any:
    """Takes a little while to clean up when it is cancelled."""
    try:
        await asyncio.sleep(tool.scene.some_s(0.5, 5))
    finally:
        await asyncio.sleep(0.02)
    return ToolResult(output=f"tidy {mark_of(mark)}")


async def _spawning(tool: Tool, mark: str) -> Any:
    """Starts a process, and kills it whichever way it ends, which takes a little while."""
    with tool.judges.children.child():
        try:
            await asyncio.sleep(tool.scene.some_s(0.5, 5))
        finally:
            await asyncio.sleep(0.02)
    return ToolResult(output=f"the process has ended {mark_of(mark)}")


async def _painting(_tool: Tool, mark: str) -> Any:
    return ToolResult(content=[TextBlock(text=f"a picture {mark_of(mark)}")])


_ALWAYS: dict[str, Temper] = {"quick": _quick, "hopping": _hopping, "slow": _slow, "dispatch_worker": _slow}
_BY_FEATURE: dict[str, dict[str, Temper]] = {
    "urgent steers": {"long": _long},
    "endless tools": {"endless": _endless, "tidying": _tidying},
    "failing tools": {"failing": _failing, "refusing": _refusing},
    "deaf tools": {"deaf": _deaf},
    "odd tools": {
        "nonsense": _talking_nonsense,
        "huge": _huge,
        "self_cancelling": _cancelling_itself,
        "painting": _painting,
    },
    "nursing tools": {"nursing": _nursing, "spawning": _spawning},
}
FEATURES = (*_BY_FEATURE, "harmless tools", "impatient tools", "talkative tools")


def hire_tools(scene: Scenario, judges: Invariants) -> list[Tool]:
    tempers = dict(_ALWAYS)
    for feature, more in _BY_FEATURE.items():
        if feature in scene.features:
            tempers.update(more)
    return [Tool(name, temper, scene, judges) for name, temper in tempers.items()]


def favourites(scene: Scenario, tools: list[Tool]) -> list[str]:
    """The names that a model draws from; where people are in a hurry, tools that take long come up often."""
    names = [tool.name for tool in tools]
    return names + ["long"] * 3 if "urgent steers" in scene.features else names
