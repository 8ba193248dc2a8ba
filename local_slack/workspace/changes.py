"""What can happen in a workspace: one union, given to whoever listens to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from local_slack.workspace.messages import Channel, Message
    from local_slack.workspace.sessions import Session


@dataclass(frozen=True, slots=True)
class Posted:
    """``root`` is set for a reply that is shown in the channel as well."""

    message: Message
    root: Message | None = None


@dataclass(frozen=True, slots=True)
class Whispered:
    message: Message


@dataclass(frozen=True, slots=True)
class Changed:
    message: Message
    previous: Message
    at: str


@dataclass(frozen=True, slots=True)
class Deleted:
    previous: Message
    at: str


@dataclass(frozen=True, slots=True)
class Reacted:
    """``added`` or removed: ``user`` and ``name`` on ``message``."""

    message: Message
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
class SessionChanged:
    session: Session
    at: str


@dataclass(frozen=True, slots=True)
class BotPresence:
    online: bool


Change = Posted | Whispered | Changed | Deleted | Reacted | ChannelOpened | Joined | SessionChanged | BotPresence
