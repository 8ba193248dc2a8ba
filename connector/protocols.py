"""Interfaces that the connector needs: sessions that run agents, and a store with inboxes, leases and outboxes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
    from pathlib import Path

    ProgressCallback = Callable[[str, dict[str, Any]], Awaitable[None]]

# A mention consists of the bot's name alone. A catch-up asks to read later messages of a thread. A note is for the next
# run, its notice for the thread. An aside is a message that only an active run reads. A consent lets a person steer. A
# click answers a request of a run. A command is for the log of the conversation.
EntryKind = Literal[
    "message",
    "edit",
    "withdrawal",
    "stop",
    "mention",
    "catch_up",
    "note",
    "notice",
    "aside",
    "consent",
    "click",
    "command",
]
# How an entry leaves its inbox: blank: delivered, which the log records; withdrawn by its author; refused with a reason
# that its author sees; or done, for entries that are not messages.
End = Literal["", "withdrawn", "refused", "done"]


# Before the time of the request in the id of a message that runs again.
AGAIN = ":again:"


class RunFailed(Exception):  # noqa: N818 - a fact about the run, shown to people
    """The run could not answer; the error's text is a sentence for the people in the thread."""


class Refused(Exception):  # noqa: N818 - a final state of a message
    """A message is refused; the error's text gives its author the reason."""


class QueueFull(Exception):  # noqa: N818 - a fact about the loop
    """The injection queue of the loop is full; retry after the loop has drained it."""


class LeaseLost(Exception):  # noqa: N818 - a fact about the lease
    """Another process owns the conversation; the receiver of this error must write and post nothing more."""


@dataclass(frozen=True, slots=True)
class Persona:
    """The name and the icon (an emoji code such as `:owl:`) of an instance's posts."""

    name: str
    emoji: str


# Which messages are answered, apart from direct messages: those that mention the bot; also replies of people who take
# part in the thread, unless they mention someone else; also each top-level message of the channel.
Answers = Literal["mention", "thread", "every"]
# Whose messages an active run reads: those of the person who began it; of all who take part in the thread; of anyone.
Steerers = Literal["owner", "participants", "anyone"]


@dataclass(frozen=True, slots=True)
class Participation:
    """Which messages are answered, and whose a run reads. `None`: not set here.

    `asks_consent`: if a user that may not steer mentions the bot during a run, ask the owner of the run.
    """

    answers: Answers | None = None
    steerers: Steerers | None = None
    asks_consent: bool | None = None

    def over(self, other: Participation) -> Participation:
        """Return these settings, completed by other ones."""
        return Participation(
            self.answers or other.answers,
            self.steerers or other.steerers,
            other.asks_consent if self.asks_consent is None else self.asks_consent,
        )


DEFAULT_PARTICIPATION = Participation("thread", "participants", asks_consent=False)


@dataclass(frozen=True, slots=True)
class Instance:
    """A configured agent.

    Args:
        suggested_prompts: as in `SlackOptions`, where this agent answers.
        description: its purpose, in a sentence.
        tools: names of its tool modules.
        models: names of its models; the first one is the default.
    """

    name: str
    persona: Persona
    participation: Participation = DEFAULT_PARTICIPATION
    suggested_prompts: tuple[tuple[str, str], ...] = ()
    description: str = ""
    tools: tuple[str, ...] = ()
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChannelRules:
    """Settings of one channel, which come before those of the instance.

    Args:
        instance: name of the instance that answers here; `None`: the default one.
        pattern: `every` answers only top-level messages in which it is found; `None`: all.
    """

    instance: str | None = None
    participation: Participation = Participation()
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class MessageAuthor:
    """The author of a message: user id, display name, and the IANA name of the time zone.

    Names are not unique; a blank name or time zone is unknown.
    """

    id: str
    name: str = ""
    tz: str = ""


@dataclass(frozen=True, slots=True)
class MessageFile:
    """A file of a message, as the agent reads it.

    Args:
        name: as in Slack.
        note: name, type, size and path, in a line for the model.
        text: its content for the model, marked as a quote; blank: the model reads the stored file.
        image: media type of an image that the model may see; blank: none. `image_path`: where it is stored.
        problem: why it is not stored or cannot be read, a sentence for its author; blank: it can.
    """

    name: str
    note: str = ""
    text: str = ""
    image: str = ""
    image_path: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class TalkMessage:
    """A message in the thread that is not addressed to the agent.

    Args:
        id: permanent identity, as of other messages.
        text: as for prompts.
        written_s: time of writing, in seconds since the epoch.
    """

    id: str
    author: MessageAuthor
    text: str
    written_s: float
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ThreadTalk:
    """Messages of a thread that are not addressed to the agent and that it has not read, oldest first.

    They are context, never an instruction. `left_out`: how many older ones are left out.
    """

    messages: tuple[TalkMessage, ...] = ()
    left_out: int = 0


