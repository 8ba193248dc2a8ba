"""Slack's rate limits per method and workspace, and the share that the rate limiter uses."""

from __future__ import annotations

from typing import Final

from connector.protocols import Limit

# Share of the limit per minute: calls that are sent evenly may arrive closer together.
_USED: Final = 0.94
# Burst as a share of the limit. A status is edited throughout its run, so it gets a steady rate and a small burst.
_IN_BURSTS: Final = 0.5
_STEADY: Final = 0.1
_LOOKED_UP: Final = 0.2


def _per_minute(calls: float, at_once: float = _IN_BURSTS) -> Limit:
    """Return a limit under which burst and refill of any minute add up to less than `calls`."""
    return Limit(calls * at_once, calls * (_USED - at_once) / 60)


_SPECIAL = _per_minute(600)
_TIER_4 = _per_minute(100)
_TIER_3 = _per_minute(50)
_TIER_2 = _per_minute(20)

# Slack's tiers, https://docs.slack.dev/apis/web-api/rate-limits. Methods that are not listed count as tier 2.
_BY_METHOD: Final = {
    "agents.sessions.rename": _TIER_3,
    "agents.sessions.setStatus": _TIER_3,
    "apps.connections.open": _TIER_3,
    "apps.manifest.export": _TIER_3,
    "assistant.threads.setStatus": _SPECIAL,
    "assistant.threads.setTitle": _TIER_4,
    "auth.test": _SPECIAL,
    "chat.delete": _TIER_3,
    "chat.postEphemeral": _TIER_4,
    "chat.postMessage": _per_minute(300, _STEADY),
    "chat.update": _per_minute(50, _STEADY),
    "conversations.history": _TIER_3,
    # A takeover of many runs looks up their posts for minutes: a steady rate is worth more than a burst.
    "conversations.replies": _per_minute(50, _LOOKED_UP),
    "files.completeUploadExternal": _TIER_4,
    "files.getUploadURLExternal": _TIER_4,
    "reactions.add": _TIER_3,
    "reactions.remove": _TIER_2,
    "users.info": _TIER_4,
}
# Largest share of a method's calls for look-ups: the rest is for authors, access checks and the bot's own posts.
_LOOK_UPS: Final = 0.5
# About one message per second and channel, with a small burst.
_POSTS_IN_A_CHANNEL: Final = Limit(4, 0.94)


def limits_of(method: str, channel: str, scale: float) -> dict[str, Limit]:
    """Return the buckets that a call takes a token from, with their limits, the narrowest first."""
    buckets = {method: _BY_METHOD.get(method, _TIER_2)}
    if method == "chat.postMessage":
        buckets = {f"{method}:{channel}": _POSTS_IN_A_CHANNEL, **buckets}
    return {name: Limit(max(1.0, limit.burst * scale), limit.per_s * scale) for name, limit in buckets.items()}


def look_ups_of(method: str, scale: float) -> dict[str, Limit]:
    """Return the bucket that a look-up takes a token from, in addition to those of `limits_of`."""
    limit, share = _BY_METHOD.get(method, _TIER_2), scale * _LOOK_UPS
    return {f"{method}:look-ups": Limit(max(1.0, limit.burst * share), limit.per_s * share)}
