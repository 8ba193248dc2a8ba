"""What people are called. A name is worth a moment of waiting, and no more."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import structlog

from connector.outbound.errors import SlackCallFailed
from connector.outbound.scheduler import Turn, Urgency

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connector.outbound.wire import Wire

log = structlog.get_logger(__name__)

WAIT_S = 0.5
_ASK_AGAIN_S = 60.0
_USER = re.compile(r"@([UW][A-Z0-9]{2,})\b")


class Names:
    """Display names of the workspace's people, each asked for once."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._asked: dict[str, asyncio.Task[str | None]] = {}

    async def learn(self, users: Iterable[str], within_s: float = WAIT_S) -> None:
        """Ask Slack what these people are called, all at once, and wait for it, but not for long."""
        unknown = [task for task in map(self._task_of, users) if not task.done()]
        if unknown:
            await asyncio.wait(unknown, timeout=within_s)

    def of(self, user: str) -> str | None:
        """The name, or `None` where Slack has not told it."""
        task = self._asked.get(user)
        has_answer = task is not None and task.done() and not task.cancelled() and task.exception() is None
        return task.result() if task is not None and has_answer else None

    def readable(self, text: str) -> str:
        """A text in which those people are mentioned by name whose names are known."""
        return _USER.sub(lambda mention: f"@{self.of(mention[1]) or mention[1]}", text)

    def close(self) -> None:
        for task in self._asked.values():
            task.cancel()

    def _task_of(self, user: str) -> asyncio.Task[str | None]:
        if user not in self._asked:
            self._asked[user] = asyncio.create_task(self._ask(user))
        return self._asked[user]

    async def _ask(self, user: str) -> str | None:
        try:
            profile = (await self._wire.call("users.info", {"user": user}, Turn(Urgency.STATUS)))["user"]
        except (SlackCallFailed, KeyError) as e:
            log.info("slack.no_name", user=user, error=str(e))
            asyncio.get_running_loop().call_later(_ASK_AGAIN_S, self._asked.pop, user, None)
            return None
        shown = profile.get("profile", {}).get("display_name")
        name: str | None = shown or profile.get("real_name") or profile.get("name")
        return name


def mentioned_in(text: str) -> set[str]:
    """The people whom a text mentions."""
    return set(_USER.findall(text))