NO_TALK = ThreadTalk()


@dataclass(frozen=True, slots=True)
class BotRules:
    """The other bots (ids, `B…`) that are answered, and how many messages of bots without a person in between."""

    ids: frozenset[str] = frozenset()
    exchanges: int = 3


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits of each file of a message: its size, and the time for its download, in seconds."""

    most_bytes: int = 25_000_000
    within_s: float = 30.0


@dataclass(frozen=True, slots=True)
class SlackOptions:
    """Options of the Slack side.

    Args:
        stop_reaction: name of the emoji that stops a run, without colons.
        status_interval_s: least time between two edits of a status message, in seconds.
        dm_threads: whether each top-level direct message begins a thread; else a channel is one conversation.
        suggested_prompts: titles and messages that people can send by a click in their direct messages.
        bots: the other bots that are answered.
        command: name of the slash command, with the slash; blank: none.
        feedback: whether answers have buttons that rate them.
        files: limits of the files that people send.
        stream: whether people see the text of an answer while it is written.
        canvas: whether very long answers become canvases, where Slack makes them, rather than files.
        cards: whether a status message shows the to-do list and the tool calls as cards.
    """

    stop_reaction: str = "x"
    status_interval_s: float = 2.0
    dm_threads: bool = True
    suggested_prompts: tuple[tuple[str, str], ...] = ()
    bots: BotRules = BotRules()
    command: str = ""
    feedback: bool = False
    files: FileLimits = FileLimits()
    stream: bool = False
    cards: bool = False
    canvas: bool = False


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """A durable record of one thing a person did in a conversation.

    Args:
        id: permanent identity; an entry with a known id is a duplicate.
        data: the content, in JSON types.
        seq: sequence number in the order of acceptance, from 1; 0 before admission.
    """

    id: str
    kind: EntryKind
    data: Mapping[str, Any]
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """The stored state of a conversation at the time of the claim.

    Args:
        token: fencing token of the lease; higher than all earlier ones.
        run: the data of `StateChanges.run` as last stored; `None`: there is none.
        posts: outbox of that run, by part; blank: delivered to Slack.
        held_seq: entries up to this sequence number start no run by themselves.
        stopped_s: time of the latest stop, in seconds since the epoch; an older message may still arrive.
        entries: the pending inbox entries, in order.
    """

    token: int
    run: Mapping[str, Any] | None = None
    posts: Mapping[str, Any] = field(default_factory=dict)
    held_seq: int = 0
    stopped_s: float = 0.0
    entries: tuple[InboxEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class StateChanges:
    """Changes that an owner stores atomically.

    Args:
        run: the record of the active run. `None`: unchanged. Without an `id`: no run is active, and the record lists
            the pending cleanup of earlier runs, if any.
        posts: outbox entries by part, in JSON types; blank (`""`): delivered to Slack.
        held_seq: entries up to this sequence number start no run by themselves. `None`: unchanged.
        stopped_s: time of the latest stop, in seconds since the epoch. `None`: unchanged.
        replaced: new data of entries, by sequence number.
        closed: how entries leave the inbox, by sequence number.
    """

    run: Mapping[str, Any] | None = None
    posts: Mapping[str, Any] = field(default_factory=dict)
    held_seq: int | None = None
    stopped_s: float | None = None
    replaced: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    closed: Mapping[int, End] = field(default_factory=dict)

    @property
    def deletes_posts(self) -> bool:
        """Whether the change ends the run, which deletes its outbox."""
        return self.run is not None and "id" not in self.run


# The number of facts about changed messages that a thread keeps; of two with the same place, the later one stays.
_CHANGES = 1021
# The number of facts about asides, likewise.
_ASIDES = 251
# The names without a ts are of earlier versions, which kept the last command only.
_MUTES = re.compile(r"(?:un)?muted(?::|$)")


@dataclass(frozen=True, slots=True)
class ThreadFacts:
    """What all processes know about a thread, without a lease.

    Args:
        agent: its current instance; `None`: no message there was addressed to an agent.
        latest: by name, the greatest value ever stored, as text: a ts. `talk`: a message that is not addressed to the
            agent; `muted:TS`, `unmuted:TS`: commands; `read:INSTANCE`: until when this instance has read the thread;
            `people`: the last message of a person to the agent; `exchange:NUMBER`: one of the last messages of bots to
            it; `changed:NUMBER`: the last edit or the deletion of a message, followed by a space and the ts of the
            message; `aside:NUMBER`: an aside. Of `person:USER`, the first message of this user to the agent, the least
            value is kept. `model:NAME`: the command `!model NAME`; with a blank name, `!model default`.
    """

    agent: str | None = None
    latest: Mapping[str, str] = field(default_factory=dict)

    @property
    def owner(self) -> str:
        """The first user to address the agent here; blank: none."""
        people = {name.removeprefix("person:"): ts for name, ts in self.latest.items() if name.startswith("person:")}
        return min(people, key=lambda user: people[user], default="")

    @property
    def model(self) -> str:
        """The name of the model that was chosen last; blank: the default."""
        chosen = {name.removeprefix("model:"): ts for name, ts in self.latest.items() if name.startswith("model:")}
        return max(chosen, key=lambda name: chosen[name], default="")

    def changed(self, ts: str) -> str:
        """Return the time of the last edit or of the deletion of a message to the agent; blank: none."""
        at, _, changed_ts = self.latest.get(_place_of_change(ts), "").partition(" ")
        return at if changed_ts == ts else ""

    def was_aside(self, ts: str) -> bool:
        """Return whether a message is known as an aside. Only the latest ones are."""
        return self.latest.get(_place_of_aside(ts)) == ts

    def takes_part(self, user: str, ts: str) -> bool:
        """Return whether this user had addressed the agent here by this time."""
        return self.latest.get(f"person:{user}", "~") <= ts

    def is_muted(self, ts: str) -> bool:
        """Return whether the last command before this time was `!mute`."""
        return next((is_mute for at, is_mute in reversed(self._mutes) if at <= ts), False)

    def is_unmuted_after(self, ts: str) -> bool:
        """Return whether there is an `!unmute` after this time."""
        return any(at > ts and not is_mute for at, is_mute in self._mutes)

    def mutes_before(self, ts: str) -> tuple[str, ...]:
        """Return the ts of each `!mute` that an `!unmute` of this time ends."""
        ended: tuple[str, ...] = ()
        for at, is_mute in self._mutes:
            if at < ts:
                ended = (*ended, at) if is_mute else ()
        return ended

    @property
    def _mutes(self) -> list[tuple[str, bool]]:
        """The ts of each `!mute` and `!unmute`, in order, and whether it is a `!mute`."""
        return sorted((at, name.startswith("muted")) for name, at in self.latest.items() if _MUTES.match(name))

    def bots_may_write(self, ts: str, exchanges: int) -> bool:
        """Return whether a bot's message of this time is answered: at most this many without a person in between.

        Older ones than the last message of a person to the agent are talk.
        """
        return self.latest.get("people", "") < ts and not self.last_exchange(ts, exchanges)

    def last_exchange(self, ts: str, exchanges: int) -> str:
        """Return the ts of the last message of a bot to the agent if no other one is answered; blank: one may be."""
        people = self.latest.get("people", "")
        others = [at for name, at in self.latest.items() if name.startswith("exchange:") and people < at != ts]
        return max(others) if people < ts and len(others) >= exchanges else ""

    def exchange(self, ts: str, exchanges: int) -> dict[str, str]:
        """Return the fact that the agent gets a bot's message of this time."""
        names = [f"exchange:{number}" for number in range(exchanges)]
        same = next((name for name in names if self.latest.get(name) == ts), None)
        return {same or min(names, key=lambda name: self.latest.get(name, "")): ts}


