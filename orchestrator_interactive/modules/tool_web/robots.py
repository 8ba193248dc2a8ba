"""Obey the robots.txt of hosts (RFC 9309)."""

from __future__ import annotations

import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from orchestrator_interactive.modules.tool_web.http_client import WebError, shown
from orchestrator_interactive.modules.tool_web.reading import robots_allow

if TYPE_CHECKING:
    from yarl import URL

    from orchestrator_interactive.modules.tool_web.download import Downloader

_KEPT_S = 3600.0
_KEPT_HOSTS = 20
_MAX_BYTES = 500 * 1024


class Robots:
    """Checks addresses against the robots.txt of their hosts, which it keeps for an hour."""

    def __init__(self, downloader: Downloader, user_agent: str) -> None:
        self._downloader = downloader
        # Rules are for a name, without version and comment.
        self._name = user_agent.partition("/")[0].strip()
        # By origin: when it was read, and its text.
        self._kept: OrderedDict[URL, tuple[float, str]] = OrderedDict()

    async def check(self, url: URL) -> None:
        """Refuse an address that robots.txt does not allow. A host without robots.txt allows all.

        Raises:
            WebError: it is not allowed, or robots.txt could not be read, which forbids everything.
        """
        origin = url.origin()
        read_s, text = self._kept.pop(origin, (0.0, ""))
        if not read_s or time.monotonic() - read_s > _KEPT_S:
            read_s, text = time.monotonic(), await self._text(origin)
        self._kept[origin] = (read_s, text)
        if len(self._kept) > _KEPT_HOSTS:
            self._kept.popitem(last=False)
        if text.strip() and not await robots_allow(self, text, str(url), self._name):
            raise WebError(f"The robots.txt of {shown(origin)} does not allow {shown(url.path)}. Use another source.")

    async def _text(self, origin: URL) -> str:
        try:
            file = await self._downloader.get(origin / "robots.txt", max_bytes=_MAX_BYTES)
        except WebError as e:
            if 400 <= e.status < 500 and e.status != 429:
                return ""
            raise WebError(f"{shown(origin)} may not be read, because its robots.txt is not available. {e}") from e
        return file.body.decode("utf-8-sig", "replace")
