"""Snapshots of conversations in Redis, for audits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from connector.protocols import InboxEntry
from service.store.base import ConversationRecord, Count
from service.store.serialization import as_json, data_of, is_readable, raw_entry_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_POSTED = as_json("").encode()
_POST, _LEFT = b"p:", b"n:"


def posts(fields: Mapping[bytes, bytes]) -> Iterator[tuple[str, bytes]]:
    """Return the posts among a conversation's fields, by part."""
    return ((name[2:].decode(), content) for name, content in fields.items() if name.startswith(_POST))


def record_of(  # noqa: PLR0913, PLR0917 - the results of the script RECORD
    pairs: Sequence[bytes],
    inbox: Sequence[bytes],
    known_ids: Sequence[bytes],
    order: Sequence[bytes],
    old: int,
    is_owned: int,
) -> ConversationRecord | None:
    """Convert the results of the script RECORD; `None` if there is no such conversation."""
    fields, hows = (dict(zip(each[::2], each[1::2], strict=True)) for each in (pairs, known_ids))
    if not fields and not inbox and not order and not hows:
        return None
    agent, owner = (fields[name].decode() if name in fields else None for name in (b"agent", b"owner"))
    ends = {name.decode(): how.partition(b"=")[2].decode() for name, how in hows.items() if b"=" in how}
    raw = [raw_entry_of(each) for each in inbox]
    return ConversationRecord(
        agent=agent,
        owner=owner,
        is_owned=bool(is_owned),
        has_run=b"run" in fields,
        posts=sum(content != _POSTED for _, content in posts(fields)),
        held_seq=int(fields.get(b"held_seq", 0)),
        waiting=tuple(InboxEntry(name, kind, data_of(data), seq) for seq, name, kind, data in raw),
        ends=ends,
        order=tuple(name.decode() for name in order),
        count=_count(fields, len(raw), len(order), old),
        damaged=tuple(_damaged(fields, raw, hows.keys() == set(order))),
    )


def _count(fields: Mapping[bytes, bytes], waiting: int, order: int, old: int) -> Count:
    accepted = int(fields.get(b"seq", 0))
    left = {name[2:].decode(): int(count) for name, count in fields.items() if name.startswith(_LEFT)}
    # If the conversation is unchanged for KEPT_S, all its ids expire at once.
    forgotten = accepted if not order and not waiting else int(fields.get(b"gone", 0)) - old
    return Count(accepted, left, forgotten)


def _damaged(
    fields: Mapping[bytes, bytes], inbox: Sequence[tuple[int, str, Any, bytes]], are_all_in_order: bool
) -> Iterator[str]:
    if not are_all_in_order:
        yield "the ids of its entries and their order do not match"
    if b"run" in fields and not is_readable(fields[b"run"]):
        yield "the record of its run cannot be read"
    yield from (
        f"the text {part} of its run cannot be read" for part, content in posts(fields) if not is_readable(content)
    )
    yield from (f"entry {name} of its inbox cannot be read" for _, name, _, data in inbox if not is_readable(data))
