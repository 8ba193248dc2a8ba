"""From Slack's events to the messages and reactions that this connector acts on."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Any

# A share of a file and a reply "also sent to the channel" are posts of a person; every other subtype is not.
_SUBTYPES_OF_PEOPLE = (None, "file_share", "thread_broadcast")
_ENTITY = re.compile(r"<([^<>|]+)(?:\|([^<>]*))?>")
_STOP_WORDS = frozenset({"stop", "halt", "cancel", "abort"})


@dataclass(frozen=True, slots=True)
class Place:
    """Where a conversation lives: a thread, or a direct message channel as a whole (`thread_ts` is `None`)."""

    team: str
    channel: str
    thread_ts: str | None

    @property
    def conversation_id(self) -> str:
        return f"{self.team}:{self.channel}:{self.thread_ts or 'dm'}"


@dataclass(frozen=True, slots=True)
class Message:
    """What a person posted. `text` is as Slack sends it."""

    team: str
    channel: str
    ts: str
    thread_ts: str | None
    user: str
    text: str
    files: tuple[str, ...]
    direct: bool

    @property
    def id(self) -> str:
        return f"{self.team}:{self.channel}:{self.ts}"

    @property
    def place(self) -> Place:
        root = self.thread_ts if self.direct else (self.thread_ts or self.ts)
        return Place(self.team, self.channel, root)

    def mentions(self, user: str) -> bool:
        return f"<@{user}>" in self.text or f"<@{user}|" in self.text

    def mentions_anyone(self) -> bool:
        return "<@" in self.text


@dataclass(frozen=True, slots=True)
class Edit:
    """A person changed what they had posted; `message` is as it reads now, `before` as it read."""

    message: Message
    before: Message
    event_ts: str

    @property
    def id(self) -> str:
        return f"{self.message.id}:edit:{self.event_ts}"


@dataclass(frozen=True, slots=True)
class Deletion:
    """A person took away what they had posted; `message` is as it read."""

    message: Message
    event_ts: str

    @property
    def id(self) -> str:
        return f"{self.message.id}:deleted"


@dataclass(frozen=True, slots=True)
class Reaction:
    """An emoji that a person put on a message."""

    user: str
    name: str
    channel: str
    ts: str
    event_ts: str

    @property
    def id(self) -> str:
        return f"{self.channel}:{self.ts}:{self.user}:{self.name}:{self.event_ts}"


def message_of(event: dict[str, Any], team: str) -> Message | None:
    """The message that an event tells of, or `None` where no person wrote anything new."""
    if event.get("subtype") not in _SUBTYPES_OF_PEOPLE or event.get("bot_id") or not event.get("user"):
        return None
    files = tuple(str(file.get("name") or file.get("id")) for file in event.get("files") or ())
    if not (event.get("text") or "").strip() and not files:
        return None
    return Message(
        team=team,
        channel=event["channel"],
        ts=event["ts"],
        thread_ts=event.get("thread_ts"),
        user=event["user"],
        text=event.get("text") or "",
        files=files,
        direct=event.get("channel_type") == "im" or event["channel"].startswith("D"),
    )


def edit_of(event: dict[str, Any], team: str) -> Edit | None:
    """The edit that an event tells of, or `None` where the text is the same: Slack itself edits to unfurl links."""
    now, before = event.get("message") or {}, event.get("previous_message") or {}
    message = _inside(event, now, team)
    if message is None or now.get("text") == before.get("text"):
        return None
    return Edit(message, _inside(event, before, team) or message, event.get("event_ts") or event["ts"])


def deletion_of(event: dict[str, Any], team: str) -> Deletion | None:
    """The deletion that an event tells of, or `None` where it is of no person's message.

    What others have replied to leaves a tombstone: to Slack, that is an edit.
    """
    is_tombstone = (event.get("message") or {}).get("subtype") == "tombstone"
    if event["subtype"] != "message_deleted" and not is_tombstone:
        return None
    message = _inside(event, event.get("previous_message") or {}, team)
    return Deletion(message, event.get("event_ts") or event["ts"]) if message else None


def _inside(event: dict[str, Any], message: dict[str, Any], team: str) -> Message | None:
    """The message in an event about it, which says where it stands."""
    where: dict[str, Any] = {key: event[key] for key in ("channel", "channel_type") if key in event}
    return message_of({**message, **where}, team) if message.get("ts") else None


def reaction_of(event: dict[str, Any]) -> Reaction | None:
    """The reaction that an event tells of, or `None` where it is not on a message."""
    item = event.get("item") or {}
    if item.get("type") != "message":
        return None
    return Reaction(
        user=event["user"],
        name=event["reaction"],
        channel=item["channel"],
        ts=item["ts"],
        event_ts=event.get("event_ts", ""),
    )


def plain_text(text: str, bot: str) -> str:
    """Slack's text as a model reads it: entities resolved, escapes undone, the mention of the bot left out."""

    def resolved(match: re.Match[str]) -> str:
        target, label = match[1], match[2]
        if target == f"@{bot}":
            return ""
        if target.startswith("!"):
            return "@" + target[1:].split("^")[0]
        if target[0] in "@#":
            return f"{target[0]}{label or target[1:]}"
        return f"{label} ({target})" if label and label != target else target

    return html.unescape(_ENTITY.sub(resolved, text)).strip()


def is_stop_word(prompt: str) -> bool:
    """Whether a prompt says `stop`, or a word like it, and nothing else; `!stop` does, too."""
    return prompt.strip(" \t\n!.").lower() in _STOP_WORDS
