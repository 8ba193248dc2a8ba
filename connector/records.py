"""Records in the store: inbox entries, the active run, the pending cleanup of earlier runs; and the result of a run.

Inbox entries are accepted messages, stops, mentions without text, and requests to read a thread.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - of a field that pydantic reads
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self

from pydantic import TypeAdapter

from connector.events import Consent, RequestClick, SlackMessage, StopRequest, ThreadAddress, Ts
from connector.formatting.content import use_of
from connector.protocols import AGAIN, InboxEntry, PersonAnswer, PersonRequest

# Errors that parsing a record or an event of another format can raise.
UNREADABLE = (AttributeError, KeyError, TypeError, ValueError)


class UnreadableEntry(Exception):  # noqa: N818 - a fact about stored data
    """A record has a format that this version cannot read."""


@dataclass(frozen=True, slots=True)
class BackupGap:
    """The time between a backup and its restore, in seconds since the epoch; the store knows nothing about it."""

    since_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """An accepted message, its instance, and its text for the model.

    Args:
        id: identity as an inbox entry and in the log.
        seq: sequence number in the order of acceptance.
        edited_ts: ts of the latest edit or deletion; blank: never changed.
        is_marked_accepted: whether it has 📨 because it waits for a slot.
        is_aside: whether only an active run reads it: its author does not take part in the thread.
        is_note: whether it reports an event to the next run; its `message` gives only the place and the time.
        gap: it was pending in a backup that was restored; it may have been answered since.
        title: the task of the worker that it begins, in a few words; blank: none.
        until_s: when the run that it begins is stopped, in seconds since the epoch; 0: never.
        by: the user who let it run again; blank: its author wrote it.
        old_files: ids of the files that it had before an edit.
        for_bot: whether it is the order for a worker that a run without a person has dispatched.
    """

    message: SlackMessage
    instance: str
    prompt: str
    id: str
    seq: int = 0
    edited_ts: Ts | Literal[""] = ""
    is_marked_accepted: bool = False
    is_aside: bool = False
    is_note: bool = False
    gap: BackupGap | None = None
    title: str = ""
    until_s: float = 0.0
    by: str = ""
    old_files: tuple[str, ...] = ()
    for_bot: bool = False

    @property
    def has_person(self) -> bool:
        """Whether its owner is a person: not another bot, nor a trigger."""
        return bool(self.by) or not (self.message.bot or self.for_bot)

    @property
    def owner(self) -> str:
        """The user to whom a run belongs that begins with it: whose rights it has, and who approves its calls."""
        return self.by or self.message.user

    @property
    def worker_name(self) -> str:
        """How people see the worker whose run begins with it: its task and its id; blank: the run is no worker's."""
        worker = self.message.worker
        return f"{self.title or 'Worker'} ({worker})" if worker else ""

    @property
    def starts_no_run(self) -> bool:
        """Whether it waits for the next run, or is dropped, rather than start one."""
        return self.is_late_change or self.is_aside

    @property
    def is_late_change(self) -> bool:
        """Whether it reports an edit or a deletion of a delivered message, or is a note: it starts no run."""
        return self.id != self.message.id and not self.is_repeated

    @property
    def is_repeated(self) -> bool:
        """Whether it is a delivered message that runs again."""
        return AGAIN in self.id

    @property
    def written_s(self) -> float:
        """Time of the message, or of the edit, deletion or request that it reports, in seconds since the epoch."""
        is_later = self.is_late_change or self.is_repeated
        return float(self.edited_ts if is_later and self.edited_ts else self.message.ts)

    @property
    def is_urgent(self) -> bool:
        """Whether it begins with `!`, which requests delivery at once."""
        return self.prompt.startswith("!")

    @property
    def mentioned(self) -> list[str]:
        """The mentioned users whose names are to be looked up. Slack sends some mentions with the name included."""
        return [user for user in self.message.mentioned if f"@{user}" in self.prompt]


