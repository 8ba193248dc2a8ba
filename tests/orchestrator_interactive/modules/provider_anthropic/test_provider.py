"""The provider with a local Messages API server, through the real SDK."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from anthropic_server import (
    AnthropicServer,
    Gate,
    message,
    message_delta,
    message_start,
    redacted_thinking,
    text,
    thinking,
    tool_call,
)
from mounted_anthropic import KEY, MountedAnthropic, RecordingStream, a_coordinator, a_request
from structlog.testing import capture_logs

from orchestrator_interactive.kernel.contracts.errors import AuthenticationError
from orchestrator_interactive.kernel.contracts.events import PROVIDER_RETRY
from orchestrator_interactive.kernel.contracts.messages import (
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolSpec,
)
from orchestrator_interactive.modules.provider_anthropic import mount
from orchestrator_interactive.modules.provider_anthropic.provider import CLIENTS


class TestMounting:
    async def test_without_a_key_nothing_is_mounted_and_the_log_has_a_remedy(self, monkeypatch) -> None:
        monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
        coordinator = a_coordinator()
        with capture_logs() as logs:
            assert await mount(coordinator, {}) is None
        assert coordinator.get("providers") == {}
        assert logs[0]["event"] == "provider.not_mounted"
        assert "ANTHROPIC_API_KEY" in logs[0]["what_to_do"]

    async def test_key_and_address_default_to_the_environment(self, server, monkeypatch) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "from-the-environment")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        coordinator = a_coordinator()
        clean_up = await mount(coordinator)
        assert clean_up is not None
        server.reply(text("hi"))
        await MountedAnthropic(coordinator).complete()
        await clean_up()
        assert server.requests[0].headers["Authorization"] == "Bearer from-the-environment"

    @pytest.mark.parametrize(
        "config", [{"timeout_s": 0}, {"thinking_budget_tokens": 10}, {"max_retries": -1}, {"api_key": "sk-ant-é"}]
    )
    async def test_the_error_of_an_invalid_value_does_not_have_the_key(self, config: Any) -> None:
        with pytest.raises(ValueError, match=next(iter(config))) as refused:
            await mount(a_coordinator(), {"api_key": KEY, **config})
        assert "sk-ant" not in str(refused.value)

    async def test_it_contributes_its_event(self, server: AnthropicServer) -> None:
        coordinator = a_coordinator()
        clean_up = await mount(coordinator, {"api_key": KEY, "base_url": server.base_url})
        assert clean_up is not None
        assert await coordinator.collect_contributions("observability.events") == [[PROVIDER_RETRY]]
        await clean_up()

    async def test_sessions_share_one_client_and_the_last_cleanup_closes_it(self, server: AnthropicServer) -> None:
        cleanups: list[Callable[[], Awaitable[None]]] = []
        providers = []
        for _ in range(3):
            coordinator = a_coordinator()
            clean_up = await mount(coordinator, {"api_key": KEY, "base_url": server.base_url})
            assert clean_up is not None
            cleanups.append(clean_up)
            providers.append(coordinator.get("providers", "anthropic"))
        client = CLIENTS.lease(KEY, server.base_url)
        await client.release()
        await cleanups[0]()
        await cleanups[0]()
        await cleanups[1]()
        assert not client.client.is_closed()
        server.reply(text("still here"))
        assert (await providers[0].complete(a_request())).text == "still here"
        await cleanups[2]()
        assert client.client.is_closed()

    async def test_successive_calls_share_a_connection(self, server, mounted) -> None:
        ports = []
        for _ in range(3):
            server.reply(text("hi"))
            await mounted.complete()
            ports.append(server.requests[-1].peer)
        assert len(set(ports)) == 1


class TestAnswers:
    async def test_all_kinds_of_blocks_are_returned_in_order(self, server, mounted) -> None:
        server.reply(
            thinking("let me ", "see", signature="sig"),
            redacted_thinking("opaque"),
            text("Reading ", "it."),
            tool_call("read", {"path": "a.md"}, call_id="toolu_a"),
            tool_call("list", {}, call_id="toolu_b"),
        )
        stream = RecordingStream()
        response = await mounted.complete(stream=stream)
        thought, redacted, said, read, listed = response.content
        assert isinstance(thought, ThinkingBlock)
        assert (thought.thinking, thought.signature) == ("let me see", "sig")
        assert isinstance(redacted, RedactedThinkingBlock)
        assert redacted.data == "opaque"
        assert said == TextBlock(text="Reading it.")
        assert read == ToolCallBlock(id="toolu_a", name="read", input={"path": "a.md"})
        assert listed == ToolCallBlock(id="toolu_b", name="list", input={})
        assert [(call.name, call.arguments) for call in mounted.provider.parse_tool_calls(response)] == [
            ("read", {"path": "a.md"}),
            ("list", {}),
        ]
        assert response.finish_reason == "tool_use"
        assert response.metadata == {"id": "msg_1", "model": "claude-of-the-test"}
        assert stream.texts == ["Reading ", "it."]
        assert stream.handed_on == response.content

    async def test_a_response_can_be_sent_back(self, server: AnthropicServer, mounted: MountedAnthropic) -> None:
        server.reply(thinking("", signature="sig"), text("hm"), tool_call("read", {"path": "ä"}, call_id="toolu_a"))
        first = await mounted.complete()
        server.reply(text("done"))
        rows = [
            Message(role="user", content="hello"),
            Message(role="assistant", content=first.content),
            Message(role="tool", tool_call_id="toolu_a", content="the text"),
        ]
        await mounted.complete(a_request(messages=rows))
        assert server.bodies[1]["messages"][1]["content"] == [
            {"type": "thinking", "thinking": "", "signature": "sig"},
            {"type": "text", "text": "hm"},
            {"type": "tool_use", "id": "toolu_a", "name": "read", "input": {"path": "ä"}},
        ]

    async def test_the_usage_includes_cached_tokens(self, server: AnthropicServer, mounted: MountedAnthropic) -> None:
        server.reply(text("hi"), usage={"cache_read_input_tokens": 100, "cache_creation_input_tokens": 20})
        usage = (await mounted.complete()).usage
        assert usage is not None
        assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (130, 5, 135)
        assert (usage.cache_read_tokens, usage.cache_write_tokens) == (100, 20)

    async def test_text_is_streamed(self, server: AnthropicServer, mounted: MountedAnthropic) -> None:
        gate = Gate()
        server.reply(text("Hello, ", gate, "world"))
        stream = RecordingStream()
        call = asyncio.create_task(mounted.complete(stream=stream))
        await stream.spoke.wait()
        assert stream.texts == ["Hello, "]
        assert not call.done()
        gate.open()
        assert (await call).text == "Hello, world"

    async def test_a_block_is_streamed_when_it_is_complete(self, server, mounted) -> None:
        in_the_call, after_it = Gate(), Gate()
        server.reply(
            tool_call("read", None, '{"path": ', in_the_call, '"a.md"}', call_id="toolu_a"), text(after_it, "More.")
        )
        stream = RecordingStream()
        call = asyncio.create_task(mounted.complete(stream=stream))
        await in_the_call.reached.wait()
        assert stream.handed_on == []
        in_the_call.open()
        await stream.handed.wait()
        assert stream.handed_on == [ToolCallBlock(id="toolu_a", name="read", input={"path": "a.md"})]
        assert not call.done()
        after_it.open()
        assert (await call).text == "More."

    @pytest.mark.parametrize("given", ['{"path": "a", "text": "Once up', ""], ids=["incomplete", "not begun"])
    async def test_a_call_with_incomplete_input_is_dropped_and_reported(self, server, mounted, given) -> None:
        server.reply(text("I write it."), tool_call("write", None, given), stop_reason="max_tokens")
        response = await mounted.complete()
        assert response.content == [TextBlock(text="I write it.")]
        assert response.tool_calls is None
        assert response.finish_reason == "max_tokens"
        assert response.degradation is not None
        assert response.degradation["requested"] == "tool calls: write"

    async def test_a_call_may_have_no_arguments(self, server: AnthropicServer, mounted: MountedAnthropic) -> None:
        server.reply(tool_call("now", None, ""))
        response = await mounted.complete()
        assert [(call.name, call.arguments) for call in response.tool_calls or ()] == [("now", {})]

    async def test_a_tool_name_that_the_api_refuses_is_mapped_in_both_directions(self, server, mounted) -> None:
        def call_the_declared_tool(body: dict[str, Any]) -> Any:
            return message(tool_call(body["tools"][0]["name"], {"x": 1}))

        server.otherwise = call_the_declared_tool
        response = await mounted.complete(a_request(tools=[ToolSpec(name="files.read:ü", parameters={})]))
        assert response.tool_calls is not None
        assert response.tool_calls[0].name == "files.read:ü"

    async def test_unknown_events_blocks_and_deltas_are_ignored(self, server, mounted) -> None:
        server.reply_steps(
            message_start(),
            {"type": "weather", "index": 7},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "hologram", "shape": "round"}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "hologram_delta", "text": "boo"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "be"}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "sparkle_delta", "text": "boo"}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "gin"}},
            {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "boo"}},
            {"type": "content_block_stop", "index": 1},
            message_delta("something_new"),
            {"type": "message_stop"},
        )
        stream = RecordingStream()
        response = await mounted.complete(stream=stream)
        assert response.content == [TextBlock(text="begin")]
        assert response.finish_reason == "something_new"
        assert stream.texts == ["be", "gin"]

    async def test_a_refusal_is_a_response_with_its_reason(self, server, mounted) -> None:
        details = {"type": "refusal", "category": None, "explanation": "This is not for me."}
        ending = {
            "type": "message_delta",
            "delta": {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details},
            "usage": {"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 3}},
        }
        server.reply_steps(message_start(), ending, {"type": "message_stop"})
        response = await mounted.complete()
        assert response.finish_reason == "refusal"
        assert response.content == []
        assert response.metadata is not None
        assert response.metadata["refusal"] == "This is not for me."
        assert response.usage is not None
        assert (response.usage.output_tokens, response.usage.reasoning_tokens) == (7, 3)

    @pytest.mark.parametrize(
        "reason", ["max_tokens", "model_context_window_exceeded", "pause_turn", "refusal", "stop_sequence"]
    )
    async def test_the_stop_reason_is_the_finish_reason(self, server, mounted, reason: str) -> None:
        server.reply(text("So far"), stop_reason=reason)
        response = await mounted.complete()
        assert (response.text, response.finish_reason) == ("So far", reason)

    async def test_a_complete_message_does_not_wait_for_the_end_of_the_stream(self, server, mounted) -> None:
        gate = Gate()
        server.reply_steps(*message(text("hi")), gate)
        assert (await mounted.complete()).text == "hi"
        await server.requests[0].ended.wait()
        assert server.requests[0].left


class TestModels:
    async def test_models_have_their_limits(self, server: AnthropicServer, mounted: MountedAnthropic) -> None:
        server.models = [
            {
                "id": "claude-x",
                "type": "model",
                "display_name": "Claude X",
                "created_at": "2026-01-01T00:00:00Z",
                "lifecycle": "active",
                "max_input_tokens": 1_000_000,
                "max_tokens": 128_000,
                "capabilities": {"thinking": {"supported": True}, "image_input": {"supported": True}},
            },
            {"id": "claude-y", "type": "model", "display_name": "Claude Y", "created_at": "2026-01-01T00:00:00Z"},
        ]
        x, y = await mounted.provider.list_models()
        assert (x.id, x.display_name, x.context_window, x.max_output_tokens) == (
            "claude-x",
            "Claude X",
            1_000_000,
            128_000,
        )
        assert {"thinking", "vision"} <= set(x.capabilities)
        assert (y.context_window, y.max_output_tokens) == (200_000, 8192)

    async def test_a_rejected_list_is_an_error_of_the_kernel(self, server, mounted) -> None:
        server.fail(403, "permission_error")
        with pytest.raises(AuthenticationError):
            await mounted.provider.list_models()
