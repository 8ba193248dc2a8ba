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
# Where Slack did not tell a name, and where it did.
_ASK_AGAIN_S, _ASK_ANEW_S = 60.0, 3600.0
_USER = re.compile(r"@([UW][A-Z0-9]{2,})\b")


class Names:
    """Display names of the workspace's people. One that is known is asked for again some time: people change theirs."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._known: dict[str, str] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}
        # From when on somebody is asked about again.
        self._again_at_s: dict[str, float] = {}

    async def learn(self, users: Iterable[str], within_s: float = WAIT_S) -> None:
        """Ask Slack what these people are called, all at once, and wait for new names, but not for long."""
        people = set(users)
        for user in people:
            self._ask(user)
        unknown = [self._asking[user] for user in people if user in self._asking and user not in self._known]
        if unknown:
            await asyncio.wait(unknown, timeout=within_s)

    def of(self, user: str) -> str | None:
        """The name, or `None` where Slack has not told it."""
        return self._known.get(user)

    def readable(self, text: str) -> str:
        """A text in which those people are mentioned by name whose names are known."""
        return _USER.sub(lambda mention: f"@{self.of(mention[1]) or mention[1]}", text)

    async def close(self) -> None:
        asking = tuple(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def _ask(self, user: str) -> None:
        now_s = asyncio.get_running_loop().time()
        if user not in self._asking and now_s >= self._again_at_s.get(user, now_s):
            task = self._asking[user] = asyncio.create_task(self._learn(user))
            task.add_done_callback(lambda _: self._asking.pop(user, None))

    async def _learn(self, user: str) -> None:
        again_s = _ASK_AGAIN_S
        try:
            profile = (await self._wire.call("users.info", {"user": user}, Turn(Urgency.STATUS)))["user"]
            shown = profile.get("profile", {}).get("display_name")
            name = shown or profile.get("real_name") or profile.get("name")
        except (SlackCallFailed, KeyError) as e:
            log.info("slack.no_name", user=user, error=str(e))
        else:
            again_s = _ASK_ANEW_S
            if name:
                self._known[user] = name
        self._again_at_s[user] = asyncio.get_running_loop().time() + again_s


def mentioned_in(text: str) -> set[str]:
    """The people whom a text mentions."""
    return set(_USER.findall(text))
