"""Slack's request signature ``v0``, over the timestamp and the body."""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Signer:
    """Sign request bodies with the app's signing secret."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        self.secret = secret
        self._clock = clock

    def headers(self, body: bytes) -> dict[str, str]:
        stamp = str(int(self._clock()))
        digest = hmac.new(self.secret.encode(), f"v0:{stamp}:".encode() + body, hashlib.sha256).hexdigest()
        return {"X-Slack-Request-Timestamp": stamp, "X-Slack-Signature": f"v0={digest}"}
