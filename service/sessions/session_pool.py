"""The agents' sessions that are in memory, and how long they stay there."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import structlog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from orchestrator_interactive.interactions import InteractionStack
    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.kernel import AmplifierSession

log = structlog.get_logger(__name__)

# How long one session may take over its end; and, when the service ends, whoever ends one just then, and all others.
_END_WITHIN_S = 10.0
_ALL_END_WITHIN_S = 0.2


@dataclass(frozen=True, slots=True)
class _Resting:
    session: AmplifierSession
    since_s: float


class SessionPool:
    """Hands out sessions, one per conversation and agent, and keeps those that rest for a while.

    One without a log stays, since it could not come back.

    Args:
        made: makes a session for a conversation that is to begin, or to come back from its log.
        idle_evict_s: how long one that rests is kept.
    """

    def __init__(self, made: Callable[[Key], Awaitable[AmplifierSession]], idle_evict_s: float) -> None:
        self._made = made
        self._idle_evict_s = idle_evict_s
        # The one that has rested longest comes first: all are kept for the same time, and one timer is enough.
        self._resting: OrderedDict[Key, _Resting] = OrderedDict()
        self._staying: dict[Key, _Resting] = {}
        self._has_some = asyncio.Event()
        self._evicting: asyncio.Task[None] | None = None

    def resting(self, key: Key) -> AmplifierSession | None:
        """The session of this conversation that rests here, where it goes on resting; `None`: none does."""
        found = self._resting.get(key) or self._staying.get(key)
        return found.session if found else None

    async def __aenter__(self) -> Self:
        self._evicting = asyncio.create_task(self._evict())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._evicting is not None:
            self._evicting.cancel()
            await asyncio.wait([self._evicting], timeout=_ALL_END_WITHIN_S)
        ending = [
            asyncio.create_task(_ended(key, resting.session))
            for key, resting in (*self._resting.items(), *self._staying.items())
        ]
        self._resting.clear()
        self._staying.clear()
        if not ending:
            return
        _, late = await asyncio.wait(ending, timeout=_ALL_END_WITHIN_S)
        for each in late:
            each.cancel()
        if late:
            log.warning("sessions.not_ended", count=len(late))

    async def take(self, key: Key, fence: int | None) -> AmplifierSession:
        """A session that is ready for its next run, and knows its log as it is now.

        What it writes from here on, it writes under this fencing token.

        Raises:
            Fenced: somebody with a higher token has been at its log.
            StoreError: its log cannot be used.
            ModuleNotFoundError, ModuleLoadError: a module cannot be had.
        """
        resting = self._pop(key)
        session = resting.session if resting else None
        try:
            if session is not None and not await _is_up_to_date(session, fence):
                await _ended(key, session)
                session = None
            if session is None:
                session = await self._made(key)
                await session.initialize()
                await _is_up_to_date(session, fence)
        except BaseException:  # half a session is of no use to the next run
            if session is not None:
                await _ended(key, session)
            raise
        return session

    async def give_back(self, key: Key, session: AmplifierSession) -> None:
        """Let a session rest."""
        other = self._pop(key)
        resting = _Resting(session, asyncio.get_running_loop().time())
        if log_of(session) is None:
            self._staying[key] = resting
        else:
            self._resting[key] = resting
            self._has_some.set()
        if other is not None and other.session is not session:
            await _ended(key, other.session)

    def _pop(self, key: Key) -> _Resting | None:
        return self._resting.pop(key, None) or self._staying.pop(key, None)

    async def _evict(self) -> None:
        clock = asyncio.get_running_loop()
        while True:
            await self._has_some.wait()
            while self._resting:
                key, longest = next(iter(self._resting.items()))
                left_s = longest.since_s + self._idle_evict_s - clock.time()
                if left_s > 0:
                    await asyncio.sleep(left_s)
                    continue
                del self._resting[key]
                await _ended(key, longest.session)
            self._has_some.clear()


def log_of(session: AmplifierSession) -> InteractionStack | None:
    """The log of a session's conversation; `None`: its context keeps none."""
    stack: InteractionStack | None = session.coordinator.get_capability("interactions.stack")
    return stack


async def _is_up_to_date(session: AmplifierSession, fence: int | None) -> bool:
    """Whether nobody else has been at the session's log since it was there last; it has the fence from here on."""
    stack = log_of(session)
    if stack is None:
        return True
    before = stack.moves
    if fence is None:
        await stack.refresh()
    else:
        await stack.fence(fence)
    await stack.length()  # it has looked by now
    return stack.moves == before


async def _ended(key: Key, session: AmplifierSession) -> None:
    try:
        async with asyncio.timeout(_END_WITHIN_S):
            await session.cleanup()
    except Exception:  # one session may not keep the others from ending
        log.exception("session.cleanup_failed", instance=key.agent_id, conversation=key.conversation_id)
