"""From Slack's events to the messages and reactions that this connector acts on."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any

# A share of a file and a reply "also sent to the channel" are posts of a person; every other subtype is not.
_SUBTYPES_OF_PEOPLE = (None, "file_share", "thread_broadcast")
_ENTITY = re.compile(r"<([^<>|]+)(?:\|([^<>]*))?>")
_MENTION = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
# At most so many users that one message mentions are looked up.
MOST_MENTIONED = 20
# Ids and times become names in stores and paths, so both are checked and bounded.
_ID = re.compile(r"[A-Za-z0-9]{1,40}")
_TS = re.compile(r"[0-9]{1,16}(?:\.[0-9]{1,9})?")
_STOP_WORDS = frozenset({"stop", "halt", "cancel", "abort"})
# Slack's own voice: it reminds, and answers what it takes for a question.
_SLACKBOT = "USLACKBOT"
STOP_ACTION = "stop"


@dataclass(frozen=True, slots=True)
class ThreadAddress:
    """Where a conversation lives: a thread, or a direct message channel as a whole (`thread_ts` is `None`)."""

    team: str
    channel: str
    thread_ts: str | None

    @property
    def conversation_id(self) -> str:
        return f"{self.team}:{self.channel}:{self.thread_ts or 'dm'}"


@dataclass(frozen=True, slots=True)
class SlackMessage:
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
    def place(self) -> ThreadAddress:
        root = self.thread_ts if self.direct else (self.thread_ts or self.ts)
        return ThreadAddress(self.team, self.channel, root)

    def mentions(self, user: str) -> bool:
        return f"<@{user}>" in self.text or f"<@{user}|" in self.text

    def mentions_anyone(self) -> bool:
        return "<@" in self.text

    @property
    def mentioned(self) -> list[str]:
        """The ids of the first `MOST_MENTIONED` users that it mentions.

        Only an entity of Slack's markup is a mention: a person who types `<` sends `&lt;`.
        """
        found: dict[str, None] = {}
        for mention in _MENTION.finditer(self.text):
            found[mention[1]] = None
            if len(found) == MOST_MENTIONED:
                break
        return list(found)


@dataclass(frozen=True, slots=True)
class MessageEdit:
    """A person changed what they had posted; `message` is as it reads now, `before` as it read."""

    message: SlackMessage
    before: SlackMessage
    event_ts: str

    @property
    def id(self) -> str:
        return f"{self.message.id}:edit:{self.event_ts}"


@dataclass(frozen=True, slots=True)
class MessageDeletion:
    """A person took away what they had posted; `message` is as it read."""

    message: SlackMessage
    event_ts: str

    @property
    def id(self) -> str:
        return f"{self.message.id}:deleted"


@dataclass(frozen=True, slots=True)
class ReactionAdded:
    """An emoji that a person put on a message; `author` wrote that, where Slack says it."""

    user: str
    name: str
    channel: str
    ts: str
    event_ts: str
    author: str | None = None

    @property
    def id(self) -> str:
        return f"{self.channel}:{self.ts}:{self.user}:{self.name}:{self.event_ts}"


@dataclass(frozen=True, slots=True)
class StopRequest:
    """Somebody wants a run of a conversation stopped, whichever way they said so.

    Args:
        at: when: a run that began later is not meant.
        ts: the message on which they said it: only the run is meant whose status it is, or which it began.
        run: the id of the run that is meant, where it is known.
        message: the word as they wrote it: it wants an answer where nothing runs.
    """

    id: str
    user: str
    at: str
    ts: str | None = None
    run: str | None = None
    message: SlackMessage | None = None

    def written(self) -> dict[str, Any]:
        """As an inbox keeps it."""
        message = None if self.message is None else asdict(self.message)
        data = {"user": self.user, "at": self.at, "ts": self.ts, "run": self.run, "message": message}
        return {name: value for name, value in data.items() if value is not None}


def message_of(event: dict[str, Any], team: str) -> SlackMessage | None:
    """The message that an event tells of, or `None` where no person wrote anything new.

    Like all that reads events here, it raises AttributeError, KeyError, TypeError or ValueError where one is not as
    Slack writes them.
    """
    if event.get("subtype") not in _SUBTYPES_OF_PEOPLE or not _is_of_a_person(event):
        return None
    files = tuple(str(file.get("name") or file.get("id")) for file in event.get("files") or ())
    text, channel = _whole(event.get("text") or ""), _id(event["channel"])
    if not text.strip() and not files:
        return None
    return SlackMessage(
        team=team,
        channel=channel,
        ts=checked_ts(event["ts"]),
        thread_ts=thread_of(event),
        user=_id(event["user"]),
        text=text,
        files=files,
        direct=event.get("channel_type") == "im" or channel.startswith("D"),
    )


def thread_of(message: dict[str, Any]) -> str | None:
    """The thread in which a message is a reply; one that others have replied to names its own, and is in none."""
    thread_ts = message.get("thread_ts")
    return None if thread_ts is None or thread_ts == message["ts"] else checked_ts(thread_ts)


def moment_of(event: dict[str, Any]) -> str:
    """When what an event tells of has happened, in the words of a ts."""
    return checked_ts(event.get("event_ts") or event["ts"])


def checked_ts(value: object) -> str:
    """Return a ts of Slack's form: it can be ordered."""
    if not isinstance(value, str) or _TS.fullmatch(value) is None:
        raise ValueError(f"{value!r} is no ts")
    return value