def change_fact(ts: str, at: str) -> dict[str, str]:
    """Return the fact that a message is known as it is since its edit or deletion; both as ts."""
    return {_place_of_change(ts): f"{at} {ts}"}


def _place_of_change(ts: str) -> str:
    return f"changed:{int(ts.replace('.', '')) % _CHANGES}"


def aside_fact(ts: str) -> dict[str, str]:
    """Return the fact that a message is an aside: one that only an active run reads."""
    return {_place_of_aside(ts): ts}


def _place_of_aside(ts: str) -> str:
    return f"aside:{int(ts.replace('.', '')) % _ASIDES}"


class ConversationLease(Protocol):
    """This process's ownership of one conversation. Other processes may only add inbox entries.

    The lease renews itself while it is held. All methods wait while the store is unavailable. They raise LeaseLost if
    another process owns the conversation.
    """

    @property
    def conversation_id(self) -> str: ...

    @property
    def claim(self) -> Claim: ...

    async def fetch(self, after: int) -> tuple[InboxEntry, ...]:
        """Return the pending inbox entries after this sequence number, in order."""

    async def write(self, changes: StateChanges) -> None: ...

    async def release(self, seen: int) -> bool:
        """Release the lease. Returns False and keeps it if entries after sequence number `seen` are pending."""

    async def hand_over(self, due_in_s: float = 0.0) -> None:
        """Release the lease with work pending, so that another process can take the conversation over at once.

        With `due_in_s`, the store reports the conversation as due only after that time, or when a new entry arrives.
        """

    def abandon(self) -> None:
        """Stop renewing the lease. If it was not released, it expires."""

    async def confirm(self) -> None:
        """Return when the lease is known to be valid. Call it before an action that no store can reject."""

    async def lost(self) -> None:
        """Return when another process owns the conversation."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A token bucket: capacity `burst` calls, refilled with `per_s` calls per second."""

    burst: float
    per_s: float


