"""Dispatch, list and stop workers: each is a run of its own, with a conversation of its own.

A worker is a document, stored first, and an order: the first message in the inbox of its conversation. Everything else
is what every run has: lease, log, outbox, status message, takeover.
"""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter

from connector.events import StopRequest, ThreadAddress
from connector.protocols import InboxEntry, Worker
from connector.records import PendingMessage, active_run, stop_entry
from orchestrator_interactive.interactions.errors import DamagedLog
from service.store.base import MOST_DOCUMENTS, parse_documents, thread_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from connector.protocols import RunService
    from connector.records import RunRecord
    from orchestrator_interactive.interactions.records import Key
    from service.sessions.host import HostFunction
    from service.store.base import RunStore

_WORKER = TypeAdapter(Worker)
_ID_CHARS = 6
_TITLE_CHARS, _REPORT_CHARS = 120, 4_000
# Workers at work in a thread, and levels of workers that dispatch others.
MOST_AT_WORK = 20
_MOST_LEVELS = 2
# A worker whose order is not stored after this time was never ordered.
_ORDERED_WITHIN_S = 60.0
_MOST_S = 7 * 24 * 3600.0


class _Asker(NamedTuple):
    """The origin of a worker: id of a message or command, of its run (of a command: the same), and its author.

    `is_bot`: no person began the run.
    """

    id: str
    run: str
    user: str
    is_bot: bool = False


