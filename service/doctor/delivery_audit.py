"""Audit of the stores: each accepted message must be delivered, withdrawn, refused or pending, exactly once."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import reduce
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.errors import DamagedLog
from orchestrator_interactive.interactions.records import Key
from service.sessions.logged_ids import LoggedIds, logged_ids
from service.store.base import workspace_of
from service.tables import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator_interactive.interactions.stores import LogStore
    from service.store.base import ConversationRecord, RunStore

# Number of times a conversation with violations is read, since a running service may change it between the reads.
_LOOKS = 3
# Maximum number of damaged states that a violation lists.
_NAMED = 5
_ENDS = ("delivered", "withdrawn", "refused", "waiting")
# Name of a message's final state in the audit, by its `end` in the inbox.
_COUNTED_AS = {"": "delivered", "withdrawn": "withdrawn", "refused": "refused"}


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of an audit.

    Args:
        accepted: messages ever admitted to an inbox, the sum of the next four.
        runs_on: runs that have started and not ended.
        leases: conversations with a valid lease.
        unowned: conversations with pending work and no owner; a service of their workspace must take them over.
        posts_pending: posts pending in the outbox.
        unchecked: conversations without a log, whose deliveries cannot be checked.
    """

    conversations: int = 0
    accepted: int = 0
    delivered: int = 0
    withdrawn: int = 0
    refused: int = 0
    waiting: int = 0
    runs_on: int = 0
    leases: int = 0
    unowned: int = 0
    posts_pending: int = 0
    unchecked: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Tally)))


@dataclass(frozen=True, slots=True)
class DeliveryAudit:
    """The result of an audit: the tallies by workspace id, and each violation as a sentence."""

    workspaces: Mapping[str, Tally] = field(default_factory=dict)
    violations: tuple[str, ...] = ()

    @property
    def tally(self) -> Tally:
        """The sum over all workspaces."""
        return sum(self.workspaces.values(), Tally())

    @property
    def holds(self) -> bool:
        return not self.violations

    def __add__(self, other: DeliveryAudit) -> DeliveryAudit:
        tallies = {name: self.workspaces.get(name, Tally()) + tally for name, tally in other.workspaces.items()}
        return DeliveryAudit({**self.workspaces, **tallies}, self.violations + other.violations)


async def check(runs: RunStore, logs: LogStore) -> DeliveryAudit:
    """Audit every conversation in the stores. Read-only; the service may be running.

    Raises:
        StoreError: a store cannot be used.
    """
    keys: dict[str, list[Key]] = {}
    for key in await logs.keys():
        keys.setdefault(key.conversation_id, []).append(key)
    found = [await _audited(place, runs, logs, keys.get(place, [])) for place in await runs.conversations()]
    orphans = tuple(
        f"entry {name} is in the inbox of a conversation that does not exist." for name in await runs.orphans()
    )
    return reduce(DeliveryAudit.__add__, found, DeliveryAudit(violations=orphans))


async def _audited(conversation_id: str, runs: RunStore, logs: LogStore, keys: Sequence[Key]) -> DeliveryAudit:
    found = DeliveryAudit()
    for _ in range(_LOOKS):
        # Read the inbox first: an entry that is closed as delivered there is already in the log.
        try:
            record = await runs.record(conversation_id)
            if record is None:
                return DeliveryAudit()
            # The log of the conversation's agent may have been created since the logs were listed.
            now = [Key(conversation_id, record.agent)] if record.agent else []
            read = {key.agent_id: await logged_ids(logs, key) for key in dict.fromkeys([*keys, *now])}
        except DamagedLog as e:
            return DeliveryAudit({workspace_of(conversation_id): Tally(conversations=1)}, (str(e),))
        found = _audit(conversation_id, record, {agent: each for agent, each in read.items() if each is not None})
        if found.holds:
            break
    return found


