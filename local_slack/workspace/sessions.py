"""Agent sessions: the status of an agent in a thread."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

SessionStatus = Literal["active", "processing", "suspended", "closed"]
SESSION_STATUSES: tuple[SessionStatus, ...] = ("active", "processing", "suspended", "closed")

_SAID_S = 120.0


@dataclass(frozen=True, slots=True)
class Session:
    """One thread's session.

    ``says`` and ``loading`` come from ``assistant.threads.setStatus``, at ``said_at``, and last until the app
    posts in the thread, at most 2 minutes. ``status`` is empty if only those methods were used.
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
        """Return the session without an expired status text."""
        return self if now - self.said_at <= _SAID_S else self.silent()

    def silent(self) -> Session:
        return replace(self, says="", loading=())
