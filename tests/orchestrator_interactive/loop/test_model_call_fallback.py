"""When a provider is given up, the next mounted one takes over for the rest of the run."""

from typing import Any

import pytest
from agents import Agent, ScriptedProvider, answer, call, echo, fail, make_agent, never, say, text_of, use

from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import ReasoningBlock, TextBlock, ThinkingBlock, ToolCallBlock

DOWN = errors.ProviderUnavailableError("down")
WHO = errors.AuthenticationError("who?")


async def _agent(*scripts: list[Any], **more: Any) -> tuple[Agent, list[ScriptedProvider]]:
    """An agent with a provider `one`, `two`, … for each script."""
    providers = [ScriptedProvider(*steps, name=name) for name, steps in zip(("one", "two", "three"), scripts)]  # noqa: B905
    agent = await make_agent(provider=providers[0], **{"max_retries": 0, **more})
    for provider in providers[1:]:
        await agent.coordinator.mount("providers", provider)
    return agent, providers


class TestTheOrder:
    async def test_the_next_mounted_one_answers_and_hooks_and_people_learn_of_it(self) -> None:
        agent, _ = await _agent([fail(WHO)], [say("ok")])
        agent.events.listen(agent.hooks, "provider:error", "provider:fallback", "provider:request")
        assert await agent.run() == "ok"
        assert await agent.told() == [("user", "go"), ("assistant", "ok")]
        assert [(event, data["provider"]) for event, data in agent.events.seen] == [
            ("provider:request", "one"),
            ("provider:error", "one"),
            ("provider:fallback", "one"),
            ("provider:request", "two"),
        ]
        fallback = {"provider": "one", "to": "two", "error": "who?"}
        assert agent.events.of("provider:fallback")[0].items() >= fallback.items()
        assert agent.progress.of("fallback") == [fallback]

    async def test_the_default_is_first_and_the_others_follow_as_they_were_mounted(self) -> None:
        agent, _ = await _agent([fail(DOWN)], [say("ok")], [fail(DOWN)], default_provider="three")
        assert await agent.run() == "ok"
        turns = [(data["provider"], data["to"]) for data in agent.progress.of("fallback")]
        assert turns == [("three", "one"), ("one", "two")]

    async def test_each_is_first_retried_as_often_as_is_configured(self) -> None:
        down = fail(DOWN)
        agent, _ = await _agent([down] * 3, [down, down, say("ok")], max_retries=2, retry_base_delay_s=0)
        assert await agent.run() == "ok"
        retries = [(data["provider"], data["attempt"]) for data in agent.progress.of("retrying")]
        assert retries == [("one", 1), ("one", 2), ("two", 1), ("two", 2)]

    @pytest.mark.parametrize(
        "error",
        [WHO, errors.RateLimitError("tomorrow", retry_after=86_400), errors.LLMError("odd")],
        ids=lambda error: type(error).__name__,
    )
    async def test_after_an_error_that_is_not_retryable_the_next_one_is_asked_at_once(self, error: Exception) -> None:
        agent, _ = await _agent([fail(error)], [say("ok")], max_retries=3, retry_base_delay_s=60)
        assert await agent.run() == "ok"
        assert agent.progress.of("retrying") == []

    async def test_it_stays_for_the_run_and_the_next_run_begins_with_the_first(self) -> None:
        steps = [call(use("echo", "a")), call(use("echo", "b")), say("ok")]
        agent, (one, two) = await _agent([fail(WHO), say("back")], steps, tools=[echo()])
        assert await agent.run() == "ok"
        assert [len(one.requests), len(two.requests)] == [1, 3]
        assert await agent.run("again") == "back"
        assert [text_of(row) for row in one.sent()] == ["go", "", "echo", "", "echo", "ok", "again"]

    async def test_when_all_fail_the_last_error_is_that_of_the_run(self) -> None:
        agent, _ = await _agent([fail(DOWN)], [fail(WHO)])
        with pytest.raises(errors.AuthenticationError) as caught:
            await agent.run()
        assert caught.value is WHO
        assert await agent.told() == [("user", "go")]

    @pytest.mark.parametrize(
        "error",
        [errors.ContentFilterError("no"), errors.InvalidRequestError("bad"), errors.ContextLengthError("long")],
        ids=lambda error: type(error).__name__,
    )
    async def test_what_every_provider_would_refuse_is_not_sent_to_another(self, error: Exception) -> None:
        agent, (_, two) = await _agent([fail(error)] * 2, [say("never said")])
        with pytest.raises(type(error)) as caught:
            await agent.run()
        assert caught.value is error
        assert two.requests == []

    async def test_a_bug_in_a_provider_is_a_failure_and_the_first_failure_stays_its_cause(self) -> None:
        broken = ValueError("a bug in the provider")
        agent, _ = await _agent([fail(DOWN)], [fail(broken)], [say("ok")])
        assert await agent.run() == "ok"
        agent, _ = await _agent([fail(DOWN)], [fail(broken)])
        with pytest.raises(ValueError, match="a bug") as caught:
            await agent.run()
        assert caught.value.__cause__ is DOWN

    async def test_a_stalled_model_is_given_up_for_another(self) -> None:
        agent, (one, _) = await _agent([never()], [say("ok")], stall_timeout_s=0.01)
        assert await agent.run() == "ok"
        assert one.cancelled == 1

    async def test_a_stop_at_the_fallback_asks_no_other_provider(self) -> None:
        agent, (_, two) = await _agent([fail(WHO)], [say("never said")])
        agent.progress.act_on("fallback", agent.stop)
        assert await agent.run() == ""
        assert two.requests == []
        assert agent.complete()["status"] == "cancelled"

    async def test_a_message_at_the_fallback_is_in_the_request_to_the_next_one(self) -> None:
        agent, (_, two) = await _agent([fail(WHO)], [say("ok")])
        agent.progress.act_on("fallback", lambda: agent.inject("!one more thing"))
        assert await agent.run() == "ok"
        assert text_of(two.sent()[-1]).endswith("- !one more thing")


