"""A log store that processes reach over a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator_interactive.interactions.errors import Fenced
from orchestrator_interactive.storage.errors import StoreUnavailable

from .network import Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from orchestrator_interactive.interactions.records import Key, Node
    from orchestrator_interactive.interactions.stores.base import Change, Log, LogStore

    from .network import Server
    from .store_observer import Witness

T = TypeVar("T")


class SimulatedLogStore:
    """A process's own door to the logs that all share."""

    def __init__(self, server: Server, logs: LogStore, witness: Witness, process: int) -> None:
        self._line = server.line()
        self._logs = logs
        self._witness = witness
        self._process = process

    async def load(self, key: Key) -> Log | None:
        return await self._ask("load", self._logs.load, key)

    async def commit(self, key: Key, change: Change) -> None:
        await self._ask("commit", self._commit, key, change)

    async def fence(self, key: Key, token: int) -> None:
        await self._ask("fence", self._logs.fence, key, token)

    async def read(self, key: Key, segment: int, start: int, stop: int) -> list[Node]:
        return await self._ask("read", self._logs.read, key, segment, start, stop)

    async def keys(self) -> list[Key]:
        return await self._ask("keys", self._logs.keys)

    async def scan(self, since: float, until: float, kinds: Sequence[str]) -> AsyncIterator[tuple[Key, Node]]:
        async for each in self._logs.scan(since, until, kinds):
            yield each

    async def remove(self, key: Key, version: int) -> None:
        await self._ask("remove", self._logs.remove, key, version)

    async def save_agent(self, agent_id: str, config: str) -> None:
        await self._ask("save_agent", self._logs.save_agent, agent_id, config)

    async def agents(self) -> dict[str, str]:
        return await self._ask("agents", self._logs.agents)

    async def forget_agent(self, agent_id: str) -> None:
        await self._ask("forget_agent", self._logs.forget_agent, agent_id)

    async def delete_expired(self) -> None:
        """Nothing is kept for longer than the logs."""

    async def aclose(self) -> None:
        """Nothing to let go of."""

    async def _commit(self, key: Key, change: Change) -> None:
        try:
            await self._logs.commit(key, change)
        except Fenced:
            self._witness.refused(key.conversation_id, self._process, "a row")
            raise
        self._witness.committed(key, change, self._process)

    async def _ask(self, what: str, step: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        try:
            return await self._line.ask(what, lambda: at_once(step(*arguments)))
        except Unreachable as e:
            raise StoreUnavailable(f"The simulated store is away ({e}).") from e


def at_once(step: Coroutine[Any, Any, T]) -> T:
    """What a coroutine gives that waits for nothing."""
    try:
        step.send(None)
    except StopIteration as e:
        result: T = e.value
        return result
    raise AssertionError("It was to wait for nothing.")
