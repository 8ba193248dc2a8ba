"""The run store in Redis, for several processes on several machines."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakValueDictionary

import structlog
from redis.exceptions import ResponseError

from connector.protocols import ThreadFacts
from orchestrator_interactive.storage.errors import StoreUnavailable
from orchestrator_interactive.storage.redis import RedisClient
from service.store.base import (
    GRACE_S,
    KEPT_ENTRIES,
    KEPT_S,
    MOST_DOCUMENTS,
    Admission,
    Count,
    as_json,
    claim_of,
    conversation_record,
    documents_of,
    entry_of,
    lost,
    readable,
)
from service.store.redis import scripts
from service.store.redis.index import ALL, RedisIndex, keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from connector.protocols import Claim, InboxEntry, StateChanges
    from orchestrator_interactive.storage.redis import RedisScript
    from service.store.base import ConversationRecord

log = structlog.get_logger(__name__)

# Maximum number of admissions with an unknown outcome that are remembered.
_MOST_UNCERTAIN_CALLS = 10_000
# Maximum number of pending notifications of an owner, and their time to live in seconds.
_MOST_NEWS, _NEWS_S = 10_000, 60
# Timeout of `wait_for_notifications`, in seconds.
_WAIT_S = 1
# The counts of the heartbeats of the processes, and the number of leases that end at once.
_OWNERS, _AT_ONCE = "runs:owners", 50

# Number of keys per request of a search through all keys.
_SCANNED = 1_000


class RedisRunStore(RedisIndex):
    """A run store in a Redis server or cluster."""

    def __init__(self, client: RedisClient) -> None:
        super().__init__(client)
        self._process = secrets.token_hex(8)
        self._steps = count(1)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._uncertain_calls: OrderedDict[tuple[str, str], str] = OrderedDict()

    @classmethod
    async def open(cls, url: str) -> Self:
        return cls(await RedisClient.open(url, ALL))

    async def warn(self) -> None:
        """Log a warning if the server's settings can lose data. Silent if the server does not reveal them."""
        settings: dict[bytes, bytes] = {}
        async with self._client.command():
            for name in ("appendonly", "maxmemory", "maxmemory-policy"):
                try:
                    settings |= await self._client.redis.config_get(name)
                except ResponseError:  # CONFIG GET is not permitted
                    return
        reasons = " ".join(_reasons({_text(name): _text(value) for name, value in settings.items()}))
        if reasons:
            log.warning("store.not_durable", place=self._client.place, reason=reasons)

    async def admit(
        self, conversation_id: str, entry: InboxEntry, agent: str | None = None, facts: Mapping[str, str] | None = None
    ) -> Admission:
        # A retry after a lost answer has the same call id, so that the script returns the first result.
        call = self._uncertain_calls.pop((conversation_id, entry.id), None) or secrets.token_hex(4)
        of_entry = [entry.id, entry.kind, as_json(entry.data)]
        arguments = [*of_entry, call, agent or "", int(GRACE_S * 1000), *chain(*(facts or {}).items())]
        with self._client.keep_open():
            with ExitStack() as on_failure:
                on_failure.callback(self._remember_call, conversation_id, entry.id, call)
                await self._enter(conversation_id, GRACE_S)
                is_new, owner = await self._run(scripts.ADMIT, conversation_id, *arguments)
                on_failure.pop_all()
            if is_new and owner:
                with suppress(StoreUnavailable):  # the owner sees a missed notification when it renews its lease
                    news = [conversation_id, _MOST_NEWS, _NEWS_S]
                    await self._client.run(scripts.WAKE, [_news(owner.decode())], news)
        return Admission(bool(is_new), owner.decode() or None)

    async def claim(self, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
        with self._client.keep_open():
            await self._enter(conversation_id, GRACE_S)
            found = await self._step(scripts.CLAIM, conversation_id, owner, int(lease_s * 1000))
        if found is None:
            return None
        token, pairs, entries = found
        with readable(conversation_id):
            fields = _paired(pairs)
            posts, held_seq = _named(fields, b"p:"), int(fields.get(b"held_seq", 0))
            stopped_s = float(fields.get(b"stopped_s", 0))
            return claim_of(int(token), fields.get(b"run"), posts, held_seq, stopped_s, map(_row, entries))

    async def renew(self, conversation_id: str, token: int, lease_s: float) -> int:
        last: int = await self._run(scripts.RENEW, conversation_id, token, int(lease_s * 1000))
        if last < 0:
            raise lost(conversation_id)
        return last

    async def renew_all(self, tokens: Mapping[str, int], lease_s: float) -> dict[str, int]:
        more = int(lease_s * 1000)
        calls = [(keys(name), [self._client.ttl_s, KEPT_S, token, more]) for name, token in tokens.items()]
        found = zip(tokens, await self._client.run_each(scripts.RENEW, calls), strict=True)
        return {name: last for name, last in found if isinstance(last, int) and last >= 0}

    def server_of(self, conversation_id: str) -> str:
        return self._client.server_of(keys(conversation_id)[0])

    async def beat(self, owner: str) -> dict[str, int]:
        counts = _paired(await self._client.run(scripts.BEAT, [_OWNERS], [owner]))
        return {name.decode(): int(count) for name, count in counts.items()}

    async def end_leases(self, owner: str, unrenewed_s: float) -> bool:
        clock = asyncio.get_running_loop().time
        as_of_s = clock() - unrenewed_s
        with self._client.keep_open():
            names, found = await self.unfinished(), list[bool | BaseException]()
            for start in range(0, len(names), _AT_ONCE):
                page = (self._end_lease(each, owner, clock() - as_of_s) for each in names[start : start + _AT_ONCE])
                found += await asyncio.gather(*page, return_exceptions=True)
            for each in found:  # after the leases on the other servers of a cluster have ended
                if isinstance(each, BaseException):
                    raise each
            if all(found):
                async with self._client.command():
                    await self._client.redis.hdel(_OWNERS, owner)
        return all(found)

    async def _end_lease(self, conversation_id: str, owner: str, unrenewed_s: float) -> bool:
        """End a lease of a process; return False if it has renewed it too recently."""
        ended = await self._run(scripts.END_LEASE, conversation_id, owner, int(unrenewed_s * 1000))
        if ended > 0:
            await self._enter(conversation_id, 0.0)
        return bool(ended >= 0)

    async def fetch(self, conversation_id: str, token: int, after: int) -> tuple[InboxEntry, ...]:
        await self._client.wait_for_detached(conversation_id)
        entries = await self._run(scripts.FETCH, conversation_id, token, after)
        if entries is None:
            raise lost(conversation_id)
        with readable(conversation_id):
            return tuple(entry_of(_row(raw)) for raw in entries)

    async def write(self, conversation_id: str, token: int, changes: StateChanges) -> None:
        with self._client.keep_open():
            if changes.run or changes.held_seq is not None or changes.stopped_s is not None:
                await self._enter(conversation_id, GRACE_S)
            work = self._step(scripts.WRITE, conversation_id, token, *_arguments(changes))
            if await self._client.run_detached(conversation_id, work) < 0:
                raise lost(conversation_id)

    async def release(self, conversation_id: str, token: int, seen: int | None, due_in_s: float = 0.0) -> bool:
        with self._client.keep_open():
            unless_after = "" if seen is None else seen
            work = self._step(scripts.RELEASE, conversation_id, token, unless_after, int(due_in_s * 1000))
            released: int = await self._client.run_detached(conversation_id, work)
            if released == 2:
                # Its index entry may be scheduled for the end of the released lease.
                await self._enter(conversation_id, due_in_s)
        if released < 0:
            raise lost(conversation_id)
        return released > 0

    async def wait_for_notifications(self, owner: str) -> Sequence[str]:
        async with self._client.command():
            first = await self._client.redis.blpop([_news(owner)], timeout=_WAIT_S)
            if first is None:
                return ()
            rest = await self._client.redis.lpop(_news(owner), _MOST_NEWS) or ()
        return tuple(dict.fromkeys(name.decode() for name in (first[1], *rest)))

    async def learn(self, conversation_id: str, facts: Mapping[str, str]) -> None:
        await self._run(scripts.LEARN, conversation_id, *chain(*facts.items()))

    async def thread_of(self, conversation_id: str) -> ThreadFacts:
        pairs = await self._run(scripts.THREAD, conversation_id)
        with readable(conversation_id):
            fields = _paired(pairs)
            facts = {name: value.decode() for name, value in _named(fields, b"f:").items()}
            return ThreadFacts(fields[b"agent"].decode() if b"agent" in fields else None, facts)

    async def put_document(
        self, collection: str, name: str, data: Mapping[str, Any], most: int = MOST_DOCUMENTS
    ) -> None:
        await self._client.run(scripts.PUT_DOCUMENT, _of_documents(collection), [name, as_json(data), most])

    async def replace_document(
        self, collection: str, name: str, known: Mapping[str, Any], data: Mapping[str, Any], most: int | None = None
    ) -> bool:
        arguments = [name, as_json(known), as_json(data), "" if most is None else most]
        return bool(await self._client.run(scripts.REPLACE_DOCUMENT, _of_documents(collection), arguments))

    async def documents(self, collection: str, name: str | None = None) -> dict[str, dict[str, Any]]:
        names = [] if name is None else [name]
        found = await self._client.run(scripts.DOCUMENTS, _of_documents(collection), names)
        return documents_of((_text(name), data) for name, data in _paired(found).items())

    async def collections(self, prefix: str = "") -> list[str]:
        (_, pattern), (_, every) = _of_documents(f"{prefix}*"), _of_documents("*")
        before, after = every.split("*")
        async with self._client.command():
            found = self._client.redis.scan_iter(match=pattern, count=_SCANNED)
            return list({_text(key).removeprefix(before).removesuffix(after): None async for key in found})

    async def delete_document(self, collection: str, name: str, known: Mapping[str, Any] | None = None) -> bool:
        arguments = [name] if known is None else [name, as_json(known)]
        return bool(await self._client.run(scripts.DELETE_DOCUMENT, _of_documents(collection), arguments))

    async def record(self, conversation_id: str) -> ConversationRecord | None:
        await self._client.wait_for_detached(conversation_id)
        result = await self._run(scripts.RECORD, conversation_id)
        with readable(conversation_id):
            found = _record(*result)
        if found is None or not found.has_something_to_do or await self._is_watched(conversation_id):
            return found
        return replace(found, is_overlooked=True)

    async def orphans(self) -> list[str]:
        return []  # impossible: entries are stored under their conversation's name

    async def forget(self, conversation_id: str) -> bool:
        await self._client.wait_for_detached(conversation_id)
        places = keys(conversation_id)
        call = secrets.token_hex(8)
        return bool(await self._client.run(scripts.FORGET, [*places, f"{places[0]}:forgotten"], [0, 0, call]))

    async def aclose(self) -> None:
        """Close the connections after pending writes."""
        await self._client.aclose()

    async def _step(self, script: RedisScript, conversation_id: str, *arguments: Any) -> Any:
        """Run an owner's script. Calls for one conversation run in call order."""
        lock = self._locks.setdefault(conversation_id, asyncio.Lock())
        async with lock:
            return await self._run(script, conversation_id, self._process, next(self._steps), *arguments)

    async def _run(self, script: RedisScript, conversation_id: str, *arguments: Any) -> Any:
        return await self._client.run(script, keys(conversation_id), [self._client.ttl_s, KEPT_S, *arguments])

    def _remember_call(self, conversation_id: str, entry_id: str, call: str) -> None:
        self._uncertain_calls[conversation_id, entry_id] = call
        while len(self._uncertain_calls) > _MOST_UNCERTAIN_CALLS:
            self._uncertain_calls.popitem(last=False)


def _news(owner: str) -> str:
    return f"runs:wake:{owner}"


def _of_documents(collection: str) -> list[str]:
    """Return the keys of a collection, in one cluster slot."""
    return [f"runs:documents:{{{collection}}}", f"runs:documents:{{{collection}}}:names"]


def _arguments(changes: StateChanges) -> list[Any]:
    """Return the changes as arguments of the script WRITE."""
    run = "" if changes.run is None else as_json(changes.run)
    posts = [part for name, content in changes.posts.items() for part in (name, as_json(content))]
    replaced = [part for seq, data in changes.replaced.items() for part in (seq, as_json(data))]
    closed = [part for seq, end in changes.closed.items() for part in (seq, end)]
    held_seq, stopped_s = ("" if each is None else each for each in (changes.held_seq, changes.stopped_s))
    head = [KEPT_ENTRIES, run, held_seq, stopped_s, int(changes.deletes_posts)]
    return [*head, len(changes.posts), *posts, len(changes.replaced), *replaced, *closed]


def _record(  # noqa: PLR0913, PLR0917 - the results of the script RECORD
    pairs: Sequence[bytes],
    inbox: Sequence[bytes],
    known_ids: Sequence[bytes],
    order: Sequence[bytes],
    old: int,
    is_owned: int,
) -> ConversationRecord | None:
    """Convert the results of the script RECORD; `None` if there is no such conversation."""
    fields, hows = _paired(pairs), _paired(known_ids)
    if not fields and not inbox and not order and not hows:
        return None
    accepted = int(fields.get(b"seq", 0))
    # If the conversation is unchanged for KEPT_S, all its ids expire at once.
    forgotten = accepted if not order and not inbox else int(fields.get(b"gone", 0)) - old
    agent, owner = (fields[name].decode() if name in fields else None for name in (b"agent", b"owner"))
    return conversation_record(
        fields.get(b"run"),
        _named(fields, b"p:"),
        [_row(raw) for raw in inbox],
        () if hows.keys() == set(order) else ("the ids of its entries and their order do not match",),
        agent=agent,
        owner=owner,
        is_owned=bool(is_owned),
        held_seq=int(fields.get(b"held_seq", 0)),
        ends={name.decode(): how.partition(b"=")[2].decode() for name, how in hows.items() if b"=" in how},
        order=tuple(name.decode() for name in order),
        count=Count(accepted, {end: int(n) for end, n in _named(fields, b"n:").items()}, forgotten),
    )


def _row(raw: bytes) -> tuple[int, str, Any, bytes]:
    """Split an inbox entry, whose lines are: sequence number, kind, length of the id, id and data."""
    seq, kind, length, rest = raw.split(b"\n", 3)
    at = int(length)
    return int(seq), rest[:at].decode(), kind.decode(), rest[at:]


def _paired(parts: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _named(fields: Mapping[bytes, bytes], prefix: bytes) -> dict[str, bytes]:
    """Return the fields with this prefix, by the rest of their names."""
    return {name[len(prefix) :].decode(): value for name, value in fields.items() if name.startswith(prefix)}


def _reasons(settings: Mapping[str, str]) -> list[str]:
    reasons = []
    if settings.get("appendonly") == "no":
        reasons.append(
            "Redis is not persistent: recent messages are lost when it restarts. "
            "Set `appendonly yes`; also set `appendfsync always` to avoid losing the last second."
        )
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction" and settings.get("maxmemory", "0") != "0":
        reasons.append(
            f"Redis evicts conversations when its memory is full (`maxmemory-policy {policy}`). "
            "Set `maxmemory-policy noeviction`."
        )
    return reasons


def _text(raw: str | bytes) -> str:
    return raw.decode() if isinstance(raw, bytes) else raw