class TestTheConversation:
    async def test_the_next_one_gets_the_same_messages_and_tools(self) -> None:
        agent, (one, two) = await _agent([call(use("echo", "a")), fail(WHO)], [say("ok")], tools=[echo()])
        await agent.run()
        assert two.sent() == one.sent()
        assert two.requests[0].tools == one.requests[-1].tools

    async def test_thinking_of_either_is_in_a_form_that_both_take(self) -> None:
        signed, unsigned = ThinkingBlock(thinking="hm", signature="by one"), ThinkingBlock(thinking="lost")
        reasoned = ReasoningBlock(content=["by two"], summary=[])
        use_a, use_b = (ToolCallBlock(id=i, name="echo", input={}) for i in "ab")
        second = [answer(unsigned, reasoned, use_b), answer(unsigned, TextBlock(text="ok"))]
        agent, (one, _) = await _agent([answer(signed, use_a), fail(WHO), say("back")], second, tools=[echo()])
        assert await agent.run() == "ok"
        assert await agent.run("again") == "back"
        kinds = [[block["type"] for block in row["content"]] for row in one.sent() if row["role"] == "assistant"]
        assert kinds == [["thinking", "tool_call"], ["reasoning", "tool_call"], ["text"]]

    async def test_a_forced_answer_stays_forced_without_tools_for_one_that_has_no_tool_choice(self) -> None:
        worker = echo("dispatch_worker")
        agent, (one,) = await _agent([call(use("dispatch_worker", "a")), fail(WHO)], tools=[worker])
        two = ScriptedProvider(say("sent"), name="two", tool_choice=False)
        await agent.coordinator.mount("providers", two)
        assert await agent.run() == "sent"
        assert [bool(one.requests[1].tools), one.requests[1].tool_choice] == [True, "none"]
        assert [two.requests[0].tools, two.requests[0].tool_choice] == [None, None]

    async def test_calls_are_parsed_by_the_provider_that_made_them(self) -> None:
        class Calls(ScriptedProvider):
            def parse_tool_calls(self, response: Any) -> Any:
                return [use("echo", "a", text="mine")] if response.text == "use it" else []

        agent, _ = await _agent([fail(WHO)], tools=[echo()])
        await agent.coordinator.mount("providers", Calls(say("use it"), say("ok"), name="two"))
        assert await agent.run() == "ok"
        assert ("tool", "mine") in await agent.told()

    async def test_an_ephemeral_injection_goes_with_the_request_to_the_next_one(self) -> None:
        second = [call(use("echo", "b")), say("ok")]
        agent, (_, two) = await _agent([call(use("echo", "a")), fail(WHO)], second, tools=[echo()])
        remember = HookResult(action="inject_context", context_injection="remember", ephemeral=True)
        agent.progress.act_on("fallback", agent.on_hook("tool:post", remember))
        await agent.run()
        assert ["remember" in request.model_dump_json() for request in two.requests] == [True, False]
