"""Where a provider is given up, the next one that is mounted takes the run over."""

import asyncio
from typing import Any

import pytest
from agents import Agent, ScriptedProvider, answer, call, echo, fail, gated, make_agent, say, streaming, text_of, use

from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import ReasoningBlock, TextBlock, ThinkingBlock, ToolCallBlock

DOWN = errors.ProviderUnavailableError("down")


WHO = errors.AuthenticationError("who?")


async def _agent(*providers: ScriptedProvider, **more: Any) -> Agent:
    agent = await make_agent(provider=providers[0], **{"max_retries": 0, **more})
    for provider in providers[1:]:
        await agent.coordinator.mount("providers", provider)
    return agent


def _asked(*providers: ScriptedProvider) -> list[int]:
    return [len(provider.requests) for provider in providers]


class TestTheOrder:
    async def test_the_next_mounted_one_answers_in_its_place(self) -> None:
        agent = await _agent(ScriptedProvider(fail(DOWN), name="one"), ScriptedProvider(say("ok"), name="two"))
        assert await agent.run() == "ok"
        assert await agent.told() == [("user", "go"), ("assistant", "ok")]

    async def test_the_default_is_first_and_the_others_follow_as_they_were_mounted(self) -> None:
        one, two = ScriptedProvider(fail(DOWN), name="one"), ScriptedProvider(say("ok"), name="two")
        three = ScriptedProvider(fail(DOWN), name="three")
        agent = await _agent(one, two, three, default_provider="three")
        assert await agent.run() == "ok"
        turns = [(told["provider"], told["to"]) for told in agent.progress.of("fallback")]
        assert turns == [("three", "one"), ("one", "two")]

    async def test_each_is_asked_again_first_as_often_as_is_configured(self) -> None:
        one = ScriptedProvider(*[fail(DOWN)] * 3, name="one")
        two = ScriptedProvider(fail(DOWN), fail(DOWN), say("ok"), name="two")
        agent = await _agent(one, two, max_retries=2, retry_base_delay_s=0)
        assert await agent.run() == "ok"
        assert [(told["provider"], told["attempt"]) for told in agent.progress.of("retrying")] == [
            ("one", 1),
            ("one", 2),
            ("two", 1),
            ("two", 2),
        ]

    @pytest.mark.parametrize(
        "error",
        [WHO, errors.RateLimitError("tomorrow", retry_after=86_400), errors.LLMError("odd")],
        ids=lambda error: type(error).__name__,
    )
    async def test_where_asking_again_is_no_use_the_next_one_is_asked_at_once(self, error: Exception) -> None:
        one, two = ScriptedProvider(fail(error), name="one"), ScriptedProvider(say("ok"), name="two")
        agent = await _agent(one, two, max_retries=3, retry_base_delay_s=60)
        assert await agent.run() == "ok"
        assert agent.progress.of("retrying") == []

    async def test_it_stays_for_the_rest_of_the_run(self) -> None:
        one = ScriptedProvider(fail(WHO), name="one")
        two = ScriptedProvider(call(use("echo", "a")), call(use("echo", "b")), say("ok"), name="two")
        agent = await _agent(one, two, tools=[echo()])
        assert await agent.run() == "ok"
        assert _asked(one, two) == [1, 3]

    async def test_the_next_run_begins_with_the_first_one_again(self) -> None:
        one, two = ScriptedProvider(fail(WHO), say("back"), name="one"), ScriptedProvider(say("ok"), name="two")
        agent = await _agent(one, two)
        assert [await agent.run(), await agent.run("again")] == ["ok", "back"]
        assert [text_of(row) for row in one.sent()] == ["go", "ok", "again"]

    async def test_where_all_fail_the_error_of_the_last_one_is_the_runs(self) -> None:
        agent = await _agent(ScriptedProvider(fail(DOWN), name="one"), ScriptedProvider(fail(WHO), name="two"))
        with pytest.raises(errors.AuthenticationError) as caught:
            await agent.run()
        assert caught.value is WHO
        assert await agent.told() == [("user", "go")]

    @pytest.mark.parametrize(
        "error",
        [errors.ContentFilterError("no"), errors.InvalidRequestError("bad")],
        ids=lambda error: type(error).__name__,
    )
    async def test_what_another_one_should_refuse_too_it_is_not_asked(self, error: Exception) -> None:
        one, two = ScriptedProvider(fail(error), name="one"), ScriptedProvider(say("never said"), name="two")
        agent = await _agent(one, two)
        with pytest.raises(type(error)) as caught:
            await agent.run()
        assert caught.value is error
        assert two.requests == []

    async def test_one_that_breaks_gives_way_to_the_next_and_the_first_failure_stays_known(self) -> None:
        first, broken = DOWN, ValueError("a bug in the provider")
        agent = await _agent(
            ScriptedProvider(fail(first), name="one"),
            ScriptedProvider(fail(broken), name="two"),
            ScriptedProvider(say("ok"), name="three"),
        )
        assert await agent.run() == "ok"
        agent = await _agent(ScriptedProvider(fail(first), name="one"), ScriptedProvider(fail(broken), name="two"))
        with pytest.raises(ValueError, match="a bug") as caught:
            await agent.run()
        assert caught.value.__cause__ is first

    async def test_a_model_that_is_silent_is_given_up_for_another(self) -> None:
        never = asyncio.Event()

        async def silent(_request: Any, _stream: Any) -> Any:
            await never.wait()

        one, two = ScriptedProvider(silent, name="one"), ScriptedProvider(say("ok"), name="two")
        agent = await _agent(one, two, stall_timeout_s=0.01)
        assert await agent.run() == "ok"
        assert one.cancelled == 1


