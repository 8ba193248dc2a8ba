"""Invariants of workers: their reports, and their ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

from connector.events import WORKER_ID, worker_of_run
from orchestrator_interactive.transcript.rows import delivered_ids_in
from service.store.base import thread_of
from simulated.service.slack import BOT, SlackMessage

from .evidence import Evidence


@dataclass(frozen=True)
class FoundWorker:
    """A worker as the store has it: its document, or its conversation without one (`data` is empty)."""

    conversation_id: str
    data: dict[str, Any]

    @property
    def id(self) -> str:
        return self.conversation_id.rpartition(":")[2]

    @property
    def order(self) -> str:
        return f"{':'.join(self.thread.split(':')[:2])}::{self.id}.order"

    @property
    def thread(self) -> str:
        return self.conversation_id.rpartition(":")[0]


def is_post_of(worker: str, post: SlackMessage) -> bool:
    """Return whether the bot posted a message for this worker; blank: for none."""
    by = post.key.split(":")[0]
    of_notice = next((part for part in post.key.split(":") if WORKER_ID.fullmatch(part[:7])), "")[:7]
    return post.user == BOT and (worker_of_run(by) or of_notice) == worker


async def found(environment: Any) -> list[FoundWorker]:
    records = await environment.stores.records()
    documents: dict[str, dict[str, Any]] = {}
    for thread_id in dict.fromkeys(map(thread_of, records)):
        of_thread = await environment.stores.documents(f"workers:{thread_id}")
        documents |= {each["conversation_id"]: each for each in of_thread.values()}
    ids = {each for each in records if thread_of(each) != each} | set(documents)
    return [FoundWorker(each, documents.get(each, {})) for each in sorted(ids)]


def one_for_each_call(workers: list[FoundWorker]) -> Iterator[str]:
    """Each call of the tool has one worker, however often it was repeated."""
    calls = Counter((each.data["parent"], each.data["parent_run"], each.data["call"]) for each in workers if each.data)
    for (_, run, call), count in calls.items():
        if count > 1:
            yield f"The call {call} of run {run} has {count} workers."


def is_ordered(worker: FoundWorker, case: Evidence | None) -> bool:
    """Return whether the order of a worker was accepted."""
    return case is not None and worker.order in case.record.order


def runs_once(worker: FoundWorker, case: Evidence) -> Iterator[str]:
    """The order of a worker is read once, unless a stop came before; it begins one run."""
    order = worker.order
    runs = [run for run in case.observed if run.first == order]
    read = sum(order in delivered_ids_in(row) for row in case.all_rows)
    if len(runs) > 1 or read > 1:
        yield f"Worker {worker.id} began {len(runs)} runs and read its order {read} times."
    if not read and case.end_of(order) not in {"withdrawn", "refused"}:
        yield f"The order of worker {worker.id} is lost."


def reports_once(worker: FoundWorker, case: Evidence, parent: Evidence) -> Iterator[str]:
    """Each end of a worker is reported to the agent of its thread once, and its document says that it has ended."""
    notes = [each for each in parent.record.order if each.startswith("note:") and f":{worker.id}:" in each]
    for first in {run.first for run in case.observed if run.ended_s is not None}:
        count = sum(each.endswith(f":{worker.id}:{first}") for each in notes)
        if count != 1:
            yield f"The run of {first} of worker {worker.id} was reported {count} times."
    for note in notes:
        times = parent.times_delivered(note)
        if times > 1 or (not times and note not in parent.waiting):
            yield f"The report {note} was read {times} times."
    if not worker.data.get("ended_s"):
        yield f"Worker {worker.id} has ended, and its document says {worker.data.get('status')!r}."


def stopped_with_its_run(worker: FoundWorker, case: Evidence, environment: Any) -> Iterator[str]:
    """A stop of the run that dispatched a worker reaches the worker, unless it had ended before."""
    above = environment.observer.runs.get(worker.data.get("parent_run", ""))
    if above is None or above.stopped_s is None:
        return
    reported = (at_s for each, at_s in case.accepted_s.items() if each.startswith("note:") and f":{worker.id}:" in each)
    ended_s = min(reported, default=inf)
    has_stop = any(run.stopped_s is not None for run in case.observed) or ":stopped" in str(case.record.ends)
    has_entry = any(each.endswith(f":{worker.id}") for each in case.record.order)
    if not has_entry and not has_stop and ended_s > above.stopped_s + _SETTLED_S:
        yield f"The run of {above.first} was stopped at {above.stopped_s:.3f}; its worker {worker.id} continued."


# A worker whose dispatch was under way when the stop was stored.
_SETTLED_S = 5.0


def not_begun(worker: FoundWorker, parent: Evidence | None) -> Iterator[str]:
    """A worker without an order: its process ended between the document and the order, and its call got no result."""
    if parent is None:
        yield f"Worker {worker.id} has no thread."
        return
    begun = [row for row in parent.all_rows if row["role"] == "tool" and f"Worker {worker.id} has begun" in str(row)]
    if begun:
        yield f"Worker {worker.id} is lost."
