"""What people are called. A name is worth a moment of waiting, and no more."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import structlog

from connector.wire import SlackCallFailed

if TYPE_CHECKING:
    from connector.wire import Wire

log = structlog.get_logger(__name__)

WAIT_S = 0.5
_ASK_AGAIN_S = 60.0
_USER = re.compile(r"@([UW][A-Z0-9]{2,})\b")


class Names:
    """Display names of the workspace's people, each asked for once."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._asked: dict[str, asyncio.Task[str | None]] = {}

    async def of(self, user: str) -> str | None:
        """The name, or `None` where Slack does not tell it within a moment; then the next question may know it."""
        if user not in self._asked:
            self._asked[user] = asyncio.create_task(self._ask(user))
        task = self._asked[user]
        await asyncio.wait((task,), timeout=WAIT_S)
        return task.result() if task.done() else None

    async def readable(self, text: str) -> str:
        """A text in which people are mentioned by name."""
        known = {user: await self.of(user) for user in set(_USER.findall(text))}
        return _USER.sub(lambda m: f"@{known[m[1]] or m[1]}", text)

    def close(self) -> None:
        for task in self._asked.values():
            task.cancel()

    async def _ask(self, user: str) -> str | None:
        try:
            profile = (await self._wire.call("users.info", {"user": user}))["user"]
        except (SlackCallFailed, KeyError) as e:
            log.info("slack.no_name", user=user, error=str(e))
            asyncio.get_running_loop().call_later(_ASK_AGAIN_S, self._asked.pop, user, None)
            return None
        shown = profile.get("profile", {}).get("display_name")
        name: str | None = shown or profile.get("real_name") or profile.get("name")
        return name