class TestWhatIsTold:
    async def test_hooks_and_people_hear_whom_it_was_and_whom_it_is_now(self) -> None:
        agent = await _agent(ScriptedProvider(fail(WHO), name="one"), ScriptedProvider(say("ok"), name="two"))
        agent.events.listen(agent.hooks, "provider:error", "provider:fallback", "provider:request")
        await agent.run()
        assert [(event, data["provider"]) for event, data in agent.events.seen] == [
            ("provider:request", "one"),
            ("provider:error", "one"),
            ("provider:fallback", "one"),
            ("provider:request", "two"),
        ]
        told = {"provider": "one", "to": "two", "error": "who?"}
        assert agent.events.of("provider:fallback")[0].items() >= told.items()
        assert agent.progress.of("fallback") == [told]

    async def test_a_stop_while_people_are_told_keeps_the_next_one_from_being_asked(self) -> None:
        one, two = ScriptedProvider(fail(WHO), name="one"), ScriptedProvider(say("never said"), name="two")
        agent = await _agent(one, two)
        agent.progress.act_on("fallback", agent.stop)
        assert await agent.run() == ""
        assert two.requests == []
        assert agent.progress.of("complete")[0]["status"] == "cancelled"

    async def test_what_is_written_meanwhile_is_in_the_request_to_the_next_one(self) -> None:
        one, two = ScriptedProvider(fail(WHO), name="one"), ScriptedProvider(say("ok"), name="two")
        agent = await _agent(one, two)
        agent.progress.act_on("fallback", lambda: agent.inject("!one more thing"))
        assert await agent.run() == "ok"
        assert text_of(two.sent()[-1]).endswith("- !one more thing")


class TestTheConversation:
    async def test_it_is_the_same_whoever_is_asked(self) -> None:
        one = ScriptedProvider(call(use("echo", "a", text="x")), fail(WHO), name="one")
        two = ScriptedProvider(say("ok"), name="two")
        agent = await _agent(one, two, tools=[echo()])
        await agent.run()
        assert two.sent() == one.sent()
        assert two.requests[0].tools == one.requests[-1].tools

    async def test_thinking_of_either_is_in_a_form_that_both_take(self) -> None:
        signed = ThinkingBlock(thinking="hm", signature="by one")
        reasoned = ReasoningBlock(content=["by two"], summary=[])
        unsigned = ThinkingBlock(thinking="lost")
        use_a = ToolCallBlock(id="a", name="echo", input={})
        use_b = ToolCallBlock(id="b", name="echo", input={})
        one = ScriptedProvider(answer(signed, use_a), fail(WHO), say("welcome back"), name="one")
        two = ScriptedProvider(answer(unsigned, reasoned, use_b), answer(unsigned, TextBlock(text="ok")), name="two")
        agent = await _agent(one, two, tools=[echo()])
        assert await agent.run() == "ok"
        assert await agent.run("again") == "welcome back"
        kinds = [[block["type"] for block in _blocks(row)] for row in one.sent() if row["role"] == "assistant"]
        assert kinds == [["thinking", "tool_call"], ["reasoning", "tool_call"], ["text"]]

    async def test_one_that_cannot_be_told_to_answer_in_words_is_not_offered_tools(self) -> None:
        worker = echo("dispatch_worker")
        one = ScriptedProvider(call(use("dispatch_worker", "a")), fail(WHO), name="one")
        two = ScriptedProvider(say("sent"), name="two", tool_choice=False)
        agent = await _agent(one, two, tools=[worker])
        assert await agent.run() == "sent"
        assert [bool(one.requests[1].tools), one.requests[1].tool_choice] == [True, "none"]
        assert [two.requests[0].tools, two.requests[0].tool_choice] == [None, None]

    async def test_calls_are_read_as_the_one_that_made_them_means_them(self) -> None:
        class Calls(ScriptedProvider):
            def parse_tool_calls(self, response: Any) -> Any:
                return [use("echo", "a", text="mine")] if response.text == "use it" else []

        agent = await _agent(
            ScriptedProvider(fail(WHO), name="one"), Calls(say("use it"), say("ok"), name="two"), tools=[echo()]
        )
        assert await agent.run() == "ok"
        assert ("tool", "mine") in await agent.told()

    async def test_a_passing_remark_goes_with_the_request_to_the_next_one(self) -> None:
        one = ScriptedProvider(call(use("echo", "a")), fail(WHO), name="one")
        two = ScriptedProvider(call(use("echo", "b")), say("ok"), name="two")
        agent = await _agent(one, two, tools=[echo()])
        remark = HookResult(action="inject_context", context_injection="mind the gap", ephemeral=True)
        agent.progress.act_on("fallback", agent.on_hook("tool:post", remark))
        await agent.run()
        assert ["mind the gap" in request.model_dump_json() for request in two.requests] == [True, False]

    async def test_a_tool_that_the_failed_answer_had_begun_is_ended(self) -> None:
        look = gated(asyncio.Event(), "look")
        look.side_effect_free = True  # type: ignore[attr-defined]

        async def break_off(_request: Any, _stream: Any) -> Any:
            await look.started()
            raise WHO

        begun = streaming(ToolCallBlock(id="a", name="look", input={}), then=break_off)
        agent = await _agent(ScriptedProvider(begun, name="one"), ScriptedProvider(say("ok"), name="two"), tools=[look])
        assert await agent.run() == "ok"
        assert look.cancelled == 1
        assert await agent.told() == [("user", "go"), ("assistant", "ok")]


def _blocks(row: dict[str, Any]) -> list[dict[str, Any]]:
    return row["content"] if isinstance(row["content"], list) else []
