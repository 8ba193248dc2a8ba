"""The provider: calls to the API, its errors as kernel errors, and the shared HTTP clients."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any

import aiohttp
import httpx2
import openai
from openai import AsyncOpenAI, AsyncStream, DefaultAioHttpClient

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
from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo
from orchestrator_interactive.modules.provider_base import (
    CONNECT_TIMEOUT_S,
    TAIL_S,
    YIELD_EVERY_S,
    BaseProvider,
    ClientPool,
    retry_after_s,
    tls_context,
)
from orchestrator_interactive.modules.provider_openai.config import OpenAIConfig
from orchestrator_interactive.modules.provider_openai.convert import ApiRequest, api_request
from orchestrator_interactive.modules.provider_openai.streaming import StreamedAnswer

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, ResponseStream
    from orchestrator_interactive.kernel.hooks import HookRegistry

# The SDK wraps errors before the response. Errors while the stream is read are not wrapped.
FAILURES = (
    openai.OpenAIError,
    httpx2.HTTPError,
    httpx2.StreamError,
    aiohttp.ClientError,
    ConnectionError,
    json.JSONDecodeError,
    UnicodeDecodeError,
    RecursionError,
)
# By the `code` or `type` of an error; these rank before the status.
_BY_CODE: dict[str, type[LLMError]] = {
    "context_length_exceeded": ContextLengthError,
    "string_above_max_length": ContextLengthError,
    "content_filter": ContentFilterError,
    "content_policy_violation": ContentFilterError,
    "insufficient_quota": LLMError,
    "billing_hard_limit_reached": LLMError,
    "invalid_api_key": AuthenticationError,
    "rate_limit_exceeded": RateLimitError,
    "server_error": ProviderUnavailableError,
}
_BY_STATUS: dict[int, type[LLMError]] = {
    401: AuthenticationError,
    402: LLMError,
    403: AuthenticationError,
    408: LLMTimeoutError,
    409: ProviderUnavailableError,
    413: ContextLengthError,
    429: RateLimitError,
    504: LLMTimeoutError,
}
_TOO_LONG = ("context length", "context window", "maximum context", "too many tokens", "prompt is too long")
_SENTENCES: dict[type[LLMError], str] = {
    AuthenticationError: "The model's server rejects the API key. Check `api_key` of provider-openai",
    RateLimitError: "The rate limit of the model's server is exceeded at the moment",
    ContextLengthError: "The conversation exceeds the model's context window",
    ContentFilterError: "The content filter of the model's server rejected the request or the answer",
    InvalidRequestError: "The model's server rejected the request",
    LLMTimeoutError: "The model's server did not answer in time",
    ProviderUnavailableError: "The model's server is not available at the moment",
    LLMError: "The model's server rejected the request for billing reasons",
}
# A local server needs no key, and the SDK needs one.
_NO_KEY = "none"


class OpenAIProvider(BaseProvider[OpenAIConfig, ApiRequest]):
    """A model behind the Chat Completions API."""

    name = "openai"

    def __init__(self, client: AsyncOpenAI, config: OpenAIConfig, hooks: HookRegistry) -> None:
        super().__init__(config, hooks)
        self._client = client

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(
            id=self.name,
            display_name="OpenAI" if self._config.is_openai else "OpenAI-compatible server",
            credential_env_vars=["OPENAI_API_KEY"],
            capabilities=["streaming", "tools", "tool_choice"],
            defaults={
                "model": self._config.model,
                "context_window": self._config.context_window,
                "max_output_tokens": self._config.max_output_tokens,
            },
        )

    async def list_models(self) -> list[ModelInfo]:
        """List the models that the key may use.

        Raises:
            LLMError: the API rejected the request or could not be reached.
        """
        limits = {
            "context_window": self._config.context_window,
            "max_output_tokens": self._config.max_output_tokens,
            "capabilities": ["streaming", "tools", "tool_choice"],
        }
        try:
            found = [model async for model in self._client.models.list()]
        except FAILURES as e:
            raise self._kernel_error(e, self._config.model) from e
        return [ModelInfo(id=model.id, display_name=model.id, **limits) for model in found]

    def _api_call(self, request: ChatRequest, *, thinks: bool) -> ApiRequest:
        if thinks and not (request.reasoning_effort or self._config.reasoning_effort):
            request = request.model_copy(update={"reasoning_effort": "medium"})
        return api_request(request, self._config)

    async def _ask(self, api_call: ApiRequest, stream: ResponseStream | None) -> ChatResponse:
        prices = self._config.prices if api_call.model == self._config.model else None
        answer = StreamedAnswer(api_call, stream, prices)
        timeout = httpx2.Timeout(self._config.timeout_s, connect=CONNECT_TIMEOUT_S)
        await self._announce_request(api_call)
        try:
            async with asyncio.timeout(None) as tail:
                # Chunks stay as they are: the SDK's objects cost several times as much, and say less of other servers.
                sent: AsyncStream[object] = await self._client.post(
                    "/chat/completions",
                    body=api_call.body,
                    options={"timeout": timeout},
                    cast_to=object,
                    stream=True,
                    stream_cls=AsyncStream[object],
                )
                async with sent:
                    last_s = time.monotonic()
                    async for chunk in sent:
                        answer.feed(chunk)
                        if time.monotonic() - last_s > YIELD_EVERY_S:  # the SDK does not yield between buffered events
                            await asyncio.sleep(0)
                            last_s = time.monotonic()
                        if answer.complete:
                            answer.finish()
                            tail.reschedule(asyncio.get_running_loop().time() + TAIL_S)
        except (*FAILURES, TimeoutError) as e:
            if not answer.complete:
                raise self._kernel_error(e, api_call.model) from e
        if not answer.complete:
            message = "The model's answer ended before it was complete. A retry may help."
            raise ProviderUnavailableError(message, provider=self.name, model=api_call.model)
        response = answer.response()
        await self._announce_response(api_call, response)
        return response

    def _kernel_error(self, error: Exception, model: str) -> LLMError:
        match error:
            case openai.APIStatusError():
                return self._refusal(error, model, error.status_code, error.response.headers)
            case openai.APIConnectionError() | httpx2.HTTPError():
                if _is_timeout(error):
                    said = f"The server sent nothing for {self._config.timeout_s:g} seconds"
                    return LLMTimeoutError(f"{said}; the call to {model} was aborted.", provider=self.name, model=model)
                message = "The connection to the model's server failed. Check the network and `base_url`, then retry."
            case openai.APIError():  # in the middle of a stream
                return self._refusal(error, model, None, {})
            case ValueError() | RecursionError() | openai.OpenAIError():
                message = "The answer of the model's server was malformed. A retry may help."
            case _:
                message = "The connection to the model's server failed. Check the network and `base_url`, then retry."
        return ProviderUnavailableError(message, provider=self.name, model=model)

    def _refusal(self, error: openai.APIError, model: str, status: int | None, headers: Any) -> LLMError:
        body = error.body if isinstance(error.body, dict) else {}
        detail = str(body.get("message") or error.message or "")
        if self._config.api_key:
            detail = detail.replace(self._config.api_key, "…")
        kind = _kind({str(body.get("code")), str(body.get("type"))}, status, detail)
        said = f"{_SENTENCES[kind]}: {detail}" if detail else f"{_SENTENCES[kind]} (HTTP {status})."
        extra: dict[str, Any] = {"retryable": False} if kind is LLMError else {}
        return kind(
            said, provider=self.name, model=model, status_code=status, retry_after=retry_after_s(headers), **extra
        )


def _kind(codes: set[str], status: int | None, detail: str) -> type[LLMError]:
    for code, kind in _BY_CODE.items():
        if code in codes:
            return kind
    if status is None:
        return ProviderUnavailableError
    by_range = InvalidRequestError if 400 <= status < 500 else ProviderUnavailableError
    kind = _BY_STATUS.get(status, by_range)
    if kind is InvalidRequestError and any(words in detail.lower() for words in _TOO_LONG):
        return ContextLengthError
    return kind


def _is_timeout(error: Exception) -> bool:
    cause = error.__cause__ if isinstance(error, openai.APITimeoutError) else error
    return isinstance(cause, httpx2.TimeoutException) and not isinstance(cause, httpx2.ConnectTimeout)


def _client(api_key: str, base_url: str, organization: str, project: str) -> AsyncOpenAI:
    # The SDK's own retries are off because they are invisible; the provider retries and emits events.
    return AsyncOpenAI(
        api_key=api_key or _NO_KEY,
        base_url=base_url,
        organization=organization or None,
        project=project or None,
        max_retries=0,
        http_client=DefaultAioHttpClient(verify=tls_context()),
    )


CLIENTS = ClientPool(_client)
