"""One tool call: its time limit, the size of its result, its progress reports, and the processes that it started."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents.after_run import goes_on, results
from agents.milestones import soon
from agents.provider import call, say, use
from agents.recorders import Recorder
from agents.rows import text_of
from agents.session import Agent, make_agent
from agents.tools import ScriptedTool, deaf_tool, echo, gated, having, returning
from child_processes import child_processes
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import in_virtual_time

from orchestrator_interactive.kernel import HookResult, ToolResult, report_progress
from orchestrator_interactive.kernel.contracts.messages import ImageBlock, TextBlock
from orchestrator_interactive.modules import tool_filesystem

CAP = 100
IMAGE = ImageBlock(source={"type": "base64", "media_type": "image/png", "data": "aGk=" * CAP})


async def _turns(count: int = 10) -> None:
    """Let other tasks run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def _result(agent: Agent) -> dict[str, Any]:
    [row] = [row for row in await agent.history() if row["role"] == "tool"]
    return row


class TestTimeLimit:
    @pytest.mark.parametrize(
        ("own", "option", "limit"),
        [(None, {}, 600), (None, {"tool_timeout_s": 5}, 5), (2.5, {"tool_timeout_s": 5}, 2.5), (900, {}, 900)],
        ids=["default", "configured", "its own", "its own is longer"],
    )
    @in_virtual_time
    async def test_a_call_is_cancelled_when_its_time_is_up(
        self, own: float | None, option: dict[str, Any], limit: float
    ) -> None:
        tool = having(gated(asyncio.Event()), **({"timeout_s": own} if own else {}))
        agent = await make_agent(call(use("wait", "a")), say("ok"), tools=[tool], **option)
        began_s = asyncio.get_running_loop().time()
        assert await agent.start() == "ok"
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(limit)
        assert tool.cancelled == 1
        row = await _result(agent)
        assert f"after {limit:g} seconds" in row["content"]
        assert "unknown" in row["content"]
        assert row["metadata"]["is_error"]

    @in_virtual_time
    async def test_its_events_are_closed_and_other_calls_are_not_harmed(self) -> None:
        gate = asyncio.Event()
        tools = [having(gated(asyncio.Event(), name), timeout_s=1) for name in ("stuck", "look")]
        having(tools[1], side_effect_free=True)
        batch = call(use("stuck", "a"), use("look", "b"), use("wait", "c", text="slow"), use("echo", "d", text="quick"))
        agent = await make_agent(batch, say("ok"), tools=[*tools, gated(gate), echo()])
        agent.events.listen(agent.hooks, "tool:post", "tool:error")
        asyncio.get_running_loop().call_later(60, gate.set)
        assert await agent.start() == "ok"
        assert agent.events.names() == ["tool:post", "tool:error", "tool:error", "tool:post"]
        ended = [(data["id"], data["success"]) for data in agent.progress.of("tool:end")]
        assert ended == [("d", True), ("a", False), ("b", False), ("c", True)]
        assert agent.outcomes() == {"a": "unknown", "b": "cancelled", "c": "finished", "d": "finished"}
        assert ((await results(agent))["c"], (await results(agent))["d"]) == ("slow", "quick")

    @in_virtual_time
    async def test_one_that_ignores_its_cancellation_neither_holds_the_run_nor_reports_afterwards(self) -> None:
        release = asyncio.Event()
        tool = having(deaf_tool(release), timeout_s=1)
        agent = await make_agent(call(use("deaf", "a")), say("ok"), tools=[tool])
        assert await agent.start() == "ok"
        assert "after 1 seconds" in (await results(agent))["a"]
        seen = len(agent.progress.seen)
        release.set()
        await _turns()
        assert tool.finished == 1
        assert len(agent.progress.seen) == seen

    @pytest.mark.parametrize("event", ["tool:pre", "tool:post"])
    @in_virtual_time
    async def test_the_time_of_hooks_and_approvals_does_not_count(self, event: str) -> None:
        gate, tool = asyncio.Event(), having(returning("done"), timeout_s=1)
        agent = await make_agent(call(use("give", "a")), say("ok"), tools=[tool])
        agent.events.listen(agent.hooks, event).hold(event, gate)
        asyncio.get_running_loop().call_later(20, gate.set)
        await agent.start()
        assert await results(agent) == {"a": "done"}

    @pytest.mark.parametrize("invalid", ["soon", -1, 0, float("nan")])
    @in_virtual_time
    async def test_an_invalid_limit_of_a_tool_does_not_end_the_run(self, invalid: Any) -> None:
        tool = having(echo(), timeout_s=invalid)
        agent = await make_agent(call(use("echo", "a"), use("echo", "b")), say("ok"), tools=[tool])
        assert await agent.start() == "ok"
        assert list(await results(agent)) == ["a", "b"]


async def _shown(result: Any) -> tuple[Agent, dict[str, Any]]:
    agent = await make_agent(call(use("give", "a")), say("ok"), tools=[returning(result)], max_result_chars=CAP)
    await agent.run()
    return agent, await _result(agent)


