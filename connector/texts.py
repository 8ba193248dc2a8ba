"""What the service itself says in a thread, in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.formatting.links import escape
from connector.formatting.text_utils import counted, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.records.run_summary import RunSummary

_LABEL_CHARS = 40
_LABELS = 2
_DETAIL_CHARS = 300

_GO_ON = "Write “go on” to let me continue."
_INCOMPLETE = {
    "max_iterations": f"I stopped here: I have taken all the steps that one run may take. {_GO_ON}",
    "max_cost_usd": f"I stopped here: this run has cost as much as one run may. {_GO_ON}",
    "max_tokens": f"I stopped here: this run has used as many tokens as one run may. {_GO_ON}",
    "max_duration_s": f"I stopped here: this run has taken as long as one run may. {_GO_ON}",
    "length": f"My answer ends here because it became too long. {_GO_ON}",
    "refusal": "The model declined to go on with this. Put it differently, or start a new thread.",
    "denied": "",  # the answer says it
}

_CLOSED = {
    "is_archived": "the channel is archived. Write to me in another one.",
    "not_in_channel": "I am not in that channel. Invite me, then write again.",
    "channel_not_found": "I am not in that channel. Invite me, then write again.",
    "cannot_reply_to_message": "that message takes no replies. Write to me in a new one.",
    "restricted_action_thread_locked": "the thread is locked. Write to me in a new one.",
    "thread_locked": "the thread is locked. Write to me in a new one.",
}

DONE = "Done."
NO_ANSWER = "I finished without anything to say."
NOTHING_RUNS = "Nothing is running here."
NO_TEXT = "Yes? Write what I can do for you."
SUSPENDED = "⏸️ The service is being restarted; I go on in a moment."
UNREADABLE_RUN = "⚠️ Another version of this service was at work here, and I cannot read how far it came. Write again."
UNREADABLE_POST = "⚠️ Another version of this service has kept a text here that I cannot read, and that is not told."
UNREADABLE_MESSAGE = "📭 Not taken: a message that another version of this service has kept here. Write it again."
UNEXPECTED = "Something went wrong on my side. Write again to try once more; the log of the service has the details."


def stopped(by: str, ending: RunSummary, waiting: int) -> str:
    return _said("🛑", f"Stopped by {by}.", _finished(ending), _undone(ending), _waiting(waiting))


def failed(sentence: str, ending: RunSummary, waiting: int) -> str:
    return _said("⚠️", sentence, _undone(ending), _waiting(waiting))


def incomplete(ending: RunSummary, waiting: int) -> str:
    """What is to be said of a run that ended before it was done; nothing where its answer says it all."""
    why = _INCOMPLETE.get(ending.reason, f"I stopped before I was done. {_GO_ON}") if ending.reason else ""
    if ending.reason == "refusal" and ending.detail:
        why = f"{why} Its explanation: “{one_line(ending.detail, _DETAIL_CHARS)}”"
    undone = _undone(ending)
    return _said("⏸️", why, undone, _waiting(waiting)) if why or undone else held_back(waiting)


def waits(place: int, runs: int, bound: str) -> str:
    """Return the status of a run that waits for its slot; `bound` is the limit that keeps it waiting."""
    whose = {"person": " of yours", "channel": " in this channel"}.get(bound, "")
    return f"⏳ Waiting, place {place} in line: {counted(runs, 'run')}{whose} {'is' if runs == 1 else 'are'} at work."


def held_back(waiting: int) -> str:
    return _said("📨", _waiting(waiting)) if waiting else ""


def refused(text: str, why: str) -> str:
    return _said("📭", f"Not taken: “{one_line(text, _LABEL_CHARS)}”.", why)


def resumed(unknown: Sequence[str]) -> str:
    """What people must know of a run that goes on after its process died; nothing where there is nothing to know."""
    if not unknown:
        return ""
    what = f"Outcome unknown: {_listed(unknown)}"
    return _said(
        "🔁", "I was interrupted at work, and went on.", what, "Look whether it is done before you ask for it again."
    )


def correction(text: str) -> str:
    """What a model reads of an edit that came too late."""
    return f"(A correction of my earlier message, which reads now:) {text}"


def taken_back(text: str) -> str:
    """What a model reads of a deletion that came too late."""
    return f"(I have taken back my earlier message:) {text}"


def not_posted(error: str) -> str:
    return (
        f"⚠️ I have an answer, but Slack does not take it ({error}). Whoever runs this bot finds the reason in its log."
    )


def closed(channel: str, error: str) -> str:
    """What a person reads in a direct message, in Slack's markup, whom we may not answer where they asked."""
    why = _CLOSED.get(error, f"Slack does not let me write there ({escape(error)}).")
    return f"⚠️ I could not go on in <#{channel}>: {why}"


def _said(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _finished(ending: RunSummary) -> str:
    failures = len(ending.labels("failed"))
    count = len(ending.labels("finished")) + failures
    if count == 0:
        return ""
    calls = "1 tool call" if count == 1 else f"{count} tool calls"
    return f"{calls} finished, {failures} of them with an error." if failures else f"{calls} finished."


def _undone(ending: RunSummary) -> str:
    """What people cannot take for done: a call that was cut at work may have had its effect, or half of it."""
    kinds = (("Not done", ending.labels("cancelled")), ("Outcome unknown", ending.labels("unknown")))
    return _said(*(f"{what}: {_listed(labels)}" for what, labels in kinds if labels))


def _listed(labels: Sequence[str]) -> str:
    named = [one_line(label, _LABEL_CHARS) for label in labels[:_LABELS]]
    more = len(labels) - len(named)
    listed = f"{', '.join(named)} and {more} more" if more else " and ".join(named)
    return listed if listed.endswith((".", "…")) else f"{listed}."


def _waiting(count: int) -> str:
    if count == 0:
        return ""
    if count == 1:
        return "1 message has not been read yet; your next message takes it along."
    return f"{count} messages have not been read yet; your next message takes them along."
