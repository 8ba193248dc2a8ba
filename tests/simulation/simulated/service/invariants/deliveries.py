"""Invariants of messages: acceptance, order, outcome, and the replies about them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import combinations
from math import inf

from connector.protocols import Participation
from simulated.service.people import Click, EventDelivery, WrittenMessage
from simulated.service.slack import BOT, TEAM, SlackMessage, time_of

from .evidence import Evidence

# A pending message waits this long for older messages of a thread that is being read.
_OLDER_FIRST_S = 30.0
_UNREAD = re.compile(r"(\d+) messages? ha(?:s|ve) not been read yet")


def conservation(case: Evidence) -> Iterator[str]:
    """Each message is delivered, withdrawn, refused, or pending because a stop holds it; exactly one applies."""
    for written in case.written:
        if not written.is_stop and (written.id in case.seqs or case.is_for_agent(written)):
            yield from _outcome(case, written)
    for entry_id in case.record.order:
        if (times := case.times_delivered(entry_id)) > 1:
            yield f"{entry_id} is in {times} rows."
        if case.end_of(entry_id) == "" and not times:
            yield f"{entry_id} counts as delivered, and is in no row."


def _outcome(case: Evidence, written: WrittenMessage) -> Iterator[str]:
    name, end = f"{written.word} ({written.id})", case.end_of(written.id)
    times, is_waiting = case.times_delivered(written.id), written.id in case.waiting
    if written.id not in case.seqs:
        if written.is_acked and not _was_deleted_first(case, written):
            yield f"{name} was acknowledged and is lost."
        if times:
            yield f"{name} was read, and never accepted."
        return
    if end == "done" and (case.is_muted or not case.took_part(written) or written.calling_edit is not None):
        return  # an aside that no run has read: it may be read as talk, unless its author's mention arrives later
    as_talk = any(written.id in row.get("metadata", {}).get("talk", ()) for row in case.all_rows)
    if (written.is_of_bot or case.is_muted) and end == "withdrawn" and as_talk:
        return  # its run was stopped before it began; what bots write is talk to later ones, or it was muted before
    outcomes = {
        "delivered": bool(times),
        "withdrawn": end == "withdrawn",
        "refused": end == "refused",
        "waiting": is_waiting,
    }
    if sum(outcomes.values()) != 1:
        yield f"{name} must have one outcome, and has: {', '.join(k for k, v in outcomes.items() if v) or 'none'}."
    deletions = [each for each in case.written if each.deletion is not None]  # that of a first message is a stop
    was_stopped = bool(deletions or case.reactions or any(each.is_stop for each in case.written))
    if end == "withdrawn" and written.deletion is None and not was_stopped:
        yield f"{name} was withdrawn without a cause."
    if is_waiting and case.seqs[written.id] > case.record.held_seq:
        yield f"{name} is pending, and not held."
    if is_waiting and not was_stopped:
        yield f"{name} is held, and there was no stop."


def talk(case: Evidence, participation: Participation) -> Iterator[str]:
    """A message that is not for an agent begins and steers no run: it is read as context, at most once by an agent."""
    for agent, rows in case.rows.items():
        as_talk = [each for row in rows for each in row.get("metadata", {}).get("talk", ())]
        for written in case.written:
            is_talk, times = written.id in as_talk, case.delivered[agent].count(written.id)
            if times > 1:
                yield f"{agent} read {written.word} {times} times."
            is_aside = written.id in case.seqs and participation.steerers == "anyone"
            if times and not (is_talk or is_aside or case.takes_part(written)):
                yield f"{agent} took {written.word} for a message to it; its author does not take part."


def steering(case: Evidence, participation: Participation, clicks: Collection[Click]) -> Iterator[str]:
    """A run reads only messages of users that may steer it; older ones come before its prompt.

    A message before the answer belongs to the run of the prompt before it, which was stopped, or of the one after it.
    """
    by_id = {each.id: each for each in case.written}
    for agent, rows in case.rows.items():
        first: WrittenMessage | None = None
        is_scheduled = False
        read: list[tuple[WrittenMessage, list[WrittenMessage | None]]] = []  # with the prompts before and after it
        for row in rows:
            metadata = row.get("metadata", {})
            is_scheduled = "::" in metadata.get("message", "::" if is_scheduled else "")
            if is_scheduled:  # the run belongs to the person of the schedule
                first, read = None, []
                continue
            if prompt := by_id.get(metadata.get("message", "").partition(":edit:")[0].removesuffix(":deleted")):
                first = prompt
                for _, prompts in read:
                    prompts[1:] = prompts[1:] or [prompt]
            ids = (each.partition(":edit:")[0].removesuffix(":deleted") for each in metadata.get("injections", ()))
            read += [(by_id[each], [first]) for each in ids if each in by_id]
            if row["role"] == "user" or first is None:
                continue
            for written, prompts in read:
                if not any(_may_steer(case, participation, clicks, each, written) for each in prompts if each):
                    yield f"{written.word} steered a run of {agent} that began with {(prompts[-1] or first).word}."
            read = []


def exchanges(case: Evidence, most: int) -> Iterator[str]:
    """Before a person writes to an agent, at most this many messages of bots are answered."""
    as_talk = {each for row in case.all_rows for each in row.get("metadata", {}).get("talk", ())}
    answered = 0
    for written in sorted(case.written, key=lambda each: float(each.message.ts)):
        if not written.is_of_bot:
            answered = 0 if written.id in case.seqs else answered
        elif case.times_delivered(written.id) and written.id not in as_talk:
            answered += 1
        if answered > most:
            yield f"{written.word} is the {answered}th message of a bot that was answered without a person in between."


def _may_steer(
    case: Evidence,
    participation: Participation,
    clicks: Collection[Click],
    first: WrittenMessage,
    written: WrittenMessage,
) -> bool:
    user, owner = written.message.user, first.message.user
    if (
        case.is_direct
        or user == owner
        or participation.steerers == "anyone"
        or Click(user, owner, allows=True) in clicks
    ):
        return True
    if participation.asks_consent and first.is_of_bot:  # no one can be asked
        return case.takes_part(written)
    if participation.steerers == "owner":
        return False
    if not participation.asks_consent:
        return case.takes_part(written)
    mentions = [each for each in case.written if each.is_mention and each.message.user == user and each.id in case.seqs]
    return any(each.message.ts <= first.message.ts for each in mentions)


def kept(case: Evidence, *, are_reactions_kept: bool) -> Iterator[str]:
    """Every acknowledged event that concerns an agent is in the inbox."""
    for written in filter(case.is_for_agent, case.written):
        if written.is_stop and written.is_acked and written.id not in case.seqs:
            yield f"The stop {written.id} was acknowledged and is lost."
        is_deleted = written.deletion is not None and written.deletion.is_acked
        if is_deleted and f"{written.id}:deleted" not in case.seqs and not _was_deleted_before_mention(case, written):
            yield f"The deletion of {written.word} was acknowledged and is lost."
        for version, edit in enumerate(written.edits, 2):
            is_in_message = edit is written.calling_edit or _is_acked_before(edit, case, written.id)
            if edit.is_acked and _edit_id(written, edit) not in case.seqs and not is_in_message:
                yield f"Version {version} of {written.word} was acknowledged and is lost."
    stop_words = {each.id for each in case.written if each.is_stop}
    for reaction in case.reactions if are_reactions_kept else ():
        # A message that was not accepted yet may not be for an agent, nor a thread that has only a stop word. A status
        # message ends with its run.
        message_id = f"{TEAM}:{reaction.message.channel}:{reaction.message.ts}"
        accepted_s = inf if message_id in stop_words else case.accepted_s.get(message_id, inf)
        is_known = not reaction.message.is_deleted and accepted_s < reaction.added_s
        if is_known and reaction.delivery.is_acked and reaction.id not in case.seqs:
            yield f"The ❌ {reaction.id} was acknowledged and is lost."


def order(case: Evidence, within_s: float) -> Iterator[str]:
    """Each agent reads messages in the order of writing; in an existing thread, a mention is accepted first.

    A message that was accepted `within_s` before a newer one was read is read first.
    """
    in_order = sorted((each for each in case.written if each.id in case.seqs), key=lambda each: case.seqs[each.id])
    if in_order and in_order[0].in_existing_thread and f"<@{BOT}>" not in in_order[0].message.text:
        yield f"{in_order[0].word} was accepted before a mention of the agent."
    ours = [each for each in case.written if case.is_for_agent(each)]
    acked_s = {each.id: each.acked_s for each in ours}
    written_s = {each.id: each.message.posted_s for each in ours}
    authors = {each.id: each.message.user for each in ours}
    for each in ours:
        edits = [edit for edit in _accepted_edits(case, each) if edit[1] != each.id]
        written_s |= {entry_id: time_of(edit.event["event_ts"]) for _, entry_id, edit in edits}
        authors |= {entry_id: each.message.user for _, entry_id, _ in edits}
    for agent, rows in case.rows.items():
        as_talk = {each for row in rows for each in row.get("metadata", {}).get("talk", ())}
        ids = (each for each in case.delivered[agent] if each in written_s and each not in as_talk)
        for one, other in combinations(ids, 2):
            if written_s[one] <= written_s[other] or not (case.all_may_steer or authors[one] == authors[other]):
                continue
            if case.seqs[other] < case.seqs[one]:
                yield f"{agent} read {one} before {other}, which was written and accepted earlier."
            elif case.accepted_s[other] + within_s < case.read_s[one]:
                yield f"{agent} read {one} before {other}, which is older and was waiting."
            elif acked_s.get(other, inf) < written_s[one] and _must_be_first(
                case, other, one, authors[other], written_s[other]
            ):
                yield f"{agent} read {one} before {other}, which was acknowledged when it was written."


def _must_be_first(case: Evidence, older: str, newer: str, author: str, older_s: float) -> bool:
    """Return whether the older message was known to be for an agent, and its thread could be read in time."""
    mention = _mention_before(case, author, older_s) or newer
    is_in_time = case.accepted_s[older] - case.accepted_s[mention] < _OLDER_FIRST_S
    urgent = (each.id for each in case.written if "! " in each.message.text)
    after_urgent = any(case.seqs[mention] <= case.seqs.get(each, inf) < case.seqs[older] for each in urgent)
    return case.seqs[mention] < case.seqs[newer] and is_in_time and not after_urgent


def overtaken(case: Evidence, within_s: float) -> Iterator[str]:
    """A message is not read after its deletion, nor in an old version after an edit, whichever event arrived first.

    The edit or deletion was accepted before the message was, or `within_s` before it was read.
    """
    for written in case.written:
        deletion, versions = f"{written.id}:deleted", case.versions_read(written.word)
        if not case.times_delivered(written.id) or not versions or written.id not in case.seqs:
            continue
        # Of talk it is not known when it was read.
        until_s = max(case.accepted_s[written.id], case.read_s.get(written.id, 0.0) - within_s)
        if case.accepted_s.get(deletion, inf) < until_s:
            yield f"{written.word} was read after its deletion."
        for version, entry_id, _ in _accepted_edits(case, written):
            if versions[0] < version and case.accepted_s[entry_id] < until_s:
                yield f"Version {versions[0]} of {written.word} was read after version {version} was accepted."


def latest(case: Evidence, *, may_miss_early: bool) -> Iterator[str]:
    """An agent knows the last version of each message to it that it has read, or its deletion.

    `may_miss_early`: a process that handled an edit may not tell the one that accepts the message afterwards.
    """
    for written in case.written:
        is_read = case.times_delivered(written.id) and written.id in case.seqs
        if written.is_stop or not is_read or not case.took_part(written):
            continue
        deletion = f"{written.id}:deleted"
        last_read = {versions[-1] for agent in case.rows if (versions := case.versions_read(written.word, agent))}
        edits = _accepted_edits(case, written, with_early=not may_miss_early)
        version, edit = max((each[:2] for each in edits), default=(1, written.id))
        is_stopped = edit in case.waiting or case.end_of(edit) in ("withdrawn", "refused")
        is_known = max(last_read, default=0) >= version  # it may have read a newer one in the thread
        is_known = is_known or is_stopped or deletion in case.seqs
        if not is_known:
            yield f"The agent knows version {sorted(last_read)} of {written.word}; {version} is the last accepted one."
        is_known = case.times_delivered(deletion) or deletion in case.waiting
        is_known = is_known or case.end_of(deletion) in ("withdrawn", "refused")
        began_a_run = written.id in (row.get("metadata", {}).get("message") for row in case.all_rows)
        if deletion in case.seqs and not is_known and not began_a_run:
            yield f"{written.word} was read, then deleted, and the agent does not know."


def _accepted_edits(
    case: Evidence, written: WrittenMessage, *, with_early: bool = True
) -> list[tuple[int, str, EventDelivery]]:
    """Return version, entry id and event of each accepted edit; `with_early`, also of the ones before their message."""
    found = []
    for version, edit in enumerate(written.edits, 2):
        if (entry_id := _edit_id(written, edit)) in case.seqs:
            found.append((version, entry_id, edit))
        elif edit is written.calling_edit or (with_early and _is_acked_before(edit, case, written.id)):
            found.append((version, written.id, edit))
    return found


def _edit_id(written: WrittenMessage, edit: EventDelivery) -> str:
    return f"{written.id}:edit:{edit.event['event_ts']}"


def _is_acked_before(delivery: EventDelivery, case: Evidence, entry_id: str) -> bool:
    """Return whether an event was acknowledged before an entry was accepted."""
    return delivery.acked_s is not None and delivery.acked_s < case.accepted_s.get(entry_id, 0.0)


def _was_deleted_first(case: Evidence, written: WrittenMessage) -> bool:
    """Return whether a message was deleted before it was known to be for an agent, and was not accepted."""
    return written.id not in case.seqs and _was_deleted_before_mention(case, written)


def _was_deleted_before_mention(case: Evidence, written: WrittenMessage) -> bool:
    """Return whether a message was deleted before it was known to be for an agent."""
    mention = _mention_before(case, written.message.user, written.message.posted_s)
    deletion = written.deletion
    return deletion is not None and _is_acked_before(deletion, case, mention)


def _mention_before(case: Evidence, author: str, at_s: float) -> str:
    """Return the id of the first accepted mention until then: one of the author, else of anyone; blank: none."""
    found = [each for each in _accepted_mentions(case) if each.message.posted_s <= at_s]
    own = [each.id for each in found if each.message.user == author]
    return min(own or [each.id for each in found], key=case.seqs.__getitem__, default="")


def _accepted_mentions(case: Evidence) -> list[WrittenMessage]:
    """Return the accepted messages that call an agent."""
    return [each for each in case.written if each.id in case.seqs and (each.is_mention or not each.in_existing_thread)]


def held(case: Evidence) -> Iterator[str]:
    """Each message that a stop holds back is counted in a notice posted after the message was accepted."""
    counts = [(post.posted_s, int(found[1])) for post in case.notices if (found := _UNREAD.search(post.text))]
    waiting = [written for written in case.written if written.id in case.waiting and not written.is_stop]
    for written in waiting:
        if not any(posted_s > case.accepted_s[written.id] for posted_s, _ in counts):
            yield f"{written.word} is pending, and no later notice counts it."
    if sum(count for _, count in counts) < len(waiting):
        yield f"{len(waiting)} messages are pending, and the notices count {[count for _, count in counts]}."


def idle_stops(case: Evidence, idle: Collection[str]) -> Iterator[str]:
    """A stop without an active run gets one reply: that nothing runs, or that it stops workers."""
    for written in case.written:
        replies = [*_replies(case, written, "Nothing is running"), *_replies(case, written, "🛑 I am stopping")]
        texts = [post.text for post in replies] if written.is_stop else []
        if len(texts) > 1 or (not texts and written.id in idle and written.id in case.seqs):
            yield f"The replies to {written.id}, a stop without an active run, are: {texts}."


def stopped_before_read(case: Evidence) -> Iterator[str]:
    """If a message is stopped before it is read, one reply names the user who stopped it or says it is withdrawn.

    One that had waited waits again after the first stop; each of its runs has its own reply.
    """
    for written in case.written:
        if case.end_of(written.id) == "withdrawn" and f"{written.id}:deleted" not in case.seqs:
            texts = [post.text for post in _replies(case, written, "🗑️ Withdrawn")]
            # If its run was stopped by another person first, the author withdraws what would wait for the next run.
            texts = texts or [post.text for post in _replies(case, written, "🛑 Stopped by ")]
            runs = sum(each.first == written.id for each in case.observed)
            if not 1 <= len(texts) <= max(1, runs):
                yield f"{written.word} was stopped before it was read, and the replies are {texts}."


def crossed_out(case: Evidence, within_s: float) -> Iterator[str]:
    """A pending message with an ❌ of its author is withdrawn, and a notice of that has such an ❌.

    An ❌ whose event overtakes that of its message has no effect on it.
    """
    for written in case.written:
        own = [each for each in case.reactions if each.message is written.message and each.user == written.message.user]
        if written.id not in case.seqs:  # talk
            continue
        known = (each.id for each in own if case.seqs.get(each.id, 0) > case.seqs[written.id])
        accepted_s = min((case.accepted_s[each] for each in known), default=inf)
        if written.id in case.waiting and accepted_s < inf and not written.is_stop:
            yield f"{written.word} is pending, and its author has withdrawn it."
        if accepted_s + within_s < case.read_s.get(written.id, 0.0) and written.id not in case.runs_by_message:
            yield f"{written.word} was read after its author had withdrawn it."
        if not own and (replies := _replies(case, written, "🗑️ Withdrawn")):
            yield f"{written.word} is called withdrawn, and its author did not withdraw it: {replies[0].text}"


def refusals(case: Evidence) -> Iterator[str]:
    """Each refused message gets its reason, once."""
    for written in case.written:
        if case.end_of(written.id) != "refused":
            continue
        key = f":refused:{written.id}:"
        texts = [post.text for post in case.notices if key in post.key or _is_end_of_run(case, written, post)]
        if not texts:
            yield f"{written.word} was refused without a reason."
        elif len(texts) > 1:
            yield f"{written.word} was refused several times: {texts}."


def _replies(case: Evidence, written: WrittenMessage, *starts: str) -> list[SlackMessage]:
    """Return the notices with one of these starts for a message, or for a run that it was to begin."""
    posts = (post for post in case.notices if post.text.startswith(starts))
    return [post for post in posts if f":{written.id}:" in f":{post.key}" or _is_end_of_run(case, written, post)]


def _is_end_of_run(case: Evidence, written: WrittenMessage, post: SlackMessage) -> bool:
    runs = case.runs_by_message[written.id]
    return post.text.startswith(("🛑", "⚠️")) and any(post.key.startswith(f"{run}:") for run in runs)
