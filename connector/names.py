"""What people are called. A name is worth a moment of waiting, and no more."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING
from unicodedata import category, normalize

import structlog

from connector.outbound.errors import SlackCallFailed
from connector.outbound.scheduler import Turn, Urgency
from connector.protocols import Author

if TYPE_CHECKING:
    from collections.abc import Iterable

    from connector.outbound.wire import Wire

log = structlog.get_logger(__name__)

WAIT_S = 0.5
# Where Slack did not tell a name, and where it did.
_ASK_AGAIN_S, _ASK_ANEW_S = 60.0, 3600.0
_MOST_PEOPLE = 10_000
_NAME_CHARS = 80
_NOBODY = (None, 0.0)
_USER = re.compile(r"@([UW][A-Z0-9]{2,})\b")


class Names:
    """Display names of the workspace's people. One that is known is asked for again some time: people change theirs."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        # The name, and from when on it is asked for again; who was asked about last comes last.
        self._people: dict[str, tuple[str | None, float]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def learn(self, users: Iterable[str], within_s: float = WAIT_S) -> None:
        """Ask Slack what these people are called, all at once, and wait for new names, but not for long."""
        people = set(users)
        for user in people:
            self._ask(user)
        unknown = [self._asking[user] for user in people if user in self._asking and self.of(user) is None]
        if unknown:
            await asyncio.wait(unknown, timeout=within_s)

    def of(self, user: str) -> str | None:
        """The name, or `None` where Slack has not told it."""
        name, _ = self._people.get(user, _NOBODY)
        return name

    def author(self, user: str) -> Author:
        return Author(user, self.of(user) or "")

    def readable(self, text: str) -> str:
        """A text in which those people are mentioned by name whose names are known."""
        return _USER.sub(lambda mention: f"@{self.of(mention[1]) or mention[1]}", text)

    def identified(self, text: str) -> str:
        """A text for a model: as `readable`, with the id behind each name, since people may have the same name."""
        return _USER.sub(lambda mention: _mention(mention[1], self.of(mention[1]) or ""), text)

    async def close(self) -> None:
        asking = tuple(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    def _ask(self, user: str) -> None:
        now_s = asyncio.get_running_loop().time()
        _, again_at_s = self._people.get(user, _NOBODY)
        if user not in self._asking and now_s >= again_at_s:
            task = self._asking[user] = asyncio.create_task(self._learn(user))
            task.add_done_callback(lambda _: self._asking.pop(user, None))

    async def _learn(self, user: str) -> None:
        known, again_s = self.of(user), _ASK_AGAIN_S
        try:
            profile = (await self._wire.call("users.info", {"user": user}, Turn(Urgency.STATUS)))["user"]
            shown = profile.get("profile", {}).get("display_name")
            name = shown or profile.get("real_name") or profile.get("name")
        except (SlackCallFailed, KeyError) as e:
            log.info("slack.no_name", user=user, error=str(e))
        else:
            known, again_s = name or known, _ASK_ANEW_S
        self._people.pop(user, None)
        self._people[user] = known, asyncio.get_running_loop().time() + again_s
        if len(self._people) > _MOST_PEOPLE:
            del self._people[next(iter(self._people))]


def _mention(user: str, name: str) -> str:
    """Write a mention, without signs in the name that could end it or imitate an id."""
    signs = normalize("NFKC", name[:_NAME_CHARS])
    kept = (sign if sign in ".'\u2019-_" or category(sign)[0] in "LMN" else " " for sign in signs)
    plain = " ".join("".join(kept).split())
    return f"@{plain} ({user})" if plain else f"@{user}"


def mentioned_in(text: str) -> set[str]:
    """The people whom a text mentions."""
    return set(_USER.findall(text))
