"""Recover from a failed model call: retry after a back-off, fall back to another provider, or shrink the request."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import structlog

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import (
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    LLMError,
    LLMTimeoutError,
    RateLimitError,
)
from orchestrator_interactive.loop.tasks import CancellableTask
from orchestrator_interactive.transcript.rows import estimate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from orchestrator_interactive.loop.options import LoopOptions
    from orchestrator_interactive.loop.run import Run

log = structlog.get_logger(__name__)

PROVIDER_FALLBACK = "provider:fallback"

_MAX_BACKOFF_S = 30.0
# If `Retry-After` is longer, fall back to another provider: a run that shows nothing for minutes looks dead.
_MAX_WAIT_S = 60.0
# Factor for the token budget after a request that was too long: estimates are off by tens of percent.
_SHRINK_TO = 0.85
# Errors without fallback: another provider would, or should, refuse the request too.
_FINAL = (ContentFilterError, InvalidRequestError, ContextLengthError)


class RetryPolicy:
    """Retries and fallback of one run; `names` are its providers in the order to call them."""

    def __init__(self, run: Run, names: Sequence[str], options: LoopOptions) -> None:
        self._run = run
        self._names = list(names)
        self._options = options
        self._failures = 0
        self._has_shrunk = False
        self._first_error: Exception | None = None

    @property
    def provider(self) -> str:
        """The name of the provider to call."""
        return self._names[0]

    def succeeded(self) -> None:
        """Reset the retry counter after an answer."""
        self._failures, self._has_shrunk = 0, False

    async def recover(self, error: BaseException, rows: Sequence[dict[str, Any]]) -> None:
        """Return when the call may be repeated; `rows` are the conversation's rows in the failed request.

        Raises:
            RunStopped, RunSuspended: the run was stopped or suspended during the wait.
            Exception: the error, if neither a retry nor a fallback can help.
        """
        if isinstance(error, ContextLengthError) and not self._has_shrunk:
            self._has_shrunk = True
            budget = self._run.token_budgets[self.provider] = int(sum(map(estimate, rows)) * _SHRINK_TO)
            log.warning("context.too_long", provider=self.provider, token_budget=budget)
        elif isinstance(error, LLMError) and (delay_s := self._delay_s(error)) is not None:
            await self._wait(error, delay_s)
        elif isinstance(error, Exception) and not isinstance(error, _FINAL) and len(self._names) > 1:
            await self._fall_back(error)
        else:
            raise error from self._first_error or error.__cause__

    def _delay_s(self, error: LLMError) -> float | None:
        """Return the delay before the retry, in seconds; None if this provider is not to be retried."""
        if not error.retryable or self._failures >= self._options.max_retries:
            return None
        doubled = 2.0 ** min(self._failures, 60)  # a larger exponent may overflow
        backoff_s = min(self._options.retry_base_delay_s * doubled, _MAX_BACKOFF_S)
        jitter_s = random.uniform(0, backoff_s / 2)  # noqa: S311 - jitter, not security
        if error.retry_after is None:
            return backoff_s - jitter_s
        return max(error.retry_after, 0) + jitter_s if error.retry_after <= _MAX_WAIT_S else None

    async def _wait(self, error: LLMError, delay_s: float) -> None:
        self._failures += 1
        data = {"provider": self.provider, "attempt": self._failures, "delay_s": delay_s, "error": str(error)}
        log.info("provider.retry", **data)
        await self._run.announce(events.PROVIDER_RETRY, data)
        await self._run.progress("retrying", **data, max_attempts=self._options.max_retries, reason=_reason(error))
        waiting = CancellableTask(asyncio.sleep(delay_s))
        with self._run.ending.watch(waiting.cancel):
            await waiting.wait()
        self._run.check_end()

    async def _fall_back(self, error: Exception) -> None:
        given_up = self._names.pop(0)
        self._failures, self._has_shrunk = 0, False
        self._first_error = self._first_error or error
        data = {"provider": given_up, "to": self.provider, "error": str(error)}
        log.warning("provider.fallback", **data)
        await self._run.announce(PROVIDER_FALLBACK, data)
        await self._run.progress("fallback", **data)


def _reason(error: LLMError) -> str:
    match error:
        case RateLimitError():
            return "rate_limit"
        case LLMTimeoutError():
            return "timeout"
    return "unavailable"
