"""Whether every message that people wrote has come to exactly one end, as the two stores tell it."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import reduce
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.errors import DamagedLog
from orchestrator_interactive.interactions.records import Key
from service.doctor import inbox_counts as inbox
from service.sessions.logged_ids import LoggedIds, logged_ids
from service.store.base import workspace_of
from service.tables import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from orchestrator_interactive.interactions.stores.base import LogStore
    from service.store.base import ConversationRecord, RunStore

# How often a conversation is looked at in which something seems to be wrong: people may just be writing there.
_LOOKS = 3
# Of damaged states, so many are named.
_NAMED = 5
_ENDS = ("delivered", "withdrawn", "refused", "waiting")


@dataclass(frozen=True, slots=True)
class Tally:
    """How many there are of what.

    Args:
        accepted: messages that were ever kept in an inbox; the next four are where they are now. Those that left one in
            the time of a version that did not count them are not among them once their ids are forgotten.
        runs_on: runs that have begun and not come to their end.
        leases: conversations that a process owns now.
        unowned: conversations that have something to do and no owner: they wait for a service of their workspace.
        posts_pending: texts that are still to be posted.
        unchecked: conversations whose log is gone, or was never kept: nobody can tell what was delivered there.
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
    """The result of a check: the tally of each workspace by its id, and each violation as a sentence."""

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
    """Look at every conversation that is known. Nothing is changed, and the service may run meanwhile.

    Raises:
        StoreError: a store cannot be used.
    """
    keys: dict[str, list[Key]] = {}
    for key in await logs.keys():
        keys.setdefault(key.conversation_id, []).append(key)
    found = [await _looked_at(place, runs, logs, keys.get(place, [])) for place in await runs.conversations()]
    strays = tuple(f"entry {name} is in the inbox of a conversation that is not there." for name in await runs.strays())
    return reduce(DeliveryAudit.__add__, found, DeliveryAudit(violations=strays))


async def _looked_at(conversation_id: str, runs: RunStore, logs: LogStore, keys: Sequence[Key]) -> DeliveryAudit:
    found = DeliveryAudit()
    for _ in range(_LOOKS):
        # The inbox first: what it says of the log was true by then.
        try:
            known = await runs.known(conversation_id)
            if known is None:
                return DeliveryAudit()
            read = {key.agent_id: await logged_ids(logs, key) for key in _with_agent(conversation_id, keys, known)}
        except DamagedLog as e:
            return DeliveryAudit({workspace_of(conversation_id): Tally(conversations=1)}, (str(e),))
        found = _judged(conversation_id, known, {agent: each for agent, each in read.items() if each is not None})
        if found.holds:
            break
    return found


def _judged(conversation_id: str, known: ConversationRecord, logs: Mapping[str, LoggedIds]) -> DeliveryAudit:
    messages = _messages(known)
    logged = Counter(id_ for log in logs.values() for id_ in log.every)
    is_whole = bool(logs) and all(log.is_whole for log in logs.values())
    waiting = {entry.id for entry in known.waiting}
    ends = {id_: _end_of(known.ends.get(id_), id_ in logged, id_ in waiting, is_whole=is_whole) for id_ in messages}
    wrong = [f"message {id_} {end}" for id_, end in ends.items() if end not in _ENDS]
    wrong += [
        f"message {id_} waits, and has come to its end." for id_ in messages if id_ in waiting & known.ends.keys()
    ]
    wrong += [f"message {id_} stands in the logs of {count} agents." for id_, count in logged.items() if count > 1]
    place = {id_: number for number, id_ in enumerate(known.order)}
    for agent, log in logs.items():
        wrong += _wrong_in(agent, log, place)
    wrong += inbox.wrong_in(known)
    counts = Counter(ends.values()) + inbox.forgotten_messages(known)
    tally = Tally(
        conversations=1,
        accepted=len(messages) + inbox.forgotten_messages(known).total(),
        **{end: counts[end] for end in _ENDS},
        runs_on=int(known.has_run),
        leases=int(known.is_owned),
        unowned=int(known.has_something_to_do and not known.is_owned),
        posts_pending=known.posts,
        unchecked=int(not logs and counts["delivered"] > 0),
    )
    violations = tuple(f"{conversation_id}: {each}" for each in wrong)
    return DeliveryAudit({workspace_of(conversation_id): tally}, violations)


def _end_of(end: str | None, is_logged: bool, is_waiting: bool, *, is_whole: bool) -> str:
    """Where a message is now, one of the known ends; else what is wrong with it.

    `end` is how it left the inbox, if it did. A log that is not whole may have had it.
    """
    match end:
        case "withdrawn" | "refused":
            return f"was {end}, and stands in the log all the same." if is_logged else end
        case _ if is_logged or (end is not None and not is_whole):
            return "delivered"
        case None if is_waiting:
            return "waiting"
        case None:
            return "was accepted and is nowhere: not in the log, not withdrawn, not refused, and it does not wait."
    return "left the inbox as delivered, and is not in the log."


def _wrong_in(agent: str, log: LoggedIds, place: dict[str, int]) -> Iterator[str]:
    """What is wrong with the branches of one log; each thing is said once, of however many branches it is true."""
    for branch, states in log.damaged.items():
        some = ", ".join(map(str, states[:_NAMED])) + (" and more" if len(states) > _NAMED else "")
        yield f"in the log of {agent}, branch {branch}, {counted(len(states), 'state')} cannot be read: {some}."
    yield from dict.fromkeys(each for ids in log.branches.values() for each in _wrong_on(ids, place))


def _wrong_on(ids: Sequence[str], place: dict[str, int]) -> Iterator[str]:
    for id_, count in Counter(ids).items():
        if count > 1:
            yield f"message {id_} stands in the log {count} times."
    # What may have come too early: nothing that came later was both written and accepted later.
    latest: dict[str, tuple[float, int]] = {}
    for id_ in ids:
        if id_ not in place or (written_s := _written_s(id_)) is None:
            continue
        early = (one for one, (one_s, one_place) in latest.items() if written_s < one_s and place[id_] < one_place)
        if (one := next(early, None)) is not None:
            yield f"message {id_} was delivered after {one}, and was written and accepted before it."
            continue
        latest = {one: (s, n) for one, (s, n) in latest.items() if s > written_s or n > place[id_]}
        latest[id_] = (written_s, place[id_])


def _written_s(message_id: str) -> float | None:
    """When a message was written or changed, in seconds since the epoch; `None`: its id does not tell."""
    match message_id.split(":"):
        case [_team, _channel, ts] | [_team, _channel, _, "edit", ts]:
            with suppress(ValueError):
                return float(ts)
    return None


def _messages(known: ConversationRecord) -> list[str]:
    """The ids of the messages among the entries, in the order of acceptance."""
    others = {entry.id for entry in known.waiting if entry.kind != "message"}
    return [id_ for id_ in known.order if id_ not in others and known.ends.get(id_) != "done"]


def _with_agent(conversation_id: str, keys: Iterable[Key], known: ConversationRecord) -> list[Key]:
    """The logs of a conversation; one may have come to be since they were listed."""
    now = [Key(conversation_id, known.agent)] if known.agent else []
    return list(dict.fromkeys([*keys, *now]))