class RateBudget(Protocol):
    """The rate-limit budget of the app in one workspace, shared by all its processes."""

    async def take(self, bucket: str, limit: Limit) -> float:
        """Take one call from a bucket and return 0; if the bucket is empty, return after how many seconds to retry."""

    async def pause(self, bucket: str, for_s: float) -> None:
        """Block a bucket for this time: Slack answered with `Retry-After`."""

    async def left(self, bucket: str, limit: Limit) -> float:
        """Return how many calls a bucket grants at once now, without taking one."""


# The options of an approval: their places.
ALLOW, DENY = 0, 1


@dataclass(frozen=True, slots=True)
class PersonRequest:
    """A request of a run to people in its thread: to approve a tool call, or to answer a question.

    Args:
        id: identity within the run, such as the id of a tool call.
        digest: of the subject of an approval, such as the arguments of a call. A request with a known id and another
            digest voids the earlier one.
        title: one line of plain text.
        details: Markdown; blank: none.
        risk: why people are asked, in one line; blank: not said.
        options: the choices of people; of an approval, "Allow" and "Deny".
        approvers: users that may answer: `owner` (of the run), `participants`, `anyone`, or ids of users.
        needed: how many people must choose the first option; one other choice is enough.
        always: scopes for which the first option can be chosen for good, and their labels.
        timeout_s: time for an answer, in seconds.
        default: place of the option that applies after that time; `None`: none does.
        is_approval: whether the first option lets something happen. Text never answers an approval.
        is_multiple: whether several options can be chosen.
        takes_text: whether a reply in the thread answers it.
        person: the only user who sees and answers it; blank: all see it.
        asker: name of the sub-agent that asks; blank: the agent of the run.
    """

    id: str
    digest: str
    title: str
    details: str = ""
    risk: str = ""
    options: tuple[str, ...] = ("Allow", "Deny")
    approvers: tuple[str, ...] = ("owner",)
    needed: int = 1
    always: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 3600.0
    default: int | None = DENY
    is_approval: bool = True
    is_multiple: bool = False
    takes_text: bool = False
    person: str = ""
    asker: str = ""


# How a request ended: a person clicked, or wrote a text in a form; a message in the thread answered it; its time was
# over; or it can no longer be answered.
AnswerKind = Literal["click", "message", "deadline", "void"]


