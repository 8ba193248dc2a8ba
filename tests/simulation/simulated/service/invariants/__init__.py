"""The invariants of the service, checked at the end of each schedule. Each is a function that yields violations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

from simulated.service.notes import ReportedNote
from simulated.service.people import People
from simulated.service.schedules import MadeSchedule
from simulated.service.slack import SlackMessage

from . import approvals, budgets, deliveries, files, notes, runs, schedules, thread, workers
from .evidence import Evidence, rows_of, run_ends_of, states_of

# Faults that delay a process or its reactions: a reaction may be missing, and a stop takes longer.
DELAYS = frozenset(
    {
        *("kills", "pauses", "terminations", "store outages", "failing Slack", "flaky store", "slow store"),
        *("slow Slack", "low rate limits", "Slack outages", "no look-ups"),
    }
)
# Faults with which the name of a user may be unknown.
_SLACK_FAULTS = frozenset({"failing Slack", "Slack outages", "slow Slack", "low rate limits"})
# An accepted message is in the queue of a run after this time; names are looked up first.
_HANDED_ON_S = 1.0
# A store or process that does not go on within two seconds keeps the end of a stopped run from the log.
_LATE_ENDS = frozenset({"store outages", "slow store", "flaky store", "pauses"})
# With these a process may end before it has settled a call, or the store may not take it.
_UNSETTLED = frozenset({"kills", "terminations", "pauses", "store outages", "flaky store", "slow store"})
_PROCESS_FAULTS = frozenset({"kills", "terminations", "pauses"})

__all__ = ["DELAYS", "check_conversations"]


async def check_conversations(
    environment: Any, people: People, reported: Sequence[ReportedNote], made: Sequence[MadeSchedule]
) -> None:
    answers = 0
    for conversation_id in dict.fromkeys(written.conversation for written in people.written):
        case = await _evidence(conversation_id, environment, people, reported)
        if case is not None:
            answers += budgets.answers_in(case)
            here = [each for each in made if each.id and each.conversation == conversation_id]
            for sentence in (*_check_conversation(case, environment, people), *_check_schedules(case, here)):
                environment.sim.violation(sentence)
        else:
            mine = (written for written in people.written if written.conversation == conversation_id)
            if any(written.is_acked and written.is_mention for written in mine):
                environment.sim.violation(f"All of {conversation_id} is lost.")
    found = await workers.found(environment)
    for worker in found:
        ids = worker.conversation_id, worker.thread
        case, parent = [await _evidence(each, environment, people, ()) for each in ids]
        answers += 0 if case is None else budgets.answers_in(case)
        for sentence in _check_worker(worker, case, parent, environment):
            environment.sim.violation(sentence)
    account = (await environment.stores.documents("budget:T1:workspace:")).get("month:tokens")
    for sentence in (*_check_all(environment, found), *_check_budget(environment, answers, account)):
        environment.sim.violation(sentence)


def _check_budget(environment: Any, answers: int, account: Any) -> Iterator[str]:
    yield from budgets.every_answer_counts(answers, account)
    yield from budgets.nothing_is_held(account, is_faulty=not _UNSETTLED.isdisjoint(environment.sim.features))


def _check_worker(
    worker: workers.FoundWorker, case: Evidence | None, parent: Evidence | None, environment: Any
) -> Iterator[str]:
    if case is None or parent is None or not workers.is_ordered(worker, case):
        yield from workers.not_begun(worker, parent)
        return
    yield from thread.remains(case)
    if case.has_thread:
        yield from thread.texts(case)
        yield from thread.keys(case)
        yield from thread.looked_up(case)
        yield from thread.owners(case)
    yield from workers.runs_once(worker, case)
    yield from workers.reports_once(worker, case, parent)
    yield from workers.stopped_with_its_run(worker, case, environment)


def _check_schedules(case: Evidence, made: Sequence[MadeSchedule]) -> Iterator[str]:
    yield from schedules.fired_once(case, made)
    if case.has_thread:
        yield from schedules.shown_once(case, made)


def _check_conversation(case: Evidence, environment: Any, people: People) -> Iterator[str]:
    features = environment.sim.features
    is_delayed = not DELAYS.isdisjoint(features)
    # A process that ends while it still looks up the thread of a reaction loses it.
    are_reactions_kept = _PROCESS_FAULTS.isdisjoint(features)
    yield from deliveries.conservation(case)
    yield from deliveries.talk(case, environment.participation)
    yield from deliveries.steering(case, environment.participation, people.clicks)
    if not case.is_muted:  # a command counts as a message
        yield from deliveries.exchanges(case, most=2)
    yield from deliveries.kept(case, are_reactions_kept=are_reactions_kept)
    yield from deliveries.order(case, within_s=inf if is_delayed or "short queue" in features else _HANDED_ON_S)
    yield from deliveries.overtaken(case, within_s=60.0 if is_delayed else _HANDED_ON_S)
    yield from deliveries.crossed_out(case, within_s=60.0 if is_delayed else _HANDED_ON_S)
    may_miss_early = "replicas" in features and ("no look-ups" in features or case.is_muted)
    yield from deliveries.latest(case, may_miss_early=may_miss_early)
    yield from files.read_with_message(case, may_be_late="urgent steers" in features)
    if "pauses" not in features:  # a paused process may store a file after the next owner has removed it
        yield from files.gone(case, environment.files.stored)
    yield from runs.recorded_ends(case, may_lack_last=not _LATE_ENDS.isdisjoint(features))
    yield from thread.remains(case)
    if case.has_thread:
        yield from thread.texts(case)
        yield from thread.keys(case)
        yield from notes.shown(case)
        yield from thread.looked_up(case)
        yield from thread.owners(case)
        yield from runs.endings(case)
        yield from runs.notices(case, are_users_named=(_SLACK_FAULTS | {"pauses"}).isdisjoint(features))
        yield from runs.summaries(case)
        yield from runs.unknown(case)
        yield from deliveries.held(case)
        yield from deliveries.idle_stops(case, environment.observer.idle_stops)
        yield from deliveries.stopped_before_read(case)
        yield from deliveries.refusals(case)
        yield from approvals.settled(case)
        yield from approvals.asked_once(case)
    if not is_delayed:
        yield from thread.marks(case)
    yield from notes.read(case, within_s=60.0 if is_delayed else 3.0)
    yield from runs.stopped(case)
    yield from runs.held_first(case)
    yield from runs.stops_heeded(case, within_s=60.0 if is_delayed else 3.0)


def _check_all(environment: Any, found: list[workers.FoundWorker]) -> Iterator[str]:
    yield from workers.one_for_each_call(found)
    yield from thread.strays(environment.slack)
    yield from files.shared_once(environment.slack, environment.agents.shared)
    yield from runs.fencing(environment.observer.commits)
    yield from runs.repeated(environment.agents.tool_calls)
    yield from approvals.approved(environment)


async def _evidence(
    conversation_id: str, environment: Any, people: People, reported: Sequence[ReportedNote]
) -> Evidence | None:
    observer, slack = environment.observer, environment.slack
    record = (await environment.stores.records()).get(conversation_id)
    if record is None:
        return None
    root, worker = conversation_id.split(":")[2], ":".join(conversation_id.split(":")[3:])
    runs_by_message: dict[str, list[str]] = defaultdict(list)
    for run in observer.runs.values():
        runs_by_message[run.first].append(run.id)
    logs = environment.stores.logs
    agents = [key.agent_id for key in await logs.keys() if key.conversation_id == conversation_id]
    states = {agent: await states_of(logs, conversation_id, agent) for agent in agents}
    claims_s: dict[int, list[float]] = defaultdict(list)
    for (claimed, process), times_s in observer.claims_s.items():
        claims_s[process] += times_s if claimed == conversation_id else []

    def is_of_conversation(post: SlackMessage) -> bool:
        """Return whether it is a post of this conversation; files have no key, but a name."""
        sharers = {each for each, name in environment.agents.shared for file in post.files if name == file["name"]}
        return conversation_id in sharers if sharers else workers.is_post_of(worker, post)

    return Evidence(
        id=conversation_id,
        record=record,
        rows={agent: rows_of(each) for agent, each in states.items()},
        run_ends={agent: run_ends_of(each) for agent, each in states.items()},
        written=[written for written in people.written if written.conversation == conversation_id],
        reactions=[each for each in people.reactions if each.message.thread_ts == root],
        accepted_s=observer.admitted_s,
        read_s=observer.read_s,
        posts=[post for post in slack.thread(root) if is_of_conversation(post)],
        all_posts=[post for post in slack.messages.values() if post.thread_ts == root and is_of_conversation(post)],
        has_thread=slack.has_thread(root),
        runs_by_message=runs_by_message,
        claims_s=claims_s,
        executed={each.call for each in environment.agents.tool_calls if each.conversation == conversation_id},
        observed=[run for run in observer.runs.values() if run.conversation == conversation_id],
        notes=[each for each in reported if each.conversation == conversation_id],
        is_muted=root in people.muted,
        all_may_steer=environment.participation.steerers != "owner" and not environment.participation.asks_consent,
    )
