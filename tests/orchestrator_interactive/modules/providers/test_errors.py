"""The errors of the kernel for failures of the API, and their messages."""

import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from anthropic_server import AnthropicServer, Cut, error_event, message, message_start, text, tool_call
from mounted_provider import KEY, Api, a_request, mounted_at

from orchestrator_interactive.kernel.contracts.errors import (
    AuthenticationError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    LLMError,
    LLMTimeoutError,
    ProviderUnavailableError,
    RateLimitError,
)
from orchestrator_interactive.modules.provider_base import retry_after_s


async def error_of_a_call(api: Api, base_url: str, **request: Any) -> LLMError:
    async with mounted_at(base_url, api, max_retries=0) as mounted:
        with pytest.raises(LLMError) as failed:
            await mounted.complete(a_request(**request))
    assert failed.value.provider == api.name
    assert KEY not in str(failed.value)
    return failed.value


@pytest.mark.parametrize(
    ("status", "kind", "said", "expected"),
    [
        (400, "invalid_request_error", "messages: bad", InvalidRequestError),
        (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", ContextLengthError),
        (
            400,
            "invalid_request_error",
            "input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000",
            ContextLengthError,
        ),
        (400, "invalid_request_error", "Output blocked by content filtering policy", ContentFilterError),
        (401, "authentication_error", "invalid x-api-key", AuthenticationError),
        (402, "billing_error", "pay first", LLMError),
        (403, "permission_error", "no", AuthenticationError),
        (404, "not_found_error", "model: claude-nine", InvalidRequestError),
        (408, "timeout_error", "slow", LLMTimeoutError),
        (409, "conflict_error", "conflict", ProviderUnavailableError),
        (413, "request_too_large", "Request exceeds the maximum size", ContextLengthError),
        (413, "nonsense", "too large", ContextLengthError),
        (422, "invalid_request_error", "no", InvalidRequestError),
        (429, "rate_limit_error", "slow down", RateLimitError),
        (500, "api_error", "oops", ProviderUnavailableError),
        (502, "nonsense", "bad gateway", ProviderUnavailableError),
        (504, "timeout_error", "slow", LLMTimeoutError),
        (529, "overloaded_error", "Overloaded", ProviderUnavailableError),
    ],
)
async def test_an_error_response_becomes_an_error_of_the_kernel(api, server, *, status, kind, said, expected) -> None:
    server.fail(status, kind, said)
    error = await error_of_a_call(api, server.base_url)
    assert type(error) is expected
    assert error.status_code == status
    assert said in str(error)
    assert error.retryable == expected.retryable_by_default


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("overloaded_error", ProviderUnavailableError),
        ("api_error", ProviderUnavailableError),
        ("rate_limit_error", RateLimitError),
        ("timeout_error", LLMTimeoutError),
        ("invalid_request_error", InvalidRequestError),
        ("something_new", ProviderUnavailableError),
    ],
)
async def test_an_error_in_mid_stream_is_classified_by_its_type(
    api, server, kind: str, expected: type[LLMError]
) -> None:
    server.reply_steps(message_start(), error_event(kind, "in the middle"))
    error = await error_of_a_call(api, server.base_url)
    assert type(error) is expected
    assert error.status_code is None
    assert "in the middle" in str(error)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (message(text("Hel", Cut())), ""),
        ([message_start()], "ended before it was complete"),
        ([message_start(), b"event: message_stop\ndata: {no json}\n\n"], "malformed"),
        ([message_start(), b"event: ping\ndata: \xff\xfe\n\n"], "malformed"),
    ],
    ids=["connection lost", "no end", "invalid JSON", "invalid text"],
)
async def test_a_broken_stream_is_an_unavailable_provider(
    api, server: AnthropicServer, steps: list[Any], said: str
) -> None:
    server.reply_steps(*steps)
    error = await error_of_a_call(api, server.base_url)
    assert type(error) is ProviderUnavailableError
    assert said in str(error)


async def test_a_refused_connection_is_an_unavailable_provider(api) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    error = await error_of_a_call(api, f"http://127.0.0.1:{port}")
    assert type(error) is ProviderUnavailableError
    assert "connection" in str(error)


async def test_the_key_is_removed_from_the_message(api, server: AnthropicServer) -> None:
    server.fail(401, "authentication_error", f"invalid key {KEY}")
    assert "invalid key …" in str(await error_of_a_call(api, server.base_url))


async def test_an_invalid_tool_choice_is_refused_without_a_request(api, server: AnthropicServer) -> None:
    tools = [{"name": "read", "parameters": {}}]
    error = await error_of_a_call(api, server.base_url, tools=tools, tool_choice="sometimes")
    assert type(error) is InvalidRequestError
    assert server.requests == []


def test_every_form_of_the_retry_after_header_is_parsed() -> None:
    assert retry_after_s({"retry-after": "1.5"}) == 1.5
    assert retry_after_s({"retry-after-ms": "250", "retry-after": "9"}) == 0.25
    assert retry_after_s({"retry-after": "-3"}) == 0
    assert retry_after_s({"retry-after": "soon"}) is None
    assert retry_after_s({}) is None
    in_a_minute = format_datetime(datetime.now(UTC) + timedelta(minutes=1), usegmt=True)
    assert 50 < (retry_after_s({"retry-after": in_a_minute}) or 0) <= 60


@pytest.mark.parametrize("kind", ["text", "input"])
async def test_an_endless_answer_is_an_error_without_retry(api, server: AnthropicServer, kind: str) -> None:
    pieces = ["x" * 1_000_000] * 11
    server.reply(text(*pieces) if kind == "text" else tool_call("write", {}, *pieces))
    error = await error_of_a_call(api, server.base_url)
    assert "more than 10,000,000 characters" in str(error)
    assert not error.retryable
