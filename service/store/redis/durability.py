"""Check of a Redis server's durability settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from redis.exceptions import ResponseError

if TYPE_CHECKING:
    from orchestrator_interactive.storage.redis import RedisClient

logger = structlog.get_logger(__name__)


async def warn(client: RedisClient) -> None:
    """Log a warning if the server's settings can lose data. Silent if the server does not reveal them."""
    settings: dict[str, str] = {}
    async with client.command():
        for name in ("appendonly", "maxmemory", "maxmemory-policy"):
            try:
                found = await client.redis.config_get(name)
            except ResponseError:  # CONFIG GET is not permitted
                return
            settings |= {_text(key): _text(value) for key, value in found.items()}
    reasons = _reasons(settings)
    if reasons:
        logger.warning("store.not_durable", place=client.place, reason=" ".join(reasons))


def _reasons(settings: dict[str, str]) -> list[str]:
    reasons = []
    if settings.get("appendonly") == "no":
        reasons.append(
            "Redis is not persistent: recent messages are lost when it restarts. "
            "Set `appendonly yes`; also set `appendfsync always` to avoid losing the last second."
        )
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction" and settings.get("maxmemory", "0") != "0":
        reasons.append(
            f"Redis evicts conversations when its memory is full (`maxmemory-policy {policy}`). "
            "Set `maxmemory-policy noeviction`."
        )
    return reasons


def _text(raw: str | bytes) -> str:
    return raw.decode() if isinstance(raw, bytes) else raw
