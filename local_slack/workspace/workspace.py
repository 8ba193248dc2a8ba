"""The workspace: owner of all mutable state. It refuses calls as Slack does, with Slack's error codes."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from local_slack.workspace.agents import Streams
from local_slack.workspace.channels import ChannelHistory, Rules, tombstone, with_reaction, without_reaction
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.files import File, Files
from local_slack.workspace.lists import Lists
from local_slack.workspace.messages import (
    Body,
    BotPresence,
    Change,
    Changed,
    Channel,
    ChannelNote,
    ChannelOpened,
    Deleted,
    Edit,
    Joined,
    Left,
    Posted,
    PostIdentity,
    Reacted,
    SessionChanged,
    Timestamps,
    ViewsChanged,
    Whispered,
    WorkspaceMessage,
)
from local_slack.workspace.people import Bot, Directory, channel_id
from local_slack.workspace.views import Views

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from local_slack.workspace.agents import AgentSession
    from local_slack.workspace.people import Holder, Member


class Workspace:
    """The state of one workspace. Only its methods change it; each change calls all listeners at once."""

    def __init__(
        self,
        directory: Directory,
        channels: Sequence[str],
        bot_channels: Sequence[str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Add people and other apps to all channels, and the bot to ``bot_channels``, by default all.

        Single-channel guests are members of the first one only.
        """
        self.directory = directory
        self.bot_online = False
        self.rules = Rules()
        self.files = Files(directory.team.id, clock)
        self.streams = Streams(clock)
        self.views = Views(directory.team.id, clock, lambda user: self._emit(ViewsChanged(user)))
        self.lists = Lists(clock)
        self._timestamps = Timestamps(clock)
        self._clock = clock
        self._histories: dict[str, ChannelHistory] = {}
        self._sessions: dict[tuple[str, str], AgentSession] = {}
        self._listeners: list[Callable[[Change], None]] = []
        if len({channel_id(name, directory.team) for name in channels}) != len(channels):
            raise ValueError(f"two channels give the same id: {', '.join(channels)}")
        if unknown := set(bot_channels or ()) - set(channels):
            raise ValueError(f"the bot cannot join unknown channels: {', '.join(sorted(unknown))}")
        for number, name in enumerate(channels):
            there = (person for person in directory.people if not number or person.kind != "single_channel_guest")
            people = tuple(person.id for person in there)
            joined = bot_channels is None or name in bot_channels
            members = (*people, directory.bot.id) if joined else people
            members += tuple(app.id for app in directory.apps)
            self._add(Channel(channel_id(name, directory.team), name, members, int(clock())))

    # Reading

    @property
    def channels(self) -> tuple[Channel, ...]:
        return tuple(history.channel for history in self._histories.values())

    def channel(self, name_or_id: str) -> Channel:
        """Find a channel; raises ``channel_not_found``."""
        return self._get(name_or_id).channel

    def messages(self, channel: str) -> tuple[WorkspaceMessage, ...]:
        """Return all messages of a channel, replies too, oldest first; none if it does not exist (yet)."""
        history = self._find(channel)
        return tuple(history.messages.values()) if history else ()

    def thread(self, channel: str, ts: str) -> tuple[WorkspaceMessage, ...]:
        """Return the root ``ts`` and its replies, oldest first; empty if there is no such message."""
        history = self._find(channel)
        if history is None or ts not in history.messages:
            return ()
        return tuple(history.messages[each] for each in (ts, *history.threads.get(ts, ())))

    def message(self, channel: str, ts: str) -> WorkspaceMessage | None:
        history = self._find(channel)
        return history.messages.get(ts) if history else None

    def whispers(self, channel: str) -> tuple[WorkspaceMessage, ...]:
        """Return the ephemeral messages of a channel, oldest first."""
        history = self._find(channel)
        return tuple(history.whispers) if history else ()

    def now(self) -> float:
        return self._clock()

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call ``listener`` after every change, in order; returns a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # Messages

    def post(  # noqa: PLR0913 - the arguments of chat.postMessage
        self,
        channel: str,
        author: Member,
        body: Body,
        *,
        thread_ts: str | None = None,
        broadcast: bool = False,
        persona: PostIdentity | None = None,
        subtype: str | None = None,
        as_answer: bool = False,
    ) -> WorkspaceMessage:
        """Post, and return the message. A reply to a reply goes under its root.

        A ``thread_ts`` without a message is ignored and the message is posted to the channel, as Slack does when
        the root was deleted; the response then has no ``thread_ts``. The author of an answer to a click or a command
        (``as_answer``) need not be a member of the channel.
        """
        history, root = self._postable(channel, author, thread_ts, as_answer=as_answer)
        message = replace(
            self._message(history, author, body, persona),
            thread_ts=root.ts if root else None,
            parent_user=root.user if root else None,
            broadcast=broadcast and root is not None,
            subtype=subtype,
        )
        history.messages[message.ts] = message
        if root:
            history.threads[root.ts].append(message.ts)
            root = history.recount(root.ts)
        self._emit(Posted(message, root if message.broadcast else None))
        return message

    def whisper(  # noqa: PLR0913 - the arguments of chat.postEphemeral
        self,
        channel: str,
        author: Member,
        body: Body,
        *,
        to: str,
        thread_ts: str | None = None,
        persona: PostIdentity | None = None,
        as_answer: bool = False,
    ) -> WorkspaceMessage:
        """Show an ephemeral message to one member; ``as_answer`` as in ``post``."""
        history, _ = self._postable(channel, author, thread_ts, as_answer=as_answer)
        if to not in history.channel.members:
            raise SlackRefused("user_not_in_channel")
        message = replace(self._message(history, author, body, persona), thread_ts=thread_ts, only_for=to)
        history.whispers.append(message)
        self._emit(Whispered(message))
        return message

    def change_whisper(self, message: WorkspaceMessage, body: Body | None) -> None:
        """Replace the body of an ephemeral message; None deletes it. Raises ``message_not_found``."""
        whispers = self._get(message.channel).whispers
        place = next((number for number, each in enumerate(whispers) if each.ts == message.ts), None)
        if place is None:
            raise SlackRefused("message_not_found")
        if body is None:
            self._emit(Deleted(whispers.pop(place), self._timestamps.next()))
            return
        previous = whispers[place]
        whispers[place] = replace(previous, body=body)
        self._emit(Changed(whispers[place], previous, self._timestamps.next()))

    def edit(self, channel: str, ts: str, author: Member, body: Body) -> WorkspaceMessage:
        history = self._get(channel)
        previous = history.existing(ts, author)
        if previous.user != author.id or previous.tombstone or previous.persona:
            raise SlackRefused("cant_update_message")
        self.rules.check_edit(history.channel, previous, self._clock())
        at = self._timestamps.next()
        message = replace(previous, body=body, edited=Edit(author.id, f"{int(float(at))}.000000"))
        history.messages[ts] = message
        self._emit(Changed(message, previous, at))
        return message

    def delete(self, channel: str, ts: str, author: Member) -> None:
        """Delete a message. A root with replies leaves a tombstone, which is deleted with its last reply."""
        history = self._get(channel)
        previous = history.existing(ts, author)
        if previous.tombstone:
            raise SlackRefused("message_not_found")
        if previous.user != author.id:
            raise SlackRefused("cant_delete_message")
        if previous.thread:
            stone = tombstone(previous)
            history.messages[ts] = stone
            self._emit(Changed(stone, previous, self._timestamps.next()))
            return
        self._remove(history, previous)
        if previous.thread_ts and previous.is_reply:
            history.threads[previous.thread_ts].remove(previous.ts)
            root = history.recount(previous.thread_ts)
            if root.tombstone and root.reply_count == 0:
                self._remove(history, root)

    def react(self, channel: str, ts: str, member: Member, name: str, *, add: bool) -> None:
        history = self._get(channel)
        message = history.existing(ts, member)
        if message.tombstone:
            raise SlackRefused("message_not_found")
        self.rules.check_reaction(history.channel, message)
        change = with_reaction if add else without_reaction
        message = replace(message, reactions=change(message.reactions, name, member.id))
        history.messages[ts] = message
        self._emit(Reacted(message, member.id, name, self._timestamps.next(), add))

    # Channels

    def create(self, name: str, creator: Member, *, is_private: bool = False) -> Channel:
        now_s = int(self._clock())
        channel = Channel(channel_id(name, self.directory.team), name, (creator.id,), now_s, is_private=is_private)
        if self._find(channel.id):
            raise SlackRefused("name_taken")
        self._add(channel)
        self._emit(ChannelOpened(channel, creator.id, self._timestamps.next()))
        return channel

    def open_im(self, opener: Member, other: Member) -> tuple[Channel, bool]:
        """Return the direct message of two members, and whether it existed before."""
        members = tuple(sorted({opener.id, other.id}, key=list(self.directory.members).index))
        bot = self.directory.bot.id
        im_id = f"D{self.directory.team.number}" + "".join(
            member[2:] for member in members if member != bot or len(members) == 1
        )
        if history := self._find(im_id):
            return history.channel, True
        channel = Channel(im_id, "", members, int(self._clock()), is_im=True)
        self._add(channel)
        self._emit(ChannelOpened(channel, opener.id, self._timestamps.next()))
        return channel, False

    def join(self, channel: str, member: Member, inviter: str | None = None) -> Channel:
        history = self._get(channel)
        if history.channel.is_im:
            raise SlackRefused("method_not_supported_for_channel_type")
        if member.id not in history.channel.members:
            history.channel = replace(history.channel, members=(*history.channel.members, member.id))
            self._emit(Joined(history.channel, member.id, self._timestamps.next(), inviter))
        return history.channel

    def leave(self, channel: str, member: Member) -> None:
        history = self._get(channel)
        remaining = tuple(user for user in history.channel.members if user != member.id)
        history.channel = replace(history.channel, members=remaining)
        self._emit(Left(history.channel, member.id, self._timestamps.next()))

    def rename(self, channel: str, name: str) -> Channel:
        """Rename a channel; its id stays."""
        history = self._get(channel)
        if self._find(name) not in (None, history):
            raise SlackRefused("name_taken")
        history.channel = replace(history.channel, name=name)
        return history.channel

    def describe(
        self, channel: str, member: Member, *, topic: str | None = None, purpose: str | None = None
    ) -> Channel:
        """Set the topic or the purpose of a channel."""
        history, now = self._get(channel), int(self._clock())
        if topic is not None:
            history.channel = replace(history.channel, topic=ChannelNote(topic, member.id, now))
        if purpose is not None:
            history.channel = replace(history.channel, purpose=ChannelNote(purpose, member.id, now))
        return history.channel

    def archive(self, channel: str, archived: bool = True) -> Channel:
        """Archive or unarchive a channel. No one can write to an archived one."""
        history = self._get(channel)
        history.channel = replace(history.channel, is_archived=archived)
        return history.channel

    def set_bot_online(self, online: bool) -> None:
        if online is not self.bot_online:
            self.bot_online = online
            self._emit(BotPresence(online))

    # Files, streams and agent sessions

    def fill(self, channel: str, ts: str, body: Body) -> None:
        """Replace the body of a streamed message without marking it as edited."""
        history = self._get(channel)
        previous = history.messages[ts]
        history.messages[ts] = message = replace(previous, body=body)
        self._emit(Changed(message, previous, self._timestamps.next()))

    def file(self, file_id: str) -> File | None:
        return self.files.get(file_id)

    def check_member(self, channel: str, member: Member) -> None:
        self._get(channel).must_have(member)

    def check_post(self, channel: str, author: Member, thread_ts: str | None = None) -> None:
        """Raise SlackRefused if ``post`` would."""
        self._postable(channel, author, thread_ts)

    def withdraw(self, file: File) -> None:
        """Mark this file as deleted in every message."""
        for history in self._histories.values():
            for previous in [m for m in history.messages.values() if any(f.id == file.id for f in m.files)]:
                files = tuple(file if f.id == file.id else f for f in previous.files)
                message = replace(previous, body=replace(previous.body, files=files))
                history.messages[message.ts] = message
                self._emit(Changed(message, previous, self._timestamps.next()))

    @property
    def sessions(self) -> tuple[AgentSession, ...]:
        return tuple(session.at(self._clock()) for session in self._sessions.values())

    def session(self, channel: str, thread_ts: str) -> AgentSession | None:
        """Return the agent session of a thread, or None."""
        history = self._find(channel)
        session = self._sessions.get((history.channel.id, thread_ts)) if history else None
        return session.at(self._clock()) if session else None

    def keep_session(self, session: AgentSession) -> None:
        """Store the agent session of its thread."""
        key = (session.channel, session.thread_ts)
        if self._sessions.get(key) != session:
            self._sessions[key] = session
            self._emit(SessionChanged(session, self._timestamps.next()))

    # Inside

    def _find(self, name_or_id: str) -> ChannelHistory | None:
        if history := self._histories.get(name_or_id):
            return history
        name = name_or_id.removeprefix("#")
        return next((history for history in self._histories.values() if name and history.channel.name == name), None)

    def _get(self, name_or_id: str) -> ChannelHistory:
        if history := self._find(name_or_id):
            return history
        raise SlackRefused("channel_not_found")

    def _add(self, channel: Channel) -> Channel:
        self._histories[channel.id] = ChannelHistory(channel)
        return channel

    def _message(
        self, history: ChannelHistory, author: Member, body: Body, persona: PostIdentity | None
    ) -> WorkspaceMessage:
        bot = author if isinstance(author, Bot) else None
        return WorkspaceMessage(history.channel.id, self._timestamps.next(), author.id, body, bot=bot, persona=persona)

    def _postable(
        self, channel: str, author: Member, thread_ts: str | None, *, as_answer: bool = False
    ) -> tuple[ChannelHistory, WorkspaceMessage | None]:
        history = self._get(channel)
        if not as_answer:
            history.must_have(author)
        root = history.root_of(thread_ts)
        self.rules.check_post(history.channel, author, root)
        return history, root

    def _remove(self, history: ChannelHistory, message: WorkspaceMessage) -> None:
        del history.messages[message.ts]
        self._emit(Deleted(message, self._timestamps.next()))

    def _emit(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)


def holder_of(token: str, workspaces: Iterable[Workspace]) -> tuple[Workspace, Holder] | None:
    """Find the workspace of a token, and the member or the app that it was given to; None for an unknown token."""
    found = ((workspace, workspace.directory.holders.get(token)) for workspace in workspaces)
    return next(((workspace, holder) for workspace, holder in found if holder), None)
