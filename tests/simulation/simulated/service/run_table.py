"""A run store in memory: the contract of `RunStore` as synchronous functions, without a network."""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from connector.protocols import Claim, InboxEntry, LeaseLost, StateChanges, ThreadFacts
from service.store.base import MOST_DOCUMENTS, Admission, ConversationRecord, Count, workspace_of

_CLAIM_WITHIN_S = 2.0


@dataclass(slots=True)
class Conversation:
    """`due_s` is when other processes may claim it, `released_token` that of the lease that was released last."""

    agent: str | None = None
    owner: str | None = None
    token: int = 0
    released_token: int = 0
    renewed_s: float = 0.0
    expires_s: float = 0.0
    due_s: float = 0.0
    run: Mapping[str, Any] | None = None
    posts: dict[str, Any] = field(default_factory=dict)
    held_seq: int = 0
    stopped_s: float = 0.0
    waiting: dict[int, InboxEntry] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)

    @property
    def has_work(self) -> bool:
        return self.run is not None or any(seq > self.held_seq for seq in self.waiting)


class RunTable:
    """Conversations by id. `now` is the store's clock."""

    def __init__(self, now: Callable[[], float]):
        self.conversations: dict[str, Conversation] = {}
        self._now = now
        self._tokens = itertools.count(1)
        self._beats: Counter[str] = Counter()
        self.collections: defaultdict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self._news: dict[str, dict[str, None]] = {}
        self._listening: dict[str, asyncio.Future[tuple[str, ...]]] = {}

    def owner_of(self, conversation: Conversation) -> str | None:
        """Return the holder of a valid lease."""
        return conversation.owner if self._now() < conversation.expires_s else None

    def admit(
        self, conversation_id: str, entry: InboxEntry, agent: str | None = None, facts: Mapping[str, str] | None = None
    ) -> Admission:
        found = self.conversations.setdefault(conversation_id, Conversation())
        owner = self.owner_of(found)
        if entry.id in found.ends or any(entry.id == each.id for each in found.waiting.values()):
            return Admission(is_new=False, owner=owner)
        if owner is None and not found.has_work:
            found.due_s = self._now() + _CLAIM_WITHIN_S
        found.order.append(entry.id)
        seq = len(found.order)
        found.waiting[seq] = replace(entry, seq=seq)
        found.agent = agent or found.agent
        self.learn(conversation_id, facts or {})
        if owner is not None:
            self._notify(owner, conversation_id)
        return Admission(is_new=True, owner=owner)

    def learn(self, conversation_id: str, facts: Mapping[str, str]) -> None:
        if (found := self.conversations.get(conversation_id)) is not None:
            for name, value in facts.items():
                keep = min if name.startswith("person:") else max
                found.facts[name] = keep(value, found.facts.get(name, value))

    def put_document(self, collection: str, name: str, data: dict[str, Any], most: int = MOST_DOCUMENTS) -> None:
        documents = self.collections[collection]
        documents.pop(name, None)
        documents[name] = data
        for oldest in list(documents)[:-most]:
            del documents[oldest]

    def replace_document(
        self, collection: str, name: str, known: Mapping[str, Any], data: Mapping[str, Any], most: int = sys.maxsize
    ) -> bool:
        documents = self.collections[collection]
        if documents.get(name, {}) == known:
            documents[name] = dict(data)
            for oldest in list(documents)[:-most]:
                del documents[oldest]
        return documents.get(name) == data

    def documents(self, collection: str, only: str | None = None) -> dict[str, dict[str, Any]]:
        found = reversed(self.collections[collection].items())
        return {name: data for name, data in found if only in {None, name}}

    def delete_document(self, collection: str, name: str, known: Mapping[str, Any] | None = None) -> bool:
        documents = self.collections[collection]
        return known in (None, documents.get(name)) and documents.pop(name, None) is not None

    def thread_of(self, conversation_id: str) -> ThreadFacts:
        found = self.conversations.get(conversation_id, Conversation())
        return ThreadFacts(found.agent, dict(found.facts))

    def claim(self, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
        found = self.conversations.setdefault(conversation_id, Conversation())
        if self.owner_of(found) not in (None, owner):
            return None
        found.owner, found.token, found.renewed_s = owner, next(self._tokens), self._now()
        found.expires_s = self._now() + lease_s
        found.due_s = found.expires_s
        entries = tuple(found.waiting.values())
        return Claim(found.token, found.run, dict(found.posts), found.held_seq, found.stopped_s, entries)

    def renew(self, conversation_id: str, token: int, lease_s: float) -> int:
        found = self._owned(conversation_id, token)
        found.renewed_s = self._now()
        found.due_s = found.expires_s = self._now() + lease_s
        return len(found.order)

    def renew_all(self, tokens: Mapping[str, int], lease_s: float) -> dict[str, int]:
        newest = {}
        for name, token in tokens.items():
            with suppress(LeaseLost):
                newest[name] = self.renew(name, token, lease_s)
        return newest

    def beat(self, owner: str) -> dict[str, int]:
        self._beats[owner] += 1
        return dict(self._beats)

    def end_leases(self, owner: str, unrenewed_s: float) -> bool:
        now_s, is_over = self._now(), True
        for found in self.conversations.values():
            if self.owner_of(found) == owner:
                is_silent = now_s - found.renewed_s >= unrenewed_s
                is_over &= is_silent
                if is_silent:
                    found.due_s = found.expires_s = now_s
        if is_over:
            self._beats.pop(owner, None)
        return is_over

    def fetch(self, conversation_id: str, token: int, after: int) -> tuple[InboxEntry, ...]:
        found = self._owned(conversation_id, token)
        return tuple(entry for seq, entry in found.waiting.items() if seq > after)

    def write(self, conversation_id: str, token: int, changes: StateChanges) -> None:
        found = self._owned(conversation_id, token)
        found.posts |= changes.posts
        if changes.run is not None:
            found.run = dict(changes.run) or None
        if changes.deletes_posts:
            found.posts = {}
        if changes.held_seq is not None:
            found.held_seq = changes.held_seq
        if changes.stopped_s is not None:
            found.stopped_s = changes.stopped_s
        for seq, data in changes.replaced.items():
            if seq in found.waiting:
                found.waiting[seq] = replace(found.waiting[seq], data=data)
        for seq, end in changes.closed.items():
            if (entry := found.waiting.pop(seq, None)) is not None:
                found.ends[entry.id] = end

    def release(self, conversation_id: str, token: int, seen: int | None, due_in_s: float = 0.0) -> bool:
        found = self.conversations.get(conversation_id)
        if found is not None and found.released_token == token:
            return True  # a caller without a reply repeats its release
        found = self._owned(conversation_id, token)
        if seen is not None and any(seq > seen for seq in found.waiting):
            return False
        found.owner, found.released_token, found.expires_s = None, token, 0.0
        found.due_s = self._now() + due_in_s
        return True

    def due(self, workspace: str, most: int) -> list[str]:
        now_s = self._now()
        due = [
            (found.due_s, name)
            for name, found in self.conversations.items()
            if workspace_of(name) == workspace
            and found.due_s <= now_s
            and self.owner_of(found) is None
            and found.has_work
        ]
        return [name for _, name in sorted(due)[:most]]

    def listen(self, owner: str, news: asyncio.Future[tuple[str, ...]]) -> None:
        """Set the result of `news` at the next notification."""
        self._listening[owner] = news
        self._notify(owner)

    def forget_news(self) -> None:
        self._news.clear()

    def record(self, conversation_id: str) -> ConversationRecord | None:
        found = self.conversations.get(conversation_id)
        if found is None:
            return None
        return ConversationRecord(
            agent=found.agent,
            owner=found.owner,
            is_owned=self.owner_of(found) is not None,
            has_run=found.run is not None,
            posts=sum(1 for post in found.posts.values() if post),
            held_seq=found.held_seq,
            waiting=tuple(found.waiting.values()),
            ends=dict(found.ends),
            order=tuple(found.order),
            count=Count(len(found.order), Counter(found.ends.values()), 0),
            run=found.run,
        )

    def forget(self, conversation_id: str) -> bool:
        found = self.conversations.get(conversation_id)
        if found is None or self.owner_of(found) is not None or found.has_work:
            return False
        del self.conversations[conversation_id]
        return True

    def _owned(self, conversation_id: str, token: int) -> Conversation:
        found = self.conversations.get(conversation_id)
        if found is None or found.token != token or found.owner is None:
            raise LeaseLost
        return found

    def _notify(self, owner: str, *conversation_ids: str) -> None:
        news = self._news.setdefault(owner, {})
        news.update(dict.fromkeys(conversation_ids))
        listening = self._listening.get(owner)
        if news and listening is not None:
            del self._listening[owner]
            if not listening.done():
                listening.set_result(tuple(self._news.pop(owner)))
