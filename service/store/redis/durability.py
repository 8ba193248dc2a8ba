"""Whether a Redis server keeps what it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from redis.exceptions import ResponseError

if TYPE_CHECKING:
    from orchestrator_interactive.storage.redis import RedisClient

logger = structlog.get_logger(__name__)


async def warn(client: RedisClient) -> None:
    """Log what it is that may be lost, where the server tells how it is set up."""
    settings: dict[str, str] = {}
    async with client.asking():
        for name in ("appendonly", "maxmemory", "maxmemory-policy"):
            try:
                found = await client.redis.config_get(name)
            except ResponseError:  # it keeps that from us
                return
            settings |= {_text(key): _text(value) for key, value in found.items()}
    reasons = _reasons(settings)
    if reasons:
        logger.warning("store.not_durable", place=client.place, reason=" ".join(reasons))


def _reasons(settings: dict[str, str]) -> list[str]:
    reasons = []
    if settings.get("appendonly") == "no":
        reasons.append(
            "Redis does not write down what it is given: what people wrote last is lost when it restarts. "
            "Set `appendonly yes`, and `appendfsync always` where not a second may be lost."
        )
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction" and settings.get("maxmemory", "0") != "0":
        reasons.append(
            f"Redis drops conversations when its memory is full (`maxmemory-policy {policy}`). "
            "Set `maxmemory-policy noeviction`."
        )
    return reasons


def _text(raw: str | bytes) -> str:
    return raw.decode() if isinstance(raw, bytes) else raw
