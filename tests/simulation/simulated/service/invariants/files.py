"""Invariants of files: they are stored before their message is read, and a withdrawn message leaves none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from connector import texts
from orchestrator_interactive.transcript.rows import delivered_ids_in, text_of
from service.store.base import thread_of
from simulated.service.slack import BOT, Slack

from .evidence import Evidence


def read_with_message(case: Evidence, *, may_be_late: bool) -> Iterator[str]:
    """The row of a message says where each of its files is, or why it is not there.

    `may_be_late`: an urgent message does not wait for the files of an earlier one.
    """
    for row in case.all_rows:
        if row.get("metadata", {}).get("talk"):
            continue
        text = text_of(row)
        for written in case.written:
            for file in written.sent if written.id in delivered_ids_in(row) else ():
                outcomes = (f"stored as {file}", f"{file}.txt cannot be read", *((file,) if may_be_late else ()))
                if not any(each in text for each in outcomes) or texts.TOO_MANY_FILES in text:
                    yield f"{written.word} was read without its file {file}."


def shared_once(slack: Slack, shared: Mapping[tuple[str, str], bool]) -> Iterator[str]:
    """Each file that an agent has shared is in its thread once, unless that was deleted, and no other file is."""
    posts = [each for each in slack.messages.values() if each.user == BOT and not each.is_deleted]
    shown = Counter((each.thread_ts, str(file["name"])) for each in posts for file in each.readable_files)
    stored = {(thread_of(conversation).split(":")[2], file): known for (conversation, file), known in shared.items()}
    for thread_ts, file in stored.keys() | shown.keys():
        times, is_known = shown[thread_ts, file], stored.get((thread_ts, file), False)
        is_missing = not times and is_known and slack.has_thread(thread_ts)
        if times > 1 or is_missing or (times and (thread_ts, file) not in stored):
            yield f"The file {file} is in the thread {thread_ts} {times} times."


def gone(case: Evidence, stored: Collection[tuple[str, str]]) -> Iterator[str]:
    """No file of a message that was withdrawn before the model read it remains."""
    for written in case.written:
        if case.end_of(written.id) == "withdrawn" and not case.times_delivered(written.id):
            for file in written.sent:
                if (case.id, file) in stored:
                    yield f"{written.word} was withdrawn, and its file {file} remains."
