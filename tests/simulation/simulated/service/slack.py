"""A Slack workspace, as far as the connector uses it: messages, reactions, metadata."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

TEAM = "T1"
CHANNEL = "C1"
BOT = "UBOT"
_BEGAN = 1_700_000_000
# How many messages of a channel one answer tells of.
_LATEST = 200


class Refusal(Exception):  # noqa: N818 - Slack's answer
    """Slack says no; the message is its word for why."""


@dataclass(slots=True)
class SlackMessage:
    """`by` is the process that posted it, for a post of the bot, and `is_stray` says that it was dead by then."""

    ts: str
    thread_ts: str
    user: str
    text: str
    by: int = 0
    is_stray: bool = False
    username: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    reactions: dict[str, list[str]] = field(default_factory=dict)
    deleted_s: float | None = None

    @property
    def is_deleted(self) -> bool:
        return self.deleted_s is not None

    @property
    def key(self) -> str:
        """What tells a post of the bot's from its other posts."""
        return str(self.metadata.get("event_payload", {}).get("key", ""))

    @property
    def made_s(self) -> float:
        """When it was written, in the scene's time."""
        return time_of(self.ts)

    def told(self) -> dict[str, Any]:
        if self.is_deleted:
            return tombstone_of(self)
        marks = [{"name": name, "users": list(users), "count": len(users)} for name, users in self.reactions.items()]
        told: dict[str, Any] = {"type": "message", "ts": self.ts, "user": self.user, "text": self.text}
        if self.thread_ts != self.ts:
            told["thread_ts"] = self.thread_ts
        if marks:
            told["reactions"] = marks
        if self.metadata:
            told["metadata"] = self.metadata
        if self.user == BOT:
            told["bot_id"] = "B1"
        return told


