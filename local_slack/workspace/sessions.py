"""What an agent shows of its work in a thread, beside its messages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

SessionStatus = Literal["active", "processing", "suspended", "closed"]
SESSION_STATUSES: tuple[SessionStatus, ...] = ("active", "processing", "suspended", "closed")

_SAID_S = 120.0


@dataclass(frozen=True, slots=True)
class Session:
    """One thread's session.

    ``says`` and ``loading`` come from ``assistant.threads.setStatus``, at ``said_at``, and hold until the app
    posts in the thread, for 2 minutes at most. ``status`` is empty where only those methods were used.
    """

    channel: str
    thread_ts: str
    status: SessionStatus | Literal[""] = ""
    title: str = ""
    says: str = ""
    loading: tuple[str, ...] = ()
    prompts: tuple[tuple[str, str], ...] = ()
    initiator: str | None = None
    said_at: float = 0.0

    def at(self, now: float) -> Session:
        """Return what is shown at this time."""
        return self if now - self.said_at <= _SAID_S else self.silent()

    def silent(self) -> Session:
        return replace(self, says="", loading=())
