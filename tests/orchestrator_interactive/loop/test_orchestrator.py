"""The public interface of the orchestrator, also when its caller is cancelled."""

import asyncio
from typing import Any

import pytest
from agents.after_run import goes_on, results
from agents.milestones import soon
from agents.provider import after, call, deaf, fail, never, say, streaming, use
from agents.rows import told
from agents.session import Agent, make_agent
from agents.tools import deaf_tool, echo, gated, having, raising, returning
from structlog.testing import capture_logs
from virtual_time import in_virtual_time

from orchestrator_interactive import InteractiveOrchestrator
from orchestrator_interactive.kernel import HookRegistry, HookResult
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.modules.context_simple import ContextOptions, SimpleContext

BOUNDARIES = ("execution:start", "execution:end", "orchestrator:complete")


DOWN = ProviderUnavailableError("down")


class TestTheBoundariesOfARun:
    @staticmethod
    async def _ended(agent: Agent, end: Any = None) -> tuple[str, str, str, int]:
        """Run to the end; the response and status of `execution:end`, and status and turns of the completion."""
        agent.events.listen(agent.hooks, *BOUNDARIES)
        run = agent.start()
        if end is not None:
            await agent.provider.asked(1)
            end(run)
        await soon(asyncio.wait([run]))
        assert agent.events.names() == list(BOUNDARIES)
        [end], [complete] = agent.events.of("execution:end"), agent.events.of("orchestrator:complete")
        assert complete["orchestrator"] == "loop-interactive"
        return end["response"], end["status"], complete["status"], complete["turn_count"]

    @pytest.mark.parametrize(
        ("steps", "config", "ended"),
        [
            ([call(use("echo", "a")), say("ok")], {}, ("ok", "completed", "success", 2)),
            ([fail(DOWN)], {"max_retries": 0}, ("", "error", "incomplete", 0)),
            ([], {"default_provider": "absent"}, ("", "error", "incomplete", 0)),
            ([call(use("echo", "a")), say("all")], {"max_iterations": 1}, ("all", "completed", "incomplete", 2)),
        ],
        ids=["success", "failure", "no provider", "iterations used up"],
    )
    async def test_each_event_comes_once_whether_the_run_succeeds_or_fails(
        self, steps: list[Any], config: dict[str, Any], ended: tuple[Any, ...]
    ) -> None:
        assert await self._ended(await make_agent(*steps, tools=[echo()], **config)) == ended

    @pytest.mark.parametrize("how", ["stopped", "cancelled", "stopped before it starts"])
    async def test_each_event_comes_once_when_the_run_is_ended(self, how: str) -> None:
        agent = await make_agent(never())
        if how == "stopped before it starts":
            agent.token.request_immediate()
            assert await self._ended(agent) == ("", "cancelled", "cancelled", 0)
            return
        end = (lambda run: run.cancel()) if how == "cancelled" else (lambda _run: agent.stop())
        assert await self._ended(agent, end) == ("", "cancelled", "cancelled", 0)

    @pytest.mark.parametrize(
        ("how", "ended"), [("prompt denied", ("completed", "incomplete", 0)), ("log full", ("error", "incomplete", 0))]
    )
    async def test_each_event_comes_once_when_the_run_cannot_start(self, how: str, ended: tuple[Any, ...]) -> None:
        agent = await make_agent(say("ok"))
        if how == "prompt denied":
            agent.on_hook("prompt:submit", HookResult(action="deny", reason="not on Sundays"))
        else:
            agent.context.refuse(lambda _row: True)
        assert (await self._ended(agent))[1:] == ended

    async def test_each_event_comes_once_when_the_run_is_cancelled_while_its_end_is_reported(self) -> None:
        agent = await make_agent(say("ok"))
        agent.events.listen(agent.hooks, *BOUNDARIES)
        gate = asyncio.Event()
        agent.events.hold("execution:end", gate)
        run = agent.start()
        await agent.events.reached("execution:end")
        run.cancel()
        await asyncio.sleep(0)
        gate.set()
        await asyncio.wait([run])
        assert agent.events.names() == list(BOUNDARIES)

    async def test_a_run_reports_its_own_turns_though_the_next_one_begins(self) -> None:
        held, gate = asyncio.Event(), asyncio.Event()
        agent = await make_agent(call(use("echo", "a")), say("one"), after(gate, say("two")), tools=[echo()])
        agent.events.listen(agent.hooks, *BOUNDARIES).hold("execution:end", held)
        first = agent.start()
        await agent.events.reached("execution:end")
        second = agent.start()
        for _ in range(20):
            await asyncio.sleep(0)
        held.set()
        gate.set()
        await soon(asyncio.gather(first, second, return_exceptions=True))
        assert agent.events.of("orchestrator:complete")[0]["turn_count"] == 2


