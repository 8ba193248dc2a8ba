"""What a run tells whoever watches it, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents import call, echo, make_agent, raising, returning, say, soon, use

if TYPE_CHECKING:
    from typing import Any


async def test_the_events_of_a_run_come_in_order() -> None:
    agent = await make_agent(call(use("echo", "a", text="x")), say("ok"), tools=[echo()])
    await agent.run("hello")
    assert agent.progress.names() == ["executing", "thinking", "tool:start", "tool:end", "thinking", "complete"]


async def test_the_events_carry_what_the_spec_says() -> None:
    agent = await make_agent(call(use("echo", "a", text="x")), say("ok"), tools=[echo()])
    await agent.run("hello")
    progress = agent.progress
    [executing] = progress.of("executing")
    assert executing["prompt"] == "hello"
    assert isinstance(executing["run"], str)
    assert progress.of("thinking") == [{"iteration": 1}, {"iteration": 2}]
    assert progress.of("tool:start")[0].items() >= {"tool": "echo", "args": {"text": "x"}}.items()
    assert progress.of("tool:end")[0]["tool"] == "echo"
    assert progress.of("tool:end")[0]["duration"] >= 0
    assert progress.of("complete")[0].items() >= {"iterations": 2, "status": "success"}.items()


async def test_start_and_end_of_a_tool_can_be_matched_by_the_calls_id() -> None:
    agent = await make_agent(call(use("echo", "a"), use("break", "b")), say("ok"), tools=[echo(), raising(OSError())])
    await agent.run()
    assert {data["id"] for data in agent.progress.of("tool:start")} == {"a", "b"}
    assert {data["id"]: data["success"] for data in agent.progress.of("tool:end")} == {"a": True, "b": False}


async def test_the_label_of_a_tool_is_told() -> None:
    tool = returning("text", name="read")
    tool.label = lambda given: f"Reading {given['path']}"  # type: ignore[attr-defined]
    agent = await make_agent(call(use("read", "a", path="notes.md")), say("ok"), tools=[tool])
    await agent.run()
    assert agent.progress.of("tool:start")[0]["label"] == "Reading notes.md"


async def test_a_label_that_fails_does_not_keep_the_tool_from_running() -> None:
    tool = returning("text", name="read")
    tool.label = lambda given: f"Reading {given['path']}"  # type: ignore[attr-defined]
    agent = await make_agent(call(use("read", "a")), say("ok"), tools=[tool])
    await agent.run()
    assert tool.inputs == [{}]


async def test_a_watcher_that_fails_does_not_disturb_the_run() -> None:
    agent = await make_agent(call(use("echo", "a")), say("ok"), tools=[echo()])
    agent.inject("steer")
    seen: list[str] = []

    async def fails(event: str, _data: dict[str, Any]) -> None:
        seen.append(event)
        raise ConnectionError("Slack is away")

    assert await soon(agent.session.execute("go", on_progress=fails)) == "ok"
    assert seen[-1] == "complete"


async def test_a_run_needs_no_watcher() -> None:
    agent = await make_agent(call(use("echo", "a")), say("ok"), tools=[echo()])
    assert await agent.session.execute("go") == "ok"


async def test_what_still_waits_is_told_at_the_end() -> None:
    agent = await make_agent()
    agent.progress.act_on("thinking", lambda: [agent.inject("one"), agent.inject("two"), agent.stop()])
    await agent.run()
    assert agent.progress.of("complete")[0].items() >= {"status": "cancelled", "waiting": 2}.items()
