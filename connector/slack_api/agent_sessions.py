"""Agent session status and titles in Slack, in workspaces that support them."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable, Coroutine

    from connector.events import ThreadAddress
    from connector.slack_api.client import SlackClient

    Spawn = Callable[[Coroutine[Any, Any, object]], Task[None]]

log = structlog.get_logger(__name__)

PROCESSING, SUSPENDED, ACTIVE = "processing", "suspended", "active"
_SET, _RENAME = "agents.sessions.setStatus", "agents.sessions.rename"
# Errors that hold for the whole workspace; other errors concern one thread.
_UNAVAILABLE = frozenset({"feature_disabled", "missing_scope", "not_allowed_token_type", "unknown_method"})
_TITLE_CHARS = 60
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_ADDRESS = re.compile(r"\(?https?://(\S+?)[/?#)]\S*|https?://")
_MARKUP = re.compile(r"(?<!\w)[*_~`>#]+(?=\w)|(?<=\w)[*_~`]+(?!\w)|^[\s>#*-]+", re.MULTILINE)


class AgentSessions:
    """Sets the agent session status of threads. The latest status wins; a call is retried while Slack is unavailable.

    After a method turns out to be unavailable in the workspace, it is logged once and not called again.
    """

    def __init__(self, client: SlackClient, spawn: Spawn) -> None:
        """`spawn` starts a task and keeps it in a registry."""
        self._client = client
        self._spawn = spawn
        self._wanted: dict[ThreadAddress, str] = {}
        self._updates: dict[ThreadAddress, Task[None]] = {}
        self._processing: set[ThreadAddress] = set()
        self._missing: set[str] = set()

    def show(self, place: ThreadAddress, status: str, title: str = "") -> Task[None] | None:
        """Show a thread as processing, suspended or active, and set its title if one is given.

        Returns a task that ends once Slack has the latest status; `None`: no thread, or the method is unavailable.
        """
        if _SET in self._missing or place.thread_ts is None:
            return None
        self._wanted[place] = status
        (self._processing.add if status == PROCESSING else self._processing.discard)(place)
        if place not in self._updates:
            self._updates[place] = self._spawn(self._update(place, title))
        elif title:
            self._spawn(self._call(_RENAME, place, lambda: {"title": title}))
        return self._updates[place]

    def show_again(self, place: ThreadAddress) -> Task[None] | None:
        """Repeat the status of a thread: a late call of another process may have overwritten it."""
        return self.show(place, PROCESSING if place in self._processing else ACTIVE)

    async def _update(self, place: ThreadAddress, title: str) -> None:
        """Send the wanted status of a thread until the last one sent is the one wanted."""
        sent = ""

        def status() -> dict[str, str]:
            nonlocal sent
            sent = self._wanted[place]
            return {"status": sent}

        try:
            while self._wanted[place] != sent and _SET not in self._missing:
                await self._call(_SET, place, status, until_done=True)
                if title and _SET not in self._missing:  # the session exists now; nothing waits for the rename
                    self._spawn(self._call(_RENAME, place, partial(dict, title=title)))
                    title = ""
        finally:
            del self._wanted[place], self._updates[place]

    async def _call(
        self, method: str, place: ThreadAddress, arguments: Callable[[], dict[str, str]], *, until_done: bool = False
    ) -> None:
        """Call a method and log its failure. Record methods that the workspace does not support, and skip these."""
        if method in self._missing:
            return
        where = {"channel_id": place.channel, "thread_ts": place.thread_ts}
        slot = CallSlot(Priority.REACTION, place.conversation_id)
        call = partial(self._client.call, method, lambda: {**where, **arguments()}, slot)
        try:
            await (self._client.retry_until_done(call) if until_done else call())
        except SlackCallFailed as e:
            if e.error in _UNAVAILABLE:
                self._missing.add(method)
                log.info("agent_sessions.unavailable", method=method, error=e.error)
            else:
                log.warning("slack.call_failed", error=str(e))


def title_of(prompt: str) -> str:
    """Return the title of a conversation: the first words of its first prompt, on one line, without markup."""
    plain = _MARKUP.sub("", _ADDRESS.sub(r"\1", _CODE.sub(" ", prompt)))
    line = " ".join((plain if plain.strip() else prompt.replace("`", "")).split())
    if len(line) <= _TITLE_CHARS:
        return line
    whole_words = line[:_TITLE_CHARS].rsplit(" ", 1)[0] if " " in line[:_TITLE_CHARS] else line[: _TITLE_CHARS - 1]
    return f"{whole_words.rstrip(' ,.;:')}…"
