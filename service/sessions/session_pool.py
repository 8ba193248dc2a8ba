"""The pool of idle agent sessions."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from service.sessions.foreign_loop import abandoned_run, adapt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.interactions import InteractionStack
    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.kernel import AmplifierSession

log = structlog.get_logger(__name__)

# Time limits for closing one session, and for closing all sessions when the service stops.
_END_WITHIN_S = 10.0
_ALL_END_WITHIN_S = 0.2


@dataclass(frozen=True, slots=True)
class _IdleSession:
    session: AmplifierSession
    eviction: asyncio.TimerHandle | None


class SessionPool:
    """Hands out sessions, one per conversation and agent, and evicts idle ones.

    A session without a log is never evicted, because it could not be restored.

    Args:
        create: creates a session for a new conversation, or restores one from its log.
        is_current: whether a session has the present configuration; others are closed if they have a log.
        idle_evict_s: time that an idle session is kept.
    """

    def __init__(
        self,
        create: Callable[[Key], Awaitable[AmplifierSession]],
        idle_evict_s: float,
        is_current: Callable[[Key, AmplifierSession], bool] = lambda _key, _session: True,
    ) -> None:
        self._create = create
        self._is_current = is_current
        self._idle_evict_s = idle_evict_s
        self._idle: dict[Key, _IdleSession] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """Close all idle sessions."""
        for key in list(self._idle):
            self._evict(key)
        if self._closing:
            _, late = await asyncio.wait(self._closing, timeout=_ALL_END_WITHIN_S)
            for each in late:
                each.cancel()
            if late:
                log.warning("sessions.not_ended", count=len(late))

    def evict_outdated(self) -> None:
        """Close the idle sessions whose configuration has changed."""
        for key, idle in list(self._idle.items()):
            if self._is_outdated(key, idle.session):
                self._evict(key)

    def idle(self, key: Key) -> AmplifierSession | None:
        """Return the conversation's idle session without taking it; `None` if there is none."""
        found = self._idle.get(key)
        return found.session if found else None

    async def take(self, key: Key, fence: int | None) -> AmplifierSession:
        """Take the conversation's session out of the pool or create it, up to date with its log.

        The session writes to the log under the fencing token `fence`.

        Raises:
            Fenced: a process with a higher fencing token has claimed the log.
            StoreError: the log cannot be used.
            ModuleNotFoundError, ModuleLoadError: a module cannot be loaded.
        """
        idle = self._pop(key)
        if idle is not None and await _prepare(key, idle, fence):
            return idle
        session = await self._create(key)
        await _prepare(key, session, fence, is_new=True)
        return session

    async def give_back(self, key: Key, session: AmplifierSession) -> None:
        """Return a session to the pool, unless a run of it continues after its stop: then close it after that run."""
        if (late := abandoned_run(session)) is not None:
            log.warning("session.abandoned", instance=key.agent_id, conversation=key.conversation_id)
            late.add_done_callback(lambda _: self._close_soon(key, session))
            return
        if self._is_outdated(key, session):
            self._close_soon(key, session)
            return
        other = self._pop(key)
        keeps_log = log_of(session) is not None
        eviction = asyncio.get_running_loop().call_later(self._idle_evict_s, self._evict, key) if keeps_log else None
        self._idle[key] = _IdleSession(session, eviction)
        if other is not None and other is not session:
            await _close(key, other)

    def _is_outdated(self, key: Key, session: AmplifierSession) -> bool:
        return log_of(session) is not None and not self._is_current(key, session)

    def _pop(self, key: Key) -> AmplifierSession | None:
        found = self._idle.pop(key, None)
        if found is None:
            return None
        if found.eviction is not None:
            found.eviction.cancel()
        return found.session

    def _evict(self, key: Key) -> None:
        session = self._pop(key)
        if session is not None:
            self._close_soon(key, session)

    def _close_soon(self, key: Key, session: AmplifierSession) -> None:
        closing = asyncio.create_task(_close(key, session))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def log_of(session: AmplifierSession) -> InteractionStack | None:
    """Return the log of the session's conversation; `None` if its context keeps no log."""
    stack: InteractionStack | None = session.coordinator.get_capability("interactions.stack")
    return stack


async def _prepare(key: Key, session: AmplifierSession, fence: int | None, *, is_new: bool = False) -> bool:
    """Initialize a new session and set the log's fencing token. If that fails, close the session.

    Close an idle session and return False if another process has changed the log since the session read it.
    """
    async with AsyncExitStack() as unless_usable:
        unless_usable.push_async_callback(_close, key, session)
        if is_new:
            await session.initialize()
            adapt(session)
        stack = log_of(session)
        if stack is not None:
            before = stack.moves
            await (stack.refresh() if fence is None else stack.fence(fence))
            await stack.length()  # forces a read of the log
            if not is_new and stack.moves != before:
                return False
        unless_usable.pop_all()
    return True


async def _close(key: Key, session: AmplifierSession) -> None:
    try:
        async with asyncio.timeout(_END_WITHIN_S):
            await session.cleanup()
    except Exception:  # a tool call's border: a module's failure must not prevent closing the others
        log.exception("session.cleanup_failed", instance=key.agent_id, conversation=key.conversation_id)
