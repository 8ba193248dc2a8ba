"""Texts that the service itself posts in Slack, and texts that tell a model about late edits and deletions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connector.formatting.content import counted, one_line
from connector.formatting.inline import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.protocols import LeftBehind, Usage, Worker
    from connector.records import RunSummary

_LABEL_CHARS = 40
_LABELS = 2
_DETAIL_CHARS = 300

# With fewer there is no choice.
_FEW_MODELS = 2
_GO_ON = "Write “continue” and I will carry on."
_INCOMPLETE = {
    "max_iterations": f"I stopped here: this run has reached its step limit. {_GO_ON}",
    "max_cost_usd": f"I stopped here: this run has reached its cost limit. {_GO_ON}",
    "max_tokens": f"I stopped here: this run has reached its token limit. {_GO_ON}",
    "max_duration_s": f"I stopped here: this run has reached its time limit. {_GO_ON}",
    "length": f"My answer was cut off because it became too long. {_GO_ON}",
    "refusal": "The model declined this request. Rephrase it, or start a new thread.",
    "denied": "",  # the answer itself names the denial
}

_CLOSED = {
    "is_archived": "the channel is archived. Write to me in another one.",
    "not_in_channel": "I am not in that channel. Invite me, then write again.",
    "channel_not_found": "I am not in that channel. Invite me, then write again.",
    "cannot_reply_to_message": "that message does not accept replies. Write to me in a new one.",
    "restricted_action_thread_locked": "the thread is locked. Write to me in a new one.",
    "thread_locked": "the thread is locked. Write to me in a new one.",
}

DONE = "Done."
NO_ANSWER = "I am done and have nothing to add."
NOTHING_RUNS = "Nothing is running here."
EDITED_TO_COMMAND = "An edit is no command. Write it as a new message; if I have not read this one yet, I will not."
MENTION_ADDED = (
    "I knew this message without its mention. An active run reads the new version; if none is active, write your "
    "message again."
)
READ_ALREADY = "👀 I have read that message already. To stop this run, put ❌ on its status, or write “stop”."
NO_TEXT = "Hi! Tell me what I can do for you."
MUTED = "🔇 From now on I answer only messages that mention me here. `!unmute` ends this."
UNMUTED = "🔔 I answer people who take part here again."
NOT_MUTED = "Here I answer every message: a direct message cannot be muted."
SUSPENDED = "⏸️ The service is restarting. I will continue in a moment."
UNREADABLE_RUN = "⚠️ I cannot resume a run that another version of this service started. Please send your request again."
RESTORED = (
    "I was restored from a backup and no longer know what I did here after it. Ask again if something is missing."
)
UNREADABLE_POST = "⚠️ I cannot read an answer that another version of this service saved. Please ask again."
UNREADABLE_MESSAGE = "📭 Not accepted: I cannot read a message that another version saved. Please send it again."
UNEXPECTED = "Something went wrong on my side. Write again to try once more. The service's log has the details."

NO_HISTORY = "The conversations of this agent are not stored, so that they have no branches."
STOP_FIRST = "Stop the run first: write `!stop`."
COPIES_FIRST = "A fork or an export of this conversation is not finished. Try again in a minute."
ONLY_OWNER = "Only the person who began this thread can do that."
ONLY_PARTICIPANTS = "Only people who take part in this thread can do that. Write to me here first."
NO_SUCH_MESSAGE = "Slack no longer has that message."
NO_ANSWER_THERE = "That message is no answer of mine. Choose an answer, or a message of a person."
NO_TEXT_LEFT = "That message has no text that I could read again."
ASK_AGAIN = "I posted that message for a person and cannot run it again. Ask again."
NO_MEMORY = "Nothing is remembered here."
NO_FACTS = "I remember nothing here."
NO_RECIPES = "No recipes can be run here."
NO_WORKERS = "No worker has worked in this thread."
NO_WORKER_AT_WORK = "No worker is at work here."
NO_ANSWER_FROM_SLACK = "Slack does not answer. Please try again."
NO_AGENT_HERE = "No agent with a stored conversation takes part in this thread."
NO_SCHEDULES = "There are no schedules in this service."
FORKED = "🍴 I know the conversation up to there. Write here to continue it."


def unreadable(parts: Sequence[str]) -> str:
    """Return the answer to a message that has these parts only."""
    return f"📭 I can read no text here, only {_named(parts)}. Tell me in words what you need, or copy the text here."


FILE_FAILED = "something went wrong on my side. The service's log has the details."
TOO_MANY_FILES = "the message has too many files. Please send it in a further message."
NO_FILE = "Slack does not say where it is. Please upload it again."


def file_refused(name: str, why: str) -> str:
    """Return the notice for the author of a file; `why` is a sentence."""
    return f"📎 I cannot read “{one_line(name, _LABEL_CHARS)}”: {why}"


def file_note(name: str, why: str) -> str:
    """Return the remark for the model about a file that cannot be read."""
    return f"The file {one_line(name, _LABEL_CHARS)} cannot be read: {why}"


def file_later(name: str, file_id: str) -> str:
    """Return the remark for the model about a file that is still being downloaded."""
    return (
        f"The file {one_line(name, _LABEL_CHARS)} is still being downloaded; it will be in the folder files/{file_id}."
    )


def downloading(name: str) -> str:
    return f"Downloading {one_line(name, _LABEL_CHARS)}"


def not_readable(parts: Sequence[str]) -> str:
    """Return the remark for the model that a message has parts without text."""
    return f"(The message also has {_named(parts)}.)"


def stopped(by: str, summary: RunSummary, waiting: int, *, withdrawn: str = "") -> str:
    """Return the notice of a stop; `withdrawn`: the message that would have begun the run."""
    left = f"Withdrawn: “{one_line(withdrawn, _LABEL_CHARS)}”." if withdrawn else ""
    return _join("🛑", f"Stopped by {by}.", left, _finished(summary), _unfinished(summary), _waiting(waiting))


def stopping_workers(count: int) -> str:
    """Return the answer to a stop in a thread where only workers run."""
    return f"🛑 I am stopping {counted(count, 'worker')}."


def stopping_agent(name: str) -> str:
    return f"🛑 I am stopping {name}."


def no_agent_at_work(name: str) -> str:
    return f"No sub-agent or worker {name} is at work here. `!status` and `!workers` list the active ones."


def no_rerun_of_worker(worker: str) -> str:
    """Return the answer to a request to run the task of a worker again."""
    return f"I cannot run a worker's task again. Write `@{worker} …`, and it works on, or ask for it in a new message."


def no_fork_of_worker(worker: str) -> str:
    """Return the answer to a request to fork the conversation of a worker."""
    return f"I cannot fork a worker's conversation. Write `@{worker} …`, and it works on, or fork from another answer."


def worker_line(worker: Worker, now_s: float) -> str:
    """Return the line of a worker in a list, in Slack's markup: its id, its task, and its state."""
    minutes = max(int(((worker.ended_s or now_s) - worker.created_s) // 60), 0)
    state = f"{worker.status} after {minutes} min" if worker.ended_s else f"at work for {minutes} min"
    agent = f" ({escape(worker.agent)})" if worker.agent else ""
    mark = "🛠️" if not worker.ended_s else "✅" if worker.status == "success" else "⏹️"
    return f"{mark} `{worker.id}`{agent} {escape(one_line(worker.title, _DETAIL_CHARS))}: {state}."


def handed_over(name: str) -> str:
    return f"🤝 From now on, {name} answers in this thread."


def model_chosen(name: str) -> str:
    return f"🧠 From the next run on, the model {name} answers in this thread."


def models(names: Sequence[str], chosen: str, unknown: str) -> str:
    """Return the list of models of an agent; `unknown` is a word that names no model, blank: no word."""
    problem = f"I know no model `{unknown}`. " if unknown else ""
    if len(names) < _FEW_MODELS:
        return f"{problem}I have one model here; `providers` of the configuration lists more."
    current = chosen if chosen in names else names[0]
    listed = ", ".join(f"`{each}`{' (current)' if each == current else ''}" for each in names)
    return f"{problem}Models: {listed}. `!model NAME` changes it, `!model default` undoes that."


def begun_anew(earlier: str) -> str:
    return (
        f"🌱 I begin anew here. Branch `{earlier}` keeps the earlier conversation: `!checkout {earlier}` continues it."
    )


def checked_out(branch: str, states: int) -> str:
    return f"🔀 I continue on `{branch}`, which has {counted(states, 'state')}."


def left_behind(left: LeftBehind) -> str:
    """Return the size of the part that a rewind leaves behind."""
    files = f", and files stay as they are: {_listed(left.files)}" if left.files else "."
    workers = f" Its workers continue: {_listed(left.workers)} `!workers` lists them." if left.workers else ""
    return f"{counted(left.messages, 'message')} and {counted(left.answers, 'answer')}{files}{workers}"


def confirm_rerun(left: LeftBehind) -> str:
    return f"Run this message again, with its present text? This leaves behind, on a branch: {left_behind(left)}"


def rewound(left: LeftBehind) -> str:
    return (
        f"⏪ Rewound by {left_behind(left)} Branch `{left.branch}` keeps them: `!checkout {left.branch}` restores them."
    )


def runs_again(prompt: str, left: LeftBehind) -> str:
    what = f"🔁 “{one_line(prompt, _LABEL_CHARS)}” runs again. Left behind on `{left.branch}`:"
    return f"{what} {left_behind(left)} `!checkout {left.branch}` restores it."


def forked_from(link: str, quote: str) -> str:
    """Return the first message of a forked thread, in Slack's markup."""
    origin = f"<{link}|another thread>" if link else "another thread"
    return f"🍴 Forked from {origin}{f': {escape(quote)}' if quote else '.'}"


def forked_to(link: str) -> str:
    return f"🍴 This conversation continues in a new thread, too: {link}"


def no_thread(error: str) -> str:
    return f"⚠️ Slack does not let me begin a thread ({error})."


def no_file(error: str) -> str:
    return f"⚠️ Slack does not accept the file ({error}). The operator of this bot finds the reason in its log."


def asks(user: str, text: str) -> str:
    """Return the first message of a thread that a slash command begins, in Slack's markup."""
    return f"💬 <@{user}>: {text}"


# The wish for a summary, in its thread and with the thread as quotes.
SUMMARISE = "Summarise this thread: the question, the decisions, and the open points."
SUMMARISE_QUOTED = "Summarise the quoted thread: the question, the decisions, and the open points."
# The question of a person who wrote none.
ABOUT_THIS = "Look at this message."
FORM_EXPIRED = "Slack was too slow, and its form has expired. Choose the action again."


def asks_summary(user: str, link: str) -> str:
    """Return the first message of a summary in private, in Slack's markup."""
    return asks(user, f"Summarise {f'<{link}|the thread>' if link else 'the thread'}.")


def left_out(count: int) -> str:
    return f"({counted(count, 'older message')} of the thread {'is' if count == 1 else 'are'} left out.)"


def not_asked(channel: str, error: str) -> str:
    """Tell a person, in Slack's markup, why their question about a message was not asked."""
    where, is_direct = f"<#{channel}>", channel.startswith("D")
    match error:
        case "missing_scope":
            return (
                "⚠️ I may not begin direct messages: ask my operator to add the scope `im:write`, or choose the thread."
            )
        case "message_not_found" | "thread_not_found":
            return f"⚠️ I did not ask that in {where}: {NO_SUCH_MESSAGE}"
        case "channel_not_found" | "not_in_channel" if is_direct:
            return "⚠️ I cannot read that conversation. Forward the message to me instead."
        case "channel_not_found" | "not_in_channel":
            return (
                f"⚠️ I did not ask that in {where}: I am not in that channel. Invite me, then choose the action again."
            )
    return f"⚠️ I did not ask that in {where}: {_CLOSED.get(error, f'Slack does not permit it ({escape(error)}).')}"


def waits_for_person(app: str, exchanges: int) -> str:
    times = "once" if exchanges == 1 else f"{exchanges} times"
    return f"🤖 I have answered {app or 'another app'} {times} here. Mention me to continue."


def no_instance(names: Sequence[str]) -> str:
    return f"I know no agent of that name. There is {_listed(names, len(names))}"


def may_steer(owner: str, name: str, prompt: str) -> str:
    """Ask the owner of a run (a user id) in Slack's markup whether a person may steer it."""
    wish = escape(one_line(prompt, _LABEL_CHARS))
    return f"🙋 <@{owner}>, {escape(name)} writes: “{wish}”. Let {escape(name)} steer this run? If not, I read it next."


def consented(owner: str, name: str, *, allows: bool) -> str:
    return f"🙋 {owner} lets {name} steer this run." if allows else f"🙋 {owner} keeps this run: I read {name} next."


PRIVATE = "a private question"


def asked_privately(name: str) -> str:
    return f"🔒 I have asked {name} privately, and wait for the answer."


def answered_already(answer: str) -> str:
    return f"This was answered already: {answer}."


def not_your_request(who: str) -> str:
    """Refuse an answer, in Slack's markup; `who` names the users that may give it."""
    return f"You may not answer this; {who} may."


NO_REQUEST = "This is no longer waiting for an answer."
TOO_LATE = "Too late: the time for an answer is over."
SECOND_PERSON = "You have allowed it already. One more person must allow it."
CHOOSE_FIRST = "Choose an option first."
CHANGED_REQUEST = "It was changed after this question. The new version needs an answer of its own."
BEGUN_BEFORE = "This call has begun before, and its approval was for one call only. Ask for a new one."
ALLOWED_BY_RULE = "A rule allows it by now."
RUN_ENDED = "No longer needed: the run has ended."
CALL_STOPPED = "No longer needed: its call was stopped."
NOT_SHOWN = "It could not be asked: Slack rejected the message."
FORM_FAILED = "The form could not be opened. Click again."
NOT_YOUR_RUN = "Only the person who began this run can decide that."
OVER_ALREADY = "🙋 This run has ended. What waited begins the next one."


def stopping(prompt: str) -> str:
    """Return the answer to a stop outside of the thread of the run that it stops."""
    return f"🛑 I stop “{one_line(prompt, _LABEL_CHARS)}”. Its thread shows how far it came."


def which_to_stop(prompts: Sequence[str]) -> str:
    """Return the answer to a stop that could mean each of several runs, or none."""
    if not prompts:
        return NOTHING_RUNS
    named = _listed([f"“{one_line(each, _LABEL_CHARS)}”" for each in prompts])
    return f"{counted(len(prompts), 'run')} are active here: {named} Write “stop” in the thread of the one to stop."


def withdrawn(prompt: str) -> str:
    return f"🗑️ Withdrawn: “{one_line(prompt, _LABEL_CHARS)}”. I will not read it."


def failed(sentence: str, summary: RunSummary, waiting: int) -> str:
    return _join("⚠️", sentence, _unfinished(summary), _waiting(waiting))


def incomplete(summary: RunSummary, waiting: int) -> str:
    """Return the notice for a run that ended early; blank if the answer needs no comment."""
    why = _INCOMPLETE.get(summary.reason, f"I stopped before I was done. {_GO_ON}") if summary.reason else ""
    if summary.reason == "refusal" and summary.detail:
        why = f"{why} The reason given: “{one_line(summary.detail, _DETAIL_CHARS)}”"
    undone = _unfinished(summary)
    return _join("⏸️", why, undone, _waiting(waiting)) if why or undone else held_back(waiting)


def waits(place: int, runs: int, bound: str) -> str:
    """Return the status of a run that waits for its slot; `bound` is the limit that keeps it waiting."""
    whose = {"person": " of yours", "channel": " in this channel", "workspace": " in this workspace"}.get(bound, "")
    verb = "is" if runs == 1 else "are"
    return f"⏳ Waiting, position {place} in the queue: {counted(runs, 'run')}{whose} {verb} active."


def held_back(waiting: int) -> str:
    return _join("📨", _waiting(waiting)) if waiting else ""


def refused(text: str, why: str) -> str:
    return _join("📭", f"Not accepted: “{one_line(text, _LABEL_CHARS)}”.", why)


def resumed(unknown: Sequence[str]) -> str:
    """Return the notice for a resumed run that lists its calls of unknown outcome; blank if there are none."""
    if not unknown:
        return ""
    what = f"Outcome unknown: {_listed(unknown)}"
    return _join(
        "🔁", "I was interrupted and have resumed.", what, "Check whether it is done before you ask for it again."
    )


def correction(text: str, removed_files: int = 0) -> str:
    """Return the message that tells the model about an edit of a message it has read."""
    without = f", and {counted(removed_files, 'file')} of it no longer counts" if removed_files else ""
    return f"(Correction of my earlier message. It now reads{without}:) {text}"


def taken_back(text: str) -> str:
    """Return the message that tells the model about the deletion of a message it has read."""
    return f"(I have deleted my earlier message:) {text}"


def not_posted(error: str) -> str:
    return f"⚠️ I have an answer, but Slack rejects it ({error}). The operator of this bot finds the reason in its log."


def not_shared(names: Sequence[str], error: str) -> str:
    return (
        f"⚠️ I could not share {', '.join(names)}: Slack rejects it ({error}). The operator of this bot can add the "
        "scope `files:write`, or finds the reason in the log."
    )


def may_lack(names: Sequence[str]) -> str:
    return f"⚠️ I may not have shared {', '.join(names)}. If this thread lacks it, please ask again."


def closed(channel: str, error: str) -> str:
    """Return a direct message, in Slack's markup, for a person whose conversation the bot can no longer write to."""
    why = _CLOSED.get(error, f"Slack does not let me write there ({escape(error)}).")
    return f"⚠️ I could not continue in <#{channel}>: {why}"


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _finished(summary: RunSummary) -> str:
    failures = len(summary.labels("failed"))
    count = len(summary.labels("finished")) + failures
    if count == 0:
        return ""
    calls = "1 tool call" if count == 1 else f"{count} tool calls"
    return f"{calls} finished, {failures} with an error." if failures else f"{calls} finished."


def _unfinished(summary: RunSummary) -> str:
    """List cancelled calls and calls of unknown outcome, which may have had all or part of their effect."""
    kinds = (("Not done", summary.labels("cancelled")), ("Outcome unknown", summary.labels("unknown")))
    return _join(*(f"{what}: {_listed(labels)}" for what, labels in kinds if labels))


def _listed(labels: Sequence[str], most: int = _LABELS) -> str:
    named = [one_line(label, _LABEL_CHARS) for label in labels[:most]]
    more = len(labels) - len(named)
    listed = f"{', '.join(named)} and {more} more" if more else " and ".join(named)
    return listed if listed.endswith((".", "…")) else f"{listed}."


def _named(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _waiting(count: int) -> str:
    if count == 0:
        return ""
    if count == 1:
        return "1 message has not been read yet. I will read it with your next message."
    return f"{count} messages have not been read yet. I will read them with your next message."


def usage(used: Usage) -> str:
    """Return tokens and cost."""
    cached = f" ({used.cached_tokens:,} from the cache)" if used.cached_tokens else ""
    tokens = f"{used.input_tokens:,} tokens read{cached}, {used.output_tokens:,} written"
    return tokens if used.cost_usd is None else f"{tokens}, ${used.cost_usd:,.4f}"
