"""One channel with its messages, threads and reactions, and the rules that refuse a change."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import Body, Reaction, Thread, WorkspaceMessage
from local_slack.workspace.people import Bot

if TYPE_CHECKING:
    from local_slack.workspace.messages import Channel
    from local_slack.workspace.people import Member

_EMOJI_NAME = re.compile(r"[a-z0-9_+'-]{1,100}(::skin-tone-[2-6])?")
_EMOJI_PER_MESSAGE = 50
_EMOJI_PER_PERSON = 23
_SLACKBOT = "USLACKBOT"
Reactions = tuple[Reaction, ...]


class Rules:
    """Settings; a change applies to later calls.

    ``edit_window_s``: how long a message can be edited, None: without limit. ``messages_tab``: whether people and the
    bot can write to each other in direct messages. ``restricted``: the ids of channels where the bot may not
    post. ``refused_tokens``: Slack's error code for each token that is no longer valid. ``share_delay_s``: the time
    from the answer to ``files.completeUploadExternal`` to the message with the files, for which Slack names no bound.
    """

    def __init__(self) -> None:
        self.edit_window_s: float | None = None
        self.messages_tab = True
        self.restricted: set[str] = set()
        self.refused_tokens: dict[str, str] = {}
        self.share_delay_s = 0.0
        self._locked: set[tuple[str, str]] = set()

    def lock(self, channel_id: str, root_ts: str) -> None:
        """Lock a thread: no one can reply in it."""
        self._locked.add((channel_id, root_ts))

    def unlock(self, channel_id: str, root_ts: str) -> None:
        self._locked.discard((channel_id, root_ts))

    def check_post(self, channel: Channel, author: Member, root: WorkspaceMessage | None) -> None:
        if channel.is_archived:
            raise SlackRefused("is_archived")
        if channel.is_im and isinstance(author, Bot) and not self.messages_tab:
            raise SlackRefused("messages_tab_disabled")
        if channel.id in self.restricted and isinstance(author, Bot):
            raise SlackRefused("restricted_action")
        if root and (channel.id, root.ts) in self._locked:
            raise SlackRefused("thread_locked")

    def check_edit(self, channel: Channel, message: WorkspaceMessage, now: float) -> None:
        if channel.is_archived:
            raise SlackRefused("is_archived")
        if self.edit_window_s is not None and now - float(message.ts) > self.edit_window_s:
            raise SlackRefused("edit_window_closed")

    def check_reaction(self, channel: Channel, message: WorkspaceMessage) -> None:
        if channel.is_archived:
            raise SlackRefused("is_archived")
        if (channel.id, message.thread_ts or message.ts) in self._locked:
            raise SlackRefused("thread_locked")


@dataclass(slots=True)
class ChannelHistory:
    """A channel and its messages, oldest first; ``threads`` maps a root's ts to those of its replies.

    ``whispers`` are ephemeral messages, for tests; Slack stores none.
    """

    channel: Channel
    messages: dict[str, WorkspaceMessage] = field(default_factory=dict)
    threads: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    whispers: list[WorkspaceMessage] = field(default_factory=list)

    def must_have(self, member: Member) -> None:
        if member.id not in self.channel.members:
            raise SlackRefused("channel_not_found" if self.channel.is_im else "not_in_channel")

    def existing(self, ts: str, member: Member) -> WorkspaceMessage:
        """Return a message; refuses unknown messages, and members of other channels."""
        self.must_have(member)
        message = self.messages.get(ts)
        if message is None:
            raise SlackRefused("message_not_found")
        return message

    def root_of(self, thread_ts: str | None) -> WorkspaceMessage | None:
        named = self.messages.get(thread_ts) if thread_ts else None
        return self.messages.get(named.thread_ts) if named and named.thread_ts else named

    def recount(self, root_ts: str) -> WorkspaceMessage:
        """Bring the thread summary of a root up to date, and return the root."""
        root, replies = self.messages[root_ts], [self.messages[ts] for ts in self.threads[root_ts]]
        if not replies and not root.tombstone:
            root = replace(root, thread=None, thread_ts=None)
        else:
            users = tuple(dict.fromkeys(reply.user for reply in replies))
            latest = replies[-1].ts if replies else "0000000000.000000"
            root = replace(root, thread_ts=root.ts, thread=Thread(len(replies), users, latest))
        self.messages[root_ts] = root
        return root


def tombstone(root: WorkspaceMessage) -> WorkspaceMessage:
    """Return the tombstone of a deleted root whose replies remain."""
    return WorkspaceMessage(
        channel=root.channel,
        ts=root.ts,
        user=_SLACKBOT,
        body=Body("This message was deleted."),
        thread_ts=root.ts,
        parent_user=_SLACKBOT,
        thread=root.thread,
        tombstone=True,
    )


def with_reaction(reactions: Reactions, name: str, user: str) -> Reactions:
    """Add a reaction; reactions are ordered by first use. Whether such an emoji exists is not checked."""
    if not _EMOJI_NAME.fullmatch(name):
        raise SlackRefused("invalid_name")
    if any(r.name == name and user in r.users for r in reactions):
        raise SlackRefused("already_reacted")
    if sum(user in r.users for r in reactions) >= _EMOJI_PER_PERSON:
        raise SlackRefused("too_many_reactions")
    if any(r.name == name for r in reactions):
        return tuple(replace(r, users=(*r.users, user)) if r.name == name else r for r in reactions)
    if len(reactions) >= _EMOJI_PER_MESSAGE:
        raise SlackRefused("too_many_emoji")
    return (*reactions, Reaction(name, (user,)))


def without_reaction(reactions: Reactions, name: str, user: str) -> Reactions:
    if not _EMOJI_NAME.fullmatch(name):
        raise SlackRefused("invalid_name")
    if not any(r.name == name and user in r.users for r in reactions):
        raise SlackRefused("no_reaction")
    fewer = (replace(r, users=tuple(u for u in r.users if u != user)) if r.name == name else r for r in reactions)
    return tuple(r for r in fewer if r.users)
