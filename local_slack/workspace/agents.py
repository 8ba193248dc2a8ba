"""What an app shows as an agent: the status in a thread, and messages that it writes piece by piece."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from local_slack.json_limits import Json

# Slack ends a stream after about this time, even if the app still appends to it.
_LIVES_S = 300.0

SessionStatus = Literal["active", "processing", "suspended", "closed"]
SESSION_STATUSES: tuple[SessionStatus, ...] = ("active", "processing", "suspended", "closed")

_SAID_S = 120.0


@dataclass(frozen=True, slots=True)
class AgentSession:
    """One thread's session.

    ``username`` is the app's name for who works. ``says`` and ``loading`` come from ``assistant.threads.setStatus``,
    at ``said_at``, and last until the app posts in the thread, at most 2 minutes. ``status`` is empty if only those
    methods were used.
    """

    channel: str
    thread_ts: str
    status: SessionStatus | Literal[""] = ""
    title: str = ""
    username: str = ""
    says: str = ""
    loading: tuple[str, ...] = ()
    prompts: tuple[tuple[str, str], ...] = ()
    initiator: str | None = None
    said_at: float = 0.0

    def at(self, now: float) -> AgentSession:
        """Return the session without an expired status text."""
        return self if now - self.said_at <= _SAID_S else self.silent()

    def silent(self) -> AgentSession:
        return replace(self, says="", loading=())


@dataclass(slots=True)
class Stream:
    """The content of a stream so far; each task is shown once, in its current state."""

    channel: str
    ts: str
    thread_ts: str | None
    user: str
    started: float
    plan: str = ""
    text: str = ""
    tasks: dict[str, Json] = field(default_factory=dict)
    blocks: list[Json] = field(default_factory=list)
    stopped_by_user: bool = False
    finished: bool = False

    def take(self, chunks: Iterable[Json]) -> None:
        for chunk in chunks:
            match chunk["type"]:
                case "markdown_text":
                    self.text += chunk["text"]
                case "plan_update":
                    self.plan = chunk["title"]
                case "task_update":
                    self.tasks[chunk["id"]] = self.tasks.get(chunk["id"], {}) | chunk
                case "blocks":
                    self.blocks += chunk["blocks"]

    def shown(self) -> list[Json]:
        """Return the current blocks of the message."""
        cards = [{**task, "type": "task_card", "task_id": task["id"]} for task in self.tasks.values()]
        tasks = [{"type": "plan", "title": self.plan, "tasks": cards}] if self.plan else cards
        text = [{"type": "markdown", "text": self.text}] if self.text else []
        return [*tasks, *text, *self.blocks]


class Streams:
    """Own the streams of a workspace."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._streams: dict[tuple[str, str], Stream] = {}

    def start(self, channel: str, ts: str, thread_ts: str | None, user: str) -> Stream:
        stream = Stream(channel, ts, thread_ts, user, self._clock())
        self._streams[channel, ts] = stream
        return stream

    def is_open(self, channel: str, ts: str) -> bool:
        stream = self._streams.get((channel, ts))
        return stream is not None and self._runs(stream)

    def open_one(self, channel: str, ts: str, user: str) -> Stream:
        """Return an open stream; a stream that has ended raises SlackRefused with the reason."""
        stream = self._streams.get((channel, ts))
        if stream is None or stream.finished:
            raise SlackRefused("message_not_in_streaming_state")
        if stream.user != user:
            raise SlackRefused("message_not_owned_by_app")
        if stream.stopped_by_user:
            raise SlackRefused("stopped_by_user")
        if not self._runs(stream):
            raise SlackRefused("message_not_in_streaming_state")
        return stream

    def stop(self, channel: str, thread_ts: str) -> list[str]:
        """End all streams of a thread, as Slack's Stop button does; returns their ts."""
        ended = [
            s for s in self._streams.values() if (s.channel, s.thread_ts) == (channel, thread_ts) and self._runs(s)
        ]
        for stream in ended:
            stream.stopped_by_user = True
        return [stream.ts for stream in ended]

    def _runs(self, stream: Stream) -> bool:
        over = stream.finished or stream.stopped_by_user
        return not over and self._clock() - stream.started <= _LIVES_S