@dataclass(frozen=True, slots=True)
class PersonAnswer:
    """The answer to a request.

    Args:
        kind: how the request ended.
        chosen: places of the options.
        by: the people (user ids) who chose; `names` are theirs.
        text: a person's own words: the reason of a denial, or an answer; of a void request, why it is void.
        always: the scope for which the first option was chosen for good; blank: only once.
        at_s: time of the answer, in seconds since the epoch.
    """

    kind: AnswerKind
    chosen: tuple[int, ...] = ()
    by: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    text: str = ""
    always: str = ""
    at_s: float = 0.0

    @property
    def allows(self) -> bool:
        """Whether an approval was given."""
        return self.chosen == (ALLOW,)


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A file that was uploaded to Slack and is to be shared.

    Args:
        id: Slack's.
        digest: of its content; a run shares each content once.
    """

    id: str
    name: str
    title: str
    digest: str


@dataclass(frozen=True, slots=True)
class Sharing:
    """The files that a run has shared: their `digests`; and when its first message was written, in epoch seconds."""

    since_s: float
    digests: tuple[str, ...] = ()


class People(Protocol):
    """The people in the thread of a run. Requests are stored before they are shown, and survive the process."""

    @property
    def owner(self) -> str:
        """The user who began the run."""

    async def ask(self, request: PersonRequest) -> PersonAnswer:
        """Ask, and return the answer once it is stored. A request with a known id and digest is not asked again."""

    async def asked_s(self, request_id: str) -> float | None:
        """Return when a request that waits for its answer was shown, in seconds since the epoch; `None`: none waits."""

    def answer_by_message(self, request_id: str) -> None:
        """Answer a request that takes text, also one that is being stored: the agent reads the answer as a message."""

    @property
    def unbegun(self) -> frozenset[str]:
        """The ids of the requests whose subjects have certainly not begun."""

    async def start(self, request_id: str, digest: str, *, repeatable: bool = False) -> str | None:
        """Record that the subject of a request begins now, for good.

        Returns why it must not begin: the digest has no valid approval, or it has begun before and is not
        `repeatable`. `None`: it may begin, or no request has this id.
        """

    async def sharing(self) -> Sharing:
        """Return the files that the run has shared, and the time of its first message."""

    async def share(self, share_id: str, files: Sequence[SharedFile], comment: str) -> None:
        """Share files in the thread, below a comment in Markdown; they are stored on return.

        A known `share_id` has no effect.
        """


class RunService(Protocol):
    """Stores inbox entries, and leases each conversation to one process at a time."""

    def watch(self, workspace: str, on_work: Callable[[str], None]) -> Callable[[], None]:
        """Call `on_work(conversation_id)` whenever a conversation of the workspace has work for this process.

        That is: a conversation owned by this process has new entries, or a conversation with pending work has no owner.
        Spurious calls are possible. Returns a function that ends it.
        """

    async def admit(
        self, conversation_id: str, entry: InboxEntry, agent: str | None = None, facts: Mapping[str, str] | None = None
    ) -> bool:
        """Append an entry to the inbox of its conversation, in call order. Returns False for a duplicate.

        The entry is durable on return. The owner of the conversation is notified, or this process if there is no owner.
        `agent` becomes the current instance of the conversation; `facts` as in `learn`. Waits while the store is
        unavailable.
        """

    async def learn(self, conversation_id: str, facts: Mapping[str, str]) -> None:
        """Store facts of a known thread: see `ThreadFacts.latest`. A lower value changes nothing."""

    async def claim(self, conversation_id: str) -> ConversationLease | None:
        """Take the lease of a conversation; `None`: another process holds it, or this one does not watch the workspace.

        Waits while the store is unavailable.
        """

    async def thread_of(self, conversation_id: str) -> ThreadFacts:
        """Return the facts of a thread; none if it is unknown."""

    async def at_work(self, place: str) -> Mapping[str, tuple[Mapping[str, Any] | None, tuple[InboxEntry, ...]]]:
        """Return the conversations with pending work in a channel (`team:channel`) or workspace, in any process.

        Of each: the data of `StateChanges.run` as last stored, and the pending entries that no stop holds.
        """


class SessionManager(Protocol):
    """Runs the agents, one session per instance and conversation.

    An injection whose text begins with `!` is delivered at once. `on_progress(event, data)` receives

    - `executing`: injections are accepted from now on; `thinking`: a model call starts, with the prompt in its request;
      `writing`: the model writes more than a sentence for people
    - `tool:start`, `tool:progress`, `tool:end`, with the `id` of the call: its `label`; its progress (`text`); at the
      end, its `success`. The `args` of a tool `todo` contain the agent's whole to-do list, which is shown once the call
      succeeds: `items`, each with a `text` and a `status` (pending, in_progress, done). With an `action` other than
      `set`, the call only reads the list
    - `agent`: a sub-agent of the run: its `id`, `name`, the id of the sub-agent above it (`parent`; blank: none), its
      current step (`text`; blank: it thinks), and its `state`: running, or that it has ended
    - `injection:applied`: the injections with these `ids` are delivered
    - `text`: an interim answer. `part` is its number among the texts of the run, from 1. A resumed run repeats earlier
      texts with the same numbers
    - `resumed`: the run resumes. `tools` are its calls of unknown outcome, interrupted by the death of a process, each
      with `id`, `label` and `outcome`; `unknown` are their labels
    - `disconnected`: the process of the session is gone; the run resumes once one is back
    - reasons for a delay: `retrying` (`reason`: rate_limit, unavailable, timeout; `delay_s`, `attempt`,
      `max_attempts`), `fallback` (`to`: another provider), `compacting`
    - `complete`: `status` (success, incomplete, cancelled, suspended, error); `part`, the number of the answer among
      the texts of the run; `reason` and `detail` of an incomplete run; `usage`, the tokens and the cost; `tools`, all
      calls of the run, each with `id`, `label` and `outcome` (finished, failed, cancelled, unknown)

    `fence` is the fencing token of the lease. A session's log rejects writes with a token lower than the highest it has
    seen.
    """

    async def execute(  # noqa: PLR0913 - the parts of a run
        self,
        instance_name: str,
        conversation_id: str,
        prompt: str,
        on_progress: ProgressCallback | None = None,
        *,
        message_id: str | None = None,
        author: MessageAuthor | None = None,
        written_s: float | None = None,
        files: tuple[MessageFile, ...] = (),
        notes: Mapping[str, str] | None = None,
        talk: ThreadTalk = NO_TALK,
        people: People | None = None,
        fence: int | None = None,
    ) -> str:
        """Run a prompt and return the answer; after a stop, the partial answer.

        `message_id` is the identity of the prompt's message, `files` are its files. Messages that were
        written before `written_s`, in seconds since the epoch, and injected before the prompt is read, are read first.
        `notes` are the texts, by id, of events that the run reads before its prompt. `talk` is read right before the
        prompt, and delivered in one step with it. Injections that are still pending when the run ends go to the next
        run. `people` are those whom the run may ask.

        Raises:
            RunFailed: the run has no answer; the error gives the reason.
            LeaseLost: another process owns the conversation.
        """

    async def resume(
        self,
        instance_name: str,
        conversation_id: str,
        on_progress: ProgressCallback | None = None,
        *,
        people: People | None = None,
        fence: int | None = None,
    ) -> str:
        """Resume the interrupted run from its log and return its answer. A complete run is not repeated.

        Raises:
            RunFailed, LeaseLost: as in `execute`.
        """

    async def delivered(
        self, instance_name: str, conversation_id: str, ids: Collection[str], *, fence: int | None = None
    ) -> frozenset[str]:
        """Return which of the messages are delivered, also as talk. The log then rejects writes with a lower `fence`.

        Raises:
            RunFailed: the log is permanently unreadable; other errors may be transient.
            LeaseLost: another process owns the conversation.
        """

    def inject(  # noqa: PLR0913 - the parts of a message
        self,
        instance_name: str,
        conversation_id: str,
        prompt: str,
        *,
        message_id: str,
        author: MessageAuthor,
        written_s: float,
        files: tuple[MessageFile, ...] = (),
        talk: ThreadTalk = NO_TALK,
    ) -> bool:
        """Inject a message into the active run. Returns False if the run accepts no more: the message needs a new run.

        `written_s` is when its author wrote it, in seconds since the epoch: the loop reads messages in this order.
        `talk` is read right before the message, delivered in one step with it, and withdrawn with it. A note reports an
        event; it has no author. An accepted message may stay undelivered: see `delivered`.

        Raises:
            Refused: the message is never accepted.
            QueueFull: the message is not accepted now.
        """

    async def keep_file(  # noqa: PLR0913, PLR0917 - the parts of a file
        self, instance_name: str, conversation_id: str, file_id: str, name: str, mimetype: str, content: Path
    ) -> MessageFile:
        """Store a file that people sent among those of the conversation, and read it for the model.

        `mimetype` is what Slack says it is; blank: unknown. A file that is stored already stays as it is.
        """

    async def drop_files(self, instance_name: str, conversation_id: str, file_ids: Collection[str]) -> None:
        """Remove files that `keep_file` stored, because their authors took them back.

        A file of another message that the conversation's log has stays.
        """

    async def edit(
        self,
        instance_name: str,
        conversation_id: str,
        message_id: str,
        text: str,
        files: tuple[MessageFile, ...] = (),
    ) -> bool:
        """Replace the text of a pending injection; its files stay, and are given again.

        Returns False if it is, or may be, delivered, or if it is unknown.

        Raises:
            Refused: the text is never accepted.
        """

    async def withdraw(self, instance_name: str, conversation_id: str, message_id: str) -> bool:
        """Withdraw a pending injection. Returns False as in `edit`."""

    def stop(self, instance_name: str, conversation_id: str, *, immediate: bool = False, agent: str = "") -> bool:
        """Stop the active run, if any, or only its sub-agents with this name or id.

        Returns whether that changed anything; later runs are not affected.
        """

    def suspend(self, instance_name: str, conversation_id: str) -> bool:
        """End the active run at its next boundary, so that another process can resume it.

        The model call in flight is cancelled; running tools may finish. Returns whether that changed anything.
        """


@dataclass(frozen=True, slots=True)
class LogPlace:
    """A message in a conversation, or an answer.

    `part` is the number of the answer among the texts of the run that began with the message; `None`: the message.
    """

    message_id: str
    part: int | None = None


@dataclass(frozen=True, slots=True)
class LogBranch:
    """A branch of a conversation; `states` is its length, `created_s` in seconds since the epoch."""

    name: str
    states: int
    is_current: bool
    created_s: float
    origin: str


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """The part of a conversation that a rewind leaves behind.

    Args:
        messages, answers: how many of people, and of the agent.
        files: paths that tool calls have written to.
        branch: the branch that keeps it; blank: there is none yet.
        workers: titles of the workers that it dispatched; they are not stopped.
    """

    messages: int = 0
    answers: int = 0
    files: tuple[str, ...] = ()
    branch: str = ""
    workers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost in US dollars; `None`: unknown. `cached_tokens` are those of the input from the prompt cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    cached_tokens: int = 0

    @staticmethod
    def sum_of(parts: Collection[Usage]) -> Usage:
        """Return a sum; its cost is that of the parts with a known one."""
        costs = [each.cost_usd for each in parts if each.cost_usd is not None]
        names = ("input_tokens", "output_tokens", "cached_tokens")
        read, written, cached = (sum(getattr(each, name) for each in parts) for name in names)
        return Usage(read, written, sum(costs) if costs else None, cached)


@dataclass(frozen=True, slots=True)
class Rating:
    """A person rates an answer.

    Args:
        id: identity; a second one with this id is a duplicate.
        message: the message that shows the answer, as `team:channel:ts`; `place`: the answer in the log.
        reward: 1 or -1.
        at_s: time in seconds since the epoch.
    """

    id: str
    message: str
    place: LogPlace
    user: str
    reward: int
    at_s: float
    comment: str = ""


class ConversationHistory(Protocol):
    """Reads and branches the logs of conversations.

    Each change takes the fencing token of the lease, and a branch name that is unique to the request: a request that is
    repeated after a crash finds its branch and changes nothing more.

    Every method raises Refused, with a sentence for people, if the log does not allow the request.
    """

    async def branches(self, instance_name: str, conversation_id: str) -> tuple[LogBranch, ...]:
        """Return the branches in order of creation."""

    async def begin_anew(self, instance_name: str, conversation_id: str, name: str, *, fence: int) -> str:
        """Continue on a new, empty branch of this name; return the name of the earlier one."""

    async def checkout(self, instance_name: str, conversation_id: str, name: str, *, fence: int) -> int:
        """Continue on another branch; return its number of states."""

    async def rewind(
        self, instance_name: str, conversation_id: str, to: int | LogPlace, name: str, *, fence: int
    ) -> LeftBehind:
        """Remove the last exchanges (their number), or a message and all after it; branch `name` keeps them."""

    async def since(self, instance_name: str, conversation_id: str, place: LogPlace) -> LeftBehind:
        """Return the part that a rewind to before a message would remove."""

    async def fork(self, instance_name: str, conversation_id: str, upto: LogPlace | None, into: str) -> None:
        """Copy a conversation, up to a place included, into a new one; `None`: up to its latest answer.

        With a blank `into`, only check that this is possible.
        """

    async def export(self, instance_name: str, conversation_id: str) -> str:
        """Return the current branch as Markdown."""

    async def rate(self, instance_name: str, conversation_id: str, rating: Rating) -> None:
        """Store a rating of an answer, once."""

    async def usage(self, instance_name: str, conversation_id: str) -> tuple[Usage, Usage]:
        """Return the usage of the current branch, and of its latest run."""

    async def title(self, instance_name: str, conversation_id: str) -> str:
        """Return the text of the first message; blank: there is none, or it was erased."""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that a person began and that has ended.

    Args:
        began_s: when its first message was written; `ended_s`: its end, both in seconds since the epoch.
        status: as of the `complete` event.
    """

    id: str
    conversation_id: str
    instance: str
    began_s: float
    ended_s: float
    status: str
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class AlwaysRule:
    """A rule that a person made by “Always allow”; `conversation_id` is blank if it applies everywhere."""

    id: str
    tool: str
    instance: str
    conversation_id: str = ""


