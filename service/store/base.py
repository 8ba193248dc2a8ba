"""What all backends share: the interfaces of a backend and of its run store, and the serialization of its data.

A run store has inboxes, leases, active runs and outboxes, by conversation.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pydantic import ValidationError

from connector.protocols import Claim, InboxEntry, LeaseLost, RateBudget
from orchestrator_interactive.interactions.errors import DamagedLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pydantic import TypeAdapter

    from connector.protocols import StateChanges, ThreadFacts
    from orchestrator_interactive.interactions.stores import LogStore

    Text = str | bytes | None
    # An entry as it is stored: sequence number, id, kind and data.
    Row = tuple[int, str, Any, Any]

# Seconds until a conversation without an owner is due after an admission; the admitting process can claim it first.
GRACE_S = 2.0
# Maximum delay in seconds until a conversation that was handed over is due.
MAX_DUE_IN_S = 60.0
# Ids of closed entries are kept for duplicate detection: the newest of each conversation,
KEPT_ENTRIES = 10_000
# for this many seconds after its last change.
KEPT_S = 7 * 24 * 60 * 60

# Documents of a collection.
MOST_DOCUMENTS = 1_000

_UNREADABLE = object()

T = TypeVar("T")

as_json = json.JSONEncoder(separators=(",", ":")).encode
_POSTED = as_json("")


@dataclass(frozen=True, slots=True)
class Admission:
    """The result of admitting an inbox entry.

    Args:
        is_new: whether the entry's id is not a duplicate.
        owner: the process with a valid lease on the conversation; `None` if there is none.
    """

    is_new: bool
    owner: str | None


@dataclass(frozen=True, slots=True)
class Count:
    """An inbox's counters, which the audit compares with its entries.

    Args:
        accepted: number of entries ever admitted.
        left: number of entries that left the inbox, by their `end`.
        forgotten: number of entries whose ids have expired.
    """

    accepted: int
    left: Mapping[str, int]
    forgotten: int


@dataclass(frozen=True, slots=True)
class ConversationRecord:
    """A snapshot of a conversation's stored data, for audits.

    Args:
        agent: the conversation's instance.
        owner: the process that held the last lease; `None` if it was released.
        is_owned: whether that lease is valid.
        has_run: whether a run is active, or was active when its owner died.
        posts: number of pending posts in the outbox.
        held_seq: messages up to this sequence number start no run by themselves.
        waiting: pending inbox entries, in order.
        ends: how entries left the inbox (`end`), by id.
        order: ids of all entries that have not expired, in the order of acceptance.
        damaged: descriptions of unreadable or inconsistent data.
        is_overlooked: whether the conversation has pending work, but is missing from the index of due conversations.
        run: the stored record of the run, if it is readable.
    """

    agent: str | None
    owner: str | None
    is_owned: bool
    has_run: bool
    posts: int
    held_seq: int
    waiting: tuple[InboxEntry, ...]
    ends: Mapping[str, str]
    order: Sequence[str]
    count: Count
    damaged: tuple[str, ...] = ()
    is_overlooked: bool = False
    run: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Raise TypeError if a value has a wrong type because the store is damaged."""
        texts = [*self.order, *self.ends, *self.ends.values(), *(name for name in (self.agent, self.owner) if name)]
        numbers = [self.held_seq, self.count.accepted, self.count.forgotten, *self.count.left.values()]
        for entry in self.waiting:
            texts += [entry.id, entry.kind]
            numbers.append(entry.seq)
        if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
            raise TypeError("a stored value has a wrong type")

    @property
    def is_unfinished(self) -> bool:
        """Whether it has a run, posts, or pending entries, held ones too; a note is read only with a later message."""
        return bool(self.has_run or self.posts) or any(entry.kind != "note" for entry in self.waiting)

    @property
    def has_something_to_do(self) -> bool:
        """Whether a run is active, or an entry is pending after `held_seq`."""
        return self.has_run or any(entry.seq > self.held_seq for entry in self.waiting)


def boottime_s() -> float:
    """Return monotonic seconds, including time the machine is suspended if the platform has CLOCK_BOOTTIME."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def workspace_of(conversation_id: str) -> str:
    """Return the workspace of a conversation, whose id is `team:channel:thread_ts`."""
    return conversation_id.partition(":")[0]


def thread_of(conversation_id: str) -> str:
    """Return the conversation of the thread in which a worker's conversation posts; of another one, its own id."""
    return ":".join(conversation_id.split(":")[:3])


