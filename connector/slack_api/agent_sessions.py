"""Agent session status and titles in Slack, in workspaces that support them."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from connector.slack_api.errors import NOT_FOUND, SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot, CancelScope, Priority

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Awaitable, Callable, Coroutine

    from connector.events import ThreadAddress
    from connector.protocols import Persona
    from connector.slack_api.client import SlackClient

    Spawn = Callable[[Coroutine[Any, Any, object]], Task[None]]

log = structlog.get_logger(__name__)

PROCESSING, SUSPENDED, ACTIVE = "processing", "suspended", "active"
_SET = "agents.sessions.setStatus"
# Errors that are facts about the app or the workspace; other errors concern one thread.
UNAVAILABLE = frozenset(
    {"feature_disabled", "missing_scope", "not_allowed_token_type", "not_authorized", "unknown_method", NOT_FOUND}
)
_TITLE_CHARS = 60
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_ADDRESS = re.compile(r"\(?https?://(\S+?)[/?#)]\S*|https?://")
_MARKUP = re.compile(r"(?<!\w)[*_~`>#]+(?=\w)|(?<=\w)[*_~`]+(?!\w)|^[\s>#*-]+", re.MULTILINE)


class AgentSessions:
    """Sets the agent session status of threads. The latest status wins; a call is retried while Slack is unavailable.

    One call at a time is made until Slack has accepted one. If the app turns out to have no agent sessions, that is
    logged once, the calls that wait are dropped, and no other call is made.
    """

    def __init__(self, client: SlackClient, spawn: Spawn) -> None:
        """`spawn` starts a task and keeps it in a registry."""
        self._client = client
        self._spawn = spawn
        self._wanted: dict[ThreadAddress, dict[str, str]] = {}
        self._updates: dict[ThreadAddress, Task[None]] = {}
        self._processing: set[ThreadAddress] = set()
        self._first_call = asyncio.Lock()
        self._is_available = False
        # Cancelled when the app turns out to have no agent sessions.
        self._scope = CancelScope()

    def show(
        self, place: ThreadAddress, status: str, title: str = "", persona: Persona | None = None
    ) -> Task[None] | None:
        """Show a thread as processing, suspended or active; a new session gets the title, if one is given.

        With a persona, Slack names it as the one that works, not the app.

        Slack ignores the title of a session that exists, so a title that a person has set stays. Returns a task that
        ends once Slack has the latest status; `None`: no thread, the conversation of a worker, or the app has no agent
        sessions.
        """
        if self._scope.is_cancelled or place.thread_ts is None or place.worker:
            return None
        (self._processing.add if status == PROCESSING else self._processing.discard)(place)
        more = {"title": title} if title else {}
        more |= {"username": persona.name, "icon_emoji": persona.emoji} if persona is not None else {}
        self._wanted[place] = self._wanted.get(place, {}) | more | {"status": status}
        if place not in self._updates:
            self._updates[place] = self._spawn(self._update(place))
        return self._updates[place]

    def show_again(self, place: ThreadAddress) -> Task[None] | None:
        """Repeat the status of a thread: a late call of another process may have overwritten it."""
        return self.show(place, PROCESSING if place in self._processing else ACTIVE)

    async def _update(self, place: ThreadAddress) -> None:
        """Send the wanted status of a thread until the last one sent is the one wanted."""
        sent: dict[str, str] = {}
        where = {"channel_id": place.channel, "thread_ts": place.thread_ts}

        def arguments() -> dict[str, Any]:
            nonlocal sent
            sent = self._wanted[place]
            return {**where, **sent}

        slot = CallSlot(Priority.REACTION, place.conversation_id, self._scope)
        call = partial(self._client.call, _SET, arguments, slot)
        try:
            while self._wanted[place] != sent:
                async with self._first_call:
                    if not self._is_available:
                        await self._call(call)
                        continue
                await self._call(call)
        finally:
            del self._wanted[place], self._updates[place]

    async def _call(self, call: Callable[[], Awaitable[object]]) -> None:
        """Make a call and log its failure.

        Raises:
            CallCancelled: the app has no agent sessions.
        """
        self._scope.check()
        try:
            await self._client.retry_until_done(call)
        except SlackCallFailed as e:
            if e.error not in UNAVAILABLE:
                log.warning("slack.call_failed", error=str(e))
            elif not self._scope.is_cancelled:
                self._scope.cancel()
                log.info("agent_sessions.unavailable", method=_SET, error=e.error)
        else:
            self._is_available = True


def title_of(prompt: str) -> str:
    """Return the title of a conversation: the first words of its first prompt, on one line, without markup."""
    plain = _MARKUP.sub("", _ADDRESS.sub(r"\1", _CODE.sub(" ", prompt)))
    line = " ".join((plain if plain.strip() else prompt.replace("`", "")).split())
    if len(line) <= _TITLE_CHARS:
        return line
    whole_words = line[:_TITLE_CHARS].rsplit(" ", 1)[0] if " " in line[:_TITLE_CHARS] else line[: _TITLE_CHARS - 1]
    return f"{whole_words.rstrip(' ,.;:')}…"
