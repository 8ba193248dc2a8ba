"""What became of a run's calls is told by its rows, however many processes it took; nobody is left to guess."""

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    ScriptedTool,
    call,
    deaf_tool,
    echo,
    gated,
    having,
    late_results,
    make_agent,
    never,
    raising,
    returning,
    say,
    soon,
    use,
)
from virtual_time import in_virtual_time

from orchestrator_interactive.kernel import HookResult, ToolResult
from orchestrator_interactive.loop.tool_results import (
    LATE_PREFIX,
    NOT_STARTED,
    PROCESS_ENDED,
    UNKNOWN_OUTCOME,
    still_running_row,
    unknown_row,
)
from orchestrator_interactive.transcript.rows import assistant_row, tool_row, user_row

Row = dict[str, Any]


A = use("do", "a", text="x")


LOST_A = {"tool": "do", "id": "a", "label": "Doing x", "outcome": "unknown"}


# What earlier versions have written down where a tool with effects was cut.
OLD = {"is_error": True}


def doing() -> ScriptedTool:
    return having(echo("do"), label=lambda given: f"Doing {given['text']}")


async def killed(rows: list[Row], *steps: Any, tools: list[Any], **more: Any) -> Agent:
    """An agent in whose log these rows stand, and whose process began just now."""
    agent = await make_agent(*steps, tools=tools, **more)
    await agent.context.set_messages(rows)
    return agent


async def resumed(agent: Agent) -> str:
    return await soon(agent.session.resume(on_progress=agent.progress))


def told(agent: Agent) -> list[dict[str, Any]]:
    tools: list[dict[str, Any]] = agent.progress.of("complete")[-1]["tools"]
    return tools


def outcomes(agent: Agent) -> dict[str, str]:
    return {each["id"]: each["outcome"] for each in told(agent)}


class TestThoseThatAreLost:
    async def test_whoever_goes_on_names_them_though_the_log_has_them_already(self) -> None:
        rows = [user_row("go"), assistant_row((), [A])]
        first = await killed(rows, never(), tools=[doing()])
        run = asyncio.create_task(first.session.resume(on_progress=first.progress))
        await first.provider.asked(1)
        second = await killed(await first.history(), say("ok"), tools=[doing()])
        assert await resumed(second) == "ok"
        expected = [{"unknown": ["Doing x"], "retried": [], "tools": [LOST_A]}]
        assert [agent.progress.of("resumed") for agent in (first, second)] == [expected, expected]
        assert told(second) == [LOST_A]
        first.stop()
        await soon(run)

    async def test_a_run_that_has_its_answer_names_them_too(self) -> None:
        rows = [user_row("go"), assistant_row((), [A]), unknown_row(A), {"role": "assistant", "content": "Done."}]
        agent = await killed(rows, tools=[doing()])
        assert await resumed(agent) == "Done."
        assert agent.progress.of("resumed")[0]["tools"] == [LOST_A]
        assert told(agent) == [LOST_A]

    async def test_of_the_run_before_nothing_is_told(self) -> None:
        rows = [user_row("one"), assistant_row((), [A]), unknown_row(A), user_row("two")]
        agent = await killed(rows, say("ok"), tools=[doing()])
        await resumed(agent)
        assert agent.progress.of("resumed")[0]["tools"] == []
        assert told(agent) == []

    async def test_those_whose_results_were_to_follow_are_named_by_whoever_comes_after_that_too(self) -> None:
        rows = [user_row("go"), assistant_row((), [A]), still_running_row(A), assistant_row((), [use("do", "b")])]
        first = await killed(rows, say("ok"), tools=[doing()])
        await resumed(first)
        second = await killed(await first.history(), tools=[doing()])
        await resumed(second)
        for agent in (first, second):
            assert [each["id"] for each in agent.progress.of("resumed")[0]["tools"]] == ["b", "a"]
            assert outcomes(agent) == {"a": "unknown", "b": "unknown"}

    async def test_a_call_that_was_cut_when_its_run_was_suspended_is_one_of_them(self) -> None:
        first = await make_agent(call(A), tools=[having(gated(asyncio.Event(), "do"))], stop_grace_s=0)
        run = first.start()
        await first.progress.reached("tool:start")
        first.coordinator.get_capability("orchestrator.suspend")()
        first.stop(immediate=True)
        await soon(run)
        second = await killed(await first.history(), say("ok"), tools=[doing()])
        await resumed(second)
        assert second.progress.of("resumed")[0]["tools"] == [LOST_A]

    async def test_one_whose_tool_is_gone_is_called_by_that(self) -> None:
        agent = await killed([user_row("go"), assistant_row((), [A]), unknown_row(A)], say("ok"), tools=[])
        await resumed(agent)
        assert agent.progress.of("resumed")[0]["unknown"] == ["do"]
        assert told(agent) == [{**LOST_A, "label": None}]

    async def test_its_id_is_not_given_to_another_call(self) -> None:
        rows = [user_row("go"), assistant_row((), [A]), unknown_row(A)]
        agent = await killed(rows, call(use("do", "a", text="y")), say("ok"), tools=[doing()])
        agent.context.get_messages_for_request = _only_the_last  # type: ignore[method-assign]
        await resumed(agent)
        assert [(each["id"], each["label"]) for each in told(agent)] == [("a", "Doing x"), ("a-2", "Doing y")]


