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


class Refusal(Exception):  # noqa: N818 - Slack's answer
    """Slack says no; the message is its word for why."""


@dataclass(slots=True)
class SlackMessage:
    """`by` is the process that posted it, for a post of the bot."""

    ts: str
    thread_ts: str
    user: str
    text: str
    by: int = 0
    username: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    reactions: dict[str, list[str]] = field(default_factory=dict)
    is_deleted: bool = False

    @property
    def key(self) -> str:
        """What tells a post of the bot's from its other posts."""
        return str(self.metadata.get("event_payload", {}).get("key", ""))

    def told(self) -> dict[str, Any]:
        marks = [{"name": name, "users": list(users), "count": len(users)} for name, users in self.reactions.items()]
        told: dict[str, Any] = {"type": "message", "ts": self.ts, "user": self.user, "text": self.text}
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

    `page` is how many of them it tells of at most in one answer.
    """

    def __init__(self, now: Callable[[], float], page: int) -> None:
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

    def thread(self, thread_ts: str) -> list[SlackMessage]:
        """The messages of a thread that are there."""
        return [each for each in self.messages.values() if each.thread_ts == thread_ts and not each.is_deleted]

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
        self._find(given["ts"]).is_deleted = True
        return {}

    def _react(self, given: dict[str, Any], _by: int) -> dict[str, Any]:
        users = self._find(given["timestamp"]).reactions.setdefault(given["name"], [])
        if BOT in users:
            raise Refusal("already_reacted")
        users.append(BOT)
        return {}

    def _history(self, _given: dict[str, Any], _by: int) -> dict[str, Any]:
        roots = [each for each in self.messages.values() if each.ts == each.thread_ts and not each.is_deleted]
        return {"messages": [each.told() for each in reversed(roots[-self._page :])]}

    def _agent(self, given: dict[str, Any], _by: int) -> dict[str, Any]:
        raise Refusal("feature_disabled")

    def _user(self, given: dict[str, Any], _by: int) -> dict[str, Any]:
        return {"user": {"profile": {"display_name": given["user"].lower()}}}

    def _post(self, given: dict[str, Any], by: int) -> dict[str, Any]:
        root = given.get("thread_ts")
        metadata = json.loads(given["metadata"]) if "metadata" in given else {}
        is_there = root is not None and root in self.messages and not self.messages[root].is_deleted
        thread_ts = root if is_there else None
        more = {"by": by, "username": given.get("username"), "metadata": metadata}
        message = self.write(BOT, given["text"], thread_ts, **more)
        told = message.told()
        if thread_ts is None:
            del told["thread_ts"]
        return {"ts": message.ts, "message": told}

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
        if asked is None or asked.is_deleted:
            raise Refusal("thread_not_found")
        messages = self.thread(asked.ts) if asked.ts == asked.thread_ts else [asked]
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
