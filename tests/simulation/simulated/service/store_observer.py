"""What the store is told, in order: for the judges."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from service.store.base import workspace_of

from .other_workspace import serves

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from connector.protocols import Claim, InboxEntry, StateChanges
    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.interactions.stores.base import Change
    from simulated.scenario import Scenario

# The ids of messages in a state, as it is written.
_DELIVERED = re.compile(r"T1:C1:\d+\.\d+")

# How what people read of the end of a run begins, where there is no answer.
LAST_WORDS = ("🛑", "⚠️", "⏸️", "I am done and have nothing to add.")
# How long after a stop something may begin that was about to.
_SOON_S = 0.05


@dataclass(slots=True)
class RunSeen:
    """A run, as the store was told of it.

    It began with a message that a stop had held back, if that `was_held`. It was stopped, and then `hurried_s`: stopped
    again. `last_word_s` is when it was kept what people read of its end, `last_step_s` when it has asked, begun or
    written down anything last, `stop_words_s` when people said stop while it was on. It `has_failed` where the model
    said last that it never will.
    """

    id: str
    conversation: str
    first: str
    first_seq: int
    began_s: float
    was_held: bool
    stopped_s: float | None = None
    hurried_s: float | None = None
    ended_s: float | None = None
    last_word_s: float | None = None
    last_step_s: float = 0.0
    has_failed: bool = False
    owners: list[int] = field(default_factory=list)
    stop_words_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Commit:
    key: Key
    fence: int | None
    process: int
    at_s: float


@dataclass(slots=True)
class Standing:
    """How a conversation stands.

    `owner` is the process that owns it, `first` the message that the run that is on began with, `posts` are that run's,
    by part: whether they are still to be made. `waiting` are the places of what waits in the inbox, and `stops` says
    when the stops among it were said; `written` says when each entry was written. What stands before the place `held`
    is held back, and what stands before the stop `stop_place` and is not newer than `stop_ts`.
    """

    owner: int | None = None
    last_owner: int | None = None
    run: str | None = None
    first: str = ""
    held_seq: int = 0
    stop_place: int = 0
    stop_ts: str = ""
    posts: dict[str, bool] = field(default_factory=dict)
    stops: dict[int, str] = field(default_factory=dict)
    written: dict[int, str] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)

    @property
    def starts_a_run(self) -> bool:
        """Whether something waits that no stop has held back."""
        return not all(map(self.is_held, self.waiting))

    def is_held(self, seq: int) -> bool:
        is_old = self.written.get(seq, "") <= self.stop_ts
        return seq <= (max(self.held_seq, self.stop_place) if is_old else self.held_seq)


class Witness:
    """Sees every step of the store that has taken effect. `standing` is by conversation."""

    def __init__(self, scene: Scenario) -> None:
        self.standing: dict[str, Standing] = {}
        self.runs: dict[str, RunSeen] = {}
        self.commits: list[Commit] = []
        self.admitted_s: dict[str, float] = {}
        self.delivered: set[str] = set()
        # When a process has claimed a conversation.
        self.claims_s: dict[tuple[str, int], list[float]] = defaultdict(list)
        # Stops that came where nothing was on, and nothing was to begin.
        self.idle_stops: set[str] = set()
        self._scene = scene

    def admitted(self, conversation_id: str, entry: InboxEntry, seq: int) -> None:
        """`seq` is its place in the order of acceptance."""
        scene = self._scene
        scene.count(f"accepted: {entry.kind}")
        scene.tell("store", f"has accepted {entry.kind} {entry.id}")
        self.admitted_s[entry.id] = scene.now()
        standing = self._at(conversation_id)
        if entry.kind == "stop" and standing.run is None and not standing.starts_a_run:
            self.idle_stops.add(entry.id)
        if entry.kind != "catch_up":
            standing.waiting.add(seq)
        if entry.kind == "stop":
            standing.stops[seq] = entry.data.get("at", "")
        elif entry.kind != "catch_up":
            standing.written[seq] = entry.data.get("message", {}).get("ts", "")
        run = self.runs.get(standing.run or "")
        if run is not None and entry.kind == "stop" and "message" in entry.data:
            is_older = entry.data["message"]["ts"] < run.first.split(":")[2]  # it was meant for another one
            run.stop_words_s += [] if is_older else [scene.now()]

    def claimed(self, conversation_id: str, process: int, claim: Claim) -> None:
        scene, standing = self._scene, self._at(conversation_id)
        if not serves(process, workspace_of(conversation_id)):
            scene.blame(f"Process {process} has claimed {conversation_id}, whose workspace it is not connected to.")
        self.claims_s[conversation_id, process].append(scene.now())
        is_another = standing.last_owner not in (None, process)
        standing.owner = standing.last_owner = process
        if claim.run is not None and "first" in claim.run:
            scene.count(f"run taken up by {'another' if is_another else 'the same'} process")
            scene.count(f"run taken up with {'a post' if any(claim.posts.values()) else 'no post'} pending")
        scene.tell("store", f"gives {conversation_id} to {process}, token {claim.token}{_told(claim.run)}")

    def gave_back(self, conversation_id: str, process: int) -> None:
        self._at(conversation_id).owner = None
        self._scene.tell("store", f"has {conversation_id} back from {process}")

    def wrote(self, conversation_id: str, process: int, changes: StateChanges, waiting: Collection[int]) -> None:
        """`waiting` are the places of what waits in the inbox."""
        scene, standing = self._scene, self._at(conversation_id)
        standing.waiting = set(waiting)
        is_started = standing.starts_a_run
        standing.posts |= {part: bool(post) for part, post in changes.posts.items()}
        if met := self._met_by(standing, changes):
            standing.stop_place = max(standing.stop_place, *met)
            standing.stop_ts = max(standing.stop_ts, *(standing.stops[seq] for seq in met))
        else:
            standing.held_seq = max(standing.held_seq, changes.held_seq or 0)
        run = self.runs.get(standing.run or "")
        if run is not None and any(_is_last_word(post) for post in changes.posts.values()):
            run.last_word_s = scene.now()
        if changes.deletes_posts and standing.run is not None:
            run = self.runs[standing.run]
            run.ended_s = scene.now()
            scene.count(f"run {'stopped' if run.stopped_s is not None else 'ended'}")
            standing.run, standing.posts = None, {}
        if changes.run and "first" in changes.run:  # else it only tells of traces
            self._see(conversation_id, process, changes.run, is_started=is_started)
            self._hurry(self.runs[changes.run["id"]], standing, changes)
        for seq in changes.closed:  # what is written once more, because the answer was lost, is nothing new
            standing.stops.pop(seq, None)
        scene.tell("store", f"has from {process}: {_changes(changes)}")

    def refused(self, conversation_id: str, process: int, what: str) -> None:
        """A process has written that does not own the conversation any more."""
        self._scene.count(f"{what} of a stale owner refused")
        self._scene.tell("store", f"refuses {what} of {process}, which does not own {conversation_id} any more")

    def began(self, what: str, conversation_id: str, process: int) -> None:
        """A run has begun something: not one that was stopped, or is over. What was frozen, and wakes up, may."""
        standing = self._at(conversation_id)
        run = self.runs.get(standing.run or "")
        if run is None or standing.owner != process:
            return
        run.has_failed = False
        run.last_step_s = self._scene.now()
        if run.last_word_s is not None:
            self._scene.blame(f"The run of {run.first} had said its last word, and then {what}.")
        if run.stopped_s is not None and self._scene.now() > run.stopped_s + _SOON_S:
            self._scene.blame(f"The run of {run.first} was stopped at {run.stopped_s:.3f}, and then {what}.")

    def ended(self, what: str, conversation_id: str, process: int) -> None:
        """A run has done something: not one that was to end at once."""
        standing = self._at(conversation_id)
        run = self.runs.get(standing.run or "")
        hurried_s = run.hurried_s if run is not None and standing.owner == process else None
        if hurried_s is not None and self._scene.now() > hurried_s + _SOON_S:
            self._scene.blame(f"The run was to end at once at {hurried_s:.3f}, and then {what}.")

    def failed(self, conversation_id: str, process: int) -> None:
        """The model has said that it never will."""
        standing = self._at(conversation_id)
        run = self.runs.get(standing.run or "")
        if run is not None and standing.owner == process:
            run.has_failed = True

    def committed(self, key: Key, change: Change, process: int) -> None:
        self.commits.append(Commit(key, change.fence, process, self._scene.now()))
        run = self.runs.get(self._at(key.conversation_id).run or "")
        if run is not None:
            run.last_step_s = self._scene.now()
        kinds = ", ".join(node.envelope["t"].removesuffix("State") for node in change.nodes)
        self.delivered |= {each for node in change.nodes for each in _DELIVERED.findall(str(node.envelope["data"]))}
        self._scene.tell("log", f"has from {process}: {kinds or 'branches'}")

    def _met_by(self, standing: Standing, changes: StateChanges) -> set[int]:
        """The places of stops that have met something: nothing older that stands before them begins a run by itself."""
        is_stopped = changes.run is not None and changes.run.get("stopped_by") is not None
        has_met = is_stopped or changes.held_seq is not None or "withdrawn" in changes.closed.values()
        return standing.stops.keys() & changes.closed.keys() if has_met else set()

    def _hurry(self, run: RunSeen, standing: Standing, changes: StateChanges) -> None:
        """Take note of a second stop."""
        is_again = run.stopped_s is not None and run.stopped_s < self._scene.now()
        if is_again and standing.stops.keys() & changes.closed.keys():
            run.hurried_s = self._scene.now()
            self._scene.count("run stopped again")

    def _at(self, conversation_id: str) -> Standing:
        return self.standing.setdefault(conversation_id, Standing())

    def _see(self, conversation_id: str, process: int, record: Mapping[str, Any], *, is_started: bool) -> None:
        first = record["first"]
        was_held = self._at(conversation_id).is_held(first["seq"])
        if record["id"] not in self.runs:
            self._scene.count("run begun")
            if not is_started:
                self._scene.blame(f"The run of {first['id']} began, and nothing had started it.")
        run = self.runs.setdefault(
            record["id"],
            RunSeen(record["id"], conversation_id, first["id"], first["seq"], self._scene.now(), was_held=was_held),
        )
        if record.get("stopped_by") is not None and run.stopped_s is None:
            run.stopped_s = self._scene.now()
        run.ended_s = None
        standing = self._at(conversation_id)
        standing.run, standing.first = run.id, run.first
        if process not in run.owners:
            run.owners.append(process)


def _is_last_word(post: Any) -> bool:
    return bool(post) and any(text.startswith(LAST_WORDS) for text in post["texts"])


def _told(run: Mapping[str, Any] | None) -> str:
    return "" if run is None else f", with {_named(run)}"


def _named(run: Mapping[str, Any]) -> str:
    stopped = ", stopped" if run.get("stopped_by") else ""
    return f"the run of {run['first']['id']}{stopped}" if "first" in run else "traces of a run"


def _changes(changes: StateChanges) -> str:
    parts = []
    if changes.run is not None:
        parts.append(_named(changes.run) if changes.run else "no run")
    parts += [f"post {part} {'is there' if not post else 'to be made'}" for part, post in changes.posts.items()]
    if changes.held_seq is not None:
        parts.append(f"held to {changes.held_seq}")
    parts += [f"{seq} replaced" for seq in changes.replaced]
    parts += [f"{seq} closed ({end or 'delivered'})" for seq, end in changes.closed.items()]
    return ", ".join(parts)


class Nobody(Witness):
    """Sees nothing: for a store that keeps other things than the service's."""

    def admitted(self, conversation_id: str, entry: InboxEntry, seq: int) -> None:
        pass

    def claimed(self, conversation_id: str, process: int, claim: Claim) -> None:
        pass

    def wrote(self, conversation_id: str, process: int, changes: StateChanges, waiting: Collection[int]) -> None:
        pass