async def _only_the_last(**_: Any) -> list[Row]:
    return [user_row("Go on.")]


class TestAllOfThem:
    @in_virtual_time
    async def test_another_process_tells_of_them_as_the_one_did_that_made_them(self) -> None:
        """Each kind of end, and one whose name no row would tell."""
        release, stuck = asyncio.Event(), gated(asyncio.Event(), "stuck")
        slow, look = having(gated(asyncio.Event(), "slow"), timeout_s=1), gated(asyncio.Event(), "look")
        tools = [
            *(doing(), returning(ToolResult(success=False), "fail"), raising(OSError("no"))),
            *(stuck, deaf_tool(release), slow, having(look, side_effect_free=True)),
        ]
        names = ("do", "fail", "break", "nope", "stuck", "deaf", "slow", "look", "held")
        batch = call(*(use(name, name, text="x") for name in names))
        agent = await make_agent(batch, tools=[*tools, echo("held")])
        hold = _Hold(agent)
        run = agent.start()
        await soon(asyncio.gather(hold.reached.wait(), stuck.started(), look.started()))
        await agent.progress.reached("tool:end", 4)
        agent.stop(immediate=True)
        await soon(run)
        release.set()
        assert outcomes(agent) == {
            **dict.fromkeys(["do"], "finished"),
            **dict.fromkeys(["fail", "break", "nope"], "failed"),
            **dict.fromkeys(["stuck", "deaf", "slow"], "unknown"),
            **dict.fromkeys(["look", "held"], "cancelled"),
        }
        assert {each["id"]: each["label"] for each in told(agent)}["do"] == "Doing y"
        again = await killed(await agent.history(), say("ok"), tools=[*tools, echo("held")])
        await resumed(again)
        assert told(again) == told(agent)
        assert again.progress.of("resumed")[0]["tools"] == []

    async def test_so_it_is_with_results_that_followed_later(self) -> None:
        gates = [asyncio.Event(), asyncio.Event()]
        tools = [gated(gates[0], "do"), having(gated(gates[1], "stuck"))]
        broken = ScriptedTool("fail", _failing_after(gates[0]))
        agent = await make_agent(
            call(A, use("fail", "b"), use("stuck", "c")), say("meanwhile"), never(), tools=[*tools, broken]
        )
        run = agent.start()
        await tools[1].started()
        agent.inject("!now")
        await agent.progress.reached("text")
        gates[0].set()
        await agent.provider.asked(3)
        agent.stop(immediate=True)
        await soon(run)
        assert outcomes(agent) == {"a": "finished", "b": "failed", "c": "unknown"}
        again = await killed(await agent.history(), say("ok"), tools=[*tools, broken])
        await resumed(again)
        assert told(again) == told(agent)
        assert again.progress.of("resumed")[0]["tools"] == []

    async def test_a_result_that_nobody_had_checked_was_an_end_for_the_next_process_too(self) -> None:
        agent = await make_agent(call(A), tools=[doing()])
        agent.events.listen(agent.hooks, "tool:post").hold("tool:post", asyncio.Event())
        run = agent.start()
        await agent.events.reached("tool:post")
        agent.stop(immediate=True)
        await soon(run)
        again = await killed(await agent.history(), tools=[doing()])
        again.token.request_graceful()
        await resumed(again)
        assert outcomes(again) == outcomes(agent) == {"a": "finished"}

    @pytest.mark.parametrize("text", [NOT_STARTED, UNKNOWN_OUTCOME, PROCESS_ENDED])
    async def test_what_a_tool_says_is_not_taken_for_what_became_of_it(self, text: str) -> None:
        agent = await make_agent(call(A), say("ok"), tools=[raising(RuntimeError(text), "do")])
        await agent.run()
        again = await killed(await agent.history(), tools=[doing()])
        await resumed(again)
        assert outcomes(again) == outcomes(agent) == {"a": "failed"}
        assert again.progress.of("resumed")[0]["tools"] == []

    async def test_half_a_character_in_what_people_call_it_is_left_out(self) -> None:
        agent = await make_agent(call(A), say("ok"), tools=[having(echo("do"), label=lambda _: "Doing \ud83d")])
        agent.on_hook("tool:pre", HookResult(action="modify", data={"tool_input": {"text": "y"}}))
        await agent.run()
        again = await killed(await agent.history(), tools=[])
        await resumed(again)
        assert [each["label"] for each in told(again)] == ["Doing "]

    async def test_what_requests_do_not_show_any_more_is_told_all_the_same(self) -> None:
        plan = {"context": {"module": "context-simple", "config": {"max_tokens": 400}}}
        rows = [user_row("go"), assistant_row((), [A]), unknown_row(A)]
        for n in range(20):
            made = use("do", f"b{n}", text="word " * 40)
            rows += [assistant_row((), [made]), tool_row(made, "word " * 40)]
        agent = await killed(rows, say("ok"), tools=[doing()], plan=plan)
        await resumed(agent)
        assert len(agent.provider.sent()) < len(rows) / 2
        assert agent.progress.of("resumed")[0]["tools"] == [LOST_A]
        assert outcomes(agent) == {"a": "unknown", **{f"b{n}": "finished" for n in range(20)}}


