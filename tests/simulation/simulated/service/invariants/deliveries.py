"""Whether each message has come to one end, and in order."""

from __future__ import annotations

from itertools import combinations
from math import inf
from typing import TYPE_CHECKING

from simulated.service.slack import BOT, CHANNEL, TEAM, time_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from simulated.service.events import Delivery
    from simulated.service.people import Written

    from .evidence import Evidence

# What is there to be read waits so long for older messages of a thread that is being read.
_OLDER_FIRST_S = 30.0


def conservation(case: Evidence) -> Iterator[str]:
    """Accepted = delivered + withdrawn + refused + still waiting, and each message is one of these."""
    for written in case.written:
        if not written.is_stop and (written.id in case.seqs or case.is_for_us(written)):
            yield from _of_message(case, written)
    for entry_id in case.known.order:
        if (times := case.times_delivered(entry_id)) > 1:
            yield f"{entry_id} stands in {times} rows."
        if case.known.ends.get(entry_id) == "" and not times:
            yield f"{entry_id} counts as delivered, and stands in no row."


def kept(case: Evidence, *, are_reactions_kept: bool) -> Iterator[str]:
    """What people did is kept once Slack was told that it is: not messages only."""
    for written in case.written:
        if written.is_stop and written.is_acked and case.is_for_us(written) and written.id not in case.seqs:
            yield f"The stop {written.id} was acknowledged and is lost."
        is_deleted = written.deletion is not None and written.deletion.is_acked and not _was_never_here(case, written)
        if is_deleted and f"{written.id}:deleted" not in case.seqs:
            yield f"The deletion of {written.word} was acknowledged and is lost."
        for version, delivery in enumerate(written.edits, 2):
            is_in_message = _is_before(delivery, case, written.id)
            entry_id = f"{written.id}:edit:{delivery.event['event_ts']}"
            if delivery.is_acked and entry_id not in case.seqs and not is_in_message:
                yield f"Version {version} of {written.word} was acknowledged and is lost."
    for reaction in case.reactions if are_reactions_kept else ():
        # Of a message that nobody had accepted, nobody knows that it is to an agent; a status goes with its run.
        accepted_s = case.accepted_s.get(f"{TEAM}:{CHANNEL}:{reaction.message.ts}", float("inf"))
        is_known = not reaction.message.is_deleted and accepted_s < reaction.made_s
        if is_known and reaction.told.is_acked and reaction.id not in case.seqs:
            yield f"The ❌ {reaction.id} was acknowledged and is lost."


def _of_message(case: Evidence, written: Written) -> Iterator[str]:
    name, end, times = (
        f"{written.word} ({written.id})",
        case.known.ends.get(written.id),
        case.times_delivered(written.id),
    )
    if written.id not in case.seqs:
        if written.is_acked and not _was_never_here(case, written):
            yield f"{name} was acknowledged and is lost."
        if times:
            yield f"{name} was read, and never accepted."
        return
    ends = [bool(times), end == "withdrawn", end == "refused", written.id in case.waiting]
    if sum(ends) != 1:
        named = dict(zip(("delivered", "withdrawn", "refused", "waiting"), ends, strict=True))
        yield f"{name} is to have one end, and has these: {', '.join(k for k, v in named.items() if v) or 'none'}."
    if end == "withdrawn" and written.deletion is None and not _was_stopped(case):
        yield f"{name} was withdrawn by nobody."
    if written.id in case.waiting and case.seqs[written.id] > case.known.held_seq:
        yield f"{name} waits, and nothing holds it."
    if written.id in case.waiting and not _was_stopped(case):
        yield f"{name} is held, and nobody stopped anything."


def _is_before(delivery: Delivery, case: Evidence, entry_id: str) -> bool:
    """Whether Slack was told that an event is kept before an entry was accepted."""
    return delivery.acked_s is not None and delivery.acked_s < case.accepted_s.get(entry_id, 0.0)


def _was_never_here(case: Evidence, written: Written) -> bool:
    """Whether its author deleted a message before it was known that it is to an agent."""
    calls = [each.id for each in _calls(case) if each.message.made_s <= written.message.made_s]
    called = min(calls, key=case.seqs.__getitem__, default="")
    return written.id not in case.seqs and written.deletion is not None and _is_before(written.deletion, case, called)


