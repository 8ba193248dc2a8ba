"""The providers with a local server of their API, through their real SDKs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from anthropic_server import (
    AnthropicServer,
    Gate,
    message,
    text,
    thinking,
    tool_call,
)
from mounted_provider import KEY, Api, MountedProvider, RecordingStream, a_coordinator, a_request
from structlog.testing import capture_logs

from orchestrator_interactive.kernel.contracts.errors import AuthenticationError
from orchestrator_interactive.kernel.contracts.events import PROVIDER_RETRY
from orchestrator_interactive.kernel.contracts.messages import (
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolSpec,
)


def options(api: Api, server: AnthropicServer) -> dict[str, Any]:
    return {"api_key": KEY, "base_url": api.url(server.base_url), **api.config}


class TestMounting:
    async def test_without_a_key_nothing_is_mounted_and_the_log_has_a_remedy(self, api: Api, monkeypatch) -> None:
        monkeypatch.delenv(api.variable("API_KEY"), raising=False)
        coordinator = a_coordinator()
        with capture_logs() as logs:
            assert await api.module.mount(coordinator, api.config) is None
        assert coordinator.get("providers") == {}
        assert logs[0]["event"] == "provider.not_mounted"
        assert api.variable("API_KEY") in logs[0]["what_to_do"]

    async def test_key_and_address_default_to_the_environment(self, api: Api, server, monkeypatch) -> None:
        monkeypatch.setenv(api.variable("API_KEY"), "from-the-environment")
        monkeypatch.setenv(api.variable("BASE_URL"), api.url(server.base_url))
        coordinator = a_coordinator()
        clean_up = await api.module.mount(coordinator, api.config)
        assert clean_up is not None
        server.reply(text("hi"))
        await MountedProvider(coordinator, api).complete()
        await clean_up()
        assert server.requests[0].headers["Authorization"] == "Bearer from-the-environment"

    @pytest.mark.parametrize(
        "config", [{"timeout_s": 0}, {"max_output_tokens": 0}, {"max_retries": -1}, {"api_key": "sk-ant-é"}]
    )
    async def test_the_error_of_an_invalid_value_does_not_have_the_key(self, api: Api, config: Any) -> None:
        with pytest.raises(ValueError, match=next(iter(config))) as refused:
            await api.module.mount(a_coordinator(), {"api_key": KEY, **api.config, **config})
        assert "sk-ant" not in str(refused.value)

    async def test_it_contributes_its_event(self, api: Api, server: AnthropicServer) -> None:
        coordinator = a_coordinator()
        clean_up = await api.module.mount(coordinator, options(api, server))
        assert clean_up is not None
        assert await coordinator.collect_contributions("observability.events") == [[PROVIDER_RETRY]]
        await clean_up()

    async def test_sessions_share_one_client_and_the_last_cleanup_closes_it(self, api: Api, server) -> None:
        cleanups: list[Callable[[], Awaitable[None]]] = []
        providers = []
        for _ in range(3):
            coordinator = a_coordinator()
            clean_up = await api.module.mount(coordinator, options(api, server))
            assert clean_up is not None
            cleanups.append(clean_up)
            providers.append(coordinator.get("providers", api.name))
        client = api.lease(server.base_url)
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
            text("Reading ", "it."),
            tool_call("read", {"path": "a.md"}, call_id="toolu_a"),
            tool_call("list", {}, call_id="toolu_b"),
        )
        stream = RecordingStream()
        response = await mounted.complete(stream=stream)
        thought, said, read, listed = response.content
        assert isinstance(thought, ThinkingBlock)
        assert (thought.thinking, thought.signature) == ("let me see", "sig" if mounted.api.signs_thinking else None)
        assert said == TextBlock(text="Reading it.")
        assert read == ToolCallBlock(id="toolu_a", name="read", input={"path": "a.md"})
        assert listed == ToolCallBlock(id="toolu_b", name="list", input={})
        assert [(call.name, call.arguments) for call in mounted.provider.parse_tool_calls(response)] == [
            ("read", {"path": "a.md"}),
            ("list", {}),
        ]
        assert response.finish_reason == mounted.api.ended.get("tool_use", "tool_use")
        assert response.metadata == {"id": "msg_1", "model": "claude-of-the-test"}
        assert stream.texts == ["Reading ", "it."]
        assert stream.handed_on == response.content

    async def test_a_response_can_be_sent_back(self, server: AnthropicServer, mounted: MountedProvider) -> None:
        server.reply(thinking("so", signature="sig"), text("hm"), tool_call("read", {"path": "ä"}, call_id="toolu_a"))
        first = await mounted.complete()
        server.reply(text("done"))
        rows = [
            Message(role="user", content="hello"),
            Message(role="assistant", content=first.content),
            Message(role="tool", tool_call_id="toolu_a", content="the text"),
        ]
        await mounted.complete(a_request(messages=rows))
        signature = {"signature": "sig"} if mounted.api.signs_thinking else {}
        assert server.bodies[1]["messages"][1]["content"] == [
            {"type": "thinking", "thinking": "so", **signature},
            {"type": "text", "text": "hm"},
            {"type": "tool_use", "id": "toolu_a", "name": "read", "input": {"path": "ä"}},
        ]

    async def test_the_usage_includes_cached_tokens(self, server: AnthropicServer, mounted: MountedProvider) -> None:
        server.reply(text("hi"), usage={"cache_read_input_tokens": 120})
        usage = (await mounted.complete()).usage
        assert usage is not None
        assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (130, 5, 135)
        assert usage.cache_read_tokens == 120

    async def test_text_is_streamed(self, server: AnthropicServer, mounted: MountedProvider) -> None:
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
            tool_call("read", None, '{"path": ', in_the_call, '"a.md"}', call_id="toolu_a"),
            text("Mo", after_it, "re."),
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
        assert response.finish_reason == mounted.api.ended.get("max_tokens", "max_tokens")
        assert response.degradation is not None
        assert response.degradation["requested"] == "tool calls: write"

    async def test_a_call_may_have_no_arguments(self, server: AnthropicServer, mounted: MountedProvider) -> None:
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

    @pytest.mark.parametrize("reason", ["end_turn", "max_tokens", "refusal", "something_new"])
    async def test_the_stop_reason_is_the_finish_reason(self, server, mounted, reason: str) -> None:
        server.reply(text("So far"), stop_reason=reason)
        response = await mounted.complete()
        assert (response.text, response.finish_reason) == ("So far", mounted.api.ended.get(reason, reason))

    async def test_a_complete_message_does_not_wait_for_the_end_of_the_stream(self, server, mounted) -> None:
        gate = Gate()
        server.reply_steps(*message(text("hi")), gate)
        assert (await mounted.complete()).text == "hi"
        await server.requests[0].ended.wait()
        assert server.requests[0].left


class TestModels:
    async def test_a_rejected_list_is_an_error_of_the_kernel(self, server, mounted) -> None:
        server.fail(403, "permission_error")
        with pytest.raises(AuthenticationError):
            await mounted.provider.list_models()
