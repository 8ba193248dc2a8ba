"""Verify the signature of Slack's HTTP requests."""

from __future__ import annotations

import hashlib
import hmac
import re

# Older requests may be replays.
_WINDOW_S = 300
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_SIGNATURE = re.compile(r"v0=[0-9a-f]{64}")
_WRONG_SECRET = "The signature does not match: check that the signing secret is this app's."  # noqa: S105 - a sentence
_WRONG_TIME = "The timestamp is too far from the current time: check the clock of this machine."
# Errors that the operator can fix in the configuration.
SETTING_ERRORS = (_WRONG_SECRET, _WRONG_TIME)


def signature_of(secret: str, timestamp: str, body: bytes) -> str:
    """Sign a body as Slack does: docs.slack.dev/authentication/verifying-requests-from-slack."""
    signed = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def flaw_of(secret: str, timestamp: str | None, signature: str | None, body: bytes, now_s: float) -> str | None:
    """Return why a request is not accepted as Slack's, for the log; `None`: its signature is valid and recent."""
    if timestamp is None or signature is None:
        return "The request has no signature."
    if not _TIMESTAMP.fullmatch(timestamp) or not _SIGNATURE.fullmatch(signature):
        return "The signature does not have Slack's format."
    if not hmac.compare_digest(signature_of(secret, timestamp, body), signature):
        return _WRONG_SECRET
    if abs(now_s - int(timestamp)) > _WINDOW_S:
        return _WRONG_TIME
    return None
