"""Delete conversations that have not changed for the time that the configuration gives."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import structlog

from connector.protocols import LeaseLost
from orchestrator_interactive.interactions.errors import DamagedLog, WriteConflict
from service.sessions.workers import are_workers_at_work, forget_workers
from service.store.base import thread_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.interactions.stores import LogStore
    from service.config.config import RetentionConfig
    from service.sessions.workspaces import Workspaces
    from service.store.base import RunStore

log = structlog.get_logger(__name__)

_DAY_S = 86_400.0
# While this process deletes a conversation, no other one may begin a run there.
_LEASE_S = 30.0


class Retention:
    """Deletes old conversations: logs, inbox and files. One with a run or pending messages, held ones too, is kept.

    `config` may be replaced; `record` audits each deletion.
    """

    def __init__(
        self,
        config: RetentionConfig,
        runs: RunStore,
        logs: LogStore,
        workspaces: Workspaces,
        record: Callable[..., None],
    ) -> None:
        self.config = config
        self._runs = runs
        self._logs = logs
        self._workspaces = workspaces
        self._record = record
        self._owner = f"retention-{uuid4().hex}"

    async def delete_expired(self, now_s: float | None = None) -> None:
        """Delete the old conversations.

        Raises:
            StoreError: a store cannot be used.
        """
        config = self.config  # a reload replaces it
        days = [each for each in (config.days, *config.channels.values()) if each is not None]
        if not days:
            return
        now_s = time.time() if now_s is None else now_s
        before = {each: now_s - each * _DAY_S for each in days}
        idle = {each: set(await self._runs.idle_since(before_s)) for each, before_s in before.items()}
        logs: dict[str, list[Key]] = {}
        keys = await self._logs.keys()
        for key in keys:
            logs.setdefault(_root(key), []).append(key)
        old = set().union(*idle.values())
        for key in reversed(keys):  # the oldest first
            if (written_s := await self._written_s(key)) < before[min(days)]:
                old.add(_root(key))
            elif written_s < math.inf:
                break
        deleted = 0
        for conversation_id in sorted(old):
            of_it = _days_of(config, conversation_id)
            with _skipping(conversation_id):
                if of_it is not None and (
                    conversation_id in idle[of_it] or await self._runs.record(conversation_id) is None
                ):
                    deleted += await self._delete(conversation_id, logs.get(conversation_id, ()), before[of_it])
        if deleted:
            log.info("retention.deleted", conversations=deleted)
            self._record("retention.deleted", conversations=deleted)

    def days_of(self, place: str) -> int | None:
        """Return for how many days a conversation or channel (`team:channel…`) is kept; `None`: for ever."""
        return _days_of(self.config, place)

    async def _delete(self, conversation_id: str, keys: Sequence[Key], before_s: float) -> bool:
        """Delete a conversation unless it is in use or its logs are newer; return whether it was deleted.

        Raises:
            LeaseLost: another process has claimed it; the rest of it is kept.
        """
        if any([await self._written_s(key) >= before_s for key in keys]):
            return False
        if await are_workers_at_work(self._runs, conversation_id):  # they use its files
            return False
        claim = await self._runs.claim(conversation_id, self._owner, _LEASE_S)
        if claim is None:
            return False
        is_kept = bool(claim.run or claim.posts) or any(each.kind != "note" for each in claim.entries)
        if not is_kept:
            with suppress(WriteConflict):
                for key in keys:
                    await self._runs.renew(conversation_id, claim.token, _LEASE_S)
                    await self._logs.fence(key, claim.token)
                    if (found := await self._logs.load(key)) is not None:
                        await self._logs.remove(key, found.version, claim.token)
            await self._runs.renew(conversation_id, claim.token, _LEASE_S)
            if thread_of(conversation_id) == conversation_id:
                await forget_workers(self._runs, conversation_id)
            await self._workspaces.remove(conversation_id)
        await self._runs.release(conversation_id, claim.token, None)
        return not is_kept and await self._runs.forget(conversation_id)

    async def _written_s(self, key: Key) -> float:
        """Return when the log was last written; a damaged one is never old."""
        try:
            found = await self._logs.load(key)
        except DamagedLog:
            return math.inf
        return found.tree.head.written if found is not None else 0.0


@contextmanager
def _skipping(conversation_id: str) -> Iterator[None]:
    """Skip a conversation that another process has claimed, or that is damaged."""
    try:
        yield
    except LeaseLost:
        return
    except DamagedLog as e:
        log.warning("conversation.damaged", conversation=conversation_id, problem=str(e))


def _root(key: Key) -> str:
    """Return the conversation of a log: that of the people, if an agent asks another one there."""
    return key.conversation_id.partition("/")[0]


def _days_of(config: RetentionConfig, place: str) -> int | None:
    return config.channels.get(_channel(place), config.days)


def _channel(conversation_id: str) -> str:
    return conversation_id.partition(":")[2].partition(":")[0]