def _audit(conversation_id: str, record: ConversationRecord, logs: Mapping[str, LoggedIds]) -> DeliveryAudit:
    # The ids of the entries that are messages, in the order of acceptance.
    others = {entry.id for entry in record.waiting if entry.kind != "message"}
    messages = [id_ for id_ in record.order if id_ not in others and record.ends.get(id_) != "done"]
    # A message to one agent may be talk for another. An agent may read talk after later messages.
    talk = frozenset(id_ for log in logs.values() for id_ in log.talk)
    logged = Counter(id_ for log in logs.values() for id_ in log.every - log.talk)
    is_whole = bool(logs) and all(log.is_whole for log in logs.values())
    waiting = {entry.id for entry in record.waiting}
    ends = {
        id_: _end_of(
            end := record.ends.get(id_), id_ in logged or (end == "" and id_ in talk), id_ in waiting, is_whole=is_whole
        )
        for id_ in messages
    }
    wrong = [f"message {id_} {end}" for id_, end in ends.items() if end not in _ENDS]
    wrong += [f"message {id_} is both pending and finished." for id_ in messages if id_ in waiting & record.ends.keys()]
    wrong += [f"message {id_} is in the logs of {count} agents." for id_, count in logged.items() if count > 1]
    place = {id_: number for number, id_ in enumerate(record.order)}
    for agent, log in logs.items():
        wrong += _log_violations(agent, log, {id_: number for id_, number in place.items() if id_ not in log.talk})
    wrong += _inconsistencies(record)
    # The messages whose ids have expired, by final state.
    closed = Counter(record.ends.values())
    expired = +Counter({name: record.count.left.get(end, 0) - closed[end] for end, name in _COUNTED_AS.items()})
    counts = Counter(ends.values()) + expired
    tally = Tally(
        conversations=1,
        accepted=len(messages) + expired.total(),
        **{end: counts[end] for end in _ENDS},
        runs_on=int(record.has_run),
        leases=int(record.is_owned),
        unowned=int(record.has_something_to_do and not record.is_owned),
        posts_pending=record.posts,
        unchecked=int(not logs and counts["delivered"] > 0),
    )
    violations = tuple(f"{conversation_id}: {each}" for each in wrong)
    return DeliveryAudit({workspace_of(conversation_id): tally}, violations)


def _end_of(end: str | None, is_logged: bool, is_waiting: bool, *, is_whole: bool) -> str:
    """Return a message's state, one of `_ENDS`, or a description of the violation.

    `end` is how the message left the inbox, if it did. An incomplete log may have contained the message.
    """
    match end:
        case "withdrawn" | "refused":
            return f"was {end}, but is in the log." if is_logged else end
        case _ if is_logged or (end is not None and not is_whole):
            return "delivered"
        case None if is_waiting:
            return "waiting"
        case None:
            return "was accepted and is lost: neither in the log, withdrawn, refused nor pending."
    return "left the inbox as delivered, but is not in the log."


def _log_violations(agent: str, log: LoggedIds, place: dict[str, int]) -> Iterator[str]:
    """Describe violations in one log. A violation on several branches is reported once."""
    for branch, states in log.damaged.items():
        some = ", ".join(map(str, states[:_NAMED])) + (" and more" if len(states) > _NAMED else "")
        yield f"in the log of {agent}, branch {branch}, {counted(len(states), 'state')} cannot be read: {some}."
    yield from dict.fromkeys(each for ids in log.branches.values() for each in _branch_violations(ids, place))


def _branch_violations(ids: Sequence[str], place: dict[str, int]) -> Iterator[str]:
    for id_, count in Counter(ids).items():
        if count > 1:
            yield f"message {id_} is in the log {count} times."
    # Delivered messages that could be out of order: no later one was both written and accepted later.
    latest: dict[str, tuple[float, int]] = {}
    for id_ in ids:
        if id_ not in place or (written_s := time_of(id_)) is None:
            continue
        early = (one for one, (one_s, one_place) in latest.items() if written_s < one_s and place[id_] < one_place)
        if (one := next(early, None)) is not None:
            yield f"message {id_} was delivered after {one}, and was written and accepted before it."
            continue
        latest = {one: (s, n) for one, (s, n) in latest.items() if s > written_s or n > place[id_]}
        latest[id_] = (written_s, place[id_])


def time_of(message_id: str) -> float | None:
    """Return when a message was written or edited (seconds since the epoch); `None` if its id has no timestamp."""
    match message_id.split(":"):
        case [_team, _channel, ts] | [_team, _channel, _, "edit", ts]:
            with suppress(ValueError):
                return float(ts)
    return None


def _inconsistencies(record: ConversationRecord) -> Iterator[str]:
    """Describe each inconsistency in a sentence."""
    count, total = record.count, len(record.waiting) + sum(record.count.left.values())
    if total != count.accepted:
        yield f"its inbox has accepted {count.accepted} entries, but {total} are pending or finished."
    elif len(record.order) + count.forgotten != count.accepted:
        yield (
            f"its inbox has accepted {count.accepted} entries, but it has the ids of {len(record.order)}, and "
            f"{count.forgotten} have expired."
        )
    if record.held_seq > count.accepted:
        yield (
            f"messages up to number {record.held_seq} are held back, but only {count.accepted} were accepted: new "
            "messages start no run."
        )
    if record.posts and not record.has_run:
        yield f"{counted(record.posts, 'post')} pending in the outbox without a run."
    if record.is_overlooked:
        yield "it has pending work, but is missing from the index of due conversations: no process will resume it."
    yield from (f"{problem}." for problem in record.damaged)