@dataclass(frozen=True, slots=True)
class ThreadCatchUp:
    """Request to read a thread from Slack: a reply to the mention may have been acknowledged and not stored.

    Args:
        mention: the message that called an agent into the thread.
        since: its ts, or when an edit made it a mention.
        is_shared: whether the channel is shared with another workspace; `None`: unknown.
    """

    mention: PendingMessage
    since: Ts
    is_shared: bool | None

    @property
    def id(self) -> str:
        return f"{self.mention.id}:catch_up"


@dataclass(frozen=True, slots=True)
class ThreadNotice:
    """A text to post where the message is; without one, the answer to a mention without text is a greeting.

    `muted_ts` is the ts of a message that gets the reaction 🔇, blank: none; those of `unmuted` lose it.
    """

    message: SlackMessage
    text: str = ""
    muted_ts: str = ""
    unmuted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LogCommand:
    """A command on the log of a conversation.

    Args:
        kind: its verb; `rerun`: run a message again; `begin`: begin a thread with the argument; `rate`: the answer
            that is the target gets a `reward`, and the argument is a comment; `ask`: ask the argument about the target;
            `summarise`: summarise the thread, with an argument in private; `say`: post the argument.
        user: who gave it, at the time `at`.
        instance: the agent whose log it is for.
        target: ts of the message that it names; blank: none.
        prompt_id, part: its place in the log, as in `LogPlace`.
        shown: the first message of a thread that begins, as plain text; blank: the argument, as written by the user.
        app: name of the source of an argument that is no person's; blank: it is the user's.
    """

    kind: str
    user: str
    at: Ts
    instance: str
    argument: str = ""
    target: Ts | Literal[""] = ""
    prompt_id: str = ""
    part: int | None = None
    reward: int = 0
    shown: str = ""
    app: str = ""


_COMMAND = TypeAdapter(LogCommand)
_MESSAGE, _STOP, _NOTICE = TypeAdapter(PendingMessage), TypeAdapter(StopRequest), TypeAdapter(ThreadNotice)
_CATCH_UP, _CONSENT, _CLICK = TypeAdapter(ThreadCatchUp), TypeAdapter(Consent), TypeAdapter(RequestClick)


def stop_entry(stop: StopRequest) -> InboxEntry:
    """Return the inbox entry of a stop; duplicates are detected by its id."""
    return InboxEntry(stop.id, "stop", {name: value for name, value in asdict(stop).items() if value is not None})


def parse_entry(  # noqa: PLR0911 - a case for each kind
    entry: InboxEntry,
) -> PendingMessage | StopRequest | ThreadCatchUp | ThreadNotice | Consent | RequestClick | LogCommand:
    """Return a new or changed message or a note, a stop, a catch-up, a notice, a consent, a click, or a command.

    Raises:
        UnreadableEntry: another version has written it.
    """
    try:
        match entry.kind:
            case "message" | "edit" | "withdrawal" | "note" | "aside":
                of_entry = {"id": entry.id, "seq": entry.seq, "is_aside": entry.kind == "aside"}
                return _MESSAGE.validate_python({**entry.data, **of_entry})
            case "command" if entry.data.get("is_late"):  # it runs a message again
                return _MESSAGE.validate_python({**entry.data, "id": entry.id, "seq": entry.seq})
            case "command":
                return _COMMAND.validate_python(entry.data)
            case "consent":
                return _CONSENT.validate_python(entry.data)
            case "click":
                return _CLICK.validate_python(entry.data)
            case "stop":
                return _STOP.validate_python({**entry.data, "id": entry.id})
            case "mention" | "notice":
                return _NOTICE.validate_python(entry.data)
            case "catch_up":
                return _CATCH_UP.validate_python(entry.data)
    except UNREADABLE as e:
        raise UnreadableEntry from e
    raise UnreadableEntry


