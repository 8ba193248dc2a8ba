"""Provider contract, for `provider-anthropic` (against a Messages API on this machine) and `provider-demo`."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest
from agents import make_agent, say, use
from anthropic_server import AnthropicServer, redacted_thinking, text, thinking, tool_call

from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    ChatResponse,
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolSpec,
)
from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo
from orchestrator_interactive.kernel.contracts.protocols import Provider
from orchestrator_interactive.modules import provider_anthropic, provider_demo
from orchestrator_interactive.transcript.rows import assistant_row, tool_row

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as server:
        yield server


@pytest.fixture
async def anthropic(coordinator: ModuleCoordinator, server: AnthropicServer) -> AsyncIterator[Any]:
    config = {"api_key": "test-key", "base_url": server.base_url, "retry_base_delay_s": 0}
    cleanup = await provider_anthropic.mount(coordinator, config)
    yield coordinator.get("providers", "anthropic")
    await cleanup()


@pytest.fixture
async def demo(coordinator: ModuleCoordinator) -> Any:
    return await provider_demo.mount(coordinator, {"think_s": 0, "word_s": 0})


@pytest.fixture(params=["anthropic", "demo"])
def provider(request: pytest.FixtureRequest, anthropic: Any, demo: Any, server: AnthropicServer) -> Any:
    """Either provider; the server has an answer ready for one call."""
    server.reply(text("Hello."))
    return {"anthropic": anthropic, "demo": demo}[request.param]


def asked(**fields: Any) -> ChatRequest:
    return ChatRequest(**{"messages": [Message(role="user", content="hello")], **fields})


class TestProtocolDefinition:
    def test_it_is_a_provider(self, provider: Any) -> None:
        assert isinstance(provider, Provider)

    def test_its_name_is_the_one_it_is_mounted_under(self, provider: Any, coordinator: ModuleCoordinator) -> None:
        assert coordinator.get("providers", provider.name) is provider

    def test_get_info_says_who_it_is(self, provider: Any) -> None:
        info = provider.get_info()
        assert isinstance(info, ProviderInfo)
        assert info.id == provider.name
        assert info.display_name

    def test_get_info_lets_a_context_budget(self, provider: Any) -> None:
        """Context contract: budget = context_window - max_output_tokens - safety_margin."""
        defaults = provider.get_info().defaults
        assert defaults["context_window"] > defaults["max_output_tokens"] > 0

    async def test_list_models_lists_models(self, provider: Any, server: AnthropicServer) -> None:
        server.models = [{"id": "m-1", "type": "model", "display_name": "M 1", "created_at": "2026-01-01T00:00:00Z"}]
        models = await provider.list_models()
        assert models
        assert all(isinstance(model, ModelInfo) for model in models)

    def test_complete_takes_a_request_and_more(self, provider: Any) -> None:
        parameters = inspect.signature(provider.complete).parameters
        assert next(iter(parameters)) == "request"
        assert any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())

    async def test_complete_returns_a_response(self, provider: Any) -> None:
        response = await provider.complete(asked())
        assert isinstance(response, ChatResponse)
        assert response.text

    async def test_parse_tool_calls_gives_the_calls_of_a_response(self, provider: Any, server: AnthropicServer) -> None:
        response = await provider.complete(asked())
        assert provider.parse_tool_calls(response) == []
        calls = [use("read_file", "c1", path="a.md")]
        assert provider.parse_tool_calls(response.model_copy(update={"tool_calls": calls})) == calls


class TestMountFunction:
    async def test_without_a_key_it_returns_none_and_warns(
        self, coordinator: ModuleCoordinator, monkeypatch: pytest.MonkeyPatch, logs
    ) -> None:
        monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
        assert await provider_anthropic.mount(coordinator, {}) is None
        assert coordinator.get("providers") == {}
        assert logs.tell("warning", "provider.not_mounted", "API key")

    async def test_it_returns_a_clean_up_that_closes_what_it_opened(
        self, coordinator: ModuleCoordinator, server: AnthropicServer
    ) -> None:
        config = {"api_key": "test-key", "base_url": server.base_url, "max_retries": 0}
        cleanup = await provider_anthropic.mount(coordinator, config)
        provider = coordinator.get("providers", "anthropic")
        server.reply(text("Hello."))
        await provider.complete(asked())
        await cleanup()
        with pytest.raises(ProviderUnavailableError):
            await provider.complete(asked())

    async def test_the_session_runs_the_clean_up(self, shipped_plan: dict[str, Any], server: AnthropicServer) -> None:
        config = {"api_key": "test-key", "base_url": server.base_url, "max_retries": 0}
        entry = {"module": "provider-anthropic", "config": config}
        async with AmplifierSession({**shipped_plan, "providers": [entry]}) as session:
            provider = session.coordinator.get("providers", "anthropic")
        with pytest.raises(ProviderUnavailableError):
            await provider.complete(asked())

    async def test_it_may_return_the_instance(self, coordinator: ModuleCoordinator) -> None:
        provider = await provider_demo.mount(coordinator, {})
        assert coordinator.get("providers", "demo") is provider


class TestConfiguration:
    async def test_the_configured_model_is_asked(self, coordinator: ModuleCoordinator, server: AnthropicServer) -> None:
        config = {"api_key": "test-key", "base_url": server.base_url, "model": "model-v1"}
        cleanup = await provider_anthropic.mount(coordinator, config)
        server.reply(text("Hello."))
        await coordinator.get("providers", "anthropic").complete(asked())
        await cleanup()
        assert server.bodies[0]["model"] == "model-v1"

    @pytest.mark.parametrize("module", [provider_anthropic, provider_demo])
    async def test_a_wrong_option_is_named(self, coordinator: ModuleCoordinator, module: Any) -> None:
        with pytest.raises(ValueError, match="'modell'"):
            await module.mount(coordinator, {"modell": "x"})


class TestObservability:
    async def test_its_own_events_are_contributed(self, coordinator: ModuleCoordinator, anthropic: Any) -> None:
        assert anthropic
        assert await coordinator.collect_contributions("observability.events") == [["provider:retry"]]

    async def test_what_is_contributed_is_emitted(
        self, coordinator: ModuleCoordinator, anthropic: Any, server: AnthropicServer
    ) -> None:
        heard: list[str] = []

        async def listen(event: str, _data: dict[str, Any]) -> None:
            heard.append(event)

        coordinator.hooks.register("provider:retry", listen)
        server.fail(529, "overloaded_error")
        server.reply(text("Hello."))
        await anthropic.complete(asked())
        assert heard == ["provider:retry"]


class TestValidationChecklist:
    """The rows that no other class shows."""

    async def test_all_kinds_of_blocks_come_back(self, anthropic: Any, server: AnthropicServer) -> None:
        server.reply(
            thinking("let me see", signature="sig"), redacted_thinking("opaque"), text("I read it."),
            tool_call("read_file", {"path": "a.md"}, call_id="c1"),
        )  # fmt: skip
        thought, redacted, said, called = (await anthropic.complete(asked())).content
        assert isinstance(thought, ThinkingBlock)
        assert (thought.thinking, thought.signature) == ("let me see", "sig")
        assert isinstance(redacted, RedactedThinkingBlock)
        assert redacted.data == "opaque"
        assert said == TextBlock(text="I read it.")
        assert called == ToolCallBlock(id="c1", name="read_file", input={"path": "a.md"})

    async def test_the_signature_of_thinking_survives_context_and_back(
        self, anthropic: Any, server: AnthropicServer
    ) -> None:
        server.reply(
            thinking("let me see", signature="sig"), redacted_thinking("opaque"),
            tool_call("read_file", {"path": "a.md"}, call_id="c1"),
        )  # fmt: skip
        response = await anthropic.complete(asked())
        [call] = anthropic.parse_tool_calls(response)
        rows = [assistant_row(response.content, [call]), tool_row(call, "the text")]
        server.reply(text("Done."))
        history = [Message(role="user", content="hello"), *(Message.model_validate(row) for row in rows)]
        await anthropic.complete(asked(messages=history))
        assert server.bodies[1]["messages"][1]["content"] == [
            {"type": "thinking", "thinking": "let me see", "signature": "sig"},
            {"type": "redacted_thinking", "data": "opaque"},
            {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "a.md"}},
        ]

    async def test_usage_is_reported(self, provider: Any) -> None:
        usage = (await provider.complete(asked())).usage
        assert usage.input_tokens > 0
        assert usage.output_tokens > 0
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens

    async def test_calls_and_results_are_validated_before_a_request_leaves(self, logs) -> None:
        """The loop does it for every provider."""
        agent = await make_agent(say("ok"))
        await agent.context.set_messages(
            [
                {"role": "user", "content": "look"},
                assistant_row([], [use("read_file", "c1", path="a.md")]),
                {"role": "user", "content": "and?"},
                {"role": "tool", "tool_call_id": "c9", "content": "of no call"},
            ]
        )
        assert await agent.run() == "ok"
        sent = [(row["role"], row.get("tool_call_id")) for row in agent.provider.sent(0)]
        assert sent == [("user", None), ("assistant", None), ("tool", "c1"), ("user", None), ("user", None)]
        assert logs.tell("warning", "call without a result")
        assert logs.tell("warning", "result without a call")

    async def test_tools_are_declared_and_called(self, anthropic: Any, server: AnthropicServer) -> None:
        server.reply(tool_call("read_file", {"path": "a.md"}, call_id="c1"))
        spec = ToolSpec(name="read_file", description="Reads.", parameters={"type": "object"})
        response = await anthropic.complete(asked(tools=[spec]))
        assert server.bodies[0]["tools"][0]["name"] == "read_file"
        assert [(call.id, call.name, call.arguments) for call in response.tool_calls] == [
            ("c1", "read_file", {"path": "a.md"})
        ]
