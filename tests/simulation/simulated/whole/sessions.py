"""The service's sessions, whose configuration is known to be right."""

from __future__ import annotations

from service.sessions import InProcessSessionManager


class Sessions(InProcessSessionManager):
    """Mounts nothing before somebody asks for an answer: that would take most of a seed's time."""

    async def _preflight(self) -> None:
        """All is well."""
