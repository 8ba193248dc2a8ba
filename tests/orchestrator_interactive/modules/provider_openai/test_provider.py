"""What only the Chat Completions API has: its requests, its codes of errors, and the options of `provider-openai`."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from anthropic_server import AnthropicServer, Cut, text, thinking, tool_call
from hypothesis import given
from hypothesis import strategies as st
from mounted_provider import OPENAI, RecordingStream, a_coordinator, a_request, mounted_at

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolSpec,
)
from orchestrator_interactive.modules import provider_openai
from orchestrator_interactive.modules.provider_openai.convert import api_request

CONFIG = provider_openai.OpenAIConfig.from_config({"model": "m", "base_url": "http://127.0.0.1:9/v1"})
HOSTED = CONFIG.model_copy(update={"base_url": "https://api.openai.com/v1"})
TOOLS = [ToolSpec(name="read file", parameters={"properties": {}}, description="Reads.")]
REASONED = {"thinking": "hm", "content": [{"field": "reasoning_content"}], "model": "m"}


@asynccontextmanager
async def mounted(server: AnthropicServer, path: str = "/v1", **config: Any) -> AsyncIterator[Any]:
    async with mounted_at(server.base_url, replace(OPENAI, path=path), **{"model": "m", **config}) as found:
        yield found.provider


def sent(*rows: Message, config: provider_openai.OpenAIConfig = CONFIG, **fields: Any) -> dict[str, Any]:
    return api_request(ChatRequest(messages=[Message(role="user", content="go"), *rows], **fields), config).body


def answered(*content: Any) -> Message:
    return Message(role="assistant", content=list(content))


def result(call_id: str, content: Any = "done") -> Message:
    return Message(role="tool", tool_call_id=call_id, content=content)


def call(call_id: str = "a", name: str = "read") -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name=name, input={"path": "ä"})


async def test_a_conversation_is_converted(server: AnthropicServer) -> None:
    image = ImageBlock(source={"type": "base64", "media_type": "image/png", "data": "QUJD"})
    rows = [
        Message(role="system", content="Be brief."),
        Message(role="assistant", content="earlier"),
        Message(role="user", content="one"),
        Message(role="user", content=[TextBlock(text="two"), image]),
        Message(role="assistant", content=[ToolCallBlock(id="c 1", name="look", input={"a": 1})]),
        Message(role="tool", tool_call_id="c 1", content=[TextBlock(text="seen"), image], metadata={"is_error": True}),
        Message(role="system", content="A reminder."),
        Message(role="user", content="three"),
    ]
    async with mounted(server) as provider:
        server.reply(text("x"))
        await provider.complete(a_request(messages=rows, tools=TOOLS, tool_choice="none"))
    body = server.bodies[0]
    assert [each["text"] for each in body["system"]] == ["Be brief."]
    roles = [message["role"] for message in body["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    assert url in body["messages"][2]["content"]
    result, *rest = body["messages"][4]["content"]
    assert (result["type"], result["content"], result["is_error"]) == ("tool_result", "seen", True)
    assert url in rest
    assert "A reminder." in str(rest)
    assert body["tool_choice"] == {"type": "none"}


async def test_a_model_that_cannot_see_gets_a_remark_instead_of_an_image(server: AnthropicServer) -> None:
    image = ImageBlock(source={"type": "base64", "media_type": "image/png", "data": "QUJD"})
    rows = [Message(role="user", content=[TextBlock(text="look"), image])]
    async with mounted(server, max_retries=0) as provider:
        server.fail(400, "invalid_request_error", "image input is not supported by this model")
        for answer in ("one", "two"):
            server.reply(text(answer))
            await provider.complete(a_request(messages=rows))
    async with mounted(server, sees_images=False) as provider:
        server.reply(text("three"))
        await provider.complete(a_request(messages=rows))
    shown = ["QUJD" in str(body) for body in server.bodies]
    assert shown == [True, False, False, False]
    assert "An image that you cannot see" in str(server.bodies[1])


async def test_usage_has_cached_tokens_and_the_configured_price(server: AnthropicServer) -> None:
    async with mounted(server, prices={"input": 10, "output": 20, "cache_read": 1}) as provider:
        server.reply(text("x"), usage={"cache_read_input_tokens": 90})
        usage = (await provider.complete(a_request())).usage
    assert (usage.input_tokens, usage.cache_read_tokens) == (100, 90)
    assert usage.cost_usd == Decimal("0.00029")


def test_results_come_first_and_everything_else_of_a_turn_is_one_user_message() -> None:
    reminder = Message(role="system", content="Hurry.")
    rows = [answered(call("a"), call("b")), result("a"), reminder, result("b"), Message(role="user", content="wait")]
    assert [(each["role"], each.get("content")) for each in sent(*rows)["messages"][2:]] == [
        ("tool", "done"),
        ("tool", "done"),
        ("user", "<system-reminder>\nHurry.\n</system-reminder>\n\nwait"),
    ]


def test_answers_in_a_row_are_one_message() -> None:
    rows = [answered(TextBlock(text="one")), answered(TextBlock(text="two"), call()), result("a")]
    assert [each["content"] for each in sent(*rows)["messages"]] == ["go", "one\n\ntwo", "done"]


@pytest.mark.parametrize("call_id", ["functions.read:0", "call_1", "x" * 41, "", "é", "a\nb", "x" * 40])
def test_a_call_id_is_sent_as_it_came_unless_the_api_refuses_it(call_id: str) -> None:
    asked, answer = sent(answered(call(call_id)), result(call_id))["messages"][1:]
    found = asked["tool_calls"][0]["id"]
    assert found == answer["tool_call_id"]
    assert 0 < len(found) <= 40
    assert (found == call_id) is (call_id in {"functions.read:0", "call_1", "x" * 40})


def test_a_tool_has_properties_and_a_description_that_is_too_long_for_openai_is_in_its_schema() -> None:
    tools = [ToolSpec(name="now", parameters={}), ToolSpec(name="read", parameters={}, description="é" * 2000)]
    now, read = (each["function"] for each in sent(tools=tools, config=HOSTED)["tools"])
    assert now == {"name": "now", "parameters": {"type": "object", "properties": {}}}
    assert len(read["description"]) == 1024
    assert read["parameters"]["description"] == "é" * 2000
    assert sent(tools=tools)["tools"][1]["function"]["description"] == "é" * 2000


@pytest.mark.parametrize(
    ("choice", "expected", "is_parallel"),
    [
        ("auto", "auto", None),
        ("none", "none", None),
        ("required", "required", None),
        ({"type": "any", "disable_parallel_tool_use": True}, "required", False),
        ({"type": "tool", "name": "read"}, {"type": "function", "function": {"name": "read"}}, None),
        ({"type": "function", "function": {"name": "read"}}, {"type": "function", "function": {"name": "read"}}, None),
    ],
)
def test_a_tool_choice_is_converted(choice: Any, expected: Any, *, is_parallel: bool | None) -> None:
    body = sent(tools=[ToolSpec(name="read", parameters={})], tool_choice=choice)
    assert (body["tool_choice"], body.get("parallel_tool_calls")) == (expected, is_parallel)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"max_tokens": 8192, "stream_options": {"include_usage": True}}),
        ({"base_url": "https://api.openai.com/v1"}, {"max_completion_tokens": 8192, "max_tokens": None}),
        ({"base_url": "https://x.openai.azure.com/openai/v1"}, {"max_completion_tokens": 8192}),
        ({"base_url": "https://notopenai.com/v1"}, {"max_tokens": 8192}),
        ({"max_tokens_field": "limit", "max_tokens": 7}, {"limit": 7, "max_tokens": None}),
        ({"reasoning_effort": "low", "temperature": 0}, {"reasoning_effort": "low", "temperature": 0}),
        ({"stream_usage": False}, {"stream_options": None}),
        ({"extra_request_params": {"top_k": 5, "max_tokens": 3}}, {"top_k": 5, "max_tokens": 3}),
    ],
)
def test_an_option_is_in_the_request(options: dict[str, Any], expected: dict[str, Any]) -> None:
    config = provider_openai.OpenAIConfig.from_config({"model": "m", "base_url": "http://127.0.0.1:9/v1", **options})
    body = sent(config=config)
    assert {name: body.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("sends", "beside_calls", "beside_text"), [(None, True, False), (True, True, True), (False, False, False)]
)
def test_reasoning_is_sent_back_beside_calls(*, sends: bool | None, beside_calls: bool, beside_text: bool) -> None:
    thought = ThinkingBlock.model_validate(REASONED)
    rows = [answered(thought, call()), result("a"), answered(thought, TextBlock(text="x"))]
    config = CONFIG.model_copy(update={"sends_reasoning": sends})
    called, _, said = sent(*rows, config=config)["messages"][1:]
    assert ("reasoning_content" in called, "reasoning_content" in said) == (beside_calls, beside_text)


@pytest.mark.parametrize(
    "changed",
    [{"model": "another"}, {"content": None, "signature": "of-claude"}, {"content": [{"field": 7}]}, {"content": []}],
    ids=["another model", "Claude", "another form", "no state"],
)
def test_reasoning_of_another_model_is_left_out(changed: dict[str, Any]) -> None:
    thought = ThinkingBlock.model_validate({**REASONED, **changed})
    assert set(sent(answered(thought, call()), result("a"))["messages"][1]) == {"role", "content", "tool_calls"}


async def test_reasoning_returns_in_the_next_request_of_a_run(server: AnthropicServer, tmp_path: Any) -> None:
    """Repairs of the history drop thinking without a signature, unless it has the state of its provider."""
    log = {"store": f"sqlite:{tmp_path}/log.db", "conversation_id": "c"}
    config = {"base_url": f"{server.base_url}/v1", "model": "m"}
    plan = {
        "session": {"orchestrator": "loop-interactive", "context": {"module": "context-stack", "config": log}},
        "providers": [{"module": "provider-openai", "config": config}],
        "tools": [{"module": "tool-todo"}],
    }
    server.reply(thinking("so"), tool_call("todo", {"action": "list"}))
    server.reply(text("done"))
    async with AmplifierSession(plan) as session:
        assert await session.execute("go") == "done"
    assert server.bodies[1]["messages"][1]["content"][0] == {"type": "thinking", "thinking": "so"}


async def test_reasoning_stays_with_the_calls_of_an_interrupted_answer(server: AnthropicServer) -> None:
    server.reply(thinking("hm"), tool_call("read", {}, call_id="a"), text("So", Cut()))
    stream = RecordingStream()
    async with mounted(server) as provider:
        with pytest.raises(errors.ProviderUnavailableError):
            await provider.complete(a_request(), stream=stream)
    kinds = [type(block) for block in stream.valid_blocks(calls={"a"})]
    assert kinds == [ThinkingBlock, ToolCallBlock, TextBlock]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([answered(call("c1"))], "the call c1 has no result"),
        ([result("c9")], "the result of c9 has no call"),
        ([answered(call("c1")), result("c1"), result("c1")], "the result of c1 has no call"),
    ],
)
def test_a_request_that_the_api_would_refuse_is_not_sent(rows: list[Message], problem: str) -> None:
    with pytest.raises(errors.InvalidRequestError, match=problem):
        sent(*rows)


@given(st.lists(st.lists(st.text(max_size=5), min_size=1, max_size=3), max_size=5))
def test_turns_alternate_and_can_be_encoded(texts: list[list[str]]) -> None:
    rows = [
        Message(role=("user", "assistant", "system")[n % 3], content=[TextBlock(text=text) for text in each])
        for n, each in enumerate(texts)
    ]
    messages = sent(*rows)["messages"]
    assert [each["role"] for each in messages] == ["user", "assistant"] * (len(messages) // 2) + ["user"] * (
        len(messages) % 2
    )
    json.dumps(messages, ensure_ascii=False).encode()


LONG = errors.ContextLengthError


@pytest.mark.parametrize(
    ("status", "kind", "said", "expected", "retryable"),
    [
        (400, "context_length_exceeded", "long", LONG, False),
        (400, "exceed_context_size_error", "long", LONG, False),
        (400, "x", "the request exceeds the available context size", LONG, False),
        (400, "string_above_max_length", "tools[0].function.description", errors.InvalidRequestError, False),
        (400, "content_filter", "bad", errors.ContentFilterError, False),
        (400, "x", "triggered the content management policy", errors.ContentFilterError, False),
        (401, "invalid_request_error", "no key", errors.AuthenticationError, False),
        (404, "model_not_found", "no", errors.InvalidRequestError, False),
        (429, "insufficient_quota", "pay", errors.LLMError, False),
        (429, "rate_limit_exceeded", "Request too large on tokens per min: Limit 3, Requested 4", LONG, False),
        (503, "overloaded_error", "down", errors.ProviderUnavailableError, True),
    ],
)
async def test_an_error_of_this_api_is_one_of_the_kernel(
    server: AnthropicServer, status: int, kind: str, said: str, expected: type[Exception], *, retryable: bool
) -> None:
    server.fail(status, kind, said)
    async with mounted(server, max_retries=0) as provider:
        with pytest.raises(errors.LLMError) as raised:
            await provider.complete(a_request())
    assert (type(raised.value), raised.value.retryable) == (expected, retryable)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"type": "BadRequestError", "code": 400, "message": "maximum context length"}, errors.ContextLengthError),
        ({"type": "InternalServerError", "code": 500, "message": "x"}, errors.ProviderUnavailableError),
        ({"code": "insufficient_quota", "message": "x"}, errors.LLMError),
        ({"code": 429}, errors.RateLimitError),
        ({"code": 10**40}, errors.ProviderUnavailableError),
    ],
    ids=["too long", "failure", "quota", "status", "nonsense"],
)
async def test_an_error_in_mid_stream_is_classified_by_its_code(
    server: AnthropicServer, error: dict[str, Any], expected: type[Exception]
) -> None:
    server.reply_steps(f"data: {json.dumps({'error': error})}\n\n".encode())
    async with mounted(server, max_retries=0) as provider:
        with pytest.raises(errors.LLMError) as raised:
            await provider.complete(a_request())
    assert type(raised.value) is expected


async def test_an_address_without_this_api_is_named(server: AnthropicServer) -> None:
    async with mounted(server, path="/api") as provider:
        with pytest.raises(errors.InvalidRequestError, match="usually ends in /v1"):
            await provider.complete(a_request())


async def test_a_server_without_a_key_gets_none_of_the_environment(
    server: AnthropicServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    server.reply(text("hi"))
    async with mounted(server, api_key=None) as provider:
        assert (await provider.complete(a_request())).text == "hi"
    assert "sk-of-openai" not in str(server.requests[0].headers)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({}, "model"),
        ({"model": "m", "base_url": "localhost:8000"}, "must be an address"),
        ({"model": "m", "api_key": "a b"}, "invalid characters"),
        ({"model": "m", "temperature": 3}, "temperature"),
    ],
)
async def test_a_configuration_that_is_not_possible_is_refused(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        await provider_openai.mount(a_coordinator(), config)


async def test_a_key_of_the_environment_is_only_for_its_own_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    config = provider_openai.OpenAIConfig.from_config({"model": "m", "base_url": "http://127.0.0.1:9/v1"})
    assert config.api_key == ""
    assert provider_openai.OpenAIConfig.from_config({"model": "m"}).api_key == "sk-of-openai"
    assert await provider_openai.mount(a_coordinator(), {"model": "m", "api_key": " "}) is None


async def test_without_its_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ValueError, match=r"Install it with `pip install 'amplifier-slack\[openai\]'`"):
        await provider_openai.mount(a_coordinator(), {"model": "m"})


async def test_options_of_amplifiers_module_are_accepted_with_a_warning(server: AnthropicServer, logs: Any) -> None:
    async with mounted(server, use_streaming=True, reasoning_summary="auto"):
        pass
    [warning] = logs.named("module.options_without_effect")
    assert warning["options"] == ["reasoning_summary", "use_streaming"]