class TestWithoutACoordinator:
    @staticmethod
    async def _parts(*steps: Any, hooks: HookRegistry | None = None) -> tuple[Agent, tuple[Any, ...]]:
        hooks, agent = hooks or HookRegistry(), await make_agent(*steps)
        return agent, (SimpleContext(ContextOptions(), hooks.emit), {"p": agent.provider}, {"echo": echo()}, hooks)

    async def test_messages_are_injected_and_tools_run(self) -> None:
        _, parts = await self._parts(call(use("echo", "a")), say("ok"))
        orchestrator = InteractiveOrchestrator({})
        orchestrator.inject_message("more")
        assert await orchestrator.execute("go", *parts) == "ok"
        roles = [row["role"] for row in await parts[0].get_messages()]
        assert roles == ["user", "user", "assistant", "tool", "assistant"]
        assert not orchestrator.stop()

    async def test_a_hook_counts(self) -> None:
        agent, parts = await self._parts(say("ok"))

        async def ask(_event: str, _data: dict[str, Any]) -> HookResult:
            return HookResult(action="ask_user", approval_prompt="May I?")

        parts[-1].register("prompt:submit", ask)
        assert "denied" in await InteractiveOrchestrator().execute("go", *parts)
        assert agent.provider.requests == []

    async def test_an_end_event_that_fails_is_logged_and_the_answer_is_returned(self) -> None:
        class Broken(HookRegistry):
            async def emit(self, event: str, data: dict[str, Any] | None = None) -> HookResult:
                if event == "execution:end":
                    raise OSError("no disk")
                return await super().emit(event, data)

        agent, parts = await self._parts(say("ok"), say("again"), hooks=Broken())
        agent.events.listen(parts[-1], "execution:end")
        orchestrator = InteractiveOrchestrator({})
        with capture_logs() as logs:
            assert await orchestrator.execute("go", *parts) == "ok"
        [(event, error)] = [(each["event"], each["exc_info"]) for each in logs if each["log_level"] == "error"]
        assert event == "run.end_not_reported"
        assert isinstance(error, OSError)
        assert await orchestrator.execute("go", *parts[:-1], HookRegistry()) == "again"


class TestProgress:
    async def test_events_come_in_order_with_the_data_of_the_document(self) -> None:
        agent = await make_agent(call(use("echo", "a", text="x")), say("ok"), tools=[echo()])
        await agent.run("hello")
        progress = agent.progress
        assert progress.names() == ["executing", "thinking", "tool:start", "tool:end", "thinking", "complete"]
        [executing] = progress.of("executing")
        assert executing["prompt"] == "hello"
        assert isinstance(executing["run"], str)
        assert progress.of("thinking") == [{"iteration": 1}, {"iteration": 2}]
        assert progress.of("tool:start")[0].items() >= {"tool": "echo", "args": {"text": "x"}}.items()
        assert progress.of("tool:end")[0]["tool"] == "echo"
        assert progress.of("tool:end")[0]["duration"] >= 0
        assert agent.complete().items() >= {"iterations": 2, "status": "success"}.items()

    async def test_a_text_of_more_than_a_sentence_is_reported_once_while_it_is_written(self) -> None:
        written = streaming(*["word "] * 100, then=say("word " * 100))
        agent = await make_agent(call(use("echo", "a")), written, tools=[echo()])
        await agent.run()
        assert [name for name in agent.progress.names() if name != "writing:text"][-3:] == [
            "thinking",
            "writing",
            "complete",
        ]
        assert agent.progress.names().count("writing") == 1

    async def test_a_long_text_is_reported_while_it_is_written_with_its_place(self) -> None:
        reported = asyncio.Event()
        written = streaming("word " * 50, reported, "more " * 10, then=say("word " * 50 + "more " * 10))
        agent = await make_agent(streaming("Yes. " * 50, then=say("Yes. " * 50, finish_reason="length")), written)

        async def follow(event: str, data: dict[str, Any]) -> None:
            seen.append((event, data))
            if event == "writing:text" and data["text"].startswith("word"):
                reported.set()

        seen: list[tuple[str, dict[str, Any]]] = []
        whole = await soon(agent.session.execute("go", on_progress=follow))
        reports = [data for event, data in seen if event == "writing:text"]
        assert reports[-1] == {"text": "word " * 50, "part": 1, "at": 250}
        assert all(whole[data["at"] :].startswith(data["text"]) for data in reports)

    async def test_start_and_end_of_a_tool_have_the_id_of_the_call(self) -> None:
        batch = call(use("echo", "a"), use("break", "b"))
        agent = await make_agent(batch, say("ok"), tools=[echo(), raising(OSError())])
        await agent.run()
        assert {data["id"] for data in agent.progress.of("tool:start")} == {"a", "b"}
        assert {data["id"]: data["success"] for data in agent.progress.of("tool:end")} == {"a": True, "b": False}

    async def test_the_start_of_a_tool_has_its_label_unless_that_fails(self) -> None:
        tool = having(returning("text", name="read"), label=lambda given: f"Reading {given['path']}")
        agent = await make_agent(call(use("read", "a", path="notes.md"), use("read", "b")), say("ok"), tools=[tool])
        await agent.run()
        assert [data.get("label") for data in agent.progress.of("tool:start")] == ["Reading notes.md", None]
        assert tool.inputs == [{"path": "notes.md"}, {}]

    async def test_a_listener_that_fails_does_not_disturb_the_run_and_none_is_needed(self) -> None:
        agent = await make_agent(call(use("echo", "a")), say("ok"), say("again"), tools=[echo()])
        agent.inject("steer")
        seen: list[str] = []

        async def fails(event: str, _data: dict[str, Any]) -> None:
            seen.append(event)
            raise ConnectionError("Slack is away")

        assert await soon(agent.session.execute("go", on_progress=fails)) == "ok"
        assert seen[-1] == "complete"
        assert await agent.session.execute("go") == "again"