def edited_ts_of(found: dict[str, Any]) -> str:
    """When a message that Slack was asked for was changed last; blank: never."""
    edited = found.get("edited")
    ts = edited.get("ts") if isinstance(edited, dict) else None
    return ts if isinstance(ts, str) and _TS.fullmatch(ts) else ""


def _word(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _id(value: object) -> str:
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise ValueError(f"{value!r} is no id")
    return value


def _whole(text: str) -> str:
    """Without halves of characters, which nothing that is written down can have."""
    return text.encode("utf-8", "replace").decode()


def _is_of_a_person(message: dict[str, Any]) -> bool:
    is_of_a_bot = message.get("bot_id") or message.get("bot_profile")
    return bool(message.get("user")) and not is_of_a_bot and message["user"] != _SLACKBOT


def home_of(message: dict[str, Any]) -> str | None:
    """Return the workspace (`T…`) or the organisation (`E…`) of the author of a message; `None`: Slack names neither.

    `team` comes last: in an organisation it may be the workspace that receives the message.
    """
    homes = (message.get(name) for name in ("user_team", "source_team", "team"))
    return next((home for home in homes if isinstance(home, str) and home.startswith(("T", "E"))), None)


def edit_of(event: dict[str, Any], team: str) -> MessageEdit | None:
    """The edit that an event tells of, or `None` where the text is the same: Slack itself edits to unfurl links."""
    now, before = event.get("message") or {}, event.get("previous_message") or {}
    message = _inside(event, now, team)
    if message is None or now.get("text") == before.get("text"):
        return None
    return MessageEdit(message, _inside(event, before, team) or message, moment_of(event))


def deletion_of(event: dict[str, Any], team: str) -> MessageDeletion | None:
    """The deletion that an event tells of, or `None` where it is of no person's message.

    What others have replied to leaves a tombstone: to Slack, that is an edit.
    """
    is_tombstone = (event.get("message") or {}).get("subtype") == "tombstone"
    if event["subtype"] != "message_deleted" and not is_tombstone:
        return None
    message = _inside(event, event.get("previous_message") or {}, team)
    return MessageDeletion(message, moment_of(event)) if message else None


def _inside(event: dict[str, Any], message: dict[str, Any], team: str) -> SlackMessage | None:
    """The message in an event about it, which says where it stands."""
    where: dict[str, Any] = {key: event[key] for key in ("channel", "channel_type") if key in event}
    return message_of({**message, **where}, team) if message.get("ts") else None


def reaction_of(event: dict[str, Any]) -> ReactionAdded | None:
    """The reaction that an event tells of, or `None` where it is not on a message."""
    item = event.get("item") or {}
    if item.get("type") != "message":
        return None
    return ReactionAdded(
        user=_id(event["user"]),
        name=_word(event["reaction"]),
        channel=_id(item["channel"]),
        ts=checked_ts(item["ts"]),
        event_ts=checked_ts(event["event_ts"]),
        author=event.get("item_user"),
    )


def session_stop_of(event: dict[str, Any], team: str) -> tuple[ThreadAddress, StopRequest] | None:
    """The stop that Slack's own button asks for, and where, or `None` where it does not say that."""
    user, channel, at = event.get("user"), event.get("channel"), event.get("event_ts")
    if not user or not channel or not at:
        return None
    thread_ts = event.get("thread_ts")
    place = ThreadAddress(team, _id(channel), None if thread_ts is None else checked_ts(thread_ts))
    return place, StopRequest(f"{place.conversation_id}:{user}:session_stopped:{at}", _id(user), checked_ts(at))


def clicked_stop_of(body: dict[str, Any], team: str) -> tuple[ThreadAddress, StopRequest] | None:
    """The stop that a click on the button of a status asks for, and where, or `None` where it was another button."""
    action = next((each for each in body.get("actions") or () if each.get("action_id") == STOP_ACTION), None)
    container, message = body.get("container") or {}, body.get("message") or {}
    channel = (body.get("channel") or {}).get("id") or container.get("channel_id")
    user, ts = (body.get("user") or {}).get("id"), message.get("ts") or container.get("message_ts")
    if action is None or not channel or not user or not ts or not action.get("action_ts"):
        return None
    thread_ts = thread_of({"ts": checked_ts(ts), "thread_ts": message.get("thread_ts") or container.get("thread_ts")})
    place = ThreadAddress(team, _id(channel), thread_ts or (None if channel.startswith("D") else ts))
    at, run = checked_ts(str(action["action_ts"])), _word(action.get("value") or "") or None
    return place, StopRequest(f"{channel}:{ts}:{user}:clicked:{at}", _id(user), at, run=run)


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

    # Slack escapes these three and nothing else.
    text = _ENTITY.sub(resolved, text).replace("&lt;", "<").replace("&gt;", ">")
    return text.replace("&amp;", "&").strip()


def is_stop_word(prompt: str) -> bool:
    """Whether a prompt says `stop`, or a word like it, and nothing else; `!stop` does, too."""
    return prompt.strip(" \t\n!.").lower() in _STOP_WORDS
