"""Map errors of the SDK and the connection to kernel errors with readable messages."""

from __future__ import annotations

import re
from typing import Any

import anthropic

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
from orchestrator_interactive.modules.provider_base import STREAM_FAILURES, is_timeout, retry_after_s

FAILURES = (anthropic.AnthropicError, *STREAM_FAILURES)
_TOO_LONG = re.compile(
    r"prompt is too long|exceed context limit|context (?:window|length)|maximum context", re.IGNORECASE
)
_FILTERED = re.compile(r"content filter", re.IGNORECASE)

_BY_TYPE: dict[str, type[LLMError]] = {
    "authentication_error": AuthenticationError,
    "permission_error": AuthenticationError,
    "rate_limit_error": RateLimitError,
    "not_found_error": InvalidRequestError,
    "invalid_request_error": InvalidRequestError,
    "request_too_large": ContextLengthError,
    "billing_error": LLMError,
    "timeout_error": LLMTimeoutError,
    "api_error": ProviderUnavailableError,
    "overloaded_error": ProviderUnavailableError,
    "conflict_error": ProviderUnavailableError,
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
_SENTENCES: dict[type[LLMError], str] = {
    AuthenticationError: "Anthropic rejects the API key. Check ANTHROPIC_API_KEY and the key's permissions",
    RateLimitError: "Anthropic's rate limit is exceeded at the moment",
    ContextLengthError: "The conversation exceeds the model's context window",
    ContentFilterError: "Anthropic's content filter rejected the request or the answer",
    InvalidRequestError: "Anthropic rejected the request",
    LLMTimeoutError: "Anthropic did not answer in time",
    ProviderUnavailableError: "Anthropic is not available at the moment",
    LLMError: "Anthropic rejected the request for billing reasons",
}


def kernel_error(error: Exception | None, *, model: str, api_key: str, timeout_s: float) -> LLMError:
    """Convert an error, or `None` if the answer ended early, to a kernel error; no message contains the API key."""
    match error:
        case None:
            message = "Anthropic's answer ended before it was complete. A retry may help."
        case anthropic.APIStatusError():
            return _refusal(error, model, api_key)
        case _ if is_timeout(error, anthropic.APITimeoutError):
            message = f"Anthropic sent nothing for {timeout_s:g} seconds; the call to {model} was aborted."
            return LLMTimeoutError(message, provider="anthropic", model=model)
        case ValueError() | RecursionError():
            message = "Anthropic's answer was malformed. A retry may help."
        case _:
            message = "The connection to Anthropic failed. Check the network, then try again."
    return ProviderUnavailableError(message, provider="anthropic", model=model)


def _refusal(error: anthropic.APIStatusError, model: str, api_key: str) -> LLMError:
    detail = str(error.api_message or "").replace(api_key, "…")
    kind = _kind(error, detail)
    sentence = _SENTENCES[kind]
    headers = error.response.headers
    extra: dict[str, Any] = {"retryable": False} if headers.get("x-should-retry") == "false" else {}
    return kind(
        f"{sentence}: {detail}" if detail else f"{sentence} (HTTP {error.status_code}).",
        provider="anthropic",
        model=model,
        # An error event in mid-stream has the status 200 of its response.
        status_code=error.status_code if error.status_code >= 400 else None,
        retry_after=retry_after_s(headers),
        **extra,
    )


def _kind(error: anthropic.APIStatusError, detail: str) -> type[LLMError]:
    kind = _BY_STATUS.get(error.status_code) or _BY_TYPE.get(error.type or "") or _by_range(error.status_code)
    if kind is InvalidRequestError and _TOO_LONG.search(detail):
        return ContextLengthError
    if kind is InvalidRequestError and _FILTERED.search(detail):
        return ContentFilterError
    return kind


def _by_range(status: int) -> type[LLMError]:
    return InvalidRequestError if 400 <= status < 500 else ProviderUnavailableError
