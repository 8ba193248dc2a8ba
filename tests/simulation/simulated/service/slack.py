"""A Slack workspace with one channel. Calls of its Web API take time, and fail before or after their effect."""

from __future__ import annotations

import asyncio
import contextvars
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError

from simulated.engine import PROCESS
from simulated.simulation import Simulation

TEAM = "T1"
CHANNEL, DIRECT = "C1", "D1"
BOT = "UBOT"
# The ids of the bots, by their users.
OTHER_BOT = "UPAGER"
BOT_IDS = {BOT: "B1", OTHER_BOT: "B2"}
EPOCH_S = 1_700_000_000
# The number of messages of a channel in one response.
_LATEST = 200
_BEFORE = ("dropped before", "500 before", "ratelimited")
_AFTER = ("dropped after", "500 after")
_WHILE_AWAY = ("dropped before", "500 before", "500 before", "500 after")
_MAX_FAILURES = 2
# A call may arrive this long after it was sent, even if its sender was killed. A client waits for 15 s.
IN_FLIGHT_S = 6.0


class RefusedError(Exception):
    """Slack refuses a call; the message is its error code."""


@dataclass(slots=True)
class SlackMessage:
    """A message. `by` is the process that posted it; `is_stray`: that process was dead by then."""

    channel: str
    ts: str
    thread_ts: str
    user: str
    text: str
    by: int = 0
    is_stray: bool = False
    username: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    reactions: dict[str, list[str]] = field(default_factory=dict)
    files: tuple[dict[str, Any], ...] = ()
    is_streaming: bool = False
    edited_ts: str = ""
    deleted_s: float | None = None

    @property
    def is_deleted(self) -> bool:
        return self.deleted_s is not None

    @property
    def is_root(self) -> bool:
        return self.ts == self.thread_ts

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left of it: its files are deleted, and it has no text."""
        return bool(self.files) and not self.text and not self.readable_files

    @property
    def readable_files(self) -> list[dict[str, Any]]:
        return [each for each in self.files if each.get("mode") != "tombstone"]

    @property
    def key(self) -> str:
        """The idempotency key of a post of the bot."""
        return str(self.metadata.get("event_payload", {}).get("key", ""))

    @property
    def posted_s(self) -> float:
        return time_of(self.ts)

    @property
    def controls(self) -> list[dict[str, Any]]:
        """The buttons and menus of the message."""
        return [each for block in self.blocks if block["type"] == "actions" for each in block["elements"]]

    @property
    def edited(self) -> dict[str, str]:
        """The last edit as Slack has it, in whole seconds."""
        return {"user": self.user, "ts": f"{int(float(self.edited_ts))}.000000"}

    def api_form(self) -> dict[str, Any]:
        if self.is_deleted:
            return tombstone_of(self)
        data: dict[str, Any] = {"type": "message", "ts": self.ts, "user": self.user, "text": self.text}
        if not self.is_root:
            data["thread_ts"] = self.thread_ts
        if self.reactions:
            data["reactions"] = [
                {"name": name, "users": list(users), "count": len(users)} for name, users in self.reactions.items()
            ]
        if self.metadata:
            data["metadata"] = self.metadata
        if self.files:
            data["files"] = list(self.files)
        if self.edited_ts:
            data["edited"] = self.edited
        if self.user in BOT_IDS:
            data["bot_id"] = BOT_IDS[self.user]
        if self.username is not None:
            data["username"] = self.username
        return data


class Slack:
    """The workspace.

    Attributes:
        channel: the one channel, in some seeds direct messages.
        messages: all messages, deleted ones included, in the order of posting.
        is_away: no call succeeds.
        returns_threads: `conversations.replies` succeeds.
    """

    def __init__(self, sim: Simulation, page: int):
        self.channel = DIRECT if "direct messages" in sim.features else CHANNEL
        self.is_away = False
        self.returns_threads = True
        self.messages: dict[str, SlackMessage] = {}
        self._sim = sim
        self._page = page
        self._micros = 0

    def go_away(self) -> None:
        self.is_away = True

    def come_back(self) -> None:
        self.is_away = False

    def now_ts(self) -> str:
        """Return a unique ts of the current time."""
        self._micros = max(self._micros + 1, int(self._sim.now() * 1e6))
        return f"{EPOCH_S + self._micros // 10**6}.{self._micros % 10**6:06}"

    def write(self, user: str, text: str, thread_ts: str | None = None, **more: Any) -> SlackMessage:
        ts = self.now_ts()
        message = self.messages[ts] = SlackMessage(self.channel, ts, thread_ts or ts, user, text, **more)
        return message

    def delete(self, message: SlackMessage) -> None:
        message.deleted_s = self._sim.now()

    def thread(self, thread_ts: str) -> list[SlackMessage]:
        return [each for each in self.messages.values() if each.thread_ts == thread_ts and not each.is_deleted]

    def has_thread(self, thread_ts: str) -> bool:
        """Return whether a thread exists: a deleted root stays while it has replies."""
        root = self.messages.get(thread_ts)
        return root is not None and (not root.is_deleted or bool(self.thread(thread_ts)))

    def call(self, method: str, arguments: dict[str, Any], by: int) -> dict[str, Any]:
        """Return the response of a method.

        Raises:
            RefusedError: with the error code of Slack.
        """
        return {"ok": True, **_METHODS[method](self, arguments, by)}

    def _whisper(self, _arguments: dict[str, Any], _by: int) -> dict[str, Any]:
        return {}

    def _update(self, arguments: dict[str, Any], _by: int) -> dict[str, Any]:
        message = self._find(arguments["ts"])
        if message.is_streaming:
            raise RefusedError("streaming_state_conflict")
        if message.username is not None:
            raise RefusedError("cant_update_message")
        message.text, message.blocks = arguments["text"], json.loads(arguments.get("blocks", "[]"))
        message.metadata = json.loads(arguments["metadata"]) if "metadata" in arguments else message.metadata
        return {"ts": message.ts}

    def _share(self, arguments: dict[str, Any], by: int) -> dict[str, Any]:
        files = tuple({"id": each["id"], "name": each["title"]} for each in json.loads(arguments["files"]))
        if any(each in message.files for message in self.messages.values() for each in files):
            raise RefusedError("invalid_arguments")
        self._sim.count("file shared")
        self.messages[self._post({"text": arguments.get("initial_comment", ""), **arguments}, by)["ts"]].files = files
        return {"files": list(files)}

    def _delete_file(self, arguments: dict[str, Any], _by: int) -> dict[str, Any]:
        for message in self.messages.values():
            message.files = tuple(
                {"id": each["id"], "mode": "tombstone"} if each["id"] == arguments["file"] else each
                for each in message.files
            )
        self._sim.count("file deleted")
        return {}

    def _start_stream(self, arguments: dict[str, Any], by: int) -> dict[str, Any]:
        self._sim.count("stream started")
        message = self.messages[self._post({"text": "", **arguments}, by)["ts"]]
        message.is_streaming = True
        return {"ts": message.ts}

    def _append_stream(self, arguments: dict[str, Any], _by: int) -> dict[str, Any]:
        message = self._streaming(arguments["ts"])
        message.text += arguments.get("markdown_text", "")
        return {"ts": message.ts}

    def _stop_stream(self, arguments: dict[str, Any], _by: int) -> dict[str, Any]:
        message = self._streaming(arguments["ts"])
        message.text += arguments.get("markdown_text", "")
        message.metadata = json.loads(arguments["metadata"]) if "metadata" in arguments else {}
        message.is_streaming = False
        self._sim.count("stream completed" if message.key else "stream stopped")
        return {"ts": message.ts, "message": message.api_form()}

    def _streaming(self, ts: str) -> SlackMessage:
        message = self._find(ts)
        if message.is_streaming and self._sim.occurs("failing Slack", 0.05):  # Slack ends streams by itself
            self._sim.count("stream expired")
            message.is_streaming = False
        if not message.is_streaming:
            raise RefusedError("message_not_in_streaming_state")
        return message

    def _delete(self, arguments: dict[str, Any], _by: int) -> dict[str, Any]:
        self.delete(self._find(arguments["ts"]))
        return {}

    def _react(self, arguments: dict[str, Any], _by: int) -> dict[str, Any]:
        users = self._find(arguments["timestamp"]).reactions.setdefault(arguments["name"], [])
        if BOT in users:
            raise RefusedError("already_reacted")
        users.append(BOT)
        return {}

    def _unreact(self, arguments: dict[str, Any], _by: int) -> dict[str, Any]:
        reactions = self._find(arguments["timestamp"]).reactions
        users = reactions.get(arguments["name"], [])
        if BOT not in users:
            raise RefusedError("no_reaction")
        users.remove(BOT)
        if not users:
            del reactions[arguments["name"]]
        return {}

    def _history(self, _arguments: dict[str, Any], _by: int) -> dict[str, Any]:
        roots = [each for each in self.messages.values() if each.is_root and not each.is_deleted]
        return {"messages": [each.api_form() for each in reversed(roots[-_LATEST:])]}

    def _agent_session(self, _arguments: dict[str, Any], _by: int) -> dict[str, Any]:
        raise RefusedError("feature_disabled")

    def _user(self, arguments: dict[str, Any], _by: int) -> dict[str, Any]:
        return {"user": {"profile": {"display_name": arguments["user"].lower()}}}

    def _channel(self, _arguments: dict[str, Any], _by: int) -> dict[str, Any]:
        return {"channel": {}}

    def _post(self, arguments: dict[str, Any], by: int) -> dict[str, Any]:
        root = arguments.get("thread_ts")
        message = self.write(
            BOT,
            arguments["text"],
            root if root is not None and self.has_thread(root) else None,
            by=by,
            is_stray=self._sim.loop.killed_s(by) is not None,
            username=arguments.get("username"),
            metadata=json.loads(arguments["metadata"]) if "metadata" in arguments else {},
            blocks=json.loads(arguments.get("blocks", "[]")),
        )
        return {"ts": message.ts, "message": message.api_form()}

    def _replies(self, arguments: dict[str, Any], _by: int) -> dict[str, Any]:
        asked = self.messages.get(arguments["ts"])
        if asked is None or not (self.has_thread(asked.ts) if asked.is_root else not asked.is_deleted):
            raise RefusedError("thread_not_found")
        messages = self.thread(asked.ts) if asked.is_root else [asked]
        messages = [asked, *messages] if asked.is_deleted else messages
        # The cursor names a message, so a deletion between two pages skips no other message.
        left = [each for each in messages if each.ts > (arguments.get("cursor") or "")]
        page = left[: min(int(arguments.get("limit", self._page)), self._page)]
        return {
            "messages": [each.api_form() for each in page],
            "response_metadata": {"next_cursor": page[-1].ts if len(left) > len(page) else ""},
        }

    def _find(self, ts: str) -> SlackMessage:
        message = self.messages.get(ts)
        if message is None or message.is_deleted:
            raise RefusedError("message_not_found")
        return message


_METHODS = {
    "chat.postMessage": Slack._post,
    "chat.postEphemeral": Slack._whisper,
    "chat.update": Slack._update,
    "chat.delete": Slack._delete,
    "chat.startStream": Slack._start_stream,
    "chat.appendStream": Slack._append_stream,
    "chat.stopStream": Slack._stop_stream,
    "files.completeUploadExternal": Slack._share,
    "files.delete": Slack._delete_file,
    "reactions.add": Slack._react,
    "reactions.remove": Slack._unreact,
    "conversations.replies": Slack._replies,
    "conversations.history": Slack._history,
    "conversations.info": Slack._channel,
    "users.info": Slack._user,
    "agents.sessions.setStatus": Slack._agent_session,
}


def time_of(ts: str) -> float:
    """Return the simulated time of a ts, in seconds."""
    return float(ts) - EPOCH_S


def tombstone_of(root: SlackMessage) -> dict[str, Any]:
    """Return what replaces a deleted root that has replies."""
    message = {"type": "message", "subtype": "tombstone", "user": "USLACKBOT", "text": "This message was deleted."}
    return {**message, "hidden": True, "ts": root.ts, "thread_ts": root.ts}


class _Response:
    def __init__(self, data: Any, status_code: int = 200, headers: dict[str, str] | None = None):
        self.data = data
        self.status_code = status_code
        self.headers = headers or {}

    def get(self, name: str, default: Any = None) -> Any:
        return self.data.get(name, default) if isinstance(self.data, dict) else default

    def __getitem__(self, name: str) -> Any:
        return self.data[name]


@dataclass(frozen=True, slots=True)
class _Call:
    """A Web API call. `is_sent`: it arrives even if its sender is killed."""

    method: str
    arguments: dict[str, Any]
    outcome: str
    reply: asyncio.Future[_Response]
    home: contextvars.Context
    is_sent: bool
    sent_s: float


class WebClient:
    """The Web API client of one process. `session` downloads files."""

    token = "xoxb"
    base_url = "https://slack.com/api/"

    def __init__(self, sim: Simulation, slack: Slack, process: int, session: Any = None):
        self.session = session
        self._sim = sim
        self._slack = slack
        self._process = process
        self._failed: Counter[object] = Counter()
        self._sent: set[str] = set()
        self._there = contextvars.copy_context()
        self._there.run(PROCESS.set, 0)

    async def api_call(self, method: str, data: dict[str, Any]) -> _Response:
        loop, arguments = self._sim.loop, dict(data)
        reply = loop.create_future()
        home = contextvars.copy_context()
        outcome = self._outcome(method, arguments)
        is_sent = self._sim.occurs("orphaned calls", 0.5)
        call = _Call(method, arguments, outcome, reply, home, is_sent, loop.time())
        loop.call_later(min(self._latency_s(), IN_FLIGHT_S), self._arrive, call, context=self._there)
        answer: _Response = await reply
        return answer

    def _outcome(self, method: str, arguments: dict[str, Any]) -> str:
        sim = self._sim
        if self._slack.is_away:
            return sim.rng.choice(_WHILE_AWAY)
        if method == "conversations.replies" and not self._slack.returns_threads:
            return "500 before"
        if not sim.occurs("failing Slack", 0.12):
            return "answered"
        what = method, *(arguments.get(name) for name in ("metadata", "ts", "timestamp", "name"))
        self._failed[what] += 1
        return "answered" if self._failed[what] > _MAX_FAILURES else sim.rng.choice((*_BEFORE, *_AFTER))

    def _latency_s(self) -> float:
        if self._sim.occurs("slow Slack", 0.15):
            return self._sim.delay_s(0.3, 1.0)
        return 0.03 * (0.5 + self._sim.rng.random())

    def _arrive(self, call: _Call) -> None:
        if self._sim.loop.killed_s(self._process) is None:
            self._take_effect(call)
        elif call.is_sent:
            left_s = max(0.0, call.sent_s + IN_FLIGHT_S - self._sim.now())
            later_s = self._sim.rng.choice([0.0, self._sim.rng.uniform(0.0, left_s)])
            self._sim.count("call of a dead process")
            self._sim.loop.call_later(later_s, self._take_effect, call, context=self._there)

    def _take_effect(self, call: _Call) -> None:
        sim, method, arguments, outcome = self._sim, call.method, call.arguments, call.outcome
        if outcome != "answered":
            sim.count(f"Slack: {outcome}")
        if method == "chat.postMessage":
            self._count_post(arguments, outcome)
        answer: _Response | BaseException
        if outcome in _BEFORE:
            answer = _failure(method, outcome, sim.rng.choice([0, 1, 2]))
        else:
            try:
                answer = _Response(self._slack.call(method, arguments, self._process))
            except RefusedError as e:
                answer = SlackApiError(str(e), _Response({"ok": False, "error": str(e)}))
            if outcome in _AFTER:
                answer = _failure(method, outcome)
        failed = "" if outcome == "answered" else f" ({outcome})"
        sim.log("Slack", f"{method} of {self._process}: {_described(arguments)}{failed}")
        sim.loop.call_later(self._latency_s(), _reply, call.reply, answer, context=call.home)

    def _count_post(self, arguments: dict[str, Any], outcome: str) -> None:
        if outcome in _AFTER:
            self._sim.count("post made, and its reply lost")
        if arguments["metadata"] in self._sent:
            self._sim.count("post sent again")
        self._sent.add(arguments["metadata"])


def _failure(method: str, outcome: str, retry_after_s: int = 0) -> BaseException:
    if outcome.startswith("500"):
        return SlackApiError(method, _Response("<html>", 500))
    if outcome == "ratelimited":
        headers = {"Retry-After": str(retry_after_s)}
        return SlackApiError(method, _Response({"ok": False, "error": "ratelimited"}, 429, headers))
    return aiohttp.ServerDisconnectedError()


def _reply(reply: asyncio.Future[_Response], answer: Any) -> None:
    if not reply.done():
        (reply.set_exception if isinstance(answer, BaseException) else reply.set_result)(answer)


def _described(arguments: dict[str, Any]) -> str:
    values = (arguments.get("text", "")[:60], *(arguments.get(k) for k in ("name", "ts", "timestamp", "user")))
    return " ".join(repr(each) if " " in each else each for each in values if each)
