"""Errors of the kernel, and the `LLMError` family that providers raise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.models import HookResult


class ModuleNotFoundError(Exception):  # noqa: A001 - the name is the contract's
    """No module of this name was found. The message lists the places searched and the remedy."""


class ModuleLoadError(Exception):
    """A module was found but cannot be used. The message gives the reason."""


class InjectionTooLargeError(ValueError):
    """A context injection is larger than the session allows. `rest` is the result without it."""

    def __init__(self, message: str, rest: HookResult) -> None:
        super().__init__(message)
        self.rest = rest


class ApprovalTimeoutError(Exception):
    """An approval request got no answer in time."""


class LLMError(Exception):
    """A call to a model failed. The subclass is the kind of failure.

    Attributes:
        provider: name of the provider.
        model: name of the requested model.
        status_code: HTTP status, if there was a response.
        retryable: whether a retry of the same request may succeed.
        retry_after: seconds to wait before a retry, if the provider gives them.
    """

    retryable_by_default = False

    def __init__(  # noqa: PLR0913 - keyword-only data for error handlers
        self,
        message: str,
        *,
        provider: str | None = None,
        model: str | None = None,
        status_code: int | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.model = model
        self.status_code = status_code
        self.retryable = self.retryable_by_default if retryable is None else retryable
        self.retry_after = retry_after


class RateLimitError(LLMError):
    """The provider's rate limit is used up (HTTP 429)."""

    retryable_by_default = True


class AuthenticationError(LLMError):
    """The credentials are missing or wrong (HTTP 401, 403)."""


class ContextLengthError(LLMError):
    """The request is larger than the model's context window."""


class ContentFilterError(LLMError):
    """The provider's safety filter refused the content."""


class InvalidRequestError(LLMError):
    """The provider rejected the request as malformed (HTTP 400, 404, 422)."""


class ProviderUnavailableError(LLMError):
    """The provider is down, overloaded or unreachable (HTTP 5xx, 529, network)."""

    retryable_by_default = True


class LLMTimeoutError(LLMError):
    """The provider did not respond in time, or its response stalled."""

    retryable_by_default = True
