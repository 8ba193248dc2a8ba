"""The changes of a workspace, as one union; listeners receive them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from local_slack.workspace.messages import Channel, Message
    from local_slack.workspace.sessions import Session


@dataclass(frozen=True, slots=True)
class Posted:
    """``root`` is set for a broadcast reply, which the channel shows too."""

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
    """``user`` added (``added``) or removed the reaction ``name``."""

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