@dataclass(frozen=True, slots=True)
class Worker:
    """A run that outlives the answer of the run which dispatched it, in a conversation of its own.

    Args:
        id: such as `w3f2a9c`; unique in its thread.
        conversation_id: `team:channel:thread_ts:id`.
        parent: the conversation of the run that dispatched it, and `parent_run`, the id of that run.
        instance: name of the instance; `agent` of its sub-agent, blank: none.
        title: its task, in a few words.
        user: on whose behalf it works.
        created_s: time of the dispatch, `deadline_s` of its latest end, in seconds since the epoch; 0: none.
        status: blank while it works, then that of the run, as of the `complete` event.
        ended_s: time of its end, in seconds since the epoch; 0: it works.
        report: the beginning of its last report; blank: none.
    """

    id: str
    conversation_id: str
    parent: str
    parent_run: str
    instance: str
    agent: str
    title: str
    user: str
    created_s: float
    deadline_s: float = 0.0
    status: str = ""
    ended_s: float = 0.0
    report: str = ""


class Workers(Protocol):
    """The workers of each thread. All methods wait while the store is unavailable.

    `fence` is the fencing token of the lease of the worker's conversation: a later owner's record stays.
    """

    async def of_thread(self, conversation_id: str) -> tuple[Worker, ...]:
        """Return the workers of a thread (its conversation, or that of a worker there), the latest first."""

    async def find(self, conversation_id: str) -> Worker | None:
        """Return the worker whose conversation this is; `None`: there is none."""

    async def begun(self, conversation_id: str, *, fence: int) -> None:
        """Keep that a worker works on, for a further message."""

    async def ended(self, conversation_id: str, status: str, report: str, at_s: float, *, fence: int) -> None:
        """Keep that a worker has ended, with its report."""