class TestSize:
    @pytest.mark.parametrize("length", [CAP - 1, CAP])
    async def test_a_result_up_to_the_cap_is_shown_as_it_is(self, length: int) -> None:
        _, row = await _shown("x" * length)
        assert row["content"] == "x" * length
        assert row.get("metadata", {}) == {}

    @settings(max_examples=20, deadline=None)
    @given(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=CAP + 1, max_size=5 * CAP))
    def test_of_a_larger_one_the_head_and_the_tail_are_shown_and_the_log_has_the_whole(self, text: str) -> None:
        _, row = asyncio.run(_shown(text))
        head, rest = row["content"].split("\n[… ")
        count, tail = rest.split(" characters are left out here …]\n")
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) + int(count) + len(tail) == len(text)
        assert len(head) + len(tail) == CAP
        assert row["metadata"] == {"whole": text}

    async def test_the_model_does_not_read_the_whole(self) -> None:
        agent, _ = await _shown("a" * CAP + "SECRET" + "b" * CAP)
        assert "SECRET" not in agent.provider.requests[1].model_dump_json()
        await goes_on(agent)
        assert agent.provider.prefix_breaks() == []

    async def test_an_error_is_capped_too_and_stays_one(self) -> None:
        _, row = await _shown(ToolResult(success=False, error={"message": "x" * 500}))
        assert "400 characters are left out" in row["content"]
        assert row["metadata"] == {"is_error": True, "whole": "x" * 500}

    async def test_data_are_capped_as_json(self) -> None:
        _, row = await _shown({"found": ["line"] * 100})
        assert row["content"].startswith('{"found": ["line", ')
        assert row["metadata"]["whole"].endswith('"line"]}')

    @pytest.mark.parametrize("more", [[], [TextBlock(text="y" * CAP)]])
    async def test_the_texts_of_several_blocks_count_together_and_images_do_not(self, more: list[Any]) -> None:
        blocks = [TextBlock(text="x" * CAP), IMAGE, *more]
        whole = [block.model_dump(exclude_none=True) for block in blocks]
        agent, row = await _shown(ToolResult(content=blocks))
        assert sorted(block["type"] for block in row["content"]) == ["image", "text"]
        assert ("left out here" in text_of(row)) == bool(more)
        assert row.get("metadata", {}) == ({"whole": whole} if more else {})
        await goes_on(agent)

    async def test_hooks_see_the_whole_and_their_modification_is_capped(self) -> None:
        agent = await make_agent(call(use("give", "a")), say("ok"), tools=[returning("x" * 500)], max_result_chars=CAP)
        agent.events.listen(agent.hooks, "tool:post")
        agent.on_hook("tool:post", HookResult(action="modify", data={"tool_result": "y" * 300}))
        await agent.run()
        assert agent.events.of("tool:post")[0]["tool_result"].output == "x" * 500
        row = await _result(agent)
        assert "200 characters are left out" in row["content"]
        assert row["metadata"] == {"whole": "y" * 300}


def _reporting(behave: Any, name: str = "work") -> ScriptedTool:
    async def run(_input: dict[str, Any]) -> str:
        return str(await behave())

    return ScriptedTool(name, run)


def _reports(agent: Agent) -> list[str]:
    return [data["text"] for data in agent.progress.of("tool:progress")]


class TestProgressReports:
    async def test_they_come_in_order_between_the_start_and_the_end_of_their_call(self) -> None:
        async def behave() -> None:
            for part in ("one", "two"):
                report_progress(part)
                await _turns()
            await asyncio.to_thread(report_progress, "from a thread")
            await _turns()

        agent = await make_agent(call(use("work", "a")), say("ok"), tools=[_reporting(behave)])
        await agent.run()
        names = [name for name in agent.progress.names() if name.startswith("tool:")]
        assert names == ["tool:start", *["tool:progress"] * 3, "tool:end"]
        texts = ("one", "two", "from a thread")
        assert agent.progress.of("tool:progress") == [{"tool": "work", "id": "a", "text": text} for text in texts]

    async def test_each_has_the_id_of_its_call(self) -> None:
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

    async def test_a_slow_listener_gets_the_latest_only(self) -> None:
        gate, reported, listening = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def behave() -> None:
            report_progress("first")
            await _turns()
            for number in range(100):
                report_progress(f"number {number}")
            reported.set()
            await gate.wait()
            await _turns()

        agent = await make_agent(call(use("work", "a")), say("ok"), tools=[_reporting(behave)])
        agent.progress.hold("tool:progress", listening)
        run = agent.start()
        await soon(reported.wait())
        listening.set()
        gate.set()
        await soon(run)
        assert _reports(agent) == ["first", "number 99"]

    async def test_none_comes_after_the_end_of_its_call(self) -> None:
        release = asyncio.Event()
        tasks: list[asyncio.Task[None]] = []

        async def report_late() -> None:
            await release.wait()
            report_progress("too late")

        async def behave() -> None:
            tasks.append(asyncio.create_task(report_late()))
            report_progress("last")

        steps = call(use("work", "a")), call(use("echo", "b")), say("ok")
        agent = await make_agent(*steps, tools=[_reporting(behave), echo()])
        agent.progress.act_on("tool:end", release.set)
        await agent.run()
        await tasks[0]
        assert "too late" not in _reports(agent)
        names = agent.progress.names()
        assert "tool:progress" not in names[names.index("tool:end") :]

    async def test_a_listener_that_fails_disturbs_neither_the_tool_nor_later_reports(self) -> None:
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
    async def test_a_listener_that_hangs_holds_no_stop(self, *, immediate: bool) -> None:
        async def behave() -> None:
            report_progress("hm")
            await asyncio.Event().wait()

        agent = await make_agent(call(use("work", "a")), tools=[_reporting(behave)], stop_grace_s=0)
        await agent.stopped(await agent.held_at("tool:progress"), immediate=immediate)
        agent.release()
        assert len(agent.progress.of("tool:end")) == 1
        await goes_on(agent)