class RunStore(Protocol):
    """Every method is atomic and safe to call concurrently, from several tasks and processes.

    Times are measured by the store's clock. Methods are idempotent: a call whose answer was lost can be retried and
    returns the result of the first call.

    All methods raise StoreUnavailable if the store is temporarily unreachable, and StoreError if it cannot be used.
    Methods with a fencing token raise LeaseLost if another process has claimed the conversation.
    """

    async def admit(
        self, conversation_id: str, entry: InboxEntry, agent: str | None = None, facts: Mapping[str, str] | None = None
    ) -> Admission:
        """Append an entry to the conversation's inbox and notify the owner. Ignore a duplicate id, with its facts.

        A conversation without an owner becomes due after two seconds, so that the admitting process can claim it
        first.
        """
        ...

    async def claim(self, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
        """Claim the conversation's lease for `lease_s`; `None` if another process has a valid lease.

        The fencing token is higher than all earlier ones, even for a repeated claim by the same owner.
        """
        ...

    async def renew(self, conversation_id: str, token: int, lease_s: float) -> int:
        """Renew the lease for `lease_s` from now; return the last sequence number in the inbox.

        An expired lease can be renewed if no other process has claimed the conversation.
        """
        ...

    async def renew_all(self, tokens: Mapping[str, int], lease_s: float) -> Mapping[str, int]:
        """Renew leases by one request to `server_of` their conversations.

        Returns what `renew` does, by conversation. The result has none that was lost, and may lack others.
        """
        ...

    def server_of(self, conversation_id: str) -> str:
        """Return a name for the server that has a conversation; blank if the store has one."""
        ...

    async def fetch(self, conversation_id: str, token: int, after: int) -> tuple[InboxEntry, ...]:
        """Return the pending inbox entries after this sequence number, in order."""
        ...

    async def write(self, conversation_id: str, token: int, changes: StateChanges) -> None:
        """Write all changes or none. Entries that are closed or missing are left unchanged."""
        ...

    async def release(self, conversation_id: str, token: int, seen: int | None, due_in_s: float = 0.0) -> bool:
        """Release the lease. Return False, and keep it, if an entry is pending after the sequence number `seen`.

        With `None`, release it unconditionally. Pending work is due after `due_in_s`, which is at most MAX_DUE_IN_S.
        """
        ...

    async def due(self, workspace: str, most: int) -> list[str]:
        """Return the due conversations of a workspace: pending work and no valid lease, longest waiting first.

        Pending work is an active run, or an entry that is pending after `held_seq`.
        """
        ...

    async def unfinished(self) -> list[str]:
        """Return the conversations with pending work, owned ones included; some may have none."""
        ...

    async def wait_for_notifications(self, owner: str) -> Sequence[str]:
        """Wait for new entries in conversations that this process owns; return their ids. Empty after a timeout."""
        ...

    async def beat(self, owner: str) -> Mapping[str, int]:
        """Count a heartbeat of a process; return the counts of all by name. Empty if the store has one process."""
        ...

    async def end_leases(self, owner: str, unrenewed_s: float) -> bool:
        """End the leases of a process that it had not renewed for so long; if none is left, forget its heartbeats.

        A lease that is renewed after this was called does not end.

        Returns whether none is left.

        Raises:
            StoreUnavailable: a server of a cluster is unreachable; the leases on the others have ended.
        """
        ...

    async def learn(self, conversation_id: str, facts: Mapping[str, str]) -> None:
        """Store facts of a conversation, if it exists; see `ThreadFacts.latest`."""
        ...

    async def thread_of(self, conversation_id: str) -> ThreadFacts:
        """Return the agent of the last entry that had one, and all facts."""
        ...

    async def conversations(self) -> list[str]:
        """Return the ids of all conversations."""
        ...

    async def record(self, conversation_id: str) -> ConversationRecord | None:
        """Return a snapshot of a conversation; `None` if it does not exist."""
        ...

    async def orphans(self) -> list[str]:
        """Return the ids of entries that belong to no conversation; empty in a consistent store."""
        ...

    async def idle_since(self, since: float) -> list[str]:
        """Return the conversations without changes since then (seconds since the epoch)."""
        ...

    async def delete_expired(self) -> None:
        """Delete expired data; the service calls this periodically."""
        ...

    async def forget(self, conversation_id: str) -> bool:
        """Delete a conversation that has no owner and no pending work. Return whether it was deleted."""
        ...

    async def put_document(
        self, collection: str, name: str, data: Mapping[str, Any], most: int = MOST_DOCUMENTS
    ) -> None:
        """Store a document, in place of one with this name; delete the oldest ones if there are more than `most`."""
        ...

    async def replace_document(
        self, collection: str, name: str, known: Mapping[str, Any], data: Mapping[str, Any], most: int | None = None
    ) -> bool:
        """Store a document in place of exactly the known one; return whether the collection has it now.

        If nothing is known (`{}`), the document is stored only if there is none with this name, and the oldest ones are
        deleted if there are more than `most`.
        """
        ...

    async def documents(self, collection: str, name: str | None = None) -> dict[str, dict[str, Any]]:
        """Return the readable documents of a collection by name, the latest first, or only the one with this name."""
        ...

    async def collections(self, prefix: str = "") -> list[str]:
        """Return the names of the collections that have documents, and begin with a prefix (letters and colons)."""
        ...

    async def delete_document(self, collection: str, name: str, known: Mapping[str, Any] | None = None) -> bool:
        """Delete a document, only exactly the known one if there is one; return whether it existed."""
        ...

    async def aclose(self) -> None:
        """Close the store after pending writes."""
        ...


async def workspaces_of_documents(store: RunStore) -> list[str]:
    """Return the workspaces that have documents, also those without conversations.

    The name of a collection of a workspace is its kind, the workspace, and perhaps more, with colons between them.
    """
    return list(dict.fromkeys(name.split(":")[1] for name in await store.collections() if ":" in name))


class SharedBudget(RateBudget, Protocol):
    """A rate budget in a store, shared by all services there."""

    async def aclose(self) -> None: ...


class Backend(Protocol):
    """The functions of a backend's module. All raise StoreError if the store at the URL cannot be used."""

    async def open_runs(self, url: str) -> RunStore:
        """Open the run store for a service. If the store has one service at a time, all leases end."""
        ...

    async def inspect_runs(self, url: str) -> RunStore:
        """Open the run store for a CLI command, without a lock or leases."""
        ...

    async def open_logs(self, url: str) -> LogStore: ...

    async def open_budget(self, url: str) -> SharedBudget | None:
        """Open the rate budget shared by all services on the store; `None` if the store has one service at a time."""
        ...

    def refuse_unprepared(self, url: str) -> None:
        """Raise StoreError if opening the store would create its tables."""
        ...


def claim_of(  # noqa: PLR0913, PLR0917 - the parts of a claim
    token: int, run: Text, posts: Mapping[str, Text], held_seq: int, stopped_s: float, waiting: Iterable[Row]
) -> Claim:
    """Build a claim from stored data.

    An unreadable run record is replaced by one with only an `id`; unreadable posts are omitted.
    """
    found = None if run is None else _parse_json(run)
    contents = {part: _parse_json(content) for part, content in posts.items() if part is not None}
    return Claim(
        token,
        found if run is None or isinstance(found, dict) else {"id": "unreadable"},
        {part: content for part, content in contents.items() if content is not _UNREADABLE},
        held_seq,
        stopped_s,
        tuple(map(entry_of, waiting)),
    )


def entry_of(row: Row) -> InboxEntry:
    """Parse a stored entry; its data are empty if unreadable. Raises TypeError if its id or kind is."""
    seq, name, kind, text = row
    if name is None or kind is None:
        raise TypeError("the id or kind of an entry cannot be read")
    data = _parse_json(text)
    return InboxEntry(name, kind, data if isinstance(data, dict) else {}, seq)


def conversation_record(
    run: Text, posts: Mapping[str, Text], waiting: Sequence[Row], damaged: Sequence[str] = (), **fields: Any
) -> ConversationRecord:
    """Build a record from the stored run, posts and entries, and its remaining fields."""
    texts: dict[str, Text] = {} if run is None else {"the record of its run": run}
    texts |= {f"the text {part} of its run": content for part, content in posts.items()}
    texts |= {f"entry {name} of its inbox": data for _, name, _, data in waiting}
    unreadable = (f"{what} cannot be read" for what, text in texts.items() if _parse_json(text) is _UNREADABLE)
    found = _parse_json(run)
    return ConversationRecord(
        has_run=run is not None,
        run=found if isinstance(found, dict) else None,
        posts=sum(content not in (_POSTED, _POSTED.encode()) for content in posts.values()),
        waiting=tuple(map(entry_of, waiting)),
        damaged=(*damaged, *unreadable),
        **fields,
    )


def _parse_json(text: Text) -> Any:
    try:
        return _UNREADABLE if text is None else json.loads(text)
    except (ValueError, TypeError, RecursionError):
        return _UNREADABLE


@contextmanager
def readable(conversation_id: str) -> Iterator[None]:
    """Convert errors of parsing stored data to `DamagedLog`."""
    try:
        yield
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as e:
        raise DamagedLog(
            f"The stored inbox of conversation {conversation_id} is damaged: restore it from a backup."
        ) from e


def documents_of(rows: Iterable[tuple[str, Text]]) -> dict[str, dict[str, Any]]:
    """Return the readable documents by name."""
    found = {name: _parse_json(text) for name, text in rows if name is not None}
    return {name: data for name, data in found.items() if isinstance(data, dict)}


def parse_documents(adapter: TypeAdapter[T], documents: Mapping[str, Mapping[str, Any]]) -> dict[str, T]:
    """Validate documents; return them by name, without those that another version has written."""
    found = {}
    for name, data in documents.items():
        with suppress(ValidationError):
            found[name] = adapter.validate_python(data)
    return found


def lost(conversation_id: str) -> LeaseLost:
    return LeaseLost(
        f"The lease on the conversation {conversation_id} is lost: another process has claimed it, this one has "
        "released it, or it is no longer in the store."
    )
