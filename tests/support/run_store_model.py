"""A model of a run store, and random steps of two owners on two conversations that compare a store with it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from uuid import uuid4

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from connector.protocols import InboxEntry, LeaseLost, StateChanges
from service.store import open_run_store

NAMES = st.sampled_from(["c", "d"])
OWNERS = st.sampled_from(["a", "b"])
# Hours, or expired from the start.
LEASES = st.sampled_from([9999.0, 9999.0, 0.0])
PLACES = st.integers(0, 9)
CONTENTS = st.sampled_from(["", "x", {"text": "y"}])
TEXTS = st.sampled_from(["x", "y", "ü\n"])
# Age of the token that a step uses: 0 is the newest.
AGES = st.sampled_from([0, 0, 0, 0, 1])


@dataclass
class Conversation:
    """The expected state. A lease is valid, expired, or (without an owner) released.

    `tokens` contains all tokens, also from before a deletion. `at_once`: the conversation is due without a delay.
    """

    exists: bool = False
    agent: str | None = None
    tokens: list[int] = field(default_factory=list)
    owner: str | None = None
    is_valid: bool = False
    released: int | None = None
    run: dict | None = None
    posts: dict = field(default_factory=dict)
    held_seq: int = 0
    stopped_s: float = 0.0
    entries: list[InboxEntry] = field(default_factory=list)
    ends: dict[int, str] = field(default_factory=dict)
    at_once: bool = False

    @property
    def waiting(self) -> tuple[InboxEntry, ...]:
        return tuple(each for each in self.entries if each.seq not in self.ends)

    @property
    def has_work(self) -> bool:
        return self.run is not None or any(each.seq > self.held_seq for each in self.waiting)

    def owned_by(self, token: int) -> bool:
        return self.owner is not None and bool(self.tokens) and token == self.tokens[-1]

    def change(self, changes: StateChanges) -> None:
        self.posts |= changes.posts
        if changes.run is not None:
            self.run = dict(changes.run) or None
            self.posts = self.posts if "id" in changes.run else {}
        self.held_seq = self.held_seq if changes.held_seq is None else changes.held_seq
        self.stopped_s = self.stopped_s if changes.stopped_s is None else changes.stopped_s
        waiting = {each.seq for each in self.waiting}
        for seq, data in changes.replaced.items():
            if seq in waiting:
                old = self.entries[seq - 1]
                self.entries[seq - 1] = InboxEntry(old.id, old.kind, data, seq)
        self.ends |= {seq: end for seq, end in changes.closed.items() if seq in waiting}


class RunStoreMachine(RuleBasedStateMachine):
    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[str, Conversation] = {}
        self.serial = uuid4().hex  # separates the examples in one store
        self.store = self.open()

    def teardown(self) -> None:
        self.run(self.store.aclose())
        self.runner.close()

    def open(self):
        self.runner = asyncio.Runner()
        return self.run(open_run_store(self.url))

    def run(self, work):
        return self.runner.run(work)

    def of(self, name: str) -> Conversation:
        return self.model.setdefault(name, Conversation())

    def workspace(self, name: str) -> str:
        return f"{self.serial}-{name}"

    def full(self, name: str) -> str:
        return f"{self.workspace(name)}:{name}"

    def token(self, name: str, age: int) -> int:
        tokens = self.of(name).tokens
        return tokens[max(len(tokens) - 1 - age, 0)] if tokens else 1

    def owning(self, name: str, age: int, work) -> tuple[bool, object]:
        """Run a step with a token. Return whether the token is valid (in store and model), and the result."""
        try:
            given = self.run(work(self.full(name), self.token(name, age)))
        except LeaseLost:
            assert not self.of(name).owned_by(self.token(name, age))
            return False, None
        assert self.of(name).owned_by(self.token(name, age))
        return True, given

    @rule(name=NAMES, place=PLACES, kind=st.sampled_from(["message", "edit", "stop"]), text=TEXTS, agent=OWNERS)
    def admit(self, name, place, kind, text, agent):
        entry, expected = InboxEntry(f"m{place}", kind, {"text": text}), self.of(name)
        admission = self.run(self.store.admit(self.full(name), entry, agent))
        is_new = all(each.id != entry.id for each in expected.entries)
        assert (admission.is_new, admission.owner) == (is_new, expected.owner if expected.is_valid else None)
        if is_new:
            expected.at_once = expected.at_once and expected.has_work
            expected.exists = True
            expected.entries.append(InboxEntry(entry.id, kind, entry.data, len(expected.entries) + 1))
            expected.agent = agent

    @rule(name=NAMES, owner=OWNERS, lease_s=LEASES)
    def claim(self, name, owner, lease_s):
        expected = self.of(name)
        claim = self.run(self.store.claim(self.full(name), owner, lease_s))
        if expected.is_valid and expected.owner != owner:
            assert claim is None
            return
        assert claim.token > max(expected.tokens, default=0)
        assert (claim.run, claim.posts, claim.held_seq) == (expected.run, expected.posts, expected.held_seq)
        assert claim.stopped_s == expected.stopped_s
        assert claim.entries == expected.waiting
        expected.exists = True
        expected.tokens.append(claim.token)
        expected.owner, expected.is_valid, expected.at_once = owner, lease_s > 0, False

    @rule(name=NAMES, age=AGES, lease_s=LEASES)
    def renew(self, name, age, lease_s):
        is_owner, last = self.owning(name, age, lambda full, token: self.store.renew(full, token, lease_s))
        if is_owner:
            assert last == len(self.of(name).entries)
            self.of(name).is_valid = lease_s > 0

    @rule(name=NAMES, age=AGES, after=PLACES)
    def fetch(self, name, age, after):
        is_owner, entries = self.owning(name, age, lambda full, token: self.store.fetch(full, token, after))
        if is_owner:
            assert entries == tuple(each for each in self.of(name).waiting if each.seq > after)

    @rule(
        name=NAMES,
        age=AGES,
        changes=st.builds(
            StateChanges,
            run=st.sampled_from([None, None, {}, {"id": 1}, {"id": "ü\n", "by": [{"x": 1.5}, None]}, {"left": ["x"]}]),
            posts=st.dictionaries(st.sampled_from(["1", "2", "stop\n="]), CONTENTS, max_size=2),
            held_seq=st.none() | PLACES,
            stopped_s=st.none() | st.floats(0, 3e9),
            replaced=st.dictionaries(PLACES, st.builds(dict, text=TEXTS), max_size=2),
            closed=st.dictionaries(PLACES, st.sampled_from(["", "withdrawn", "refused", "done"]), max_size=3),
        ),
    )
    def write(self, name, age, changes):
        if self.owning(name, age, lambda full, token: self.store.write(full, token, changes))[0]:
            self.of(name).change(changes)

    @rule(name=NAMES, age=AGES, seen=st.none() | PLACES)
    def release(self, name, age, seen):
        expected, token = self.of(name), self.token(name, age)
        if expected.released == token:
            assert self.run(self.store.release(self.full(name), token, seen))
            return
        is_owner, is_released = self.owning(name, age, lambda full, mine: self.store.release(full, mine, seen))
        if is_owner:
            assert is_released == (seen is None or all(each.seq <= seen for each in expected.waiting))
            if is_released:
                expected.owner, expected.is_valid, expected.released = None, False, expected.tokens[-1]
                expected.at_once = True

    @rule(name=NAMES)
    def forget(self, name):
        expected = self.of(name)
        is_over = expected.exists and not expected.is_valid and not expected.has_work
        assert self.run(self.store.forget(self.full(name))) == is_over
        if is_over:
            self.model[name] = Conversation(tokens=expected.tokens)

    @invariant()
    def the_record_equals_the_model(self):
        for name, expected in self.model.items():
            known = self.run(self.store.record(self.full(name)))
            if known is None:
                assert not expected.exists
                continue
            ids = [each.id for each in expected.entries]
            assert (known.agent, known.owner, known.held_seq) == (expected.agent, expected.owner, expected.held_seq)
            assert (known.has_run, known.posts) == (
                expected.run is not None,
                sum(bool(x) for x in expected.posts.values()),
            )
            assert (known.waiting, list(known.order)) == (expected.waiting, ids)
            assert known.ends == {ids[seq - 1]: end for seq, end in expected.ends.items()}
            assert known.is_owned == (expected.is_valid and expected.owner is not None)
            assert (known.damaged, known.is_overlooked) == ((), False)
            count = known.count
            assert (count.accepted, sum(count.left.values()), count.forgotten) == (len(ids), len(expected.ends), 0)

    @invariant()
    def due_conversations_have_work_and_no_owner(self):
        for name, expected in self.model.items():
            due = self.run(self.store.due(self.workspace(name), 9))
            assert set(due) <= {self.full(name)}
            is_free = expected.has_work and not expected.is_valid
            assert is_free or self.full(name) not in due
            assert not (is_free and expected.at_once) or self.full(name) in due


def assert_behaves_as_the_model(machine: type[RunStoreMachine], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