class _Hold:
    """A hook that changes what one tool is given, and keeps another from beginning."""

    def __init__(self, agent: Agent) -> None:
        self.reached = asyncio.Event()
        agent.hooks.register("tool:pre", self._on_call)

    async def _on_call(self, _event: str, data: dict[str, Any]) -> HookResult:
        match data["tool_name"]:
            case "do":
                return HookResult(action="modify", data={"tool_input": {"text": "y"}})
            case "held":
                self.reached.set()
                await asyncio.Event().wait()
        return HookResult()


def _failing_after(gate: asyncio.Event) -> Any:
    async def behave(_given: dict[str, Any]) -> ToolResult:
        await gate.wait()
        return ToolResult(success=False)

    return behave


class TestWhatAnEarlierVersionHasWritten:
    @pytest.mark.parametrize(
        ("row", "outcome", "is_named"),
        [
            (tool_row(A, "x"), "finished", False),
            (tool_row(A, "No.", failed=True), "failed", False),
            ({**tool_row(A, NOT_STARTED), "metadata": OLD}, "cancelled", False),
            ({**tool_row(A, UNKNOWN_OUTCOME), "metadata": OLD}, "unknown", False),
            ({**tool_row(A, PROCESS_ENDED), "metadata": OLD}, "unknown", True),
            ({**tool_row(A, "x"), "metadata": {"became": {"outcome": "exploded"}}}, "finished", False),
            ({**tool_row(A, [{"type": "text", "text": "x"}]), "metadata": OLD}, "failed", False),
        ],
    )
    async def test_is_read_by_its_text(self, row: Row, outcome: str, *, is_named: bool) -> None:
        agent = await killed([user_row("go"), assistant_row((), [A]), row], say("ok"), tools=[doing()])
        assert await resumed(agent) == "ok"
        assert outcomes(agent) == {"a": outcome}
        assert agent.progress.of("resumed")[0]["tools"] == ([LOST_A] if is_named else [])

    @pytest.mark.parametrize(("text", "outcome"), [("x", "finished"), (f"failed: {PROCESS_ENDED}", "unknown")])
    async def test_so_are_results_that_followed_later(self, text: str, outcome: str) -> None:
        late = {**user_row(f"{LATE_PREFIX}\n- call a, do: {text}"), "metadata": {"results": ["a"]}}
        rows = [user_row("go"), assistant_row((), [A]), still_running_row(A), late]
        agent = await killed(rows, say("ok"), tools=[doing()])
        assert await resumed(agent) == "ok"
        assert outcomes(agent) == {"a": outcome}
        assert len(await late_results(agent)) == 1
