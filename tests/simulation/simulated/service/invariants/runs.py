"""Invariants of runs: ends, notices, stops, fencing tokens and repeated calls."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from orchestrator_interactive.loop.tool_results import results_in
from simulated.service.agent import ToolCallRecord
from simulated.service.slack import TEAM, SlackMessage
from simulated.service.store_observer import END_NOTICES, Commit, ObservedRun

from .evidence import Evidence, Row, text_of

_CALL = re.compile(r"\b(?:look|act|share|Asking: Which of|helper: Part|Dispatching a worker: Task) (c\d+)\b")
_MORE = re.compile(r"\band (\d+) more\b")
_DONE = re.compile(r"\bdone (c\d+)\b")
_LATE_UNKNOWN = re.compile(r"^- call (c\d+), act: .*outcome is unknown", re.MULTILINE)


@dataclass(frozen=True)
class RunEvidence:
    """A run with its rows in the log and its posts in the thread."""

    run: ObservedRun
    rows: list[Row]
    posts: list[SlackMessage]

    @property
    def has_answered(self) -> bool:
        """Whether the last row is a complete answer."""
        last = self.rows[-1] if self.rows else {}
        return (
            last.get("role") == "assistant" and not last.get("tool_calls") and "partial" not in last.get("metadata", {})
        )

    @property
    def end_notices(self) -> list[SlackMessage]:
        return [post for post in self.posts if post.username is None and post.text.startswith(END_NOTICES)]

    @property
    def finished(self) -> set[str]:
        """The calls with a result, late results included; also calls that people denied, and their answers."""
        texts = (text_of(row) for row in self.rows if row["role"] == "tool" or "results" in row.get("metadata", {}))
        answers = {
            call for row in self.rows for call, outcome, _ in results_in(row) if outcome in {"finished", "failed"}
        }
        return {call for text in texts for call in _DONE.findall(text)} | answers

    @property
    def not_started(self) -> set[str]:
        results = (row for row in self.rows if row["role"] == "tool")
        return {row["tool_call_id"] for row in results if text_of(row).startswith("Not started")}


def _runs(case: Evidence) -> list[RunEvidence]:
    """Return the runs of a conversation, in order."""
    by_first = {run.first: run for run in case.observed}  # of several with one first message, only the last has rows
    rows: dict[str, list[Row]] = defaultdict(list)
    unfollowed: dict[str, list[Row]] = {}
    for log in case.rows.values():
        current, before = "", list[Row]()  # older messages are read right before the prompt of their run
        for row in log:
            if {"notices", "talk"} & row.get("metadata", {}).keys():  # of no run: the prompt of the next one follows
                continue
            run = by_first.get(row.get("metadata", {}).get("message", ""))
            if run is None and "injections" in row.get("metadata", {}):
                before.append(row)
                continue
            current = run.id if run is not None else current
            rows[current] += [*before, row]
            before.clear()
        unfollowed[current] = before
    ids = [run.id for run in case.observed]
    for last, left in unfollowed.items():  # of the last run, or of one that ended before its prompt was written
        later = ids[ids.index(last) :] if last in ids else []
        rows[next((each for each in later if not rows[each]), last)] += left
    posts = case.lasting_posts
    return [RunEvidence(run, rows[run.id], [p for p in posts if p.key.startswith(run.id)]) for run in case.observed]


def endings(case: Evidence) -> Iterator[str]:
    """Each run ends, and users see its answer or one sentence with the reason."""
    for each in _runs(case):
        run, texts = each.run, [post.text for post in each.end_notices]
        if run.ended_s is None:
            yield f"The run of {run.first} has not ended."
        elif len(texts) > 1:
            yield f"The run of {run.first} has several end notices: {texts}."
        elif not texts and not each.has_answered:
            yield f"The run of {run.first} has ended, and users do not see how."


def recorded_ends(case: Evidence, *, may_lack_last: bool) -> Iterator[str]:
    """The log of an agent has one end after each prompt; the next prompt adds one that the store kept from it."""
    for agent, recorded in case.run_ends.items():
        ends = [*recorded, "unknown"] if may_lack_last and recorded[-1:] == ["prompt"] else recorded
        if [end == "prompt" for end in ends] != [True, False] * (len(ends) // 2):
            yield f"The log of {agent} has not one end for each run: {', '.join(ends)}."


def notices(case: Evidence, *, are_users_named: bool) -> Iterator[str]:
    """A stop notice names a user who stopped the run; only a failed run reports a failure; the notice comes last."""
    for each in _runs(case):
        run = each.run
        for post in each.end_notices:
            if post.text.startswith("🛑"):
                if run.stopped_s is None:
                    yield f"The run of {run.first} has the notice {post.text!r} without a stop."
                names = {user.lower() for _, user in _stops_of(case, run)} | (set() if are_users_named else {"someone"})
                if not any(post.text.startswith(f"🛑 Stopped by {name}.") for name in names):
                    yield f"The run of {run.first} was stopped by {' or '.join(sorted(names))}; notice: {post.text!r}."
            elif post.text.startswith("⚠️") and not run.has_failed:
                yield f"The run of {run.first} reports a failure without an error: {post.text!r}."
            elif run.stopped_s is not None and not run.has_failed and not each.has_answered:
                yield f"The run of {run.first} was stopped; notice: {post.text!r}."
            if any(float(other.ts) > float(post.ts) for other in each.posts if other.username is not None):
                yield f"The run of {run.first} posted after {post.text!r}."


def summaries(case: Evidence) -> Iterator[str]:
    """A stop notice gives the number of finished calls, and the calls that were not started."""
    for each in _runs(case):
        for post in each.end_notices:
            if not post.text.startswith("🛑"):
                continue
            done = len(each.finished)
            found = re.search(r"(\d+) tool calls? finished", post.text)
            # The log has no results of early calls whose answer was interrupted.
            if not done <= (int(found[1]) if found else 0) <= done + case.unrecorded:
                yield f"{done} calls of the run of {each.run.first} have finished; notice: {post.text!r}."
            undone = each.not_started - set(_CALL.findall(post.text))
            if len(undone) > sum(map(int, _MORE.findall(post.text))):
                yield f"{undone} of the run of {each.run.first} were not started; notice: {post.text!r}."


def unknown(case: Evidence) -> Iterator[str]:
    """Each call with side effects and an unknown outcome is named."""
    texts = [post.text for post in case.notices if "Outcome unknown" in post.text]
    named = {call for text in texts for call in _CALL.findall(text)}
    more = sum(int(number) for text in texts for number in _MORE.findall(text))
    unnamed = [call for call in _unknown_calls(case) if call not in named]
    if len(unnamed) > more:
        yield f"The outcome of {', '.join(unnamed)} is unknown, and no notice names it."


def _unknown_calls(case: Evidence) -> Iterator[str]:
    for row in case.all_rows:
        if row["role"] == "tool" and row["name"] == "act" and "outcome is unknown" in text_of(row):
            yield row["tool_call_id"]
        if row["role"] == "user" and "results" in row.get("metadata", {}):
            yield from _LATE_UNKNOWN.findall(text_of(row))


def stopped(case: Evidence) -> Iterator[str]:
    """Only a stop that is newer than the first message of a run ends the run."""
    for run in case.observed:
        if run.stopped_s is not None and not any(seq > run.first_seq for seq, _ in _stops_of(case, run)):
            yield f"The run of {run.first} was stopped without a stop for it."


def _stops_of(case: Evidence, run: ObservedRun) -> Iterator[tuple[int, str]]:
    """Yield sequence number and user of each entry that may stop this run."""
    for written in case.written:
        if written.is_stop and written.id in case.seqs and written.message.ts > run.first.split(":")[2]:
            yield case.seqs[written.id], written.message.user
        if _began(run, written.id) and f"{written.id}:deleted" in case.seqs:
            yield case.seqs[f"{written.id}:deleted"], written.message.user
    for reaction in case.reactions:
        message = reaction.message
        is_of_run = message.key.startswith(run.id) or _began(run, f"{TEAM}:{message.channel}:{message.ts}")
        if is_of_run and reaction.id in case.seqs:
            yield case.seqs[reaction.id], reaction.user


def _began(run: ObservedRun, message_id: str) -> bool:
    """Return whether a run began with a message, or with a late edit of it."""
    return run.first == message_id or run.first.startswith(f"{message_id}:")


def held_first(case: Evidence) -> Iterator[str]:
    """A message that a stop holds back is not withdrawn by a later stop, unless by an ❌ of its author."""
    own = {
        f"{TEAM}:{each.message.channel}:{each.message.ts}" for each in case.reactions if each.user == each.message.user
    }
    for run in case.observed:
        is_taken_back = f"{run.first}:deleted" in case.seqs or run.first in own
        is_withdrawn = case.end_of(run.first) == "withdrawn" and not is_taken_back
        if run.was_held and is_withdrawn:
            yield f"{run.first} was held back, and a later stop withdrew it."


def stops_heeded(case: Evidence, within_s: float) -> Iterator[str]:
    """A stop ends the active run, unless the run ends by itself."""
    for run in case.observed:
        for stop_s in run.stop_words_s:
            if run.stopped_s is None and run.last_step_s > stop_s + within_s:
                yield f"The run of {run.first} got a stop at {stop_s:.3f}, and continued."


def fencing(commits: Iterable[Commit]) -> Iterator[str]:
    """No process writes to a log after a process with a higher fencing token."""
    highest: dict[object, int] = defaultdict(int)
    for commit in commits:
        if commit.fence is None:
            yield f"Process {commit.process} wrote to {commit.key} without a token."
        elif commit.fence < highest[commit.key]:
            yield f"Process {commit.process} wrote to {commit.key}, which another process owns."
        else:
            highest[commit.key] = commit.fence


def repeated(calls: Iterable[ToolCallRecord]) -> Iterator[str]:
    """A call with side effects is executed at most once."""
    counted = Counter(each.call for each in calls if each.tool == "act")
    yield from (f"The call {call} was executed {n} times." for call, n in counted.items() if n > 1)
