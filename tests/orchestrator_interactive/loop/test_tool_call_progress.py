"""What a tool says of its progress: in order, during its call, and as much as people can be shown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import (
    Recorder,
    ScriptedTool,
    call,
    deaf_to_the_loop,
    echo,
    goes_on,
    having,
    make_agent,
    results,
    say,
    soon,
    use,
)
from virtual_time import in_virtual_time

from orchestrator_interactive.kernel import report_progress

if TYPE_CHECKING:
    from agents import Agent


def _reporting(behave: Any, name: str = "work") -> ScriptedTool:
    async def run(_input: dict[str, Any]) -> str:
        return str(await behave())

    return ScriptedTool(name, run)


async def _turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def _reports(agent: Agent) -> list[str]:
    return [data["text"] for data in agent.progress.of("tool:progress")]


class TestReports:
    async def test_they_come_in_order_between_the_start_and_the_end_of_their_call(self) -> None:
        async def behave() -> None:
            for part in ("one", "two", "three"):
                report_progress(part)
                await _turns()

        agent = await make_agent(call(use("work", "a")), say("ok"), tools=[_reporting(behave)])
        await agent.run()
        names = [name for name in agent.progress.names() if name.startswith("tool:")]
        assert names == ["tool:start", *["tool:progress"] * 3, "tool:end"]
        assert agent.progress.of("tool:progress") == [
            {"tool": "work", "id": "a", "text": text} for text in ("one", "two", "three")
        ]

    async def test_they_come_from_a_thread(self) -> None:
        heard = asyncio.Event()

        async def behave() -> None:
            await asyncio.to_thread(report_progress, "from afar")
            await heard.wait()

        agent = await make_agent(call(use("work", "a")), say("ok"), tools=[_reporting(behave)])
        agent.progress.act_on("tool:progress", heard.set)
        await agent.run()
        assert _reports(agent) == ["from afar"]

    async def test_each_is_that_of_its_call(self) -> None:
        barrier = asyncio.Barrier(2)

        def tool(name: str) -> ScriptedTool:
            async def behave() -> None:
                await barrier.wait()
                report_progress(name)
                await _turns()

            return _reporting(behave, name)

        agent = await make_agent(call(use("one", "a"), use("two", "b")), say("ok"), tools=[tool("one"), tool("two")])
        await agent.run()
        assert {data["id"]: data["text"] for data in agent.progress.of("tool:progress")} == {"a": "one", "b": "two"}

    async def test_a_slow_watcher_gets_the_latest_only(self) -> None:
        gate, reported = asyncio.Event(), asyncio.Event()

        async def behave() -> None:
            report_progress("first")
            await _turns()
            for number in range(100):
                report_progress(f"number {number}")
            reported.set()
            await gate.wait()
            await _turns()

        agent = await make_agent(call(use("work", "a")), say("ok"), tools=[_reporting(behave)])
        watching = asyncio.Event()
        agent.progress.hold("tool:progress", watching)
        run = agent.start()
        await soon(reported.wait())
        watching.set()
        gate.set()
        await soon(run)
        assert _reports(agent) == ["first", "number 99"]

    async def test_none_comes_after_the_end_of_its_call(self) -> None:
        release = asyncio.Event()
        left: list[asyncio.Task[None]] = []

        async def lingers() -> None:
            await release.wait()
            report_progress("too late")

        async def behave() -> None:
            left.append(asyncio.create_task(lingers()))
            report_progress("last")

        agent = await make_agent(call(use("work", "a")), call(use("echo", "b")), say("ok"))
        for tool in (_reporting(behave), echo()):
            await agent.coordinator.mount("tools", tool)
        agent.progress.act_on("tool:end", release.set)
        await agent.run()
        await left[0]
        assert "too late" not in _reports(agent)
        names = agent.progress.names()
        assert "tool:progress" not in names[names.index("tool:end") :]

    @in_virtual_time
    async def test_none_of_a_deaf_tool_comes_after_it_was_cut(self) -> None:
        release = asyncio.Event()

        async def behave() -> None:
            await deaf_to_the_loop(release)
            report_progress("too late")

        tool = having(_reporting(behave), timeout_s=0.01)
        agent = await make_agent(call(use("work", "a")), say("ok"), tools=[tool])
        await agent.run()
        release.set()
        await _turns()
        assert _reports(agent) == []
        assert tool.finished == 1

    async def test_a_watcher_that_fails_disturbs_neither_the_tool_nor_the_reports_after_it(self) -> None:
        recorder = Recorder()

        async def fails_once(event: str, data: dict[str, Any]) -> None:
            await recorder(event, data)
            if data.get("text") == "one":
                raise ConnectionError("Slack is away")

        async def behave() -> str:
            for part in ("one", "two"):
                report_progress(part)
                await _turns()
            return "done"

        agent = await make_agent(call(use("work", "a")), say("ok"), tools=[_reporting(behave)])
        assert await soon(agent.session.execute("go", on_progress=fails_once)) == "ok"
        assert [data["text"] for data in recorder.of("tool:progress")] == ["one", "two"]
        assert await results(agent) == {"a": "done"}

    @pytest.mark.parametrize("immediate", [False, True])
    @in_virtual_time
    async def test_a_watcher_that_hangs_over_a_report_holds_no_stop(self, *, immediate: bool) -> None:
        async def behave() -> None:
            report_progress("hm")
            await asyncio.Event().wait()

        agent = await make_agent(call(use("work", "a")), tools=[_reporting(behave)], stop_grace_s=0)
        agent.progress.hold("tool:progress", asyncio.Event())
        run = agent.start()
        await agent.progress.reached("tool:progress")
        agent.stop(immediate=immediate)
        await soon(run)
        agent.progress._gates.clear()
        assert len(agent.progress.of("tool:end")) == 1
        await goes_on(agent)
