"""What the connector needs from whoever runs the agents and keeps what people write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    ProgressCallback = Callable[[str, dict[str, Any]], Awaitable[None]]

# A mention has no message in it; a catch-up is a thread whose later messages are to be read from Slack.
Kind = Literal["message", "edit", "withdrawal", "stop", "mention", "catch_up"]
# How an entry leaves its inbox: in a row of the log, which says so itself; taken back by its author; refused with a
# reason that its author sees; or, for what is no message, by having had its effect.
End = Literal["", "withdrawn", "refused", "done"]


class RunFailed(Exception):  # noqa: N818 - a fact about the run, shown to people
    """The run could not answer; the message is a sentence for the people in the thread."""


class Refused(Exception):  # noqa: N818 - one of the ends a message can come to
    """A message cannot be taken; the message of this error tells its author why."""


class QueueFull(Exception):  # noqa: N818 - a fact about the loop
    """The loop has more to read than it takes: a message can go in once it has read some of that."""


class LeaseLost(Exception):  # noqa: N818 - a fact about the lease
    """Another process owns the conversation: whoever is told so writes and shows nothing more."""


@dataclass(frozen=True, slots=True)
class Persona:
    """The name and the icon (an emoji code such as `:owl:`) under which an instance answers."""

    name: str
    emoji: str


@dataclass(frozen=True, slots=True)
class Instance:
    name: str
    persona: Persona


@dataclass(frozen=True, slots=True)
class MessageAuthor:
    """Who wrote a message: their id, and their display name; blank: it is not known. Several may have the same name."""

    id: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class SlackOptions:
    """Options of the Slack side.

    Args:
        stop_reaction: name of the emoji that stops a run, without colons.
        status_interval_s: least time between two edits of a status message, in seconds.
    """

    stop_reaction: str = "x"
    status_interval_s: float = 2.0


@dataclass(frozen=True, slots=True)
class SteeringMessage:
    """A message for a running execution.

    Args:
        id: identity of the message, `team:channel:ts`.
        written_s: when its author wrote it, in seconds since the epoch; the loop reads messages in this order.
        files: names of the attached files.
    """

    id: str
    text: str
    author: MessageAuthor
    written_s: float
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """One thing that somebody did in a conversation, as its inbox keeps it.

    Args:
        id: its identity, for ever: another entry with it is the same one come again.
        data: what is to be known of it, in JSON's types.
        seq: its place in the order of acceptance, from 1; 0 until it is admitted.
    """

    id: str
    kind: Kind
    data: Mapping[str, Any]
    seq: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """A conversation as it was when it was claimed.

    Args:
        token: the lease's fencing token: higher than every one before it.
        run: the run that was on when its owner died or handed it over, in the connector's own words; `None`: none was.
        posts: of that run, by part: what was to be posted; blank: Slack has it.
        held: messages up to this place start no run by themselves.
        entries: what waits in the inbox, in order.
    """

    token: int
    run: Mapping[str, Any] | None = None
    posts: Mapping[str, Any] = field(default_factory=dict)
    held: int = 0
    entries: tuple[InboxEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class StateChanges:
    """What an owner writes down in one step, all of it or nothing.

    Args:
        run: the run that is on from here. `None`: as before. One without an `id` is none, but may say what is left of
            those before it; empty: nothing is.
        posts: by part: what is to be posted, in JSON's types; blank (`""`): Slack has it.
        held: messages up to this place start no run by themselves. `None`: as before.
        replaced: entries' data from here on, by place.
        closed: how entries leave the inbox, by place.
    """

    run: Mapping[str, Any] | None = None
    posts: Mapping[str, Any] = field(default_factory=dict)
    held: int | None = None
    replaced: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    closed: Mapping[int, End] = field(default_factory=dict)

    @property
    def forgets_posts(self) -> bool:
        """Whether no run is on any more: its posts are forgotten."""
        return self.run is not None and "id" not in self.run


class ConversationLease(Protocol):
    """This process's ownership of one conversation. Others may add to its inbox meanwhile, and nothing else.

    It is renewed for as long as it is held. All methods wait while the store is away, and raise LeaseLost where another
    process owns the conversation by now.
    """

    @property
    def conversation_id(self) -> str: ...

    @property
    def claim(self) -> Claim: ...

    async def fetch(self, after: int) -> tuple[InboxEntry, ...]:
        """What waits in the inbox behind this place, in order."""
        ...

    async def write(self, changes: StateChanges) -> None: ...

    async def release(self, seen: int) -> bool:
        """Give the conversation up. False: something waits behind the place `seen`; it is still ours."""
        ...

    async def hand_over(self, rest_s: float = 0.0) -> None:
        """Give the conversation up as it stands; another process, or this one's successor, goes on with it at once.

        With `rest_s` it is reported as due only after so long; a new entry in its inbox is reported at once.
        """
        ...

    def abandon(self) -> None:
        """Do nothing for it any more: where it was not given back, it runs out by itself."""
        ...

    async def confirm(self) -> None:
        """Return when the conversation is certainly ours: before something is done that no store can refuse."""
        ...

    async def lost(self) -> None:
        """Return once another process owns the conversation."""
        ...


@dataclass(frozen=True, slots=True)
class Limit:
    """So many calls at once, and so many a second from then on; what is not used is saved up to the burst."""

    burst: float
    per_s: float


class RateBudget(Protocol):
    """What is left of the calls that Slack allows an app in one workspace; all its processes share one."""

    async def take(self, bucket: str, limit: Limit) -> float:
        """Take one call out of a bucket: 0; where there is none in it, after how many seconds there may be."""
        ...

    async def pause(self, bucket: str, for_s: float) -> None:
        """Let nobody take anything out of a bucket for so long: Slack has said so."""
        ...


class RunService(Protocol):
    """Keeps what people write, and says who acts on it: over all processes, one at a time in a conversation."""

    def watch(self, workspace: str, look_after: Callable[[str], None]) -> None:
        """Call `look_after(conversation_id)` from here on, when something is to be done in a conversation there.

        There is news for a conversation of the workspace that this process owns, or one has something to do and no
        owner. It may be called once too often.
        """
        ...

    async def admit(self, conversation_id: str, entry: InboxEntry, agent: str | None = None) -> bool:
        """Keep an entry, behind those of its conversation that were given here before it; False: it was known.

        When this returns, it is kept. Whoever owns the conversation hears of it; so does this process where nobody
        does. `agent` is the instance that the conversation goes on with. Waits while the store is away.
        """
        ...

    async def claim(self, conversation_id: str) -> ConversationLease | None:
        """Own the conversation; `None`: another process does, or this one does not watch its workspace.

        Waits while the store is away.
        """
        ...

    async def agent_of(self, conversation_id: str) -> str | None:
        """The instance that a conversation goes on with; `None`: nobody has written to an agent there."""
        ...


class SessionManager(Protocol):
    """Runs the agents, one session per instance and conversation.

    A steer whose text begins with `!` is to be read at once. `on_progress(event, data)` hears

    - `executing`: from now on steers are read; `thinking`: the model is asked, and has the prompt before it
    - `tool:start`, `tool:progress`, `tool:end`: by the `id` of the call; what it is called (`label`), how far it says
      that it has come (`text`), at its end whether it did what it was to (`success`). A tool `todo` has in its `args`
      the agent's whole to-do list, which people see once it has succeeded: `items`, each with a `text` and a `status`
      (pending, in_progress, done); with an `action` other than `set`, it only looks at the list
    - `injection:applied`: the model has the steers of these `ids` before it
    - `text`: an interim answer. `part` is its number among the texts of the run, from 1; a run that goes on after its
      process was killed tells those again that were told before, with the same numbers.
    - `resumed`: the run goes on. `tools` are the calls of this run of which nobody knows what they did, because a
      process died under them, each with its `id`, its `label` and its `outcome`; `unknown` are their labels
    - why the answer takes its time: `retrying` (`reason`: rate_limit, unavailable, timeout; `delay_s`, `attempt`,
      `max_attempts`), `fallback` (`to`: another provider), `compacting`
    - `complete`: `status` (success, incomplete, cancelled, suspended, error); `part`, the number of the answer among
      the texts of the run; `reason` and `detail` where it is incomplete; `usage`, the tokens and the cost; `tools`, all
      calls of the run, each with its `id`, its `label` and its `outcome` (finished, failed, cancelled, unknown)

    `fence` is the token of the lease under which this happens: where a higher one has been at the session's log,
    nothing is written there any more.
    """

    async def execute(  # noqa: PLR0913 - what a run consists of
        self,
        instance_name: str,
        conversation_id: str,
        prompt: str,
        on_progress: ProgressCallback | None = None,
        *,
        message_id: str | None = None,
        author: MessageAuthor | None = None,
        files: tuple[str, ...] = (),
        fence: int | None = None,
    ) -> str:
        """Run a prompt and return the answer; after a stop, what had been said until then.

        `message_id` is the identity of the message that the prompt is, `files` are the names of its files. Messages
        that the run was given and has not read when it ends are given to the next one.

        Raises:
            RunFailed: there is no answer, and why.
            LeaseLost: another process owns the conversation.
        """
        ...

    async def resume(
        self,
        instance_name: str,
        conversation_id: str,
        on_progress: ProgressCallback | None = None,
        *,
        fence: int | None = None,
    ) -> str:
        """Go on with the run that its log shows, and return its answer. One that was complete is not run again.

        Raises:
            RunFailed, LeaseLost: as in `execute`.
        """
        ...

    async def delivered(
        self, instance_name: str, conversation_id: str, ids: Collection[str], *, fence: int | None = None
    ) -> frozenset[str]:
        """Those of the messages that the log has in a row. From here on, nobody with a lower `fence` writes there.

        Raises:
            RunFailed: the log cannot be read, and never will be; other errors may pass.
            LeaseLost: another process owns the conversation.
        """
        ...

    def inject(self, instance_name: str, conversation_id: str, steer: SteeringMessage) -> bool:
        """Hand a steer to the running execution. False: it reads no more, the message needs a run of its own.

        Raises:
            Refused: it cannot be taken at all.
            QueueFull: it cannot be taken now.
        """
        ...

    def edit(self, instance_name: str, conversation_id: str, message_id: str, text: str) -> bool:
        """Replace the text of a steer that the execution was given. False: it has read it, or never got it."""
        ...

    def withdraw(self, instance_name: str, conversation_id: str, message_id: str) -> bool:
        """Take back a steer that the execution was given. False: it has read it, or never got it."""
        ...

    def stop(self, instance_name: str, conversation_id: str, *, immediate: bool = False) -> bool:
        """Stop the execution that is on; whether that changed anything. Without one, it does nothing to the next."""
        ...

    def suspend(self, instance_name: str, conversation_id: str) -> bool:
        """Have the execution that is on end at its next boundary, so that another process can resume it.

        The model call in flight is given up; tools at work may finish. Whether that changed anything.
        """
        ...
