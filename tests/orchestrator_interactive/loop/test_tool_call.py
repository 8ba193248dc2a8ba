"""What a tool call may take: so much time, and so much of the model's attention.

What a tool says of its progress: in order, during its call, and as much as people can be shown.

A tool that starts processes can end them, however its run ends: it hears of it, and the run waits for it."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    Recorder,
    ScriptedTool,
    call,
    deaf_to_the_loop,
    deaf_tool,
    echo,
    gated,
    goes_on,
    having,
    make_agent,
    results,
    returning,
    say,
    soon,
    text_of,
    use,
)
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import in_virtual_time

from orchestrator_interactive.kernel import HookResult, ToolResult, report_progress
from orchestrator_interactive.kernel.contracts.messages import ImageBlock, TextBlock
from orchestrator_interactive.modules import tool_filesystem

CAP = 100


PICTURE = ImageBlock(source={"type": "base64", "media_type": "image/png", "data": "aGk=" * CAP})


class TestTime:
    @pytest.mark.parametrize(
        ("own", "option", "limit"),
        [(None, {}, 600), (None, {"tool_timeout_s": 5}, 5), (2.5, {"tool_timeout_s": 5}, 2.5), (900, {}, 900)],
        ids=["default", "configured", "its own", "its own is longer"],
    )
    @in_virtual_time
    async def test_a_call_is_cut_when_its_time_is_up(
        self, own: float | None, option: dict[str, Any], limit: float
    ) -> None:
        tool = having(gated(asyncio.Event()), **({"timeout_s": own} if own else {}))
        agent = await make_agent(call(use("wait", "a")), say("ok"), tools=[tool], **option)
        began_s = asyncio.get_running_loop().time()
        assert await agent.start() == "ok"
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(limit)
        assert tool.cancelled == 1
        [row] = [row for row in await agent.history() if row["role"] == "tool"]
        assert f"after {limit:g} seconds" in row["content"]
        assert "unknown" in row["content"]
        assert row["metadata"]["is_error"]

    @in_virtual_time
    async def test_its_events_are_closed_and_its_outcome_is_told(self) -> None:
        tools = [having(gated(asyncio.Event(), name), timeout_s=1) for name in ("wait", "look")]
        having(tools[1], side_effect_free=True)
        agent = await make_agent(call(use("wait", "a"), use("look", "b")), say("ok"), tools=tools)
        agent.events.listen(agent.hooks, "tool:pre", "tool:post", "tool:error")
        await agent.start()
        assert sorted(agent.events.names()) == ["tool:error"] * 2 + ["tool:pre"] * 2
        assert [(data["id"], data["success"]) for data in agent.progress.of("tool:end")] == [("a", False), ("b", False)]
        told = agent.progress.of("complete")[0]["tools"]
        assert [each["outcome"] for each in told] == ["unknown", "cancelled"]

    @in_virtual_time
    async def test_its_siblings_are_not_harmed(self) -> None:
        gate = asyncio.Event()
        tools = [having(gated(asyncio.Event(), "stuck"), timeout_s=1), gated(gate), echo()]
        batch = call(use("stuck", "a"), use("wait", "b", text="slow"), use("echo", "c", text="quick"))
        agent = await make_agent(batch, say("ok"), tools=tools)
        asyncio.get_running_loop().call_later(60, gate.set)
        assert await agent.start() == "ok"
        outcomes = await results(agent)
        assert list(outcomes) == ["c", "a", "b"]
        assert (outcomes["b"], outcomes["c"]) == ("slow", "quick")

    @in_virtual_time
    async def test_one_that_is_deaf_does_not_hold_the_run_and_reports_nothing_afterwards(self) -> None:
        release = asyncio.Event()
        tool = having(deaf_tool(release), timeout_s=1)
        agent = await make_agent(call(use("deaf", "a")), say("ok"), tools=[tool])
        assert await agent.start() == "ok"
        assert "after 1 seconds" in (await results(agent))["a"]
        told = len(agent.progress.seen)
        release.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert tool.finished == 1
        assert len(agent.progress.seen) == told

    @in_virtual_time
    async def test_one_that_finishes_while_it_is_cut_keeps_its_result(self) -> None:
        async def rolls_back(_input: dict[str, Any]) -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "rolled back"
            return "unreachable"

        tool = having(ScriptedTool("write", rolls_back), timeout_s=1)
        agent = await make_agent(call(use("write", "a")), say("ok"), tools=[tool])
        await agent.start()
        assert await results(agent) == {"a": "rolled back"}
        assert agent.progress.of("complete")[0]["tools"][0]["outcome"] == "finished"

    @in_virtual_time
    async def test_the_time_in_which_a_person_is_asked_does_not_count(self) -> None:
        gate, tool = asyncio.Event(), having(echo(), timeout_s=1)
        agent = await make_agent(call(use("echo", "a", text="done")), say("ok"), tools=[tool])
        agent.events.listen(agent.hooks, "tool:pre", "tool:post")
        agent.events.hold("tool:pre", gate)
        asyncio.get_running_loop().call_later(20, gate.set)
        await agent.start()
        assert await results(agent) == {"a": "done"}

    @in_virtual_time
    async def test_nor_does_the_time_in_which_hooks_look_at_its_result(self) -> None:
        gate, tool = asyncio.Event(), having(returning("done"), timeout_s=1)
        agent = await make_agent(call(use("give", "a")), say("ok"), tools=[tool])
        agent.events.listen(agent.hooks, "tool:post").hold("tool:post", gate)
        asyncio.get_running_loop().call_later(20, gate.set)
        await agent.start()
        assert await results(agent) == {"a": "done"}

    @pytest.mark.parametrize("nonsense", ["soon", -1, 0, float("nan")])
    @in_virtual_time
    async def test_a_limit_that_makes_no_sense_does_not_take_the_run_down(self, nonsense: Any) -> None:
        tool = having(echo(), timeout_s=nonsense)
        agent = await make_agent(call(use("echo", "a"), use("echo", "b")), say("ok"), tools=[tool])
        assert await agent.start() == "ok"
        assert list(await results(agent)) == ["a", "b"]


async def _shown(result: Any, **more: Any) -> tuple[Agent, dict[str, Any]]:
    agent = await make_agent(call(use("give", "a")), say("ok"), tools=[returning(result)], max_result_chars=CAP, **more)
    await agent.run()
    [row] = [row for row in await agent.history() if row["role"] == "tool"]
    return agent, row


class TestSize:
    @pytest.mark.parametrize("length", [CAP - 1, CAP])
    async def test_a_result_up_to_the_cap_is_shown_as_it_is(self, length: int) -> None:
        _, row = await _shown("x" * length)
        assert row["content"] == "x" * length
        assert row.get("metadata", {}) == {}

    @given(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), min_size=CAP + 1, max_size=5 * CAP))
    def test_of_a_larger_one_the_head_and_the_tail_are_shown_and_between_them_what_is_left_out(self, text: str) -> None:
        _, row = asyncio.run(_shown(text))
        head, rest = row["content"].split("\n[… ")
        count, tail = rest.split(" characters are left out here …]\n")
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) + int(count) + len(tail) == len(text)
        assert len(head) + len(tail) == CAP
        assert row["metadata"] == {"whole": text}

    async def test_the_log_has_the_whole_and_the_model_does_not(self) -> None:
        whole = "a" * CAP + "SECRET" + "b" * CAP
        agent, row = await _shown(whole)
        assert row["metadata"]["whole"] == whole
        assert "SECRET" not in agent.provider.requests[1].model_dump_json()
        await goes_on(agent)
        assert agent.provider.prefix_breaks() == []

    async def test_an_error_is_capped_too_and_stays_one(self) -> None:
        _, row = await _shown(ToolResult(success=False, error={"message": "x" * 500}))
        assert "400 characters are left out" in row["content"]
        assert row["metadata"] == {"is_error": True, "whole": "x" * 500}

    async def test_data_are_capped_as_what_the_model_reads_of_them(self) -> None:
        _, row = await _shown({"found": ["line"] * 100})
        assert row["content"].startswith('{"found": ["line", ')
        assert row["metadata"]["whole"].endswith('"line"]}')

    async def test_pictures_do_not_count_and_stay(self) -> None:
        blocks = [TextBlock(text="x" * CAP), PICTURE]
        _, row = await _shown(ToolResult(content=blocks))
        assert row["content"] == [block.model_dump(exclude_none=True) for block in blocks]

    async def test_the_texts_of_several_blocks_count_together(self) -> None:
        blocks = [TextBlock(text="x" * CAP), PICTURE, TextBlock(text="y" * CAP)]
        agent, row = await _shown(ToolResult(content=blocks))
        assert "left out here" in text_of(row)
        assert sorted(block["type"] for block in row["content"]) == ["image", "text"]
        assert row["metadata"]["whole"] == [block.model_dump(exclude_none=True) for block in blocks]
        await goes_on(agent)

    async def test_hooks_see_the_whole_and_what_they_make_of_it_is_capped(self) -> None:
        agent = await make_agent(call(use("give", "a")), say("ok"), tools=[returning("x" * 500)], max_result_chars=CAP)
        agent.events.listen(agent.hooks, "tool:post")
        agent.on_hook("tool:post", HookResult(action="modify", data={"tool_result": "y" * 300}))
        await agent.run()
        assert agent.events.of("tool:post")[0]["tool_result"].output == "x" * 500
        [row] = [row for row in await agent.history() if row["role"] == "tool"]
        assert "200 characters are left out" in row["content"]
        assert row["metadata"] == {"whole": "y" * 300}

    async def test_a_small_cap_is_refused(self) -> None:
        with pytest.raises(Exception, match="max_result_chars"):
            await make_agent(max_result_chars=99)


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


# A shell with a child of its own; each of them holds the pipe open for as long as it lives.
FAMILY = "sleep 600 & echo started; wait"


class Shell:
    """A tool at work in a process group, and a pipe that ends when nobody of the group is left."""

    def __init__(self) -> None:
        self.ended, self._held = os.pipe()
        self.processes: list[asyncio.subprocess.Process] = []
        self.is_up = asyncio.Event()

    async def run(self, _input: dict[str, Any]) -> None:
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", FAMILY, stdout=asyncio.subprocess.PIPE, pass_fds=(self._held,), start_new_session=True
        )
        self.processes.append(process)
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


def _stop_gracefully(agent: Agent, _run: asyncio.Task[str]) -> None:
    agent.stop()


def _stop_immediately(agent: Agent, _run: asyncio.Task[str]) -> None:
    agent.stop(immediate=True)


def _cancel(_agent: Agent, run: asyncio.Task[str]) -> None:
    run.cancel()


@pytest.mark.parametrize("end", [_stop_gracefully, _stop_immediately, _cancel])
async def test_none_is_left_when_the_run_is_ended(end: Any, shell: Shell) -> None:
    agent = await make_agent(call(use("shell", "a")), tools=[ScriptedTool("shell", shell.run)], stop_grace_s=0.01)
    run = agent.start()
    await soon(shell.is_up.wait())
    end(agent, run)
    await soon(asyncio.wait([run]))
    assert shell.processes[0].returncode == -signal.SIGKILL
    await shell.all_gone()


@pytest.mark.parametrize("limit", ["tool_timeout_s", "max_duration_s"])
async def test_none_is_left_when_the_tool_takes_too_long(limit: str, shell: Shell) -> None:
    agent = await make_agent(
        call(use("shell", "a")),
        say("It took too long."),
        tools=[ScriptedTool("shell", shell.run)],
        stop_grace_s=0.01,
        **{limit: 1},
    )
    assert await agent.run() == "It took too long."
    assert shell.processes[0].returncode == -signal.SIGKILL
    await shell.all_gone()


async def test_an_urgent_message_leaves_them_alone_and_a_stop_ends_them(shell: Shell) -> None:
    agent = await make_agent(call(use("shell", "a")), say("Still at it."), tools=[ScriptedTool("shell", shell.run)])
    run = agent.start()
    await soon(shell.is_up.wait())
    agent.inject("!how far is it")
    await agent.progress.reached("text")
    assert shell.processes[0].returncode is None
    agent.stop(immediate=True)
    await soon(run)
    assert shell.processes[0].returncode == -signal.SIGKILL
    await shell.all_gone()


def child_processes() -> set[str]:
    children = (path.read_text().split() for path in Path("/proc/self/task").glob("*/children"))
    return {pid for pids in children for pid in pids}


@pytest.mark.parametrize("end", [_stop_gracefully, _stop_immediately, _cancel])
async def test_none_is_left_of_many_searches_when_the_run_is_ended(end: Any, tmp_path: Path) -> None:
    (tmp_path / "trap.txt").write_text("a" * 1_000 + "!")
    searches = [use("search_files", f"c{number}", query="(a+)+$", regex=True) for number in range(50)]
    agent = await make_agent(call(*searches), stop_grace_s=0.01)
    await tool_filesystem.mount(agent.coordinator, {"root": str(tmp_path)})
    before = child_processes()
    run = agent.start()
    while len(child_processes() - before) < 2:  # noqa: ASYNC110 - a process that has started tells nobody
        await asyncio.sleep(0.001)
    end(agent, run)
    await soon(asyncio.wait([run]))

    async def all_gone() -> None:
        while child_processes() - before:  # noqa: ASYNC110 - nor does one that has ended
            await asyncio.sleep(0.001)

    await soon(all_gone())
