"""Map errors of the SDK and the connection to kernel errors with readable messages."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import openai

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

if TYPE_CHECKING:
    from collections.abc import Mapping

FAILURES = (openai.OpenAIError, *STREAM_FAILURES)
_NAME = "openai"
# Characters of the server's own text in a message: some gateways answer with a page.
_MAX_DETAIL = 500
_TOO_LONG = re.compile(
    r"context (?:length|window|size|limit)|maximum context|too many tokens|prompt is too long", re.IGNORECASE
)
# A single request beyond the tokens per minute comes as a rate limit, often with its code.
_TOO_LARGE = re.compile(r"request too large|tokens must be reduced", re.IGNORECASE)
_FILTERED = re.compile(r"content (?:filter|management policy)", re.IGNORECASE)

# By the `code` or `type` of an error; these rank before the status.
_BY_CODE: dict[str, type[LLMError]] = {
    "context_length_exceeded": ContextLengthError,
    "exceed_context_size_error": ContextLengthError,
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
# By the `type` of an error in the middle of a stream, which has no status; the names in CamelCase are vLLM's.
_BY_TYPE: dict[str, type[LLMError]] = {
    "authentication_error": AuthenticationError,
    "BadRequestError": InvalidRequestError,
    "invalid_request_error": InvalidRequestError,
    "rate_limit_error": RateLimitError,
    "timeout_error": LLMTimeoutError,
}
_SENTENCES: dict[type[LLMError], str] = {
    AuthenticationError: "The model's server rejects the API key. Check OPENAI_API_KEY or `api_key` of provider-openai",
    RateLimitError: "The rate limit of the model's server is exceeded at the moment",
    ContextLengthError: "The conversation exceeds the model's context window",
    ContentFilterError: "The content filter of the model's server rejected the request or the answer",
    InvalidRequestError: "The model's server rejected the request",
    LLMTimeoutError: "The model's server did not answer in time",
    ProviderUnavailableError: "The model's server is not available at the moment",
    LLMError: "The model's server rejected the request for billing reasons",
}
_NO_API = "There is no Chat Completions API at this address. Check `base_url`: it usually ends in /v1"


def kernel_error(error: Exception | None, *, model: str, api_key: str, timeout_s: float) -> LLMError:
    """Convert an error, or `None` if the answer ended early, to a kernel error; no message contains the API key."""
    match error:
        case None:
            message = "The answer of the model's server ended before it was complete. A retry may help."
        case openai.APIStatusError():
            return _refusal(error, model, api_key, error.status_code, error.response.headers)
        case _ if is_timeout(error, openai.APITimeoutError):
            message = f"The model's server sent nothing for {timeout_s:g} seconds; the call to {model} was aborted."
            return LLMTimeoutError(message, provider=_NAME, model=model)
        case openai.APIError() if not isinstance(error, openai.APIConnectionError):  # in the middle of a stream
            return _refusal(error, model, api_key, None, {})
        case ValueError() | RecursionError():
            message = "The answer of the model's server was malformed. A retry may help."
        case _:
            message = "The connection to the model's server failed. Check the network and `base_url`, then retry."
    return ProviderUnavailableError(message, provider=_NAME, model=model)


def _refusal(
    error: openai.APIError, model: str, api_key: str, status: int | None, headers: Mapping[str, str]
) -> LLMError:
    body = error.body if isinstance(error.body, dict) else {}
    detail = _detail(body.get("message") or body.get("detail") or error.body, api_key)
    kind = _kind([str(body.get("code")), str(body.get("type"))], status, detail)
    sentence = _NO_API if status == 404 and not body else _SENTENCES[kind]
    is_final = kind is LLMError or headers.get("x-should-retry") == "false"
    extra: dict[str, Any] = {"retryable": False} if is_final else {}
    return kind(
        f"{sentence}: {detail}" if detail else f"{sentence} (HTTP {status})." if status else f"{sentence}.",
        provider=_NAME,
        model=model,
        status_code=status,
        retry_after=retry_after_s(headers),
        **extra,
    )


def _detail(said: object, api_key: str) -> str:
    """Return the server's text as one line; none for a page of a gateway."""
    text = " ".join(said.split()) if isinstance(said, str) else ""
    if api_key:
        text = text.replace(api_key, "…")
    return "" if text.startswith("<") else text[:_MAX_DETAIL]


def _kind(codes: list[str], status: int | None, detail: str) -> type[LLMError]:
    """Return the class of an error by the codes in its body, then by its status; codes may be a status."""
    if _TOO_LARGE.search(detail):
        return ContextLengthError
    for code in codes:
        if kind := _BY_CODE.get(code):
            return kind
    if status is None:
        status = next((int(code) for code in codes if re.fullmatch(r"[45]\d\d", code, re.ASCII)), None)
    if status is not None:
        kind = _BY_STATUS.get(status, InvalidRequestError if 400 <= status < 500 else ProviderUnavailableError)
    else:
        kind = next((_BY_TYPE[code] for code in codes if code in _BY_TYPE), ProviderUnavailableError)
    if kind is InvalidRequestError and _TOO_LONG.search(detail):
        return ContextLengthError
    if kind is InvalidRequestError and _FILTERED.search(detail):
        return ContentFilterError
    return kind
