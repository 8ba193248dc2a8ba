"""The outcome of each call of a run is in its rows, and every process that resumes it reports the same."""

import asyncio
from typing import Any

import pytest
from agents.after_run import late_results
from agents.milestones import soon
from agents.provider import call, never, say, use
from agents.session import Agent, make_agent
from agents.tools import ScriptedTool, deaf_tool, echo, gated, having, raising, returning
from loop_rows import NOT_STARTED, PROCESS_ENDED, UNKNOWN_OUTCOME, still_running_row, unknown_row
from virtual_time import in_virtual_time

from orchestrator_interactive.kernel import HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.messages import TextBlock
from orchestrator_interactive.transcript.framing import LATE_PREFIX
from orchestrator_interactive.transcript.rows import assistant_row, call_ids, tool_row, user_row

Row = dict[str, Any]
A = use("do", "a", text="x")
STARTED = [user_row("go"), assistant_row((), [A])]
LOST_A = {"tool": "do", "id": "a", "label": "Doing x", "outcome": "unknown"}
FAILED = {"is_error": True}


def doing() -> ScriptedTool:
    return having(echo("do"), label=lambda given: f"Doing {given['text']}")


async def killed(rows: list[Row], *steps: Any, tools: list[Any], **more: Any) -> Agent:
    """An agent with these rows in its log, in a new process."""
    agent = await make_agent(*steps, tools=tools, **more)
    await agent.context.set_messages(rows)
    return agent


async def only_the_last(**_: Any) -> list[Row]:
    """The request of a context that has compacted the conversation."""
    return [user_row("Go on.")]


async def resumed(agent: Agent) -> str:
    return await soon(agent.session.resume(on_progress=agent.progress))


def lost(agent: Agent) -> list[dict[str, Any]]:
    """The calls of unknown outcome, as the `resumed` event has them."""
    calls: list[dict[str, Any]] = agent.progress.of("resumed")[0]["tools"]
    return calls


class TestLostCalls:
    async def test_every_process_that_resumes_the_run_names_them(self) -> None:
        first = await killed(STARTED, never(), tools=[doing()])
        run = asyncio.create_task(first.session.resume(on_progress=first.progress))
        await first.provider.asked(1)
        second = await killed(await first.history(), say("ok"), tools=[doing()])
        assert await resumed(second) == "ok"
        expected = [{"unknown": ["Doing x"], "retried": [], "tools": [LOST_A]}]
        assert [agent.progress.of("resumed") for agent in (first, second)] == [expected, expected]
        assert second.complete()["tools"] == [LOST_A]
        await first.stopped(run)

    async def test_a_run_that_has_its_answer_names_them_too(self) -> None:
        agent = await killed([*STARTED, unknown_row(A), {"role": "assistant", "content": "Done."}], tools=[doing()])
        assert await resumed(agent) == "Done."
        assert lost(agent) == agent.complete()["tools"] == [LOST_A]

    async def test_those_of_the_run_before_are_not_named(self) -> None:
        agent = await killed([*STARTED, unknown_row(A), user_row("two")], say("ok"), tools=[doing()])
        await resumed(agent)
        assert lost(agent) == agent.complete()["tools"] == []

    async def test_those_whose_results_were_to_follow_are_named_by_later_processes_too(self) -> None:
        rows = [*STARTED, still_running_row(A), assistant_row((), [use("do", "b")])]
        first = await killed(rows, say("ok"), tools=[doing()])
        await resumed(first)
        second = await killed(await first.history(), tools=[doing()])
        await resumed(second)
        for agent in (first, second):
            assert [each["id"] for each in lost(agent)] == ["b", "a"]
            assert agent.outcomes() == {"a": "unknown", "b": "unknown"}

    async def test_one_whose_tool_is_gone_has_no_label(self) -> None:
        agent = await killed([*STARTED, unknown_row(A)], say("ok"), tools=[])
        await resumed(agent)
        assert agent.progress.of("resumed")[0]["unknown"] == ["do"]
        assert agent.complete()["tools"] == [{**LOST_A, "label": None}]

    async def test_its_id_is_not_given_to_another_call(self) -> None:
        again = call(use("do", "a", text="y"))
        agent = await killed([*STARTED, unknown_row(A)], again, say("ok"), tools=[doing()])
        agent.context.get_messages_for_request = only_the_last  # type: ignore[method-assign]
        await resumed(agent)
        labels = [(each["id"], each["label"]) for each in agent.complete()["tools"]]
        assert labels == [("a", "Doing x"), ("a-2", "Doing y")]

    @pytest.mark.parametrize("is_resumed", [True, False])
    async def test_the_id_of_a_call_in_an_earlier_run_is_not_given_to_another_call(self, *, is_resumed: bool) -> None:
        again = call(use("do", "a", text="y"))
        rows = [*STARTED, unknown_row(A), assistant_row([TextBlock(text="ok")])]
        agent = await killed(
            [*rows, *[user_row("more")] * is_resumed], again, say("ok"), again, say("ok"), tools=[doing()]
        )
        agent.context.get_messages_for_request = only_the_last  # type: ignore[method-assign]
        await (resumed(agent) if is_resumed else agent.run("more"))
        await agent.run("and more")
        assert [each for row in await agent.history() for each in call_ids(row)] == ["a", "a-2", "a-3"]