class Slack:
    """One channel with its threads. `messages` has all there ever were, in the order in which they were posted.

    `page` is how many of them it tells of at most in one answer. While it `is_away`, processes get none; threads are
    returned only while it `tells_of_threads`. `died_s` says
    when a process died; `None`: it did not.
    """

    def __init__(self, now: Callable[[], float], page: int, died_s: Callable[[int], float | None]) -> None:
        self._died_s = died_s
        self.is_away = False
        self.tells_of_threads = True
        self.messages: dict[str, SlackMessage] = {}
        self._now = now
        self._page = page
        self._micros = 0

    def now_ts(self) -> str:
        """A ts of this moment, which nothing else has."""
        self._micros = max(self._micros + 1, int(self._now() * 1e6))
        return f"{_BEGAN + self._micros // 10**6}.{self._micros % 10**6:06}"

    def write(self, user: str, text: str, thread_ts: str | None = None, **more: Any) -> SlackMessage:
        ts = self.now_ts()
        message = SlackMessage(ts, thread_ts or ts, user, text, **more)
        self.messages[ts] = message
        return message

    def delete(self, message: SlackMessage) -> None:
        message.deleted_s = self._now()

    def thread(self, thread_ts: str) -> list[SlackMessage]:
        """The messages of a thread that are there."""
        return [each for each in self.messages.values() if each.thread_ts == thread_ts and not each.is_deleted]

    def is_there(self, thread_ts: str) -> bool:
        """Whether there is such a thread: a root that was deleted stays for as long as there are replies to it."""
        root = self.messages.get(thread_ts)
        return root is not None and (not root.is_deleted or bool(self.thread(thread_ts)))

    def strays(self) -> list[SlackMessage]:
        """The bot's posts that are in no thread."""
        mine = (each for each in self.messages.values() if each.user == BOT and not each.is_deleted)
        return [each for each in mine if each.ts == each.thread_ts]

    def call(self, method: str, given: dict[str, Any], by: int) -> dict[str, Any]:
        """What the method answers.

        Raises:
            Refusal: with Slack's word for why.
        """
        if method not in _METHODS:
            raise AssertionError(f"Nobody has needed {method} so far.")
        return {"ok": True, **_METHODS[method](self, given, by)}

    def _update(self, given: dict[str, Any], _by: int) -> dict[str, Any]:
        message = self._find(given["ts"])
        message.text = given["text"]
        return {"ts": message.ts}

    def _delete(self, given: dict[str, Any], _by: int) -> dict[str, Any]:
        self.delete(self._find(given["ts"]))
        return {}

    def _react(self, given: dict[str, Any], _by: int) -> dict[str, Any]:
        users = self._find(given["timestamp"]).reactions.setdefault(given["name"], [])
        if BOT in users:
            raise Refusal("already_reacted")
        users.append(BOT)
        return {}

    def _history(self, _given: dict[str, Any], _by: int) -> dict[str, Any]:
        roots = [each for each in self.messages.values() if each.ts == each.thread_ts and not each.is_deleted]
        return {"messages": [each.told() for each in reversed(roots[-_LATEST:])]}

    def _agent(self, given: dict[str, Any], _by: int) -> dict[str, Any]:
        raise Refusal("feature_disabled")

    def _user(self, given: dict[str, Any], _by: int) -> dict[str, Any]:
        return {"user": {"profile": {"display_name": given["user"].lower()}}}

    def _post(self, given: dict[str, Any], by: int) -> dict[str, Any]:
        root = given.get("thread_ts")
        metadata = json.loads(given["metadata"]) if "metadata" in given else {}
        thread_ts = root if root is not None and self.is_there(root) else None
        more = {
            "by": by,
            "is_stray": self._died_s(by) is not None,
            "username": given.get("username"),
            "metadata": metadata,
        }
        message = self.write(BOT, given["text"], thread_ts, **more)
        return {"ts": message.ts, "message": message.told()}

    def _unreact(self, given: dict[str, Any], _by: int) -> dict[str, Any]:
        message = self._find(given["timestamp"])
        users = message.reactions.get(given["name"], [])
        if BOT not in users:
            raise Refusal("no_reaction")
        users.remove(BOT)
        if not users:
            del message.reactions[given["name"]]
        return {}

    def _replies(self, given: dict[str, Any], _by: int) -> dict[str, Any]:
        asked = self.messages.get(given["ts"])
        if asked is None or not (self.is_there(asked.ts) if asked.ts == asked.thread_ts else not asked.is_deleted):
            raise Refusal("thread_not_found")
        messages = self.thread(asked.ts) if asked.ts == asked.thread_ts else [asked]
        messages = [asked, *messages] if asked.is_deleted else messages
        # Slack's cursor names a message: what is deleted meanwhile has no other one left out.
        left = [each for each in messages if each.ts > (given.get("cursor") or "")]
        page = left[: min(int(given.get("limit", self._page)), self._page)]
        return {
            "messages": [each.told() for each in page],
            "response_metadata": {"next_cursor": page[-1].ts if len(left) > len(page) else ""},
        }

    def _find(self, ts: str) -> SlackMessage:
        message = self.messages.get(ts)
        if message is None or message.is_deleted:
            raise Refusal("message_not_found")
        return message


def time_of(ts: str) -> float:
    """The scene's time that a ts stands for, in seconds."""
    return float(ts) - _BEGAN


def tombstone_of(root: SlackMessage) -> dict[str, Any]:
    """What stands in the place of a root that was deleted."""
    told = {"type": "message", "subtype": "tombstone", "user": "USLACKBOT", "text": "This message was deleted."}
    return {**told, "hidden": True, "ts": root.ts, "thread_ts": root.ts}


_METHODS = {
    "chat.postMessage": Slack._post,
    "chat.update": Slack._update,
    "chat.delete": Slack._delete,
    "reactions.add": Slack._react,
    "reactions.remove": Slack._unreact,
    "conversations.replies": Slack._replies,
    "conversations.history": Slack._history,
    "users.info": Slack._user,
    "agents.sessions.setStatus": Slack._agent,
    "agents.sessions.rename": Slack._agent,
}
