"""The values of a channel, the changes of a workspace, and timestamps. All are frozen; the workspace replaces them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from local_slack.json_limits import Json
    from local_slack.workspace.agents import AgentSession
    from local_slack.workspace.files import File
    from local_slack.workspace.people import Bot

_TIMESTAMP = re.compile(r"\d{1,12}(\.\d{1,6})?")


class Timestamps:
    """Generate Slack's ``ts``: seconds and six digits, unique and strictly increasing; the id of a message."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last_us = 0

    def next(self) -> str:
        self._last_us = max(int(self._clock() * 1_000_000), self._last_us + 1)
        return f"{self._last_us // 1_000_000}.{self._last_us % 1_000_000:06d}"


def is_timestamp(text: str) -> bool:
    return _TIMESTAMP.fullmatch(text) is not None


def order(ts: str) -> tuple[int, int]:
    """Return a sort key for timestamps, including those with fewer digits."""
    seconds, _, fraction = ts.partition(".")
    return int(seconds), int(fraction.ljust(6, "0") or 0)


@dataclass(frozen=True, slots=True)
class ChannelNote:
    """The topic or the purpose of a channel."""

    value: str = ""
    creator: str = ""
    last_set: int = 0


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel, or a direct message (``is_im``) between its one or two members."""

    id: str
    name: str
    members: tuple[str, ...]
    created: int
    is_im: bool = False
    is_archived: bool = False
    topic: ChannelNote = ChannelNote()
    purpose: ChannelNote = ChannelNote()
    is_private: bool = False


@dataclass(frozen=True, slots=True)
class Reaction:
    """One emoji under a message; ``users`` in the order of their reactions."""

    name: str
    users: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PostIdentity:
    """Name and icon of one message, other than the bot's own (``chat:write.customize``)."""

    username: str | None = None
    icon_emoji: str | None = None
    icon_url: str | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """The last edit of a message; ``ts`` in whole seconds, as Slack has it."""

    user: str
    ts: str


@dataclass(frozen=True, slots=True)
class Thread:
    """The summary of a thread in its root; ``reply_users`` in the order of their first reply."""

    reply_count: int
    reply_users: tuple[str, ...]
    latest_reply: str


@dataclass(frozen=True, slots=True)
class Body:
    """The content of a message, which an edit replaces."""

    text: str = ""
    blocks: tuple[Json, ...] = ()
    attachments: tuple[Json, ...] = ()
    metadata: Mapping[str, Any] | None = None
    files: tuple[File, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkspaceMessage:
    """The current state of a message. ``user`` is its author, a person or the bot.

    As in Slack, ``thread_ts`` of a root with replies is its own ts; ``is_reply`` distinguishes replies.
    ``tombstone``: the author deleted this root, its replies remain. ``only_for``: the one reader of an ephemeral post.
    ``subtype``: set for a message that Slack itself posts for the app.
    """

    channel: str
    ts: str
    user: str
    body: Body
    bot: Bot | None = None
    persona: PostIdentity | None = None
    thread_ts: str | None = None
    parent_user: str | None = None
    broadcast: bool = False
    thread: Thread | None = None
    reactions: tuple[Reaction, ...] = ()
    edited: Edit | None = None
    tombstone: bool = False
    only_for: str | None = None
    subtype: str | None = None

    @property
    def text(self) -> str:
        return self.body.text

    @property
    def blocks(self) -> tuple[Json, ...]:
        return self.body.blocks

    @property
    def metadata(self) -> Mapping[str, Any] | None:
        return self.body.metadata

    @property
    def files(self) -> tuple[File, ...]:
        return self.body.files

    @property
    def username(self) -> str | None:
        return self.persona.username if self.persona else None

    @property
    def icon_emoji(self) -> str | None:
        return self.persona.icon_emoji if self.persona else None

    @property
    def by_bot(self) -> bool:
        return self.bot is not None

    @property
    def is_reply(self) -> bool:
        return self.thread_ts is not None and self.thread_ts != self.ts

    @property
    def reply_count(self) -> int:
        return self.thread.reply_count if self.thread else 0

    def reacted(self, name: str, by: str | None = None) -> bool:
        """Return whether anyone, or the user with the id ``by``, has reacted with this emoji."""
        return any(r.name == name and (by is None or by in r.users) for r in self.reactions)


@dataclass(frozen=True, slots=True)
class Posted:
    """``root`` is set for a broadcast reply, which the channel shows too."""

    message: WorkspaceMessage
    root: WorkspaceMessage | None = None


@dataclass(frozen=True, slots=True)
class Whispered:
    message: WorkspaceMessage


@dataclass(frozen=True, slots=True)
class Changed:
    message: WorkspaceMessage
    previous: WorkspaceMessage
    at: str


@dataclass(frozen=True, slots=True)
class Deleted:
    previous: WorkspaceMessage
    at: str


@dataclass(frozen=True, slots=True)
class Reacted:
    """``user`` added (``added``) or removed the reaction ``name``."""

    message: WorkspaceMessage
    user: str
    name: str
    at: str
    added: bool


@dataclass(frozen=True, slots=True)
class ChannelOpened:
    channel: Channel
    creator: str
    at: str


@dataclass(frozen=True, slots=True)
class Joined:
    channel: Channel
    user: str
    at: str
    inviter: str | None = None


@dataclass(frozen=True, slots=True)
class Left:
    channel: Channel
    user: str
    at: str


@dataclass(frozen=True, slots=True)
class SessionChanged:
    session: AgentSession
    at: str


@dataclass(frozen=True, slots=True)
class BotPresence:
    online: bool


@dataclass(frozen=True, slots=True)
class ViewsChanged:
    """The app changed the Home tab or the modals of ``user``."""

    user: str


Change = (
    Posted
    | Whispered
    | Changed
    | Deleted
    | Reacted
    | ChannelOpened
    | Joined
    | Left
    | SessionChanged
    | BotPresence
    | ViewsChanged
)