class StoredWorkers:
    """The workers of all threads, in documents of the run store; implements `connector.protocols.Workers`.

    Args:
        runs: admits the orders and stops of workers; `None`: this process only reads.
        now_s: seconds since the epoch.
    """

    def __init__(self, store: RunStore, runs: RunService | None = None, now_s: Callable[[], float] = time.time) -> None:
        self._store = store
        self._runs = runs
        self._now_s = now_s

    @property
    def functions(self) -> dict[str, HostFunction]:
        """The functions that sessions may call; see `service.sessions.host`."""
        return {
            "workers.dispatch": self._dispatch,
            "workers.list": self._list,
            "workers.show": self._show,
            "workers.stop": self.stop,
            "workers.overlay": self._overlay,
        }

    async def of_thread(self, conversation_id: str) -> tuple[Worker, ...]:
        """Return the workers of a thread, the latest first."""
        found = await _of_thread(self._store, conversation_id, self._now_s())
        return tuple(sorted(found, key=lambda worker: -worker.created_s))

    async def find(self, conversation_id: str) -> Worker | None:
        """Return the worker whose conversation this is."""
        if thread_of(conversation_id) == conversation_id:
            return None
        found = parse_documents(_WORKER, await self._store.documents(_collection(conversation_id)))
        return next((each for each in found.values() if each.conversation_id == conversation_id), None)

    async def ended(self, conversation_id: str, status: str, report: str, at_s: float, *, fence: int) -> None:
        """Keep that a worker has ended. A worker that works on for a further message ends again."""
        await self._change(conversation_id, fence, status=status, report=report[:_REPORT_CHARS], ended_s=at_s)

    async def begun(self, conversation_id: str, *, fence: int) -> None:
        """Keep that a worker works on, for a further message."""
        await self._change(conversation_id, fence, status="", report="", ended_s=0.0)

    async def _dispatch(self, key: Key, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Dispatch a worker; a repeated call with the same `call_id` returns the same worker.

        Raises:
            ValueError: no run asks for it, or there are too many workers.
        """
        parent = await self._parent(key)
        asker = _Asker(parent.first.id, parent.id, parent.first.owner, is_bot=not parent.first.has_person)
        worker = await self._stored(key, asker, arguments)
        if (await self._parent(key)).stops:  # a later stop finds the worker in the list
            await self._change(worker.conversation_id, 0, status="cancelled", ended_s=self._now_s())
            raise ValueError("The run was stopped, so that no worker begins.")
        return await self._order(worker, arguments)

    async def dispatch(self, key: Key, request_id: str, user: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Dispatch a worker that a user requests, without a run; a repeated request returns the same worker.

        Raises:
            ValueError: there are too many workers.
        """
        arguments = {**arguments, "authors": [user]}
        worker = await self._stored(key, _Asker(request_id, request_id, user), arguments)
        return await self._order(worker, arguments)

    async def _stored(self, key: Key, asker: _Asker, arguments: Mapping[str, Any]) -> Worker:
        """Store the worker of a call, unless it is stored, and return it."""
        collection = _collection(key.conversation_id)
        documents = await self._store.documents(collection)
        worker = await self._worker(key, asker, arguments, documents)
        if worker.id not in documents:
            at_work = [each for each in await self.of_thread(key.conversation_id) if not each.ended_s]
            if len(at_work) >= MOST_AT_WORK:
                raise ValueError(f"{len(at_work)} workers are at work in this thread: wait until one has ended.")
            call = {"call": str(arguments["call_id"]), "instruction": str(arguments["instruction"])}
            more = {"overlay": dict(arguments.get("overlay") or {}), "authors": list(arguments.get("authors") or ())}
            data = {**asdict(worker), **more, **call, "for_bot": asker.is_bot}
            for oldest in list(documents)[MOST_DOCUMENTS - 1 :]:
                await self._store.delete_document(collection, oldest)
            if not await self._store.replace_document(collection, worker.id, {}, data):
                # Another process has stored it for the same call.
                worker = await self._worker(key, asker, arguments, await self._store.documents(collection))
        return worker

    async def _order(self, worker: Worker, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Admit the order for a worker, once."""
        assert self._runs is not None  # noqa: S101 - a process that dispatches has runs
        instruction, place = str(arguments["instruction"]), ThreadAddress.parse(worker.conversation_id)
        message = place.message(f"{worker.created_s:.6f}", instruction)
        message = replace(message, user=worker.user, key=_order_key(worker))
        documents = await self._store.documents(_collection(worker.conversation_id))
        for_bot = bool(documents.get(worker.id, {}).get("for_bot"))
        order = PendingMessage(
            message,
            worker.instance,
            instruction,
            message.id,
            title=worker.title,
            until_s=worker.deadline_s,
            for_bot=for_bot,
        )
        facts = dict((await self._runs.thread_of(thread_of(worker.conversation_id))).latest)
        people = {name: at for name, at in facts.items() if name.startswith("person:")}
        entry = InboxEntry(order.id, "message", asdict(order))
        asker = {} if for_bot else {f"person:{worker.user}": message.ts}
        await self._runs.admit(worker.conversation_id, entry, worker.instance, {**people, **asker})
        return {"id": worker.id, "title": worker.title}

    async def _worker(
        self, key: Key, asker: _Asker, arguments: Mapping[str, Any], documents: Mapping[str, Mapping[str, Any]]
    ) -> Worker:
        """Return the worker of a call: the stored one, or a new one."""
        call_id, number = str(arguments["call_id"]), 0
        while True:  # until the id is free, or that of this call
            text = f"{key.conversation_id} {asker.id} {call_id} {number}"
            worker_id = f"w{sha256(text.encode()).hexdigest()[:_ID_CHARS]}"
            if (known := documents.get(worker_id)) is None:
                break
            if known.get("call") == call_id and known.get("parent_run") == asker.run:
                return _WORKER.validate_python(known)
            number += 1
        timeout_s, now_s = float(arguments.get("timeout_s") or 0.0), self._now_s()
        title = " ".join(str(arguments.get("title") or arguments["instruction"]).split())[:_TITLE_CHARS]
        return Worker(
            worker_id,
            f"{thread_of(key.conversation_id)}:{worker_id}",
            key.conversation_id,
            asker.run,
            key.agent_id,
            str(arguments.get("agent") or ""),
            title,
            asker.user,
            now_s,
            now_s + min(timeout_s, _MOST_S) if timeout_s else 0.0,
        )

    async def _parent(self, key: Key) -> RunRecord:
        """Return the active run of a session.

        Raises:
            ValueError: there is none, or too many workers are above it.
        """
        level, above = 0, key.conversation_id
        while (worker := await self.find(above)) is not None:
            level, above = level + 1, worker.parent
        if level >= _MOST_LEVELS:
            raise ValueError(f"Workers dispatch others at most {_MOST_LEVELS} levels deep: do this yourself.")
        record = await self._store.record(key.conversation_id)
        if (run := active_run(None if record is None else record.run)) is None:
            raise ValueError("No run is active in this conversation, so that no one is there to dispatch a worker.")
        return run

    async def _list(self, key: Key, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"workers": [asdict(each) for each in await self.of_thread(key.conversation_id)]}

    async def _show(self, key: Key, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return asdict(await self._named(key, arguments))

    async def stop(self, key: Key, arguments: Mapping[str, Any], user: str | None = None) -> dict[str, Any]:
        """Stop a worker on behalf of a user; `None`: of the one on whose behalf it works.

        Raises:
            ValueError: there is no such worker in the thread.
        """
        assert self._runs is not None  # noqa: S101 - as above
        worker = await self._named(key, arguments)
        if not worker.ended_s:
            await stop_worker(self._runs.admit, worker, user or worker.user, str(arguments.get("call_id") or "agent"))
        return asdict(worker)

    async def _named(self, key: Key, arguments: Mapping[str, Any]) -> Worker:
        found = await self.find(f"{thread_of(key.conversation_id)}:{arguments.get('id', '')}")
        if found is None:
            raise ValueError(f"There is no worker {arguments.get('id')!r} in this thread.")
        return found

    async def _overlay(self, key: Key, _: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sub-agent, the configuration and the authors of the worker whose session asks."""
        documents = await self._store.documents(_collection(key.conversation_id))
        data = documents.get(key.conversation_id.rpartition(":")[2], {})
        given = {"agent": data.get("agent") or "", "overlay": data.get("overlay") or {}}
        return {**given, "authors": data.get("authors") or []}

    async def _change(self, conversation_id: str, fence: int, **changes: Any) -> None:
        """Change a worker's document, unless an owner with a later token than `fence` has; 0: unless any owner has."""
        collection, name = _collection(conversation_id), conversation_id.rpartition(":")[2]
        while (known := (await self._store.documents(collection)).get(name)) and known.get("fence", 0) <= fence:
            new = {**known, **changes, "fence": fence}
            if await self._store.replace_document(collection, name, known, new):
                return


async def stop_worker(
    admit: Callable[[str, InboxEntry], Awaitable[object]], worker: Worker, user: str, request: str
) -> None:
    """Store a request to stop a worker: gracefully, or at once if it is the second one."""
    stop = StopRequest(f"{worker.conversation_id}:stop:{request}", user, f"{time.time():.6f}")
    await admit(worker.conversation_id, stop_entry(stop))


async def are_workers_at_work(store: RunStore, conversation_id: str) -> bool:
    """Return whether a worker of a thread has not ended."""
    return any(not each.ended_s for each in await _of_thread(store, conversation_id, time.time()))


async def threads_with_workers(store: RunStore) -> list[str]:
    """Return the threads that have records of workers."""
    return [each.removeprefix(_collection("")) for each in await store.collections(_collection(""))]


async def forget_workers(store: RunStore, conversation_id: str, user: str = "") -> None:
    """Delete the records of the ended workers of a thread, or only those of workers for one user."""
    for worker in await _of_thread(store, conversation_id, time.time()):
        if worker.ended_s and user in {"", worker.user}:
            await store.delete_document(_collection(conversation_id), worker.id)


async def _of_thread(store: RunStore, conversation_id: str, now_s: float) -> list[Worker]:
    """Return the workers of a thread; one whose order was never stored, because its process ended before, has ended."""
    found, documents = [], await store.documents(_collection(conversation_id))
    for worker in parse_documents(_WORKER, documents).values():
        is_late = not worker.ended_s and now_s - worker.created_s >= _ORDERED_WITHIN_S
        is_lost = is_late and not await _is_ordered(store, worker)
        found.append(replace(worker, status="not begun", ended_s=worker.created_s) if is_lost else worker)
    return found


async def _is_ordered(store: RunStore, worker: Worker) -> bool:
    """Return whether the order of a worker is stored; True if its inbox cannot be read."""
    try:
        record = await store.record(worker.conversation_id)
    except DamagedLog:
        return True
    # The id of the order may have expired while the worker works on for a further message.
    return record is not None and (
        record.has_run or any(id_.endswith(f"::{_order_key(worker)}") for id_ in record.order)
    )


def _order_key(worker: Worker) -> str:
    return f"{worker.id}.order"


def _collection(conversation_id: str) -> str:
    return f"workers:{thread_of(conversation_id)}"
