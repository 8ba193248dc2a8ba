"""Slack's own picture of an agent at work, in the workspaces that have it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import structlog

from connector.outbound.errors import SlackCallFailed, Verdict
from connector.outbound.scheduler import Turn, Urgency

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable, Coroutine

    from connector.messages import Place
    from connector.outbound.wire import Wire

    Spawn = Callable[[Coroutine[Any, Any, object]], Task[None]]

log = structlog.get_logger(__name__)

PROCESSING, SUSPENDED, ACTIVE = "processing", "suspended", "active"
_SET, _RENAME = "agents.sessions.setStatus", "agents.sessions.rename"
_TITLE_CHARS = 60
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_ADDRESS = re.compile(r"\(?https?://(\S+?)[/?#)]\S*|https?://")
_MARKUP = re.compile(r"(?<!\w)[*_~`>#]+(?=\w)|(?<=\w)[*_~`]+(?!\w)|^[\s>#*-]+", re.MULTILINE)


class NativeSessions:
    """Tells Slack of each thread whether its agent is at work. Nothing waits for it, and the latest wins.

    What a workspace has not got, or does not let us do, is noted once, and not asked for again.
    """

    def __init__(self, wire: Wire, spawn: Spawn) -> None:
        """`spawn` begins a task of which somebody else takes care."""
        self._wire = wire
        self._spawn = spawn
        self._wanted: dict[Place, str] = {}
        self._titles: dict[Place, str] = {}
        self._missing: set[str] = set()

    def show(self, place: Place, status: str, title: str = "") -> None:
        """Have a thread shown as processing, suspended or active; and under a title, if one is given."""
        if _SET in self._missing or place.thread_ts is None:
            return
        if title:
            self._titles[place] = title
        is_on_its_way = place in self._wanted
        self._wanted[place] = status
        if not is_on_its_way:
            self._spawn(self._tell(place))

    async def _tell(self, place: Place) -> None:
        """Tell what is wanted of a thread until that is what was told."""
        told = ""

        def status() -> dict[str, str]:
            nonlocal told
            told = self._wanted[place]
            return {"status": told}

        def title() -> dict[str, str]:
            return {"title": self._titles[place]}

        try:
            while self._wanted[place] != told and _SET not in self._missing:
                await self._call(_SET, place, status)
                if place in self._titles and _RENAME not in self._missing:
                    await self._call(_RENAME, place, title)
                    del self._titles[place]
        except SlackCallFailed as e:
            self._note(e)
        finally:
            del self._wanted[place]
            self._titles.pop(place, None)

    async def _call(self, method: str, place: Place, arguments: Callable[[], dict[str, str]]) -> None:
        where = {"channel_id": place.channel, "thread_ts": place.thread_ts}
        turn = Turn(Urgency.MARK, place.conversation_id)
        await self._wire.call(method, lambda: {**where, **arguments()}, turn)

    def _note(self, failed: SlackCallFailed) -> None:
        if failed.verdict is Verdict.UNAVAILABLE:
            self._missing.add(failed.method)
            log.info("native.not_available", method=failed.method, error=failed.error)
        else:
            log.warning("slack.call_failed", error=str(failed))


def title_of(prompt: str) -> str:
    """What a conversation that begins with this is called: its first words, on one line, without markup."""
    plain = _MARKUP.sub("", _ADDRESS.sub(r"\1", _CODE.sub(" ", prompt)))
    line = " ".join((plain if plain.strip() else prompt.replace("`", "")).split())
    if len(line) <= _TITLE_CHARS:
        return line
    whole_words = line[:_TITLE_CHARS].rsplit(" ", 1)[0] if " " in line[:_TITLE_CHARS] else line[: _TITLE_CHARS - 1]
    return f"{whole_words.rstrip(' ,.;:')}…"
