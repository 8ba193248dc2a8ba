"""Conversations that other systems begin or notify over HTTP."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog

from connector.slack_api.rate_limiter import LocalRateBudget

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from connector.inbound.unattended import Unattended
    from connector.protocols import RateBudget
    from service.config.triggers import TriggersConfig

log = structlog.get_logger(__name__)


@asynccontextmanager
async def serving_triggers(
    config: TriggersConfig, slack_of: Callable[[str | None], Unattended | None], budget: RateBudget | None
) -> AsyncIterator[None]:
    """Serve the triggers of a configuration while the context is open; without any, do nothing.

    `slack_of` is as in `TriggerServer`; `budget` is shared with other replicas.

    Raises:
        ConnectionRefused: the address cannot be used.
    """
    if not config.endpoints:
        yield
        return
    # Imported here, so that a service without triggers starts faster.
    from service.triggers.server import TriggerServer  # noqa: PLC0415

    async with TriggerServer(config, slack_of, budget or LocalRateBudget()) as server:
        log.info("triggers.listening", listen=config.listen, port=server.port, triggers=list(config.endpoints))
        yield