@dataclass(frozen=True, slots=True)
class Notice:
    """A post by the service itself that belongs to no active run.

    Args:
        message: the message that it answers, in whose conversation it is posted.
        key: idempotency key of the post; of a long text, the further posts have their number appended to it.
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
        """Return whether a post with this key is this notice, or a part of it."""
        return key == self.key or key.startswith(f"{self.key}.")


@dataclass(frozen=True, slots=True)
class RunArtifacts:
    """Status messages and reactions of a run that are to be removed after it.

    Args:
        first_ts: ts of its first message.
        statuses: ts of its status messages.
        streams: ts of messages with text that it wrote, which are no posts.
        has_hourglass: whether its first message may have an hourglass.
        team, thread_ts: the thread that Slack may show as working; blank: none.
        run_id: prefix of the keys of its posts; blank: unknown.
        user: author of its first message; blank: unknown.
        is_inherited: whether further artifacts may exist: posts of an earlier owner, or calls without a response.
        worker: as of `ThreadAddress`.
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
    worker: str = ""
    streams: tuple[str, ...] = ()

    @property
    def place(self) -> ThreadAddress:
        return ThreadAddress(self.team, self.channel, self.thread_ts or None, self.worker)

    def has_posted(self, key: str) -> bool:
        """Return whether a post with this key belongs to the run."""
        return bool(self.run_id) and key.startswith(f"{self.run_id}:")


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request of a run.

    Args:
        key: its identity in buttons and posts.
        deadline_s: in seconds since the epoch.
        votes: users who chose the first option while more people are needed.
        answer: `None`: it waits for one.
        has_begun: whether its subject has begun.
        ts: of the message with its buttons; blank: not known.
        is_settled: whether the message shows the answer.
    """

    key: str
    request: PersonRequest
    deadline_s: float
    votes: tuple[str, ...] = ()
    answer: PersonAnswer | None = None
    has_begun: bool = False
    ts: str = ""
    is_settled: bool = False


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """The message of an answered request, which is to show the answer in place of its buttons.

    Args:
        message: gives the place.
        key: beginning of the idempotency keys of its messages: its details may be messages before it.
        record: the request.
        is_inherited: as of `Notice`.
    """

    message: SlackMessage
    key: str
    record: RequestRecord
    is_inherited: bool = False

    @property
    def place(self) -> ThreadAddress:
        return self.message.place

    def has_posted(self, key: str) -> bool:
        """Return whether a post with this key is one of its messages."""
        return key.startswith(self.key)


PendingCleanup = tuple[RunArtifacts | AnsweredRequest | Notice, ...]


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
        streams: ts of the messages that show the text which it writes, until a post completes them.
        has_hourglass: whether its first message may have an hourglass.
        is_over: whether its last post is in the outbox; it then does no more work and accepts no messages.
        announced_seq: sequence number of the last pending message that a notice has counted.
        consents: by the user who mentioned the bot, whether the owner of the run lets them steer it.
        requests: its requests to people, by key.
        pending_cleanup: the artifacts to remove and the notices to post of earlier runs.
        was_taken_over: whether another process owned it before.
        gap: it began before a backup that was restored, or with a message from it; it may have gone on since.
        shared: digests of the files that it has shared.
    """

    id: str
    first: PendingMessage
    was_waiting: bool
    newest_ts: str
    stopped_by: str | None = None
    stops: int = 0
    status_ts: str | None = None
    streams: tuple[str, ...] = ()
    has_hourglass: bool = True
    is_over: bool = False
    announced_seq: int = 0
    consents: Mapping[str, bool] = field(default_factory=dict)
    requests: Mapping[str, RequestRecord] = field(default_factory=dict)
    pending_cleanup: PendingCleanup = ()
    was_taken_over: bool = False
    gap: BackupGap | None = None
    shared: tuple[str, ...] = ()


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


def active_run(data: Mapping[str, Any] | None) -> RunRecord | None:
    """Return the run in the record stored with a lease; `None`: there is none, or another version has written it."""
    with suppress(UnreadableEntry):
        record = parse_run_record(data or {})
        return record if isinstance(record, RunRecord) else None
    return None


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
