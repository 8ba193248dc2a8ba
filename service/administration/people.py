"""Export and erase what one person wrote: in conversation logs and in inboxes."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import structlog

from connector.protocols import StateChanges
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.errors import (
    ConversationFinished,
    DamagedLog,
    UnreadableState,
    WriteConflict,
)
from orchestrator_interactive.interactions.feedback import FeedbackState
from orchestrator_interactive.interactions.rows import ErasureState, RowState, ViewState, row_of
from orchestrator_interactive.interactions.serializers import decode, pack
from orchestrator_interactive.interactions.states import UserMessageState, UserResponseState
from orchestrator_interactive.interactions.stores import Change
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from orchestrator_interactive.storage.sqlite import BUSY_TIMEOUT_S, sqlite_path
from orchestrator_interactive.transcript.framing import read_messages, without_author
from orchestrator_interactive.transcript.rows import delivered_ids_in, talk_ids_in
from service.connections.stored import StoredConnections
from service.doctor.delivery_audit import time_of
from service.received import StoredMessages
from service.schedules.stored import StoredSchedules
from service.sessions.memory import ChannelMemory
from service.sessions.people import AlwaysRules
from service.sessions.personal import StoredPersonalRecords
from service.sessions.workers import forget_workers, threads_with_workers
from service.store.base import workspace_of, workspaces_of_documents

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from connector.protocols import End, InboxEntry
    from connector.schedules import Schedule
    from orchestrator_interactive.interactions.records import Key, Node
    from orchestrator_interactive.interactions.states import BaseState
    from orchestrator_interactive.interactions.stores import LogStore
    from service.sessions.memory import Fact
    from service.store.base import RunStore

log = structlog.get_logger(__name__)

# States per read.
_PAGE = 500
_WITH_MESSAGES = (UserMessageState, UserResponseState, RowState, FeedbackState, ViewState)
# While this process erases in a conversation, no service may begin a run there.
_LEASE_S = 60.0


@dataclass
class Erasure:
    """The number of erased messages, and by conversation the reason why some were kept."""

    messages: int = 0
    conversations: set[str] = field(default_factory=set)
    kept: dict[str, str] = field(default_factory=dict)


async def messages_of(user: str, logs: LogStore, runs: RunStore) -> AsyncIterator[dict[str, Any]]:
    """Yield the messages of a person: conversation, agent, time, text, files and state."""
    read: set[str] = set()
    for key in await logs.keys():
        with suppress(DamagedLog):
            async for node, state in _states(logs, key):
                row = row_of(state)
                for text in _texts(row):
                    messages, ids = read_messages(text), delivered_ids_in(row)
                    if talk_ids_in(row) != ids:  # those of talk are first
                        messages.sort(key=lambda each: not each.time)
                    of_ids = ids if len(ids) == len(messages) else [""] * len(messages)
                    for each, id_ in zip(messages, of_ids, strict=True):
                        if each.author_id == user:
                            read.add(id_)
                            time_s = time_of(id_) or node.envelope["ts"]
                            yield _exported(
                                key.conversation_id, key.agent_id, time_s, each.text, each.files, "delivered"
                            )
    async for message in _pending_of(user, runs, read):
        yield message
    async for kept in _kept_of(user, runs):
        yield kept


async def _pending_of(user: str, runs: RunStore, read: set[str]) -> AsyncIterator[dict[str, Any]]:
    """Yield the messages of a person that no run has read."""
    for conversation_id in await runs.conversations():
        try:
            record = await runs.record(conversation_id)
        except DamagedLog as e:
            log.warning("conversation.damaged", conversation=conversation_id, problem=str(e))
            continue
        for entry in record.waiting if record is not None else ():
            # The entry of a message that an active run has read is closed at the end of the run.
            if _is_by(entry, user) and entry.kind in ("message", "edit") and entry.id not in read:
                data, message = entry.data, entry.data["message"]
                is_held = record is not None and entry.seq <= record.held_seq
                files, end = ", ".join(message.get("files", ())), "held" if is_held else "pending"
                yield _exported(
                    conversation_id, data.get("instance", ""), float(message["ts"]), data["prompt"], files, end
                )


async def erase(user: str, logs: LogStore, runs: RunStore) -> Erasure:
    """Erase the texts of a person's messages; pending ones are withdrawn, and schedules, rules and records deleted.

    A conversation with a run, unfinished cleanup or a damaged inbox is left as it is. Services may use the stores.

    Raises:
        StoreError: a store cannot be used.
    """
    done, owner = Erasure(), f"erasure-{uuid4().hex}"
    done.messages += await _forget_records(user, runs)
    keys: dict[str, list[Key]] = {}
    for key in await logs.keys():
        keys.setdefault(key.conversation_id.partition("/")[0], []).append(key)
    for conversation_id in dict.fromkeys((*keys, *await runs.conversations())):
        try:
            if not await _has_any(user, conversation_id, keys.get(conversation_id, []), logs, runs):
                continue
            claim = await runs.claim(conversation_id, owner, _LEASE_S)
        except DamagedLog as e:
            done.kept[conversation_id] = str(e)
            continue
        if claim is None or claim.run or claim.posts:
            done.kept[conversation_id] = "a run is active or unfinished; repeat the command when it has ended"
        else:
            closed: dict[int, End] = {
                each.seq: "withdrawn" if each.kind == "message" else "done"
                for each in claim.entries
                if _is_by(each, user)
            }
            if closed:
                await runs.write(conversation_id, claim.token, StateChanges(closed=closed))
            count = sum(each.kind == "message" and each.seq in closed for each in claim.entries)
            try:
                for key in keys.get(conversation_id, ()):
                    count += await _erase_log(user, logs, key)
            except (DamagedLog, WriteConflict) as e:
                done.kept[conversation_id] = str(e)
            done.messages += count
            done.conversations |= {conversation_id} if count else set()
        if claim is not None:
            await runs.release(conversation_id, claim.token, None)
    return done


async def _forget_records(user: str, runs: RunStore) -> int:
    """Delete the records of a person outside of conversations; return the number of their texts in it."""
    retry, count = StoreRetryPolicy(), 0
    documents = retrying(runs, retry)
    for schedule in await _schedules_of(user, runs):
        count += await StoredSchedules(documents).delete(workspace_of(schedule.place), schedule.id)
    async for channel, fact in _facts_of(user, runs):
        count += len(await ChannelMemory(documents).forget(channel, fact.id))
    count += await StoredMessages(runs, retry).erase(user)
    for thread in await threads_with_workers(runs):
        await forget_workers(runs, thread, user)
    rules = AlwaysRules(documents)
    records = StoredPersonalRecords(documents, rules, lambda *_, **__: None)
    connections = StoredConnections(documents)
    for team in await workspaces_of_documents(runs):
        await records.forget(team, user)
        await connections.disconnect(team, user)
    return count


async def _kept_of(user: str, runs: RunStore) -> AsyncIterator[dict[str, Any]]:
    """Yield the connected accounts of a person, without tokens, their schedules, and the facts that they remember."""
    connections = StoredConnections(retrying(runs, StoreRetryPolicy()))
    for team in await workspaces_of_documents(runs):
        for server, at_s in (await connections.of_person(team, user)).items():
            yield _exported("", "", at_s, f"An account of {server} is connected.", "", "connected")
    for schedule in await _schedules_of(user, runs):
        if not schedule.is_over:
            yield _exported(schedule.place, schedule.instance, schedule.created_s, schedule.text, "", "scheduled")
    async for channel, fact in _facts_of(user, runs):
        yield _exported(channel, "", fact.at_s, fact.text, "", "remembered")
    async for channel, message in StoredMessages(runs, StoreRetryPolicy()).by(user):
        yield _exported(channel, "", float(message["ts"]), str(message.get("text") or ""), "", "received")


async def _facts_of(user: str, runs: RunStore) -> AsyncIterator[tuple[str, Fact]]:
    """Yield the facts that a person keeps in the memory of channels."""
    memory = ChannelMemory(retrying(runs, StoreRetryPolicy()))
    for channel in await memory.channels():
        for fact in await memory.facts(channel):
            if fact.by == user:
                yield channel, fact


async def _schedules_of(user: str, runs: RunStore) -> list[Schedule]:
    stored = StoredSchedules(retrying(runs, StoreRetryPolicy()))
    found = [each.schedule for team in await workspaces_of_documents(runs) for each in await stored.stored(team)]
    return [each for each in found if each.user == user]


async def overwrite_deleted(url: str) -> bool:
    """Rewrite an SQLite file, so that it contains no deleted bytes; return False if another process prevents it."""
    return not url.startswith("sqlite:") or await asyncio.to_thread(_rewrite, str(sqlite_path(url)))


def _rewrite(path: str) -> bool:
    with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as file:
        try:
            file.execute("VACUUM")
            ((is_busy, _, _),) = file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.OperationalError:
            return False
    return not is_busy


async def _erase_log(user: str, logs: LogStore, key: Key) -> int:
    """Erase a person's messages in all branches of a log, record this there, and return their number.

    Stored views, which may have parts and summaries of messages, are dropped: the next request makes a new one.

    Raises:
        WriteConflict: the log was written to at the same time.
        DamagedLog: its branches cannot be read.
    """
    log = await logs.load(key)
    changed, count = [], 0
    async for node, state in _states(logs, key):
        found = _count(user, state)
        if found or isinstance(state, ViewState):
            count += found
            erased = _erased(state, user)
            changed.append(replace(node, envelope=pack(erased, node.envelope["ts"])))
    if log is not None and count:
        head = log.tree.head
        await logs.commit(key, Change(log.version, head.end, head.written, nodes=changed))
        with suppress(ConversationFinished):
            await InteractionStack(logs, key.conversation_id, key.agent_id).push(ErasureState(user, count))
    return count


async def _has_any(user: str, conversation_id: str, keys: list[Key], logs: LogStore, runs: RunStore) -> bool:
    record = await runs.record(conversation_id)
    if record is not None and any(_is_by(entry, user) for entry in record.waiting):
        return True
    with suppress(DamagedLog):
        return any([_count(user, state) for key in keys async for _, state in _states(logs, key)])
    return True  # `erase` reports the damage


async def _states(logs: LogStore, key: Key) -> AsyncIterator[tuple[Node, BaseState]]:
    """Yield the readable states of all branches that may have messages of people, whole or in part."""
    log = await logs.load(key)
    for number, segment in log.tree.segments.items() if log is not None else ():
        for start in range(segment.base, segment.end, _PAGE):
            for node in await logs.read(key, number, start, min(start + _PAGE, segment.end)):
                with suppress(UnreadableState):
                    state = decode(node.envelope)
                    if isinstance(state, _WITH_MESSAGES):
                        yield node, state


def _count(user: str, state: BaseState) -> int:
    if isinstance(state, FeedbackState):
        return int(state.user == user)
    return sum(message.author_id == user for text in _texts(row_of(state)) for message in read_messages(text))


def _texts(row: dict[str, Any] | None) -> list[str]:
    """Return the texts of a user row."""
    if row is None or row.get("role") != "user":
        return []
    content = row.get("content")
    blocks = content if isinstance(content, list) else [{"text": content}]
    return [text for each in blocks if isinstance(each, dict) and isinstance(text := each.get("text"), str)]


def _erased(state: BaseState, user: str) -> BaseState:
    """Return a state without the messages and images of a person."""

    def change(text: str) -> str:
        return without_author(text, user)

    def of(content: Any) -> Any:
        if isinstance(content, str):
            return change(content)
        return [
            {**each, "text": change(each["text"])}
            if isinstance(each, dict) and isinstance(each.get("text"), str)
            else each
            for each in content
            if not (isinstance(each, dict) and each.get("by") == user)
        ]

    match state:
        case FeedbackState():
            return replace(state, user="", comment="")
        case ViewState():
            return ViewState(None)
        case UserMessageState():
            return replace(state, text=of(state.text), meta=_without_authors(state.meta))
        case UserResponseState():
            return replace(state, text=of(state.text))
        case RowState(row):
            metadata = _without_authors(row.get("metadata"))
            more = {} if metadata is None else {"metadata": metadata}
            return replace(state, row={**row, "content": of(row["content"]), **more})
    return state


def _without_authors(metadata: Any) -> Any:
    """Return the metadata of a row without the ids of its authors: its calls no longer have a known author."""
    return {k: v for k, v in metadata.items() if k != "authors"} if isinstance(metadata, dict) else metadata


def _is_by(entry: InboxEntry, user: str) -> bool:
    """Return whether an entry of an inbox is by a person: a message, a change of one, a stop, or a mention."""
    data = entry.data
    messages = (data.get("message"), (data.get("mention") or {}).get("message"), data)
    return any(isinstance(each, dict) and each.get("user") == user for each in messages)


def _exported(  # noqa: PLR0913, PLR0917 - the keys of a line
    conversation: str, agent: str, written_s: float, text: str, files: str, state: str
) -> dict[str, Any]:
    time = datetime.fromtimestamp(written_s, UTC).isoformat(timespec="seconds")
    return {"conversation": conversation, "agent": agent, "time": time, "text": text, "files": files, "state": state}
