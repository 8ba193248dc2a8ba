"""Stores that several processes reach over a network that is slow, and that loses requests and replies."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from connector.protocols import Claim, InboxEntry, LeaseLost, StateChanges
from orchestrator_interactive.interactions.errors import Fenced
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.stores.base import Change, LogStore
from orchestrator_interactive.storage.errors import StoreUnavailable
from service.store.base import Admission, ConversationRecord
from simulated.engine import PROCESS
from simulated.simulation import Simulation

from .run_table import RunTable
from .store_observer import StoreObserver

T = TypeVar("T")

_LATENCIES_S = (0.0003, 0.0003, 0.002)
# A request for news is answered after this time even without news.
_NEWS_WITHIN_S = 10.0


class UnreachableError(Exception):
    """There was no reply; the request may have taken effect."""


@dataclass(slots=True)
class _Request:
    what: str
    effect: Callable[[], Any]
    reply: asyncio.Future[Any]
    home: contextvars.Context
    is_sent: bool
    is_refused: bool
    is_lost: bool


class Server:
    """A server that all processes use. A request that was sent arrives even if its sender is killed.

    `fault` is the feature by which single requests fail. While it `is_away`, no request gets a reply.
    """

    def __init__(self, sim: Simulation, name: str, fault: str, latencies_s: tuple[float, ...] = _LATENCIES_S):
        self.is_away = False
        self.sim = sim
        self._name = name
        self._fault = fault
        self._latencies_s = latencies_s
        self._here = contextvars.copy_context()
        self._here.run(PROCESS.set, 0)

    def latency_s(self) -> float:
        """Draw the time for one direction."""
        sim = self.sim
        if sim.occurs(f"slow {self._name}", 0.1):
            return sim.delay_s(0.1, 0.5)
        return sim.rng.choice(self._latencies_s) * (0.5 + sim.rng.random())

    def send(self, what: str, effect: Callable[[], Any], connection: Connection) -> asyncio.Future[Any]:
        sim, loop = self.sim, self.sim.loop
        reply = loop.create_future()
        is_refused, is_lost = sim.occurs(self._fault, 0.03), sim.occurs(self._fault, 0.04)
        is_sent = sim.occurs("orphaned calls", 0.5)  # else it is lost if its sender is killed now
        request = _Request(what, effect, reply, contextvars.copy_context(), is_sent, is_refused, is_lost)
        if sim.occurs("late arrivals", 0.02):
            sim.count(f"{self._name}: late arrival")
            self._answer(request, UnreachableError(what), is_error=True)
            loop.call_later(sim.delay_s(0.3, 3), self.arrive, request, context=self._here)
            return reply
        connection.waiting.append(request)
        loop.call_later(self.latency_s(), connection.arrive, context=self._here)
        return reply

    def arrive(self, request: _Request) -> None:
        sim = self.sim
        if not request.is_sent and sim.loop.killed_s(request.home.get(PROCESS, 0)) is not None:
            return
        if self.is_away or request.is_refused:
            sim.count(f"{self._name}: refused")
            sim.log(self._name, f"refuses {request.what}")
            self._answer(request, UnreachableError(request.what), is_error=True)
            return
        try:
            result, is_error = request.effect(), False
        except Exception as e:  # noqa: BLE001 - the caller gets it
            result, is_error = e, True
        self._answer(request, result, is_error=is_error)

    def _answer(self, request: _Request, answer: Any, *, is_error: bool) -> None:
        self.sim.loop.call_later(self.latency_s(), self._reply, request, answer, is_error, context=request.home)

    def _reply(self, request: _Request, answer: Any, is_error: bool) -> None:
        if request.reply.done():
            return
        if (request.is_lost or self.is_away) and not isinstance(answer, UnreachableError):
            self.sim.count(f"{self._name}: reply lost")
            self.sim.log(self._name, f"reply to {request.what} is lost")
            answer, is_error = UnreachableError(request.what), True
        (request.reply.set_exception if is_error else request.reply.set_result)(answer)


class Connection:
    """A connection on which requests arrive in the order in which they were sent."""

    def __init__(self, server: Server):
        self.waiting: deque[_Request] = deque()
        self._server = server

    async def ask(self, what: str, effect: Callable[[], T]) -> T:
        """Run `effect` at the server.

        Raises:
            StoreUnavailable: there was no reply; the effect may have happened.
        """
        try:
            answer: T = await self._server.send(what, effect, self)
        except UnreachableError as e:
            raise StoreUnavailable(f"The simulated store is away ({e}).") from e
        return answer

    def arrive(self) -> None:
        self._server.arrive(self.waiting.popleft())


def _table_method(name: str) -> Callable[..., Any]:
    async def call(self: NetworkRunStore, *arguments: Any, **options: Any) -> Any:
        return await self._connection.ask(name, lambda: getattr(self._table, name)(*arguments, **options))

    return call


class NetworkRunStore:
    """The connection of one process to the shared run table."""

    def __init__(self, server: Server, table: RunTable, observer: StoreObserver, process: int):
        self._connection = Connection(server)
        self._table = table
        self._observer = observer
        self._process = process

    renew, fetch, due, forget, record = map(_table_method, ("renew", "fetch", "due", "forget", "record"))
    renew_all, beat, end_leases = map(_table_method, ("renew_all", "beat", "end_leases"))
    learn, thread_of = map(_table_method, ("learn", "thread_of"))
    put_document, documents = map(_table_method, ("put_document", "documents"))
    replace_document, delete_document = map(_table_method, ("replace_document", "delete_document"))

    def server_of(self, _conversation_id: str) -> str:
        return ""

    async def admit(
        self, conversation_id: str, entry: InboxEntry, agent: str | None = None, facts: Mapping[str, str] | None = None
    ) -> Admission:
        def admit() -> Admission:
            admission = self._table.admit(conversation_id, entry, agent, facts)
            if admission.is_new:
                seq = len(self._table.conversations[conversation_id].order)
                self._observer.admitted(conversation_id, entry, seq)
            return admission

        return await self._connection.ask("admit", admit)

    async def claim(self, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
        def claim() -> Claim | None:
            claim = self._table.claim(conversation_id, owner, lease_s)
            if claim is not None:
                self._observer.claimed(conversation_id, self._process, claim)
            return claim

        return await self._connection.ask("claim", claim)

    async def write(self, conversation_id: str, token: int, changes: StateChanges) -> None:
        def write() -> None:
            try:
                self._table.write(conversation_id, token, changes)
            except LeaseLost:
                self._observer.refused(conversation_id, self._process, "a change")
                raise
            waiting = self._table.conversations[conversation_id].waiting
            self._observer.wrote(conversation_id, self._process, changes, waiting)

        await self._connection.ask("write", write)

    async def release(self, conversation_id: str, token: int, seen: int | None, due_in_s: float = 0.0) -> bool:
        def release() -> bool:
            is_released = self._table.release(conversation_id, token, seen, due_in_s)
            if is_released:
                self._observer.released(conversation_id, self._process)
            return is_released

        return await self._connection.ask("release", release)

    async def wait_for_notifications(self, owner: str) -> tuple[str, ...]:
        loop = asyncio.get_running_loop()
        news: asyncio.Future[tuple[str, ...]] = loop.create_future()
        await self._connection.ask("wait_for_notifications", lambda: self._table.listen(owner, news))
        timer = loop.call_later(_NEWS_WITHIN_S, lambda: None if news.done() else news.set_result(()))
        try:
            return await news
        finally:
            timer.cancel()

    async def conversations(self) -> list[str]:
        return await self._connection.ask("conversations", lambda: list(self._table.conversations))

    async def collections(self, prefix: str = "") -> list[str]:
        every = self._table.collections
        return await self._connection.ask(
            "collections", lambda: [name for name in every if every[name] and name.startswith(prefix)]
        )

    async def orphans(self) -> list[str]:
        return []

    async def idle_since(self, _since: float) -> list[str]:
        return []

    async def delete_expired(self) -> None:
        """Nothing expires."""

    async def aclose(self) -> None:
        """Nothing is open."""


def _log_method(name: str) -> Callable[..., Any]:
    async def call(self: NetworkLogStore, *arguments: Any) -> Any:
        return await self._connection.ask(name, lambda: _run_at_once(getattr(self._logs, name)(*arguments)))

    return call


class NetworkLogStore:
    """The connection of one process to the shared logs."""

    def __init__(self, server: Server, logs: LogStore, observer: StoreObserver, process: int):
        self._connection = Connection(server)
        self._logs = logs
        self._observer = observer
        self._process = process

    load, fence, read, keys, remove = map(_log_method, ("load", "fence", "read", "keys", "remove"))
    save_agent, agents, forget_agent = map(_log_method, ("save_agent", "agents", "forget_agent"))

    async def commit(self, key: Key, change: Change) -> None:
        async def commit() -> None:
            try:
                await self._logs.commit(key, change)
            except Fenced:
                self._observer.refused(key.conversation_id, self._process, "a row")
                raise
            self._observer.committed(key, change, self._process)

        await self._connection.ask("commit", lambda: _run_at_once(commit()))

    async def delete_expired(self) -> None:
        """Nothing expires."""

    async def aclose(self) -> None:
        """Nothing is open."""


def _run_at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as e:
        result: T = e.value
        return result
    raise AssertionError("The coroutine waits.")


class NetworkStores:
    """A server that keeps everything in memory. `logs` is for the invariants."""

    def __init__(self, sim: Simulation, parts: Any, observer: StoreObserver):
        self.logs: LogStore = parts.logs()
        self._table = parts.table(sim.now)
        self._server = Server(sim, "store", "flaky store")
        self._observer = observer

    async def connect(self, process: int) -> tuple[Any, Any]:
        return (
            NetworkRunStore(self._server, self._table, self._observer, process),
            NetworkLogStore(self._server, self.logs, self._observer, process),
        )

    def disconnect(self, process: int) -> None:
        """Requests that were sent still arrive."""

    def go_away(self) -> None:
        """Fail all requests, and forget pending notifications."""
        self._server.is_away = True
        self._table.forget_news()

    def come_back(self) -> None:
        self._server.is_away = False

    async def records(self) -> dict[str, ConversationRecord]:
        return {name: self._table.record(name) for name in self._table.conversations}

    async def documents(self, collection: str) -> dict[str, dict[str, Any]]:
        return self._table.documents(collection)

    def close(self) -> None:
        """Nothing is outside of this process."""