NOTICE = "[This happened since your last answer:]\n"


class TestNotify:
    async def test_notices_lead_the_next_run_once_in_one_row(self) -> None:
        agent = await make_agent(say("ok"), say("ok"))
        agent.notify("the worker is done")
        agent.notify("so is the other")
        await agent.run()
        await agent.run()
        row = ("user", f"{NOTICE}- the worker is done\n- so is the other")
        assert (await agent.told())[:2] == [row, ("user", "go")]
        assert str(await agent.told()).count("worker") == 1

    async def test_a_notice_during_a_run_does_not_reach_it(self) -> None:
        steps = call(use("dispatch_worker", "a")), say("on it"), say("two")
        agent = await make_agent(*steps, tools=[echo("dispatch_worker")])
        agent.progress.act_on("tool:end", lambda: agent.notify("later"))
        agent.events.listen(agent.hooks, "provider:response")
        agent.events.act_on("provider:response", lambda: agent.notify("now"))
        assert await agent.run() == "on it"
        assert NOTICE not in str(told(agent.provider.sent()))
        await agent.run("next")
        assert told(agent.provider.sent())[-2:] == [("user", f"{NOTICE}- now\n- later"), ("user", "next")]

    async def test_a_notice_that_could_not_be_committed_is_not_lost(self) -> None:
        agent = await make_agent(say("ok"))
        agent.notify("done")
        agent.context.refuse(lambda _row: True)
        with pytest.raises(OSError, match="disk full"):
            await agent.run()
        agent.context.accept()
        await agent.run()
        assert str(await agent.told()).count("- done") == 1

    @pytest.mark.parametrize("moment", ["before", "after"])
    async def test_a_notice_while_another_is_committed_is_not_lost(self, moment: Any) -> None:
        agent = await make_agent(say("one"), say("two"))
        agent.notify("first")
        agent.context.act(moment, lambda row: "first" in str(row["content"]) and agent.notify("second"))
        await agent.run()
        agent.context.accept()
        await agent.run()
        assert [str(await agent.told()).count(f"- {text}") for text in ("first", "second")] == [1, 1]


async def _cancelled(run: asyncio.Task[str], *, times: int = 1) -> None:
    for _ in range(times - 1):
        run.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(run)


async def test_it_cancels_the_model_call_and_the_next_run_may_follow_at_once() -> None:
    agent = await make_agent(never(), say("ok"))
    run = await agent.asked()
    await _cancelled(run)
    assert agent.provider.cancelled == 1
    assert await agent.run() == "ok"


async def test_it_cancels_tools_and_answers_each_call() -> None:
    tool = gated(asyncio.Event())
    agent = await make_agent(call(use("wait", "a"), use("wait", "b"), use("echo", "c")), tools=[tool, echo()])
    before = asyncio.all_tasks()
    run = await agent.in_tool(tool, 2)
    await agent.progress.reached("tool:end")
    await _cancelled(run)
    assert tool.cancelled == 2
    assert asyncio.all_tasks() == before
    found = await results(agent)
    assert {call_id for call_id, text in found.items() if "unknown" in text} == {"a", "b"}
    assert found["c"] == "echo"
    await goes_on(agent)


@pytest.mark.parametrize("times", [1, 2])
async def test_a_model_call_that_ignores_it_does_not_hold_it_up(times: int) -> None:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
    release = asyncio.Event()
    agent = await make_agent(deaf(release, say("late")))
    await _cancelled(await agent.asked(), times=times)
    await goes_on(agent)
    reached = asyncio.Event()
    asyncio.get_running_loop().call_later(0.35, reached.set)  # after the loop has given up on the call
    await reached.wait()
    release.set()
    assert errors == []


@pytest.mark.parametrize("times", [1, 2])
@in_virtual_time
async def test_a_tool_that_ignores_it_does_not_hold_it_up_and_its_calls_are_answered(times: int) -> None:
    release = asyncio.Event()
    tool = deaf_tool(release)
    agent = await make_agent(call(use("deaf", "a"), use("deaf", "b")), tools=[tool])
    await _cancelled(await agent.in_tool(tool, 2), times=times)
    release.set()
    assert list(await results(agent)) == ["a", "b"]
    await goes_on(agent)


async def test_before_the_first_step_it_starts_nothing() -> None:
    agent = await make_agent(say("ok"))
    await _cancelled(agent.start())
    assert await agent.history() == []
    assert await agent.run() == "ok"


async def test_a_timeout_around_the_session_is_a_timeout() -> None:
    agent = await make_agent(never())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await agent.session.execute("go")
    await goes_on(agent)
