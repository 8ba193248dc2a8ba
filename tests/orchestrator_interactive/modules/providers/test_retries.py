"""Retries and timeouts of failed calls."""

import pytest
from anthropic_server import AnthropicServer, Cut, Gate, error_event, message_start, text, thinking
from mounted_provider import Api, MountedProvider, RecordingStream, a_request, mounted_at

from orchestrator_interactive.kernel.contracts.errors import (
    AuthenticationError,
    LLMTimeoutError,
    ProviderUnavailableError,
    RateLimitError,
)
from orchestrator_interactive.kernel.contracts.messages import TextBlock


class TestRetrying:
    async def test_a_temporary_failure_is_retried_with_an_event(self, server, mounted) -> None:
        server.fail(529, "overloaded_error", "Overloaded")
        server.fail(500)
        server.reply(text("hi"))
        assert (await mounted.complete()).text == "hi"
        assert [(retry["attempt"], retry["delay_s"]) for retry in mounted.retries] == [(1, 0.0), (2, 0.0)]
        assert mounted.retries[0]["provider"] == mounted.api.name
        assert mounted.retries[0]["model"] == mounted.api.model
        assert "Overloaded" in mounted.retries[0]["error"]

    async def test_the_number_of_retries_is_limited(self, server: AnthropicServer, mounted: MountedProvider) -> None:
        for _ in range(4):
            server.fail(503)
        with pytest.raises(ProviderUnavailableError):
            await mounted.complete()
        assert len(server.requests) == 4
        assert len(mounted.retries) == 3

    @pytest.mark.parametrize(("header", "value"), [("retry-after", "0.002"), ("retry-after-ms", "2")])
    async def test_a_retry_waits_as_long_as_the_api_requests(self, server, mounted, header: str, value: str) -> None:
        server.fail(429, "rate_limit_error", headers={header: value})
        server.reply(text("hi"))
        await mounted.complete()
        assert mounted.retries[0]["delay_s"] == pytest.approx(0.002)

    async def test_a_wait_of_many_minutes_is_raised(self, server: AnthropicServer, mounted: MountedProvider) -> None:
        server.fail(429, "rate_limit_error", headers={"retry-after": "900"})
        with pytest.raises(RateLimitError) as limited:
            await mounted.complete()
        assert limited.value.retry_after == 900
        assert mounted.retries == []

    async def test_a_permanent_failure_is_not_retried(self, server: AnthropicServer, mounted: MountedProvider) -> None:
        server.fail(401, "authentication_error")
        with pytest.raises(AuthenticationError):
            await mounted.complete()
        server.fail(429, "rate_limit_error", headers={"x-should-retry": "false"})
        with pytest.raises(RateLimitError):
            await mounted.complete()
        assert mounted.retries == []

    async def test_a_broken_stream_is_retried(self, server: AnthropicServer, mounted: MountedProvider) -> None:
        server.reply_steps(message_start(), error_event("overloaded_error"))
        server.reply(thinking("hm", Cut()))
        server.reply(text("Hello, ", Cut()))
        server.reply(text("Hello, world"))
        assert (await mounted.complete()).text == "Hello, world"
        assert len(mounted.retries) == 3


class TestCallerWithAStream:
    async def test_a_failed_call_is_not_retried(self, server: AnthropicServer, mounted: MountedProvider) -> None:
        server.fail(429, "rate_limit_error", headers={"retry-after": "7"})
        with pytest.raises(RateLimitError) as failed:
            await mounted.complete(a_request(model="claude-opus-5"), stream=RecordingStream())
        assert len(server.requests) == 1
        assert mounted.retries == []
        error = failed.value
        assert (error.provider, error.model, error.status_code) == (mounted.api.name, "claude-opus-5", 429)
        assert (error.retryable, error.retry_after) == (True, 7)

    async def test_a_broken_stream_is_not_retried_and_its_text_is_kept(self, server, mounted) -> None:
        server.reply(text("Hello, ", Cut()))
        stream = RecordingStream()
        with pytest.raises(ProviderUnavailableError) as failed:
            await mounted.complete(stream=stream)
        assert failed.value.retryable
        assert len(server.requests) == 1
        assert stream.valid_blocks() == [TextBlock(text="Hello, ")]

    async def test_a_permanent_failure_is_final(self, server: AnthropicServer, mounted: MountedProvider) -> None:
        server.fail(429, "rate_limit_error", headers={"x-should-retry": "false"})
        with pytest.raises(RateLimitError) as failed:
            await mounted.complete(stream=RecordingStream())
        assert not failed.value.retryable


class TestTimeouts:
    async def test_a_stream_without_events_is_a_timeout(self, server: AnthropicServer, api: Api) -> None:
        gate = Gate()
        server.reply(text("Hello, ", gate))
        async with mounted_at(server.base_url, api, timeout_s=0.05) as mounted:
            with pytest.raises(LLMTimeoutError, match=r"sent nothing for 0\.05 seconds"):
                await mounted.complete(stream=RecordingStream())

    async def test_a_response_that_does_not_start_is_a_timeout(self, server: AnthropicServer, api: Api) -> None:
        server.reply_steps(Gate())
        server.reply_steps(Gate())
        async with mounted_at(server.base_url, api, timeout_s=0.05, max_retries=1) as mounted:
            with pytest.raises(LLMTimeoutError):
                await mounted.complete()
            assert len(mounted.retries) == 1

    async def test_the_timeout_of_a_request_covers_the_whole_call(self, server, mounted) -> None:
        server.reply(text("Hello, ", Gate()))
        with pytest.raises(LLMTimeoutError, match=r"within the 0\.05 seconds"):
            await mounted.complete(a_request(timeout=0.05))