def _calls(case: Evidence) -> list[Written]:
    """The messages that call an agent, of those that were accepted."""
    return [each for each in case.written if each.id in case.seqs and (each.is_mention or not each.begun_without_us)]


def _was_stopped(case: Evidence) -> bool:
    deleted = any(written.deletion is not None for written in case.written)  # that of a first message is a stop
    return deleted or bool(case.reactions) or any(written.is_stop for written in case.written)


def order(case: Evidence) -> Iterator[str]:
    """Each agent reads in the order of writing what was there to be read; in a thread of others, from a mention on."""
    in_order = sorted((each for each in case.written if each.id in case.seqs), key=lambda each: case.seqs[each.id])
    if in_order and in_order[0].begun_without_us and f"<@{BOT}>" not in in_order[0].message.text:
        yield f"{in_order[0].word} was accepted before any mention of the agent."
    ours = [each for each in case.written if case.is_for_us(each)]
    acked_s = {each.id: each.acked_s for each in ours}
    made_s = {each.id: each.message.made_s for each in ours}
    for each in ours:
        edits = [edit for edit in _edits_of(case, each) if edit[1] != each.id]
        made_s |= {entry_id: time_of(delivery.event["event_ts"]) for _, entry_id, delivery in edits}
    for agent, ids in case.delivered.items():
        for one, other in combinations([each for each in ids if each in made_s], 2):
            if made_s[one] <= made_s[other]:
                continue
            if case.seqs[other] < case.seqs[one]:
                yield f"{agent} has read {one} before {other}, which was written and accepted earlier."
            elif acked_s.get(other, inf) < made_s[one] and _was_to_come_first(case, other, one, made_s[other]):
                yield f"{agent} has read {one} before {other}, which was acknowledged when it was written."


def _was_to_come_first(case: Evidence, older: str, newer: str, older_s: float) -> bool:
    """Whether it was known that what was written then is to an agent, and its thread could be read in time."""
    calls = [each.id for each in _calls(case) if each.message.made_s <= older_s]
    called = min(calls, key=case.seqs.__getitem__, default=newer)
    is_in_time = case.accepted_s[older] - case.accepted_s[called] < _OLDER_FIRST_S
    urgent = (each.id for each in case.written if each.message.text.startswith("!"))
    is_hurried = any(case.seqs[called] < case.seqs.get(each, inf) < case.seqs[older] for each in urgent)
    return case.seqs[called] < case.seqs[newer] and is_in_time and not is_hurried


def latest(case: Evidence) -> Iterator[str]:
    """What an agent knows of a message is its last version, or that it was taken back."""
    for written in case.written:
        if written.is_stop or not case.times_delivered(written.id):
            continue
        deletion, read = f"{written.id}:deleted", case.last_version(written.word)
        edits = (each[:2] for each in _edits_of(case, written))
        version, edit = max(edits, default=(1, written.id))
        # A stop that met a correction has held it, or taken it along.
        is_stopped = edit in case.waiting or case.known.ends.get(edit) in ("withdrawn", "refused")
        if read != version and not is_stopped and deletion not in case.seqs:
            yield f"Of {written.word} the agent knows version {read}; {version} is the last that was accepted."
        if deletion in case.seqs and not _heard_of(case, deletion) and not _began_a_run(case, written):
            yield f"{written.word} was read, then taken back, and the agent does not know."


def _edits_of(case: Evidence, written: Written) -> list[tuple[int, str, Delivery]]:
    """The accepted edits of a message: the version, the id of the entry, and how people's words came to us."""
    found = []
    for number, delivery in enumerate(written.edits, 2):
        entry_id = f"{written.id}:edit:{delivery.event['event_ts']}"
        if entry_id in case.seqs:
            found.append((number, entry_id, delivery))
        elif _is_before(delivery, case, written.id):
            found.append((number, written.id, delivery))
    return found


def _heard_of(case: Evidence, entry_id: str) -> bool:
    was_stopped = case.known.ends.get(entry_id) in ("withdrawn", "refused")
    return bool(case.times_delivered(entry_id)) or entry_id in case.waiting or was_stopped


def _began_a_run(case: Evidence, written: Written) -> bool:
    prompts = (row.get("metadata", {}).get("message") for rows in case.rows.values() for row in rows)
    return written.id in prompts