class Recipes(Protocol):
    """The recipes that the people in a thread can run, as workers."""

    async def carry_out(self, instance_name: str, conversation_id: str, user: str, request_id: str, words: str) -> str:
        """Carry out the words after `!recipe`, and return the answer. A repeated `request_id` starts nothing again.

        Raises:
            Refused: the words, a name or an input do not fit; the message is a sentence for the person.
        """


class Memory(Protocol):
    """The facts that are remembered for a channel or a direct message, and nowhere else."""

    async def carry_out(self, channel: str, user: str, words: str, request: str) -> str:
        """Carry out the words after `!memory` in a channel (`team:channel`); return the answer as plain text.

        A repeated `request` adds nothing again.

        Raises:
            Refused: the words do not fit; the message is a sentence for the person.
        """

    async def export(self, channel: str) -> str:
        """Return the facts of a channel (`team:channel`) as JSON, a line each; blank: there are none."""


class PersonalRecords(Protocol):
    """The runs, rules and visits of each person in a workspace, for their Home tab.

    All methods wait while the store is unavailable.
    """

    async def add_run(self, team: str, user: str, run: EndedRun) -> None:
        """Keep a run. A run with a known id is replaced, unless nothing is known of the new one's usage."""

    async def runs_of(self, team: str, user: str) -> tuple[EndedRun, ...]:
        """Return the kept runs of a person, the latest first."""

    async def rules_of(self, team: str, user: str) -> tuple[AlwaysRule, ...]:
        """Return the rules that a person has made, the latest first."""

    async def revoke(self, team: str, user: str, rule_id: str) -> bool:
        """Delete a rule that a person has made; return whether it existed."""

    async def opened_home(self, team: str, user: str, at_s: float) -> None:
        """Keep when a person opened their Home tab, in seconds since the epoch."""

    async def home_opened_s(self, team: str, user: str) -> float:
        """Return when a person last opened their Home tab; 0: never."""
