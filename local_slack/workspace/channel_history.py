"""The channels of a workspace with their messages, and the checks before a change."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from local_slack.workspace import threads
from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local_slack.workspace.messages import Channel, Message
    from local_slack.workspace.people import Member


@dataclass(slots=True)
class ChannelHistory:
    """A channel and its messages, oldest first; ``threads`` maps a root's ts to those of its replies.

    ``whispers`` are ephemeral messages, for tests; Slack stores none.
    """

    channel: Channel
    messages: dict[str, Message] = field(default_factory=dict)
    threads: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    whispers: list[Message] = field(default_factory=list)

    def must_have(self, member: Member) -> None:
        if member.id not in self.channel.members:
            raise SlackRefused("channel_not_found" if self.channel.is_im else "not_in_channel")

    def existing(self, ts: str, member: Member) -> Message:
        """Return a message; refuses unknown messages, and members of other channels."""
        self.must_have(member)
        message = self.messages.get(ts)
        if message is None:
            raise SlackRefused("message_not_found")
        return message

    def root_of(self, thread_ts: str | None) -> Message | None:
        named = self.messages.get(thread_ts) if thread_ts else None
        return self.messages.get(named.thread_ts) if named and named.thread_ts else named

    def recount(self, root_ts: str) -> Message:
        replies = [self.messages[ts] for ts in self.threads[root_ts]]
        root = threads.counted(self.messages[root_ts], replies)
        self.messages[root_ts] = root
        return root


class ChannelHistories:
    """Find histories by the name or the id of their channel."""

    def __init__(self) -> None:
        self._histories: dict[str, ChannelHistory] = {}

    def __iter__(self) -> Iterator[ChannelHistory]:
        return iter(tuple(self._histories.values()))

    def add(self, channel: Channel) -> None:
        self._histories[channel.id] = ChannelHistory(channel)

    def find(self, name_or_id: str) -> ChannelHistory | None:
        if history := self._histories.get(name_or_id):
            return history
        name = name_or_id.removeprefix("#")
        return next((history for history in self._histories.values() if name and history.channel.name == name), None)

    def get(self, name_or_id: str) -> ChannelHistory:
        """Find a history; raises ``channel_not_found``."""
        if history := self.find(name_or_id):
            return history
        raise SlackRefused("channel_not_found")
