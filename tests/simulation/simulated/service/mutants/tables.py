"""Run stores that break what a run store promises."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from connector.protocols import StateChanges
from simulated.service.run_table import Conversation, RunTable

if TYPE_CHECKING:
    from connector.protocols import Claim, InboxEntry
    from service.store.base import Admission


class LosesEntries(RunTable):
    """Forgets every third message that it has accepted."""

    def admit(self, conversation_id: str, entry: InboxEntry, agent: str | None) -> Admission:
        admission = super().admit(conversation_id, entry, agent)
        found = self.conversations[conversation_id]
        if admission.is_new and entry.kind == "message" and len(found.order) % 3 == 0:
            del found.waiting[len(found.order)]
        return admission


class ForgetsIdentities(RunTable):
    """Takes what comes again for something new."""

    def admit(self, conversation_id: str, entry: InboxEntry, agent: str | None) -> Admission:
        found = self.conversations.setdefault(conversation_id, Conversation())
        found.ends.pop(entry.id, None)
        return super().admit(conversation_id, entry, agent)


class LosesEdits(RunTable):
    """Takes an edit for done without having told of it."""

    def fetch(self, conversation_id: str, token: int, after: int) -> tuple[InboxEntry, ...]:
        found = self._owned(conversation_id, token)
        edits = [seq for seq, entry in found.waiting.items() if entry.kind == "edit" and seq > found.held_seq]
        for seq in edits:
            found.ends[found.waiting.pop(seq).id] = "done"
        return super().fetch(conversation_id, token, after)


class LosesStops(RunTable):
    """Takes a stop for done without having told of it."""

    def fetch(self, conversation_id: str, token: int, after: int) -> tuple[InboxEntry, ...]:
        entries = super().fetch(conversation_id, token, after)
        self.write(
            conversation_id, token, StateChanges(closed={each.seq: "done" for each in entries if each.kind == "stop"})
        )
        return tuple(each for each in entries if each.kind != "stop")


class ForgetsRuns(RunTable):
    """Has no run for whoever takes a conversation up."""

    def claim(self, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
        claim = super().claim(conversation_id, owner, lease_s)
        if claim is not None and claim.run is not None:
            self.conversations[conversation_id].run = None
        return claim and replace(claim, run=None, posts={})


class ForgetsPosts(RunTable):
    """Takes what was to be posted for posted."""

    def claim(self, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
        claim = super().claim(conversation_id, owner, lease_s)
        return claim and replace(claim, posts=dict.fromkeys(claim.posts, ""))


class ForgetsWhatIsHeld(RunTable):
    """What a stop held back starts a run by itself."""

    def claim(self, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
        claim = super().claim(conversation_id, owner, lease_s)
        return claim and replace(claim, held_seq=0)

    def due(self, workspace: str, most: int) -> list[str]:
        names = [name for name, found in self.conversations.items() if found.waiting and self.owner_of(found) is None]
        return names[:most]


class NothingIsDue(RunTable):
    """Tells nobody of what nobody looks after."""

    def due(self, workspace: str, most: int) -> list[str]:
        return []


class NobodyIsTold(RunTable):
    """Neither wakes an owner, nor says at a renewal that there is news, nor keeps what is let go of."""

    def renew(self, conversation_id: str, token: int, lease_s: float) -> int:
        super().renew(conversation_id, token, lease_s)
        return 0

    def release(self, conversation_id: str, token: int, seen: int) -> bool:
        return super().release(conversation_id, token, 10**9)

    def due(self, workspace: str, most: int) -> list[str]:
        return []

    def _tell(self, owner: str, *conversation_ids: str) -> None:
        """Nobody is told."""


class KeepsLeases(RunTable):
    """Takes no lease back."""

    def release(self, conversation_id: str, token: int, seen: int) -> bool:
        self._owned(conversation_id, token).expires_s = 10**9
        return True


class GivesAwayLeases(RunTable):
    """Gives a conversation to whoever asks, and lets everybody write."""

    def claim(self, conversation_id: str, owner: str, lease_s: float) -> Claim | None:
        self.conversations.setdefault(conversation_id, Conversation()).owner = owner
        return super().claim(conversation_id, owner, lease_s)

    def due(self, workspace: str, most: int) -> list[str]:
        return [name for name, found in self.conversations.items() if found.has_something_to_do][:most]

    def _owned(self, conversation_id: str, token: int) -> Conversation:
        return self.conversations[conversation_id]


class StopsAnybody(RunTable):
    """Forgets which run a stop was meant for."""

    def admit(self, conversation_id: str, entry: InboxEntry, agent: str | None) -> Admission:
        if entry.kind == "stop":
            data = {name: value for name, value in entry.data.items() if name not in ("ts", "run")}
            entry = replace(entry, data=data)
        return super().admit(conversation_id, entry, agent)


class RefusesSome(RunTable):
    """Takes messages for refused that were delivered."""

    def write(self, conversation_id: str, token: int, changes: StateChanges) -> None:
        closed = {seq: end or "refused" for seq, end in changes.closed.items()}
        super().write(conversation_id, token, replace(changes, closed=closed))


class ForgetsWhatIsLeft(RunTable):
    """Keeps nothing of what is still to be taken away, or to be said, when a run is over."""

    def write(self, conversation_id: str, token: int, changes: StateChanges) -> None:
        is_over = changes.run is not None and "id" not in changes.run
        super().write(conversation_id, token, replace(changes, run={}) if is_over else changes)


class ForgetsEnds(RunTable):
    """Does not keep that a run is over."""

    def write(self, conversation_id: str, token: int, changes: StateChanges) -> None:
        run = {name: value for name, value in (changes.run or {}).items() if name not in ("failed", "is_over")}
        super().write(conversation_id, token, replace(changes, run=run) if run else changes)


class ForgetsToHold(RunTable):
    """Does not keep what a stop holds back."""

    def write(self, conversation_id: str, token: int, changes: StateChanges) -> None:
        is_of_a_stop = any(end == "done" for end in changes.closed.values())
        super().write(conversation_id, token, replace(changes, held_seq=None) if is_of_a_stop else changes)


class StopsWhatIsHeld(RunTable):
    """Takes a message that was held back for what a stop means."""

    def write(self, conversation_id: str, token: int, changes: StateChanges) -> None:
        run = self.conversations[conversation_id].run or {}
        first = run.get("first", {}).get("seq", 0)
        if run.get("stopped_by") is not None and changes.deletes_posts and first not in changes.closed:
            changes = replace(changes, closed={**changes.closed, first: "withdrawn"})
        super().write(conversation_id, token, changes)


class StopsAtAnyTime(RunTable):
    """Forgets when a stop was written."""

    def admit(self, conversation_id: str, entry: InboxEntry, agent: str | None) -> Admission:
        if entry.kind == "stop":
            entry = replace(entry, data={**entry.data, "at": "9999999999.000000"})
        return super().admit(conversation_id, entry, agent)