class TestEveryOutcome:
    @staticmethod
    async def _resumed_like(agent: Agent, *tools: Any) -> Agent:
        """Another process that resumes the run and reports the same tools and loses none."""
        again = await killed(await agent.history(), say("ok"), tools=list(tools))
        await resumed(again)
        assert again.complete()["tools"] == agent.complete()["tools"]
        assert lost(again) == []
        return again

    @in_virtual_time
    async def test_another_process_reports_each_kind_of_outcome(self) -> None:
        """`do` gets a modified input, and `held` waits for its hook."""
        release, held, stuck = asyncio.Event(), asyncio.Event(), gated(asyncio.Event(), "stuck")
        slow, look = having(gated(asyncio.Event(), "slow"), timeout_s=1), gated(asyncio.Event(), "look")
        tools = [
            *(doing(), returning(ToolResult(success=False), "fail"), raising(OSError("no")), echo("held")),
            *(stuck, deaf_tool(release), slow, having(look, side_effect_free=True)),
        ]
        names = ("do", "fail", "break", "nope", "stuck", "deaf", "slow", "look", "held")
        agent = await make_agent(call(*(use(name, name, text="x") for name in names)), tools=tools)

        async def before_call(_event: str, data: dict[str, Any]) -> HookResult | None:
            if data["tool_name"] == "do":
                return HookResult(action="modify", data={"tool_input": {"text": "y"}})
            if data["tool_name"] == "held":
                held.set()
                await asyncio.Event().wait()
            return None

        agent.hooks.register("tool:pre", before_call)
        run = agent.start()
        await soon(asyncio.gather(held.wait(), stuck.started(), look.started()))
        await agent.progress.reached("tool:end", 4)
        await agent.stopped(run, immediate=True)
        release.set()
        assert agent.outcomes() == {
            **dict.fromkeys(["do"], "finished"),
            **dict.fromkeys(["fail", "break", "nope"], "failed"),
            **dict.fromkeys(["stuck", "deaf", "slow"], "unknown"),
            **dict.fromkeys(["look", "held"], "cancelled"),
        }
        assert {each["id"]: each["label"] for each in agent.complete()["tools"]}["do"] == "Doing y"
        await self._resumed_like(agent, *tools)

    async def test_another_process_reports_results_that_followed_later(self) -> None:
        gate = asyncio.Event()

        async def fail_later(_given: dict[str, Any]) -> ToolResult:
            await gate.wait()
            return ToolResult(success=False)

        tools = [gated(gate, "do"), ScriptedTool("fail", fail_later), gated(asyncio.Event(), "stuck")]
        batch = call(A, use("fail", "b"), use("stuck", "c"))
        agent = await make_agent(batch, say("meanwhile"), never(), tools=tools)
        run = await agent.in_tool(tools[2])
        agent.inject("!now")
        await agent.progress.reached("text")
        gate.set()
        await agent.provider.asked(3)
        await agent.stopped(run, immediate=True)
        assert agent.outcomes() == {"a": "finished", "b": "failed", "c": "unknown"}
        await self._resumed_like(agent, *tools)

    async def test_a_result_that_no_hook_had_released_is_finished_for_another_process_too(self) -> None:
        agent = await make_agent(call(A), tools=[doing()])
        await agent.stopped(await agent.held_at("tool:post"), immediate=True)
        again = await killed(await agent.history(), tools=[doing()])
        again.token.request_graceful()
        await resumed(again)
        assert again.outcomes() == agent.outcomes() == {"a": "finished"}

    @pytest.mark.parametrize("text", [NOT_STARTED, UNKNOWN_OUTCOME, PROCESS_ENDED])
    async def test_the_text_of_a_tool_is_not_mistaken_for_its_outcome(self, text: str) -> None:
        agent = await make_agent(call(A), say("ok"), tools=[raising(RuntimeError(text), "do")])
        await agent.run()
        again = await self._resumed_like(agent, raising(RuntimeError(text), "do"))
        assert again.outcomes() == {"a": "failed"}

    async def test_characters_that_cannot_be_stored_are_left_out_of_a_label(self) -> None:
        agent = await make_agent(call(A), say("ok"), tools=[having(echo("do"), label=lambda _: "Doing \ud83d")])
        agent.on_hook("tool:pre", HookResult(action="modify", data={"tool_input": {"text": "y"}}))
        await agent.run()
        again = await killed(await agent.history(), tools=[])
        await resumed(again)
        assert [each["label"] for each in again.complete()["tools"]] == ["Doing "]

    async def test_calls_that_requests_no_longer_have_are_reported(self) -> None:
        plan = {"context": {"module": "context-simple", "config": {"max_tokens": 400}}}
        rows = [*STARTED, unknown_row(A)]
        for n in range(20):
            made = use("do", f"b{n}", text="word " * 40)
            rows += [assistant_row((), [made]), tool_row(made, "word " * 40)]
        agent = await killed(rows, say("ok"), tools=[doing()], plan=plan)
        await resumed(agent)
        assert len(agent.provider.sent()) < len(rows) / 2
        assert lost(agent) == [LOST_A]
        assert agent.outcomes() == {"a": "unknown", **{f"b{n}": "finished" for n in range(20)}}


class TestRowsWithoutAnOutcome:
    @pytest.mark.parametrize(
        ("row", "outcome"),
        [
            (tool_row(A, "x"), "finished"),
            (tool_row(A, "No.", failed=True), "failed"),
            ({**tool_row(A, "x"), "metadata": {"call_outcome": {"outcome": "exploded"}}}, "finished"),
            ({**tool_row(A, [{"type": "text", "text": "x"}]), "metadata": FAILED}, "failed"),
        ],
    )
    async def test_the_outcome_is_that_of_the_result(self, row: Row, outcome: str) -> None:
        agent = await killed([*STARTED, row], say("ok"), tools=[doing()])
        assert await resumed(agent) == "ok"
        assert agent.outcomes() == {"a": outcome}
        assert lost(agent) == []

    async def test_a_late_result_is_finished(self) -> None:
        late = {**user_row(f"{LATE_PREFIX}\n- call a, do: x"), "metadata": {"results": ["a"]}}
        agent = await killed([*STARTED, still_running_row(A), late], say("ok"), tools=[doing()])
        assert await resumed(agent) == "ok"
        assert agent.outcomes() == {"a": "finished"}
        assert len(await late_results(agent)) == 1
