"""Replies that are for no agent yet: the mention that calls one into their thread may arrive later."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from connector.inbound.access_policy import LatestEntries

if TYPE_CHECKING:
    from connector.events import SlackMessage
    from connector.inbound.access_policy import Actor

_MAX_UNROUTED = 1_000


class UnroutedReply(NamedTuple):
    """A reply that is for no agent, its author (access not checked), and the time of its last edit."""

    reply: SlackMessage
    actor: Actor
    edited_ts: str


class UnroutedReplies:
    """The latest replies that were for no agent: the mention that calls an agent into their thread may arrive later."""

    def __init__(self) -> None:
        # `None`: the reply was deleted.
        self._replies: LatestEntries[UnroutedReply | None] = LatestEntries(_MAX_UNROUTED)

    def add(self, reply: SlackMessage, actor: Actor, edited_ts: str = "") -> None:
        """Store a reply, unless it was deleted or a later edit of it is known."""
        new = UnroutedReply(reply, actor, edited_ts)
        known = self._replies.get(reply.id, new)
        if known is not None and edited_ts >= known.edited_ts:
            self._replies[reply.id] = new

    def edit(self, reply: SlackMessage, actor: Actor, edited_ts: str) -> None:
        """Replace a reply by its edited version, if the reply is stored."""
        if reply.id in self._replies:
            self.add(reply, actor, edited_ts)

    def has(self, reply_id: str) -> bool:
        return reply_id in self._replies

    def drop(self, reply_id: str) -> None:
        """Remove a deleted reply, and ignore it if it arrives later."""
        self._replies[reply_id] = None

    def was_deleted(self, reply_id: str) -> bool:
        return reply_id in self._replies and self._replies[reply_id] is None

    def latest(self, reply: SlackMessage) -> tuple[SlackMessage, str]:
        """Return the latest version of a reply whose edit may have arrived before it, and the time of that edit."""
        known = self._replies.get(reply.id)
        return (reply, "") if known is None else (known.reply, known.edited_ts)

    def after(self, conversation_id: str, ts: str) -> list[UnroutedReply]:
        """Return the replies of a conversation posted after `ts`, oldest first."""
        found = [
            each
            for each in filter(None, self._replies.values())
            if each.reply.place.conversation_id == conversation_id and float(each.reply.ts) > float(ts)
        ]
        return sorted(found, key=lambda each: float(each.reply.ts))

    def take_after(self, conversation_id: str, ts: str) -> list[UnroutedReply]:
        """Remove and return the replies of a conversation posted after `ts`, oldest first."""
        found = self.after(conversation_id, ts)
        for each in found:
            del self._replies[each.reply.id]
        return found
