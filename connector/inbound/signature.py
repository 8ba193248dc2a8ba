"""Whether a request is Slack's: the signature that it carries."""

from __future__ import annotations

import hashlib
import hmac
import re

# Older requests may be copies that somebody sends again.
_WINDOW_S = 300
_TIMESTAMP = re.compile(r"[0-9]{1,12}")
_SIGNATURE = re.compile(r"v0=[0-9a-f]{64}")
_WRONG_SECRET = "Its signature does not fit: look whether the signing secret is this app's."  # noqa: S105 - a sentence
_WRONG_TIME = "It is of another time: look whether the clock of this machine is right."
# Flaws that a wrong setting causes: the operator can change it.
SETTING_ERRORS = (_WRONG_SECRET, _WRONG_TIME)


def signature_of(secret: str, timestamp: str, body: bytes) -> str:
    """How Slack signs the bytes of a body: docs.slack.dev/authentication/verifying-requests-from-slack."""
    signed = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def flaw_of(secret: str, timestamp: str | None, signature: str | None, body: bytes, now_s: float) -> str | None:
    """Why a request is not taken for Slack's, for the log; `None`: it is, and it is of these minutes."""
    if timestamp is None or signature is None:
        return "It has no signature."
    if not _TIMESTAMP.fullmatch(timestamp) or not _SIGNATURE.fullmatch(signature):
        return "Its signature has not the form of Slack's."
    if not hmac.compare_digest(signature_of(secret, timestamp, body), signature):
        return _WRONG_SECRET
    if abs(now_s - int(timestamp)) > _WINDOW_S:
        return _WRONG_TIME
    return None
