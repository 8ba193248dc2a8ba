"""Whatever the SDK or the connection raises, as an error of the kernel with a sentence that a person understands."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import aiohttp
import anthropic
import httpx2

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

if TYPE_CHECKING:
    from collections.abc import Mapping

# The SDK wraps what happens before the response; what happens while it is read comes through as it is: httpx2's errors,
# aiohttp's where the transport does not map them, a JSON or UTF-8 error for a broken event, and
# RecursionError for a deep one.
FAILURES = (
    anthropic.AnthropicError,
    httpx2.HTTPError,
    httpx2.StreamError,
    aiohttp.ClientError,
    ConnectionError,
    json.JSONDecodeError,
    UnicodeDecodeError,
    RecursionError,
)

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
    AuthenticationError: "Anthropic does not accept the API key. Check ANTHROPIC_API_KEY and what the key may do",
    RateLimitError: "Anthropic's rate limit is used up for now",
    ContextLengthError: "The conversation is longer than the model can read",
    ContentFilterError: "Anthropic's content filter refused the request or the answer",
    InvalidRequestError: "Anthropic refuses the request",
    LLMTimeoutError: "Anthropic did not answer in time",
    ProviderUnavailableError: "Anthropic is not available at the moment",
    LLMError: "Anthropic refuses the request for billing reasons",
}


def kernel_error(error: Exception, *, model: str, api_key: str, timeout_s: float) -> LLMError:
    """The kernel's error for a failure; the API key stands in no message."""
    match error:
        case anthropic.APIStatusError():
            return _refusal(error, model, api_key)
        case _ if _is_timeout(error):
            message = f"Anthropic sent nothing for {timeout_s:g} seconds; the call to {model} was given up."
            return LLMTimeoutError(message, provider="anthropic", model=model)
        case ValueError() | RecursionError():
            message = "Anthropic's answer was garbled on the way. It may help to try again."
        case _:
            message = "The connection to Anthropic failed or broke off. Check the network, then try again."
    return ProviderUnavailableError(message, provider="anthropic", model=model)


def broken_off(model: str) -> ProviderUnavailableError:
    """The stream ended, properly as far as HTTP goes, but before the answer did."""
    return ProviderUnavailableError(
        "Anthropic's answer broke off before its end. It may help to try again.", provider="anthropic", model=model
    )


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """How long the API asks to wait, in seconds: `retry-after-ms`, or `retry-after` in seconds or as a date."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit_s)
        except (KeyError, ValueError):
            continue
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _is_timeout(error: Exception) -> bool:
    cause = error.__cause__ if isinstance(error, anthropic.APITimeoutError) else error
    return isinstance(cause, httpx2.TimeoutException) and not isinstance(cause, httpx2.ConnectTimeout)


def _refusal(error: anthropic.APIStatusError, model: str, api_key: str) -> LLMError:
    said = str(error.api_message or "").replace(api_key, "…")
    kind = _kind(error, said)
    sentence = _SENTENCES[kind]
    headers = error.response.headers
    refused: dict[str, Any] = {"retryable": False} if headers.get("x-should-retry") == "false" else {}
    return kind(
        f"{sentence}: {said}" if said else f"{sentence} (HTTP {error.status_code}).",
        provider="anthropic",
        model=model,
        # An error event in mid-stream comes under the 200 of its response.
        status_code=error.status_code if error.status_code >= 400 else None,
        retry_after=retry_after_s(headers),
        **refused,
    )


def _kind(error: anthropic.APIStatusError, said: str) -> type[LLMError]:
    kind = _BY_STATUS.get(error.status_code) or _BY_TYPE.get(error.type or "") or _by_range(error.status_code)
    if kind is InvalidRequestError and _TOO_LONG.search(said):
        return ContextLengthError
    if kind is InvalidRequestError and _FILTERED.search(said):
        return ContentFilterError
    return kind


def _by_range(status: int) -> type[LLMError]:
    return InvalidRequestError if 400 <= status < 500 else ProviderUnavailableError