class Shell:
    """A tool that runs a shell with a child, and a pipe that both hold open for as long as they live."""

    def __init__(self) -> None:
        self.ended, self._held = os.pipe()
        self.process: asyncio.subprocess.Process
        self.is_up = asyncio.Event()

    async def run(self, _input: dict[str, Any]) -> None:
        script, pipe = "sleep 600 & echo started; wait", asyncio.subprocess.PIPE
        self.process = process = await asyncio.create_subprocess_exec(
            "sh", "-c", script, stdout=pipe, pass_fds=(self._held,), start_new_session=True
        )
        os.close(self._held)
        try:
            assert process.stdout is not None
            await process.stdout.readline()
            self.is_up.set()
            await process.wait()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def all_gone(self) -> None:
        assert self.process.returncode == -signal.SIGKILL
        loop, gone = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self.ended, gone.set)
        try:
            await soon(gone.wait())
        finally:
            loop.remove_reader(self.ended)
        assert os.read(self.ended, 1) == b""


@pytest.fixture
def shell() -> Iterator[Shell]:
    shell = Shell()
    yield shell
    os.close(shell.ended)


def _end(agent: Agent, run: asyncio.Task[str], how: str) -> None:
    if how == "cancel":
        run.cancel()
    else:
        agent.stop(immediate=how == "immediate")


class TestChildProcesses:
    @pytest.mark.parametrize("how", ["graceful", "immediate", "cancel"])
    async def test_none_is_left_when_the_run_is_ended(self, how: str, shell: Shell) -> None:
        agent = await make_agent(call(use("shell", "a")), tools=[ScriptedTool("shell", shell.run)], stop_grace_s=0.01)
        run = agent.start()
        await soon(shell.is_up.wait())
        _end(agent, run, how)
        await soon(asyncio.wait([run]))
        await shell.all_gone()

    @pytest.mark.parametrize("limit", ["tool_timeout_s", "max_duration_s"])
    async def test_none_is_left_when_the_tool_takes_too_long(self, limit: str, shell: Shell) -> None:
        options: dict[str, Any] = {limit: 1, "stop_grace_s": 0.01}
        tools = [ScriptedTool("shell", shell.run)]
        agent = await make_agent(call(use("shell", "a")), say("It took too long."), tools=tools, **options)
        assert await agent.run() == "It took too long."
        await shell.all_gone()

    async def test_an_urgent_message_leaves_them_alone_and_a_stop_ends_them(self, shell: Shell) -> None:
        agent = await make_agent(call(use("shell", "a")), say("Still at it."), tools=[ScriptedTool("shell", shell.run)])
        run = agent.start()
        await soon(shell.is_up.wait())
        agent.inject("!how far is it")
        await agent.progress.reached("text")
        assert shell.process.returncode is None
        await agent.stopped(run, immediate=True)
        await shell.all_gone()

    @pytest.mark.parametrize("how", ["graceful", "immediate", "cancel"])
    async def test_none_is_left_of_many_searches_when_the_run_is_ended(self, how: str, tmp_path: Path) -> None:
        (tmp_path / "trap.txt").write_text("a" * 1_000 + "!")
        searches = [use("search_files", f"c{number}", query="(a+)+$", regex=True) for number in range(50)]
        agent = await make_agent(call(*searches), stop_grace_s=0.01)
        await tool_filesystem.mount(agent.coordinator, {"root": str(tmp_path)})
        before = child_processes()
        run = agent.start()
        while len(child_processes() - before) < 2:  # noqa: ASYNC110 - the start of a process has no event
            await asyncio.sleep(0.001)
        _end(agent, run, how)
        await soon(asyncio.wait([run]))

        async def all_gone() -> None:
            while child_processes() - before:  # noqa: ASYNC110 - nor has its end
                await asyncio.sleep(0.001)

        await soon(all_gone())
