"""Workspace settings that restrict posts, edits and replies; tests change them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.people import Bot

if TYPE_CHECKING:
    from local_slack.workspace.messages import Channel, Message
    from local_slack.workspace.people import Member


class Rules:
    """Settings; a change applies to later calls.

    ``edit_window_s``: how long a message can be edited, None: without limit. ``messages_tab``: whether people and the
    bot can write to each other in direct messages. ``restricted``: the ids of channels where the bot may not
    post. ``refused_tokens``: Slack's error code for each token that is no longer valid.
    """

    def __init__(self) -> None:
        self.edit_window_s: float | None = None
        self.messages_tab = True
        self.restricted: set[str] = set()
        self.refused_tokens: dict[str, str] = {}
        self._locked: set[tuple[str, str]] = set()

    def lock(self, channel_id: str, root_ts: str) -> None:
        """Lock a thread: no one can reply in it."""
        self._locked.add((channel_id, root_ts))

    def unlock(self, channel_id: str, root_ts: str) -> None:
        self._locked.discard((channel_id, root_ts))

    def is_locked(self, channel_id: str, root_ts: str) -> bool:
        return (channel_id, root_ts) in self._locked

    def check_post(self, channel: Channel, author: Member, root: Message | None) -> None:
        if channel.is_archived:
            raise SlackRefused("is_archived")
        if channel.is_im and isinstance(author, Bot) and not self.messages_tab:
            raise SlackRefused("messages_tab_disabled")
        if channel.id in self.restricted and isinstance(author, Bot):
            raise SlackRefused("restricted_action")
        if root and self.is_locked(channel.id, root.ts):
            raise SlackRefused("thread_locked")

    def check_edit(self, channel: Channel, message: Message, now: float) -> None:
        if channel.is_archived:
            raise SlackRefused("is_archived")
        if self.edit_window_s is not None and now - float(message.ts) > self.edit_window_s:
            raise SlackRefused("edit_window_closed")

    def check_reaction(self, channel: Channel, message: Message) -> None:
        if channel.is_archived:
            raise SlackRefused("is_archived")
        if self.is_locked(channel.id, message.thread_ts or message.ts):
            raise SlackRefused("thread_locked")
