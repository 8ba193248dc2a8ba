"""Whether a request is Slack's: the signature that it carries."""

from __future__ import annotations

import hashlib
import hmac
import re

# Older requests may be copies that somebody sends again.
_WINDOW_S = 300
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_SIGNATURE = re.compile(r"v0=[0-9a-f]{64}")


def signature_of(secret: str, timestamp: str, body: bytes) -> str:
    """How Slack signs the bytes of a body: https://docs.slack.dev/authentication/verifying-requests-from-slack"""
    signed = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def is_signed(secret: str, timestamp: str | None, signature: str | None, body: bytes, now_s: float) -> bool:
    """Whether the headers' timestamp and signature fit the body, and are of these minutes."""
    if not _TIMESTAMP.fullmatch(timestamp or "") or not _SIGNATURE.fullmatch(signature or ""):
        return False
    if timestamp is None or signature is None or abs(now_s - int(timestamp)) > _WINDOW_S:
        return False
    return hmac.compare_digest(signature_of(secret, timestamp, body), signature)
