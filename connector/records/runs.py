"""Records of runs: the active one, the pending cleanup of earlier ones, and the result of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from pydantic import TypeAdapter

from connector.events import SlackMessage, ThreadAddress
from connector.formatting.content import use_of
from connector.records.entries import UNREADABLE, PendingMessage, UnreadableEntry

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Notice:
    """A post by the service itself that belongs to no active run.

    Args:
        message: the message that it answers, in whose conversation it is posted.
        key: idempotency key of the post.
        text: plain text, not Slack markup.
        is_inherited: whether an earlier owner may have posted it.
    """

    message: SlackMessage
    key: str
    text: str
    is_inherited: bool = False

    @property
    def place(self) -> ThreadAddress:
        return self.message.place

    def has_posted(self, key: str) -> bool:
        """Return whether a post with this key is this notice."""
        return key == self.key


@dataclass(frozen=True, slots=True)
class RunArtifacts:
    """Status messages and reactions of a run that are to be removed after it.

    Args:
        first_ts: ts of its first message.
        statuses: ts of its status messages.
        has_hourglass: whether its first message may have an hourglass.
        team, thread_ts: the thread that Slack may show as working; blank: none.
        run_id: prefix of the keys of its posts; blank: unknown.
        user: author of its first message; blank: unknown.
        is_inherited: whether further artifacts may exist: posts of an earlier owner, or calls without a response.
    """

    channel: str
    first_ts: str
    statuses: tuple[str, ...]
    has_hourglass: bool
    team: str = ""
    thread_ts: str = ""
    run_id: str = ""
    user: str = ""
    is_inherited: bool = False

    @property
    def place(self) -> ThreadAddress:
        return ThreadAddress(self.team, self.channel, self.thread_ts or None)

    def has_posted(self, key: str) -> bool:
        """Return whether a post with this key belongs to the run."""
        return bool(self.run_id) and key.startswith(f"{self.run_id}:")


PendingCleanup = tuple[RunArtifacts | Notice, ...]


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The durable state of a run, from which another process can resume it.

    Args:
        first: its first message.
        was_waiting: whether its first message was marked 📨 or held back by a stop.
        newest_ts: ts of the latest message that was pending when it began.
        stopped_by: the user who stopped it; `None`: it was not stopped.
        stops: number of stop requests; the second one stops immediately.
        status_ts: ts of its status message; `None`: not known yet.
        has_hourglass: whether its first message may have an hourglass.
        is_over: whether its last post is in the outbox; it then does no more work and accepts no messages.
        announced_seq: sequence number of the last pending message counted in the stop notice.
        pending_cleanup: the artifacts to remove and the notices to post of earlier runs.
        was_taken_over: whether another process owned it before.
    """

    id: str
    first: PendingMessage
    was_waiting: bool
    newest_ts: str
    stopped_by: str | None = None
    stops: int = 0
    status_ts: str | None = None
    has_hourglass: bool = True
    is_over: bool = False
    announced_seq: int = 0
    pending_cleanup: PendingCleanup = ()
    was_taken_over: bool = False


_RUN, _CLEANUP = TypeAdapter(RunRecord), TypeAdapter(PendingCleanup)


def parse_run_record(data: Mapping[str, Any]) -> RunRecord | PendingCleanup:
    """Parse the record stored with a lease.

    Raises:
        UnreadableEntry: another version has written it.
    """
    try:
        if "id" in data:
            return _RUN.validate_python({**data, "was_taken_over": True})
        return _CLEANUP.validate_python(data.get("cleanup", ()))
    except UNREADABLE as e:
        raise UnreadableEntry from e


@dataclass(frozen=True, slots=True)
class ToolEnd:
    """The outcome of a tool call.

    Args:
        label: description for people.
        outcome: `finished`, `failed`, `cancelled` (no effect), or `unknown` (cancelled while running).
        id: id of the call; blank: unknown.
    """

    label: str
    outcome: str
    id: str = ""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        return cls(data.get("label") or use_of(data["tool"]), data["outcome"], data.get("id") or "")


def unknown_calls(data: Mapping[str, Any]) -> list[ToolEnd]:
    """Return the calls of unknown outcome in a `resumed` event; some orchestrators report only their labels."""
    calls = data.get("tools")
    if calls is None:
        return [ToolEnd(label, "unknown") for label in data.get("unknown", ())]
    return [ToolEnd.of(call) for call in calls]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The result of a run: the `complete` event, or the defaults if there was none.

    Args:
        status: success, incomplete, cancelled, suspended or error.
        reason: why it is incomplete; `detail` is the provider's explanation.
        part: number of its answer among its texts; `None`: not reported.
        tools: outcomes of its tool calls.
        usage: tokens and cost, for the log.
    """

    status: str = "error"
    reason: str | None = None
    detail: str | None = None
    part: int | None = None
    tools: tuple[ToolEnd, ...] = ()
    usage: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Self:
        given = {name: data[name] for name in ("reason", "detail", "part", "usage") if name in data}
        return cls(data.get("status", "success"), tools=tuple(map(ToolEnd.of, data.get("tools", ()))), **given)

    def labels(self, outcome: str) -> list[str]:
        """Return the labels of the tool calls with this outcome."""
        return [tool.label for tool in self.tools if tool.outcome == outcome]
