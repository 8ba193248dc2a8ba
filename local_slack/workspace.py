"""The workspace: the one owner of all that changes. It refuses what Slack refuses, with Slack's words."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from . import reactions, threads
from .changes import BotPresence, Change, Changed, ChannelOpened, Deleted, Joined, Posted, Reacted, Whispered
from .errors import SlackRefused
from .messages import Body, Channel, Edit, Message, Persona
from .people import Bot, Directory, channel_id
from .timestamps import Timestamps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .people import Member


@dataclass(slots=True)
class _Room:
    """A channel and its messages, oldest first; ``threads`` has the replies' ts under each root's ts.

    Ephemeral messages are kept apart, for tests to see; Slack keeps none.
    """

    channel: Channel
    messages: dict[str, Message] = field(default_factory=dict)
    threads: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    whispers: list[Message] = field(default_factory=list)


class Workspace:
    """Read it freely; change it only through its methods. Every change is told to all listeners at once."""

    def __init__(
        self,
        directory: Directory,
        channels: Sequence[str],
        bot_channels: Sequence[str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Seed the channels with all people; with the bot too, unless ``bot_channels`` leaves one out."""
        self.directory = directory
        self.bot_online = False
        self._timestamps = Timestamps(clock)
        self._clock = clock
        self._rooms: dict[str, _Room] = {}
        self._listeners: list[Callable[[Change], None]] = []
        people = tuple(person.id for person in directory.people)
        if len({channel_id(name) for name in channels}) != len(channels):
            raise ValueError(f"two channels give the same id: {', '.join(channels)}")
        if unknown := set(bot_channels or ()) - set(channels):
            raise ValueError(f"the bot cannot join what is not there: {', '.join(sorted(unknown))}")
        for name in channels:
            joined = bot_channels is None or name in bot_channels
            members = (*people, directory.bot.id) if joined else people
            self._add(Channel(channel_id(name), name, members, int(clock())))

    # Reading

    @property
    def channels(self) -> tuple[Channel, ...]:
        return tuple(room.channel for room in self._rooms.values())

    def channel(self, name_or_id: str) -> Channel:
        """Find a channel; raises ``channel_not_found``."""
        return self._room(name_or_id).channel

    def messages(self, channel: str) -> tuple[Message, ...]:
        """Return all messages of a channel, replies too, oldest first; none if it does not exist (yet)."""
        return tuple(self._messages(channel).values())

    def thread(self, channel: str, ts: str) -> tuple[Message, ...]:
        """Return the root ``ts`` and its replies, oldest first; empty if there is no such message."""
        room = self._find(channel)
        if room is None or ts not in room.messages:
            return ()
        return tuple(room.messages[each] for each in (ts, *room.threads.get(ts, ())))

    def message(self, channel: str, ts: str) -> Message | None:
        return self._messages(channel).get(ts)

    def whispers(self, channel: str) -> tuple[Message, ...]:
        """Return the ephemeral messages of a channel, oldest first."""
        room = self._find(channel)
        return tuple(room.whispers) if room else ()

    def listen(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call ``listener`` upon every change, in order; returns a function that ends this."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # Messages

    def post(  # noqa: PLR0913 - what one call of chat.postMessage says
        self,
        channel: str,
        author: Member,
        body: Body,
        *,
        thread_ts: str | None = None,
        broadcast: bool = False,
        persona: Persona | None = None,
    ) -> Message:
        """Post, and return the message. A reply to a reply goes under its root.

        A ``thread_ts`` that names no message is dropped in silence and the message lands in the channel: so
        does Slack when the root was deleted; the answer then has no ``thread_ts``.
        """
        room = self._room(channel)
        self._must_be_in(room, author)
        root = self._root_of(room, thread_ts)
        message = Message(
            channel=room.channel.id,
            ts=self._timestamps.next(),
            user=author.id,
            body=body,
            bot=author if isinstance(author, Bot) else None,
            persona=persona,
            thread_ts=root.ts if root else None,
            parent_user=root.user if root else None,
            broadcast=broadcast and root is not None,
        )
        room.messages[message.ts] = message
        if root:
            room.threads[root.ts].append(message.ts)
            root = self._recount(room, root.ts)
        self._tell(Posted(message, root if message.broadcast else None))
        return message

    def whisper(  # noqa: PLR0913 - what one call of chat.postEphemeral says
        self,
        channel: str,
        author: Member,
        body: Body,
        *,
        to: str,
        thread_ts: str | None = None,
        persona: Persona | None = None,
    ) -> Message:
        room = self._room(channel)
        self._must_be_in(room, author)
        if to not in room.channel.members:
            raise SlackRefused("user_not_in_channel")
        message = Message(
            channel=room.channel.id,
            ts=self._timestamps.next(),
            user=author.id,
            body=body,
            bot=author if isinstance(author, Bot) else None,
            persona=persona,
            thread_ts=thread_ts,
            only_for=to,
        )
        room.whispers.append(message)
        self._tell(Whispered(message))
        return message

    def edit(self, channel: str, ts: str, author: Member, body: Body) -> Message:
        room, previous = self._existing(channel, ts, author)
        if previous.user != author.id or previous.tombstone or previous.persona:
            raise SlackRefused("cant_update_message")
        at = self._timestamps.next()
        message = replace(previous, body=body, edited=Edit(author.id, at))
        room.messages[ts] = message
        self._tell(Changed(message, previous, at))
        return message

    def delete(self, channel: str, ts: str, author: Member) -> None:
        """Delete a message; a root with replies leaves a tombstone, which goes with its last reply."""
        room, previous = self._existing(channel, ts, author)
        if previous.tombstone:
            raise SlackRefused("message_not_found")
        if previous.user != author.id:
            raise SlackRefused("cant_delete_message")
        if previous.thread:
            stone = threads.tombstone(previous)
            room.messages[ts] = stone
            self._tell(Changed(stone, previous, self._timestamps.next()))
            return
        self._remove(room, previous)
        if previous.thread_ts and previous.is_reply:
            room.threads[previous.thread_ts].remove(previous.ts)
            root = self._recount(room, previous.thread_ts)
            if root.tombstone and root.reply_count == 0:
                self._remove(room, root)

    def react(self, channel: str, ts: str, member: Member, name: str, *, add: bool) -> None:
        room, message = self._existing(channel, ts, member)
        if message.tombstone:
            raise SlackRefused("message_not_found")
        change = reactions.added if add else reactions.removed
        message = replace(message, reactions=change(message.reactions, name, member.id))
        room.messages[ts] = message
        self._tell(Reacted(message, member.id, name, self._timestamps.next(), add))

    # Channels

    def create(self, name: str, creator: Member) -> Channel:
        channel = Channel(channel_id(name), name, (creator.id,), int(self._clock()))
        if channel.id in self._rooms:
            raise SlackRefused("name_taken")
        self._add(channel)
        self._tell(ChannelOpened(channel, creator.id, self._timestamps.next()))
        return channel

    def open_im(self, opener: Member, other: Member) -> tuple[Channel, bool]:
        """Return the direct message of the two, and whether it was there before."""
        members = tuple(sorted({opener.id, other.id}, key=list(self.directory.members).index))
        bot = self.directory.bot.id
        im_id = "D0" + "".join(member[2:] for member in members if member != bot or len(members) == 1)
        if room := self._rooms.get(im_id):
            return room.channel, True
        channel = Channel(im_id, "", members, int(self._clock()), is_im=True)
        self._add(channel)
        self._tell(ChannelOpened(channel, opener.id, self._timestamps.next()))
        return channel, False

    def join(self, channel: str, member: Member, inviter: str | None = None) -> Channel:
        room = self._room(channel)
        if room.channel.is_im:
            raise SlackRefused("method_not_supported_for_channel_type")
        if member.id not in room.channel.members:
            room.channel = replace(room.channel, members=(*room.channel.members, member.id))
            self._tell(Joined(room.channel, member.id, self._timestamps.next(), inviter))
        return room.channel

    def leave(self, channel: str, member: Member) -> None:
        room = self._room(channel)
        remaining = tuple(user for user in room.channel.members if user != member.id)
        room.channel = replace(room.channel, members=remaining)

    def set_bot_online(self, online: bool) -> None:
        if online is not self.bot_online:
            self.bot_online = online
            self._tell(BotPresence(online))

    # Inside

    def _add(self, channel: Channel) -> None:
        self._rooms[channel.id] = _Room(channel)

    def _find(self, name_or_id: str) -> _Room | None:
        if room := self._rooms.get(name_or_id):
            return room
        name = name_or_id.removeprefix("#")
        return next((room for room in self._rooms.values() if name and room.channel.name == name), None)

    def _room(self, name_or_id: str) -> _Room:
        if room := self._find(name_or_id):
            return room
        raise SlackRefused("channel_not_found")

    def _messages(self, channel: str) -> dict[str, Message]:
        room = self._find(channel)
        return room.messages if room else {}

    def _must_be_in(self, room: _Room, member: Member) -> None:
        if member.id not in room.channel.members:
            raise SlackRefused("channel_not_found" if room.channel.is_im else "not_in_channel")

    def _existing(self, channel: str, ts: str, member: Member) -> tuple[_Room, Message]:
        room = self._room(channel)
        self._must_be_in(room, member)
        message = room.messages.get(ts)
        if message is None:
            raise SlackRefused("message_not_found")
        return room, message

    def _root_of(self, room: _Room, thread_ts: str | None) -> Message | None:
        named = room.messages.get(thread_ts) if thread_ts else None
        return room.messages.get(named.thread_ts) if named and named.thread_ts else named

    def _recount(self, room: _Room, root_ts: str) -> Message:
        replies = [room.messages[ts] for ts in room.threads[root_ts]]
        root = threads.counted(room.messages[root_ts], replies)
        room.messages[root_ts] = root
        return root

    def _remove(self, room: _Room, message: Message) -> None:
        del room.messages[message.ts]
        self._tell(Deleted(message, self._timestamps.next()))

    def _tell(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            listener(change)
