"""Observes every step of the stores, and checks when runs start, continue and stop."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from connector.protocols import Claim, InboxEntry, StateChanges
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.serializers import read_data
from orchestrator_interactive.interactions.states import RunFinishedState
from orchestrator_interactive.interactions.stores.base import Change
from service.store.base import workspace_of
from simulated.simulation import Simulation

# A service of another workspace, whose processes have numbers from here on.
OTHER_TEAM = "T2"
OTHER_PROCESSES = 1001
_MESSAGE_ID = re.compile(r"T1:[CD]1:\d+\.\d+")
_ENTRY_ID = re.compile(r"T1:[CD]1:\d+\.\d+(?::edit:\d+\.\d+|:deleted)?")
# The beginnings of posts about the end of a run that has no answer.
END_NOTICES = ("🛑", "⚠️", "⏸️", "I am done and have nothing to add.")
# Faults for which a process may not renew its leases in time.
_SILENCING = frozenset({"pauses", "store outages", "flaky store", "slow store", "late arrivals"})
# Steps that were about to start may start this long after a stop.
_AFTER_STOP_S = 0.05


@dataclass(slots=True)
class ObservedRun:
    """A run as the store records it.

    Attributes:
        newest_ts: the newest message that it began with.
        was_held: it began with a message that a stop had held back.
        stopped_again_s: when a second stop arrived.
        end_notice_s: when the notice about its end was stored.
        last_step_s: when it last called, started or wrote anything.
        has_failed: an error of its model, or of that of a sub-agent, was permanent.
        stop_words_s: when people wrote stop during the run.
    """

    id: str
    conversation: str
    first: str
    first_seq: int
    began_s: float
    newest_ts: str
    was_held: bool
    stopped_s: float | None = None
    stopped_again_s: float | None = None
    ended_s: float | None = None
    end_notice_s: float | None = None
    last_step_s: float = 0.0
    has_failed: bool = False
    owners: list[int] = field(default_factory=list)
    stop_words_s: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Commit:
    key: Key
    fence: int | None
    process: int


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request as a process has stored it; `data` is its record."""

    at_s: float
    conversation: str
    run: str
    owner: str
    data: Mapping[str, Any]

    @property
    def about(self) -> str:
        """The call; that of a sub-agent comes after the agent's id."""
        return str(self.data["request"]["id"]).rpartition("/")[2]


@dataclass(slots=True)
class ConversationState:
    """The state of a conversation.

    Attributes:
        first: the message that the active run began with.
        posts: the posts of that run, by part: whether they are still to be made.
        waiting: the sequence numbers of the open inbox entries.
        notes: those of notes, which start no run.
        stops: the times of the stops among them.
        stopped_keys: the notices of runs that were stopped before they began.
        stopped_s: the time of the latest stop that had an effect; it holds back older messages that come later, too.
        written: the time of each entry.
        changed: the time of each entry, or of the edit that it contains.
        held: entries up to this number are held back.
        holds: the sequence number and time of each stop that had an effect. It holds back what was accepted before it
            and is not newer. What one stop leaves free stays free, whatever the time of another.
    """

    owner: int | None = None
    last_owner: int | None = None
    run: str | None = None
    first: str = ""
    held: int = 0
    holds: dict[int, str] = field(default_factory=dict)
    posts: dict[str, bool] = field(default_factory=dict)
    stops: dict[int, str] = field(default_factory=dict)
    stopped_s: float = 0.0
    stopped_keys: frozenset[str] = frozenset()
    written: dict[int, str] = field(default_factory=dict)
    changed: dict[int, float] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    notes: set[int] = field(default_factory=set)

    @property
    def starts_a_run(self) -> bool:
        """Whether an entry waits that no stop holds back."""
        waiting = self.waiting - self.notes
        return any(not self.is_held(seq) and self.changed.get(seq, inf) > self.stopped_s for seq in waiting)

    def is_held(self, seq: int) -> bool:
        written = self.written.get(seq, "")
        return seq <= self.held or any(seq < stop and written <= ts for stop, ts in self.holds.items())


