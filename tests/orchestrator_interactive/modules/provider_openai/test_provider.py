"""Calls of `provider-openai` to a server on this machine: requests, answers, failures, and hostile streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import pytest
from anthropic_server import AnthropicServer, Cut, Gate, text, thinking, tool_call
from mounted_provider import RecordingStream, a_coordinator, a_request

from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.arguments import problem_of
from orchestrator_interactive.kernel.contracts.messages import (
    ImageBlock,
    Message,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolSpec,
)
from orchestrator_interactive.modules import provider_openai

TOOLS = [ToolSpec(name="read file", parameters={"properties": {}}, description="Reads.")]
DONE = b"data: [DONE]\n\n"


@asynccontextmanager
async def mounted(server: AnthropicServer, **config: Any) -> AsyncIterator[Any]:
    coordinator = a_coordinator()
    options = {"api_key": "sk-secret", "base_url": f"{server.base_url}/v1", "model": "m", "retry_base_delay_s": 0}
    clean_up = await provider_openai.mount(coordinator, {**options, **config})
    try:
        yield coordinator.get("providers", "openai")
    finally:
        await clean_up()


@pytest.fixture
async def provider(server: AnthropicServer) -> AsyncIterator[Any]:
    async with mounted(server) as provider:
        yield provider


def raw(*chunks: Any) -> list[bytes]:
    """Return the lines of a stream; a chunk may be raw bytes."""
    return [each if isinstance(each, bytes) else f"data: {json.dumps(each)}\n\n".encode() for each in chunks]


def delta(stop: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": fields, "finish_reason": stop}]}


async def test_an_answer_has_its_reasoning_text_and_calls_in_order(server: AnthropicServer, provider: Any) -> None:
    server.reply(thinking("hm"), text("Hel", "lo"), tool_call("read_file_9f7b9a58", {"path": "ä"}, call_id="c1"))
    stream = RecordingStream()
    answer = await provider.complete(a_request(tools=TOOLS), stream=stream)
    assert [type(block) for block in answer.content] == [ThinkingBlock, TextBlock, ToolCallBlock]
    assert (answer.text, answer.finish_reason) == ("Hello", "tool_calls")
    assert stream.texts == ["Hel", "lo"]
    assert stream.handed_on == answer.content
    assert [(call.id, call.arguments) for call in answer.tool_calls] == [("c1", {"path": "ä"})]
    usage = answer.usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens, usage.cost_usd) == (10, 5, 15, None)


async def test_tool_names_are_those_that_were_declared(server: AnthropicServer, provider: Any) -> None:
    server.reply(text("x"))
    await provider.complete(a_request(tools=TOOLS))
    name = server.bodies[0]["tools"][0]["name"]
    assert name.startswith("read_file_")
    server.reply(tool_call(name, {}))
    answer = await provider.complete(a_request(tools=TOOLS))
    assert answer.tool_calls[0].name == "read file"


async def test_usage_has_cached_tokens_and_the_configured_price(server: AnthropicServer) -> None:
    async with mounted(server, prices={"input": 10, "output": 20, "cache_read": 1}) as provider:
        server.reply(text("x"), usage={"cache_read_input_tokens": 90})
        usage = (await provider.complete(a_request())).usage
    assert (usage.input_tokens, usage.cache_read_tokens) == (100, 90)
    assert usage.cost_usd == Decimal("0.00029")


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
    assert (result["type"], result["content"]) == ("tool_result", "Error: seen")
    assert url in rest
    assert "A reminder." in str(rest)
    assert body["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            [Message(role="assistant", content=[ToolCallBlock(id="c1", name="x", input={})])],
            "the call c1 has no result",
        ),
        ([Message(role="tool", tool_call_id="c9", content="x")], "the result of c9 has no call"),
    ],
)
async def test_a_request_that_the_api_would_refuse_is_not_sent(
    server: AnthropicServer, provider: Any, rows: list[Message], problem: str
) -> None:
    with pytest.raises(errors.InvalidRequestError, match=problem):
        await provider.complete(a_request(messages=[Message(role="user", content="x"), *rows]))
    assert server.requests == []


@pytest.mark.parametrize(
    ("status", "kind", "said", "expected", "retryable"),
    [
        (401, "authentication_error", "bad sk-secret", errors.AuthenticationError, False),
        (403, "x", "no", errors.AuthenticationError, False),
        (400, "invalid_request_error", "no", errors.InvalidRequestError, False),
        (400, "context_length_exceeded", "long", errors.ContextLengthError, False),
        (400, "x", "This model's maximum context length is 10 tokens", errors.ContextLengthError, False),
        (400, "content_filter", "bad", errors.ContentFilterError, False),
        (404, "model_not_found", "no", errors.InvalidRequestError, False),
        (413, "x", "large", errors.ContextLengthError, False),
        (429, "rate_limit_error", "slow", errors.RateLimitError, True),
        (429, "insufficient_quota", "pay", errors.LLMError, False),
        (408, "x", "late", errors.LLMTimeoutError, True),
        (500, "x", "down", errors.ProviderUnavailableError, True),
        (503, "overloaded_error", "down", errors.ProviderUnavailableError, True),
    ],
)
async def test_an_error_of_the_server_is_one_of_the_kernel(
    server: AnthropicServer, status: int, kind: str, said: str, expected: type[Exception], *, retryable: bool
) -> None:
    async with mounted(server, max_retries=0) as provider:
        server.fail(status, kind, said)
        with pytest.raises(errors.LLMError) as raised:
            await provider.complete(a_request())
    assert type(raised.value) is expected
    assert raised.value.retryable is retryable
    assert "sk-secret" not in str(raised.value)


async def test_a_temporary_failure_is_retried_and_a_stream_is_not(server: AnthropicServer, provider: Any) -> None:
    server.fail(500)
    server.reply(text("ok"))
    assert (await provider.complete(a_request())).text == "ok"
    server.fail(500)
    with pytest.raises(errors.ProviderUnavailableError):
        await provider.complete(a_request(), stream=RecordingStream())


async def test_a_cancelled_call_closes_its_connection(server: AnthropicServer, provider: Any) -> None:
    gate = Gate()
    server.reply(text("Hel", gate, "lo"))
    call = asyncio.create_task(provider.complete(a_request(), stream=RecordingStream()))
    await gate.reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    received = await server.arrived(1)
    await asyncio.wait_for(received.ended.wait(), 5)
    assert received.left


CALL = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{}"}}
HOSTILE: dict[str, tuple[list[bytes], str]] = {
    # Each is answered with a text, calls, or an error of the kernel.
    "no chunk": (raw(DONE), "error"),
    "nothing at all": ([b""], "error"),
    "cut off": (raw(delta(content="Hel")), "error"),
    "no finish reason": (raw(delta(content="x"), DONE), "error"),
    "not json": (raw(b"data: {not json\n\n"), "error"),
    "json of another type": (raw([1, 2], "text", 7, None, delta("stop", content="x"), DONE), "x"),
    "nested deeply": (raw(b"data: " + b"[" * 100_000 + b"\n\n"), "error"),
    "choices of another type": (raw({"choices": "no"}, {"choices": {"a": 1}}, delta("stop", content="x"), DONE), "x"),
    "choices null": (raw({"choices": None}, {"choices": [None]}, delta("stop", content="x"), DONE), "x"),
    "another choice": (raw({"choices": [{"index": 1, "delta": {"content": "no"}}]}, delta("stop", content="x")), "x"),
    "delta of another type": (raw({"choices": [{"delta": "no"}]}, delta("stop", content="x"), DONE), "x"),
    "content of another type": (raw(delta(content=["no"]), delta(content=7), delta("stop", content="x"), DONE), "x"),
    "finish reason of another type": (raw(delta(content="x"), {"choices": [{"finish_reason": 7}]}), "error"),
    "unknown finish reason": (raw(delta("because", content="x"), DONE), "x"),
    "text after the end": (raw(delta("stop", content="x"), delta(content="y"), DONE), "x"),
    "finish reason twice": (raw(delta("stop", content="x"), delta("length"), DONE), "x"),
    "usage of another type": (raw({"usage": "much"}, delta("stop", content="x"), DONE), "x"),
    "usage with texts": (raw({"usage": {"prompt_tokens": "7"}}, delta("stop", content="x"), DONE), "x"),
    "usage that is negative": (raw({"usage": {"prompt_tokens": -7}}, delta("stop", content="x"), DONE), "x"),
    "usage that is not a number": (
        raw(b'data: {"usage": {"prompt_tokens": NaN}}\n\n', delta("stop", content="x")),
        "x",
    ),
    "usage with details null": (raw({"usage": {"prompt_tokens_details": None}}, delta("stop", content="x")), "x"),
    "more cached than read": (
        raw({"usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}}}, delta("stop", content="x")),
        "x",
    ),
    "calls of another type": (raw(delta(tool_calls="no"), delta("stop", content="x"), DONE), "x"),
    "a call of another type": (raw(delta(tool_calls=["no", None]), delta("stop", content="x"), DONE), "x"),
    "a call without a function": (raw(delta(tool_calls=[{"index": 0}]), delta("stop", content="x"), DONE), "x"),
    "a call without an index": (raw(delta(tool_calls=[{**CALL, "index": None}]), delta("tool_calls")), "look()"),
    "calls without indexes": (
        raw(
            delta(tool_calls=[{**CALL, "index": None}]),
            delta(tool_calls=[{**CALL, "index": None, "id": "c2"}]),
            delta("tool_calls"),
        ),
        "look() look()",
    ),
    "an index that is a truth value": (raw(delta(tool_calls=[{**CALL, "index": True}]), delta("tool_calls")), "look()"),
    "indexes with gaps": (
        raw(delta(tool_calls=[{**CALL, "index": 7, "id": "c7"}, {**CALL, "index": 3}]), delta("tool_calls")),
        "look() look()",
    ),
    "a negative index": (raw(delta(tool_calls=[{**CALL, "index": -1}]), delta("tool_calls")), "look()"),
    "calls that alternate": (
        raw(
            delta(tool_calls=[{**CALL, "function": {"name": "look", "arguments": '{"a"'}}]),
            delta(tool_calls=[{**CALL, "index": 1, "id": "c2", "function": {"name": "see", "arguments": '{"b"'}}]),
            delta(tool_calls=[{"index": 0, "function": {"arguments": ":1}"}}]),
            delta(tool_calls=[{"index": 1, "function": {"arguments": ":2}"}}]),
            delta("tool_calls"),
        ),
        "look(a=1) see(b=2)",
    ),
    "an id twice": (raw(delta(tool_calls=[CALL, {**CALL, "index": 1}]), delta("tool_calls")), "look() look()"),
    "no id": (raw(delta(tool_calls=[{**CALL, "id": None}]), delta("tool_calls")), "look()"),
    "no name": (raw(delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]), delta("tool_calls")), "()"),
    "a name that is repeated": (
        raw(delta(tool_calls=[CALL]), delta(tool_calls=[{"index": 0, "function": {"name": "look"}}]), delta("stop")),
        "look()",
    ),
    "arguments as an object": (
        raw(delta(tool_calls=[{**CALL, "function": {"name": "look", "arguments": {"a": 1}}}]), delta("tool_calls")),
        "look(a=1)",
    ),
    "arguments that are not json": (
        raw(delta(tool_calls=[{**CALL, "function": {"name": "look", "arguments": "{oh"}}]), delta("tool_calls")),
        "look(invalid)",
    ),
    "arguments that are a list": (
        raw(delta(tool_calls=[{**CALL, "function": {"name": "look", "arguments": "[1]"}}]), delta("tool_calls")),
        "look(invalid)",
    ),
    "arguments that were cut off": (
        raw(delta(tool_calls=[{**CALL, "function": {"name": "look", "arguments": '{"a'}}]), delta("length")),
        "",
    ),
    "a lone surrogate": (raw(b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n', delta("stop")), "�"),
    "a letter over two chunks": (raw(delta(content="\ud83d"), delta("stop", content="\ude00")), "😀"),
    "an error in the stream": (raw({"error": {"message": "down", "type": "server_error"}}), "error"),
    "an error of another type": (raw({"error": "down"}), "error"),
    "comments and blank lines": ([b": keep-alive\n\n", b"\n", *raw(delta("stop", content="x")), DONE], "x"),
    "carriage returns": ([b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\r\n\r\n'], "x"),
    "a refusal": (raw(delta(refusal="I will not."), delta("stop")), "refused"),
    "a thousand and one calls": (
        raw(*(delta(tool_calls=[{**CALL, "index": n, "id": f"c{n}"}]) for n in range(1001)), delta("stop")),
        "error",
    ),
    "invalid bytes": ([b"data: \xff\xfe\n\n"], "error"),
    "a message in place of a delta": (
        raw({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}, DONE),
        "x",
    ),
}


def shown(answer: Any) -> str:
    calls = []
    for each in answer.tool_calls or ():
        given = ", ".join(f"{name}={value}" for name, value in each.arguments.items())
        calls.append(f"{each.name}({'invalid' if problem_of(each.arguments) else given})")
    return "refused" if answer.finish_reason == "refusal" else " ".join([answer.text, *calls]).strip()


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_stream_is_an_answer_or_an_error_of_the_kernel(server: AnthropicServer, name: str) -> None:
    steps, expected = HOSTILE[name]
    async with mounted(server, max_retries=0) as provider:
        server.reply_steps(*steps)
        try:
            found = await asyncio.wait_for(provider.complete(a_request(), stream=RecordingStream()), 10)
        except errors.LLMError:
            assert expected == "error"
        else:
            assert shown(found) == expected
            ids = [call.id for call in found.tool_calls or ()]
            assert len(set(ids)) == len(ids)
            assert all(ids)


async def test_a_dropped_connection_is_an_error_of_the_kernel(server: AnthropicServer, provider: Any) -> None:
    server.reply(text("Hel", Cut()))
    with pytest.raises(errors.ProviderUnavailableError, match="connection"):
        await provider.complete(a_request(), stream=RecordingStream())


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
