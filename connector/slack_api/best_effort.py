"""Calls whose failure is logged and ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

from connector.protocols import LeaseLost
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallCancelled

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = structlog.get_logger(__name__)


async def best_effort(call: Coroutine[Any, Any, object]) -> None:
    """Await a call to Slack; log its failure and continue. `LeaseLost` is raised."""
    try:
        await call
    except LeaseLost:
        raise
    except CallCancelled:
        return
    except SlackCallFailed as e:
        log.warning("slack.call_failed", error=str(e))
    except Exception:  # a Slack handler's border: a cosmetic call must not end a run
        log.exception("slack.call_crashed")
