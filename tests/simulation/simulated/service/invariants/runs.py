"""Whether people are told how each run has ended, and what of it they cannot see."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulated.service.store_observer import LAST_WORDS

from .evidence import text_of
from .stops import stoppers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from simulated.service.slack import SlackMessage
    from simulated.service.store_observer import RunSeen

    from .evidence import Evidence

_CALL = re.compile(r"\b(?:look|act) (c\d+)\b")
_MORE = re.compile(r"\band (\d+) more\b")
_DONE = re.compile(r"\bdone (c\d+)\b")
_LATE = re.compile(r"^- call (c\d+), act: .*outcome is unknown", re.MULTILINE)


@dataclass(frozen=True)
class Trace:
    """A run: what it has in its agent's log, and in the thread."""

    run: RunSeen
    rows: list[dict[str, Any]]
    posts: list[SlackMessage]

    @property
    def has_answered(self) -> bool:
        """Whether the last row is an answer that nothing has cut."""
        last = self.rows[-1] if self.rows else {}
        return (
            last.get("role") == "assistant" and not last.get("tool_calls") and "partial" not in last.get("metadata", {})
        )

    @property
    def last_words(self) -> list[SlackMessage]:
        return [post for post in self.posts if post.username is None and post.text.startswith(LAST_WORDS)]

    @property
    def finished(self) -> set[str]:
        """The calls that did what they were to, be it told late."""
        told = (text_of(row) for row in self.rows if row["role"] == "tool" or "results" in row.get("metadata", {}))
        return {call for text in told for call in _DONE.findall(text)}

    @property
    def not_started(self) -> set[str]:
        results = (row for row in self.rows if row["role"] == "tool")
        return {row["tool_call_id"] for row in results if text_of(row).startswith("Not started")}


def stories(case: Evidence, runs: list[RunSeen]) -> list[Trace]:
    """The runs of a conversation, in order."""
    begun = {run.first: run for run in runs}  # of several that began with one message, the last was not cut before
    rows: dict[str, list[dict[str, Any]]] = {run.id: [] for run in runs}
    for log in case.rows.values():
        on = ""
        for row in log:
            prompt = begun.get(row.get("metadata", {}).get("message", ""))
            on = prompt.id if prompt is not None else on
            rows.setdefault(on, []).append(row)
    return [Trace(run, rows[run.id], [post for post in case.told if post.key.startswith(run.id)]) for run in runs]


def endings(told: Iterable[Trace]) -> Iterator[str]:
    """Each run has come to its end, and people see that: its answer, or one sentence for why there is none."""
    for story in told:
        run, words = story.run, [post.text for post in story.last_words]
        if run.ended_s is None:
            yield f"The run of {run.first} has not ended."
        elif len(words) > 1:
            yield f"The run of {run.first} has ended in several ways: {words}."
        elif not words and not story.has_answered:
            yield f"The run of {run.first} has ended, and nobody knows how."


def sentences(case: Evidence, told: Iterable[Trace], *, are_named: bool) -> Iterator[str]:
    """What is said of an end is so: who has stopped a run, or that it failed; and it comes last."""
    for story in told:
        run = story.run
        for post in story.last_words:
            if post.text.startswith("🛑"):
                yield from _stopped(case, run, post.text, are_named=are_named)
            elif post.text.startswith("⚠️") and not run.has_failed:
                yield f"The run of {run.first} says that it has failed, and it has not: {post.text!r}."
            elif run.stopped_s is not None and not run.has_failed and not story.has_answered:
                yield f"The run of {run.first} was stopped, and says: {post.text!r}."
            if any(float(other.ts) > float(post.ts) for other in story.posts if other.username is not None):
                yield f"The run of {run.first} has gone on after {post.text!r}."


def _stopped(case: Evidence, run: RunSeen, text: str, *, are_named: bool) -> Iterator[str]:
    if run.stopped_s is None:
        yield f"The run of {run.first} says {text!r}, and nobody has stopped it."
    named = {user.lower() for user in stoppers(case, run)} | (set() if are_named else {"someone"})
    if not any(text.startswith(f"🛑 Stopped by {name}.") for name in named):
        yield f"The run of {run.first} was stopped by {' or '.join(sorted(named))}, and says {text!r}."


def summaries(case: Evidence, told: Iterable[Trace]) -> Iterator[str]:
    """Whoever stops a run reads what was done, and what was not."""
    for story in told:
        for post in story.last_words:
            if not post.text.startswith("🛑"):
                continue
            done = len(story.finished)
            said = re.search(r"(\d+) tool calls? finished", post.text)
            # Of calls that were made while an answer came, and it was cut, no log tells.
            if not done <= (int(said[1]) if said else 0) <= done + case.unrecorded:
                yield f"Of the run of {story.run.first} {done} calls are finished, and people read {post.text!r}."
            undone = story.not_started - set(_CALL.findall(post.text))
            if len(undone) > sum(map(int, _MORE.findall(post.text))):
                yield f"Of the run of {story.run.first} {undone} were not done, and people read {post.text!r}."


def unknown(case: Evidence) -> Iterator[str]:
    """People know of each call with effects of which nobody knows what it did."""
    said = [post.text for post in case.told if post.username is None and "Outcome unknown" in post.text]
    named = {call for text in said for call in _CALL.findall(text)}
    more = sum(int(number) for text in said for number in _MORE.findall(text))
    unnamed = [call for call in _unknown(case) if call not in named]
    if len(unnamed) > more:
        yield f"Nobody knows what {', '.join(unnamed)} did, and people are not told."


def _unknown(case: Evidence) -> Iterator[str]:
    for row in (row for rows in case.rows.values() for row in rows):
        if row["role"] == "tool" and row["name"] == "act" and "outcome is unknown" in text_of(row):
            yield row["tool_call_id"]
        if row["role"] == "user" and "results" in row.get("metadata", {}):
            yield from _LATE.findall(text_of(row))
