"""Tools of all tempers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel import ToolResult
from orchestrator_interactive.kernel.messages import TextBlock
from simulated.scene import Mishap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from simulated.judge import Judges
    from simulated.scene import Scene

    Temper = Callable[[Scene], Awaitable[Any]]


class Tool:
    """A tool whose behaviour is its temper."""

    def __init__(self, name: str, temper: Temper, scene: Scene, judges: Judges) -> None:
        self.name = name
        self.description = f"A tool that is {name}."
        self.input_schema = {"type": "object", "properties": {"text": {"type": "string"}}}
        self._temper = temper
        self._scene = scene
        self._judges = judges

    def label(self, arguments: dict[str, Any]) -> str:
        if self._scene.happens("odd tools", 0.1):
            raise Mishap("no label")
        return f"{self.name} {arguments.get('text')}"

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002 - the contract's name
        scene = self._scene
        self._judges.events.tool_executed(input["call"])
        activity = self._judges.quiet.began("tool", self.name, self._judges.run)
        scene.count(f"tool {self.name}")
        try:
            with scene.at("in a tool"):
                scene.tell(self.name, "starts")
                result = await self._temper(scene)
        except BaseException as e:
            scene.tell(self.name, f"ends: {e!r}")
            if isinstance(e, asyncio.CancelledError) and not e.args:
                scene.count("tool cancelled")
            raise
        else:
            scene.tell(self.name, "ends")
            return result
        finally:
            self._judges.quiet.ended(activity, deaf=asyncio.current_task() in scene.deaf)


async def _quick(_scene: Scene) -> Any:
    return ToolResult(output="quick")


async def _hopping(scene: Scene) -> Any:
    for _ in range(scene.chance.randrange(5)):
        await asyncio.sleep(0)
    return ToolResult(output={"hops": "done", "list": [1, 2]})


async def _slow(scene: Scene) -> Any:
    await asyncio.sleep(scene.some_s(0.1, 3))
    return ToolResult(output="slow")


async def _endless(scene: Scene) -> Any:
    await asyncio.sleep(scene.some_s(60, 600))
    return ToolResult(output="at last")


async def _failing(scene: Scene) -> Any:
    await asyncio.sleep(scene.some_s(0.05))
    raise scene.chance.choice([Mishap("the tool broke"), TimeoutError("its server"), ValueError(""), KeyError("x")])


async def _refusing(_scene: Scene) -> Any:
    return ToolResult(success=False, error={"message": "not like that"})


async def _deaf(scene: Scene) -> Any:
    seconds = scene.some_s(0.1, 5)
    await scene.sleep_deaf(seconds, "deaf")
    if scene.chance.random() < 0.3:
        raise Mishap("the deaf tool broke")
    return ToolResult(output="late")


async def _talking_nonsense(scene: Scene) -> Any:
    nonsense: list[Any] = [None, 7, "text", b"bytes", {"a": {1}}, object, [], "", ToolResult(output="\x00\ud800")]
    return scene.chance.choice(nonsense)


async def _huge(_scene: Scene) -> Any:
    return ToolResult(output="x" * 20_000)


async def _cancelling_itself(scene: Scene) -> Any:
    await asyncio.sleep(scene.some_s(0.05))
    raise asyncio.CancelledError("the tool cancelled itself")


async def _nursing(scene: Scene) -> Any:
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(asyncio.sleep(scene.some_s(0.2, 2)))
    return ToolResult(output="both are back")


async def _tidying(scene: Scene) -> Any:
    """Takes a little while to clean up when it is cancelled."""
    try:
        await asyncio.sleep(scene.some_s(0.5, 5))
    finally:
        await asyncio.sleep(0.02)
    return ToolResult(output="tidy")


async def _painting(_scene: Scene) -> Any:
    return ToolResult(content=[TextBlock(text="a picture")])


_ALWAYS: dict[str, Temper] = {"quick": _quick, "hopping": _hopping, "slow": _slow, "dispatch_worker": _slow}
_BY_FEATURE: dict[str, dict[str, Temper]] = {
    "endless tools": {"endless": _endless, "tidying": _tidying},
    "failing tools": {"failing": _failing, "refusing": _refusing},
    "deaf tools": {"deaf": _deaf},
    "odd tools": {
        "nonsense": _talking_nonsense,
        "huge": _huge,
        "self_cancelling": _cancelling_itself,
        "painting": _painting,
    },
    "nursing tools": {"nursing": _nursing},
}
FEATURES = tuple(_BY_FEATURE)


def hire_tools(scene: Scene, judges: Judges) -> list[Tool]:
    tempers = dict(_ALWAYS)
    for feature, more in _BY_FEATURE.items():
        if feature in scene.features:
            tempers.update(more)
    return [Tool(name, temper, scene, judges) for name, temper in tempers.items()]