class StoreObserver:
    """Gets every step that has taken effect. `idle_stops` arrived while no run was active or about to start."""

    def __init__(self, sim: Simulation):
        self.conversations: defaultdict[str, ConversationState] = defaultdict(ConversationState)
        self.runs: dict[str, ObservedRun] = {}
        self.commits: list[Commit] = []
        self.admitted_s: dict[str, float] = {}
        self.read_s: dict[str, float] = {}
        self.delivered: set[str] = set()
        self.claims_s: dict[tuple[str, int], list[float]] = defaultdict(list)
        self.idle_stops: set[str] = set()
        # All clicks on requests that were accepted, and all versions of all requests, in order.
        self.clicks: list[Mapping[str, Any]] = []
        self.requests: list[StoredRequest] = []
        self._sim = sim

    def admitted(self, conversation_id: str, entry: InboxEntry, seq: int) -> None:
        sim, state = self._sim, self.conversations[conversation_id]
        sim.count(f"accepted: {entry.kind}")
        sim.log("store", f"accepts {entry.kind} {entry.id}")
        self.admitted_s[entry.id] = sim.now()
        self.clicks += [entry.data] if entry.kind == "click" else []
        if entry.kind == "stop" and state.run is None and not state.starts_a_run:
            self.idle_stops.add(entry.id)
        if entry.kind != "catch_up":
            state.waiting.add(seq)
        if entry.kind in ("note", "notice"):
            state.notes.add(seq)
        if entry.kind == "stop":
            state.stops[seq] = entry.data.get("at", "")
        elif entry.kind != "catch_up":
            ts = state.written[seq] = entry.data.get("message", {}).get("ts", "")
            state.changed[seq] = float(max(ts, entry.data.get("edited_ts", "")) or inf)
        run = self.runs.get(state.run or "")
        if run is not None and entry.kind == "stop" and "message" in entry.data:
            is_older = entry.data["message"]["ts"] < run.newest_ts  # it is for an earlier run
            run.stop_words_s += [] if is_older else [sim.now()]

    def claimed(self, conversation_id: str, process: int, claim: Claim) -> None:
        sim, state = self._sim, self.conversations[conversation_id]
        if (process >= OTHER_PROCESSES) != (workspace_of(conversation_id) == OTHER_TEAM):
            sim.violation(f"Process {process} has claimed {conversation_id}, whose workspace it is not connected to.")
        if state.owner not in (None, process) and self._is_well(state.owner):
            sim.violation(f"Process {process} has claimed {conversation_id} from process {state.owner}, which is well.")
        self.claims_s[conversation_id, process].append(sim.now())
        is_another = state.last_owner not in (None, process)
        state.owner = state.last_owner = process
        if claim.run is not None and "first" in claim.run:
            sim.count(f"takeover of a run by {'another' if is_another else 'the same'} process")
            sim.count(f"takeover of a run with {'a post' if any(claim.posts.values()) else 'no post'} pending")
        with_run = "" if claim.run is None else f", with {_run_name(claim.run)}"
        sim.log("store", f"leases {conversation_id} to {process}, token {claim.token}{with_run}")

    def _is_well(self, process: int) -> bool:
        return self._sim.loop.killed_s(process) is None and _SILENCING.isdisjoint(self._sim.features)

    def released(self, conversation_id: str, process: int) -> None:
        state = self.conversations[conversation_id]
        if state.owner == process:  # a slow reply: another process may have claimed it since
            state.owner = None
        self._sim.log("store", f"gets {conversation_id} back from {process}")

    def wrote(self, conversation_id: str, process: int, changes: StateChanges, waiting: Collection[int]) -> None:
        """Note changes; `waiting` are the sequence numbers of the open entries."""
        sim, state = self._sim, self.conversations[conversation_id]
        state.waiting = set(waiting)
        is_started = state.starts_a_run
        state.posts |= {part: bool(post) for part, post in changes.posts.items()}
        state.holds |= {seq: state.stops[seq] for seq in self._effective_stops(state, changes)}
        state.stopped_s = max(state.stopped_s, changes.stopped_s or 0.0)
        if not changes.closed:  # the owner releases the conversation with nothing but late changes left
            state.held = max(state.held, changes.held_seq or 0)
        run = self.runs.get(state.run or "")
        if run is not None and any(_is_end_notice(post) for post in changes.posts.values()):
            run.end_notice_s = sim.now()
        if changes.deletes_posts and state.run is not None:
            run = self.runs[state.run]
            run.ended_s = sim.now()
            sim.count(f"run {'stopped' if run.stopped_s is not None else 'ended'}")
            state.run, state.posts = None, {}
        if changes.run and "first" in changes.run:  # else it only records pending cleanup
            self._note_run(conversation_id, process, changes.run, is_started=is_started)
            run = self.runs[changes.run["id"]]
            if run.stopped_again_s is None and changes.run["stops"] > 1:
                run.stopped_again_s = sim.now()
                sim.count("run stopped again")
        for seq in changes.closed:  # a write is repeated if its reply was lost
            state.stops.pop(seq, None)
        sim.log("store", f"writes for {process}: {_described(changes)}")

    def refused(self, conversation_id: str, process: int, what: str) -> None:
        self._sim.count(f"{what} of a stale owner refused")
        self._sim.log("store", f"refuses {what} of {process}, which does not own {conversation_id}")

    def began(self, what: str, conversation_id: str, process: int) -> None:
        """Check that a step does not start after a stop or after the end notice. A paused process may continue."""
        run = self._run_of(conversation_id, process)
        if run is None:
            return
        run.last_step_s = self._sim.now()
        if run.end_notice_s is not None:
            self._sim.violation(f"The run of {run.first} had its end notice, and then {what}.")
        if run.stopped_s is not None and self._sim.now() > run.stopped_s + _AFTER_STOP_S:
            self._sim.violation(f"The run of {run.first} was stopped at {run.stopped_s:.3f}, and then {what}.")

    def ended(self, what: str, conversation_id: str, process: int) -> None:
        """Check that a step ends at once after a second stop."""
        run = self._run_of(conversation_id, process)
        again_s = run.stopped_again_s if run is not None else None
        if again_s is not None and self._sim.now() > again_s + _AFTER_STOP_S:
            self._sim.violation(f"The run had to end at once at {again_s:.3f}, and then {what}.")

    def failed(self, conversation_id: str, process: int) -> None:
        if (run := self._run_of(conversation_id, process)) is not None:
            run.has_failed = True

    def committed(self, key: Key, change: Change, process: int) -> None:
        self.commits.append(Commit(key, change.fence, process))
        run = self.runs.get(self.conversations[key.conversation_id].run or "")
        if run is not None:
            run.last_step_s = self._sim.now()
            # The former owner, whose log is not fenced yet, may record the failure that ends the run.
            ends = (node.envelope for node in change.nodes if node.envelope["t"] == RunFinishedState.__name__)
            run.has_failed |= any(read_data(end).get("status") == "error" for end in ends)
        kinds = ", ".join(node.envelope["t"].removesuffix("State") for node in change.nodes)
        data = [str(node.envelope["data"]) for node in change.nodes]
        self.delivered |= {found for each in data for found in _MESSAGE_ID.findall(each)}
        for found in (found for each in data for found in _ENTRY_ID.findall(each)):
            self.read_s.setdefault(found, self._sim.now())
        self._sim.log("log", f"commits for {process}: {kinds or 'branches'}")

    def _run_of(self, conversation_id: str, process: int) -> ObservedRun | None:
        """Return the active run of a conversation that the process owns."""
        state = self.conversations[conversation_id]
        return self.runs.get(state.run or "") if state.owner == process else None

    def _effective_stops(self, state: ConversationState, changes: StateChanges) -> set[int]:
        """Return the stops that had an effect: no older message before them starts a run by itself."""
        run = changes.run or {}
        is_stopped = run.get("stopped_by") is not None or bool(changes.held_seq)
        # A stop before its run; the notice of a withdrawn message has another key.
        keys = {key for item in run.get("cleanup", ()) if (key := str(item.get("key"))).endswith(":stopped")}
        has_effect = is_stopped or not keys <= state.stopped_keys
        state.stopped_keys |= keys
        return state.stops.keys() & changes.closed.keys() if has_effect else set()

    def _note_run(self, conversation_id: str, process: int, record: Mapping[str, Any], *, is_started: bool) -> None:
        first, state, now = record["first"], self.conversations[conversation_id], self._sim.now()
        for each in record["requests"].values():
            self.requests.append(StoredRequest(now, conversation_id, record["id"], first["message"]["user"], each))
        run = self.runs.get(record["id"])
        if run is None:
            self._sim.count("run begun")
            if not is_started:
                self._sim.violation(f"The run of {first['id']} began without a cause.")
            was_held = state.is_held(first["seq"])
            began = first["id"], first["seq"], now, record["newest_ts"]
            run = ObservedRun(record["id"], conversation_id, *began, was_held)
            self.runs[run.id] = run
        if record.get("stopped_by") is not None and run.stopped_s is None:
            run.stopped_s = now
        run.ended_s = None
        state.run, state.first = run.id, run.first
        if process not in run.owners:
            run.owners.append(process)


def _is_end_notice(post: Any) -> bool:
    return bool(post) and any(text.startswith(END_NOTICES) for text in post["texts"])


def _run_name(run: Mapping[str, Any]) -> str:
    stopped = ", stopped" if run.get("stopped_by") else ""
    return f"the run of {run['first']['id']}{stopped}" if "first" in run else "pending cleanup"


def _described(changes: StateChanges) -> str:
    parts = [] if changes.run is None else [_run_name(changes.run) if changes.run else "no run"]
    parts += [f"post {part} {'made' if not post else 'pending'}" for part, post in changes.posts.items()]
    parts += [] if changes.held_seq is None else [f"held to {changes.held_seq}"]
    parts += [f"{seq} replaced" for seq in changes.replaced]
    parts += [f"{seq} closed ({end or 'delivered'})" for seq, end in changes.closed.items()]
    return ", ".join(parts)
