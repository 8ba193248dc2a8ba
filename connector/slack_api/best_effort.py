"""Calls whose failure is logged and ignored."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import structlog

from connector.error_boundary import error_boundary
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallCancelled

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = structlog.get_logger(__name__)


async def best_effort(call: Coroutine[Any, Any, object]) -> None:
    """Await a call to Slack; log its failure and continue. `LeaseLost` is raised."""
    with error_boundary("slack.call_crashed"), suppress(CallCancelled):  # a cosmetic call must not end a run
        try:
            await call
        except SlackCallFailed as e:
            log.warning("slack.call_failed", error=str(e))
