"""Provider contract, for `provider-anthropic` (with a local Messages API server) and `provider-demo`."""

import inspect
from collections.abc import AsyncIterator
from typing import Any

import pytest
from agents import make_agent, say, use
from anthropic_server import AnthropicServer, text

from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator
from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, Message
from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo
from orchestrator_interactive.kernel.contracts.protocols import Provider
from orchestrator_interactive.modules import provider_anthropic, provider_demo, provider_openai
from orchestrator_interactive.transcript.rows import assistant_row

REQUEST = ChatRequest(messages=[Message(role="user", content="hello")])


@pytest.fixture
def claude(server: AnthropicServer) -> dict[str, Any]:
    """The configuration of `provider-anthropic` for the local server."""
    return {"api_key": "test-key", "base_url": server.base_url, "max_retries": 0}


@pytest.fixture(params=["anthropic", "openai", "demo"])
async def provider(
    request: pytest.FixtureRequest, coordinator: ModuleCoordinator, claude: dict[str, Any], server: AnthropicServer
) -> AsyncIterator[Any]:
    """Each provider in turn; the server has an answer ready for one call."""
    server.reply(text("Hello."))
    if request.param == "demo":
        yield await provider_demo.mount(coordinator, {"think_s": 0, "word_s": 0})
    else:
        module, config = (provider_anthropic, claude)
        if request.param == "openai":
            module, config = provider_openai, {**claude, "base_url": f"{server.base_url}/v1", "model": "m"}
        cleanup = await module.mount(coordinator, config)
        yield coordinator.get("providers", request.param)
        await cleanup()


class TestProtocolDefinition:
    def test_it_is_a_provider_mounted_under_its_name(self, provider: Any, coordinator: ModuleCoordinator) -> None:
        assert isinstance(provider, Provider)
        assert coordinator.get("providers", provider.name) is provider

    def test_get_info_has_identity_and_limits(self, provider: Any) -> None:
        info = provider.get_info()
        assert isinstance(info, ProviderInfo)
        assert info.id == provider.name
        assert info.display_name
        assert info.defaults["context_window"] > info.defaults["max_output_tokens"] > 0

    async def test_list_models_lists_models(self, provider: Any, server: AnthropicServer) -> None:
        server.models = [{"id": "m-1", "type": "model", "display_name": "M 1", "created_at": "2026-01-01T00:00:00Z"}]
        models = await provider.list_models()
        assert models
        assert all(isinstance(model, ModelInfo) for model in models)

    async def test_complete_returns_a_response_with_usage(self, provider: Any) -> None:
        parameters = inspect.signature(provider.complete).parameters
        assert next(iter(parameters)) == "request"
        assert any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        response = await provider.complete(REQUEST)
        assert isinstance(response, ChatResponse)
        assert response.text
        usage = response.usage
        assert usage.input_tokens > 0
        assert usage.output_tokens > 0
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens

    async def test_parse_tool_calls_returns_the_calls_of_a_response(self, provider: Any) -> None:
        response = await provider.complete(REQUEST)
        assert provider.parse_tool_calls(response) == []
        calls = [use("read_file", "c1", path="a.md")]
        assert provider.parse_tool_calls(response.model_copy(update={"tool_calls": calls})) == calls


class TestMountFunction:
    async def test_the_session_runs_the_cleanup(self, shipped_plan: dict[str, Any], claude: dict[str, Any]) -> None:
        entry = {"module": "provider-anthropic", "config": claude}
        async with AmplifierSession({**shipped_plan, "providers": [entry]}) as session:
            provider = session.coordinator.get("providers", "anthropic")
        with pytest.raises(ProviderUnavailableError):
            await provider.complete(REQUEST)


class TestConfiguration:
    @pytest.mark.parametrize("module", [provider_anthropic, provider_demo, provider_openai])
    async def test_the_error_names_a_wrong_option(self, coordinator: ModuleCoordinator, module: Any) -> None:
        with pytest.raises(ValueError, match="'modell'"):
            await module.mount(coordinator, {"modell": "x"})


class TestValidationChecklist:
    async def test_the_loop_validates_calls_and_results_before_a_request(self, logs) -> None:
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
