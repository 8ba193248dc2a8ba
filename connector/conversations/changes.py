"""Decide how edits, deletions and stops take effect in a conversation."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from connector import texts
from connector.events import Consent, RequestClick, StopRequest, ThreadAddress
from connector.formatting.content import Content
from connector.formatting.inline import escape
from connector.protocols import StateChanges
from connector.records import Notice, RunSummary, ThreadNotice
from connector.runs.worker_report import report
from connector.slack_api.errors import error_boundary
from connector.slack_api.rate_limiter import CallSlot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from connector.conversations.state import ConversationState
    from connector.events import SlackMessage
    from connector.message_text import SlackFile
    from connector.protocols import End, InboxEntry
    from connector.records import PendingMessage
    from connector.runs.slack_run import SlackRun


async def apply_edit(state: ConversationState, entry: InboxEntry, edit: PendingMessage) -> None:
    """Replace the text of a pending message, or send the model a correction of a delivered one.

    Edits may arrive out of order; the latest one wins.
    """
    inbox, run, message_id = state.inbox, state.run, edit.message.id
    thread = await state.workspace.runs.thread_of(state.id)
    if edit.edited_ts < thread.changed(edit.message.ts):
        await state.close(entry)
        return
    removed = len(set(edit.old_files) - {each.id for each in edit.message.files})
    added = tuple(each for each in edit.message.files if each.id not in edit.old_files)
    correction = replace(
        edit, message=replace(edit.message, files=added), prompt=texts.correction(edit.prompt, removed)
    )
    target = inbox.find(message_id)
    if target is None:
        await _report_late(state, entry, correction)
        return
    edited = replace(target, message=edit.message, prompt=edit.prompt, edited_ts=edit.edited_ts)
    dropped = _files_without(target.message, edited.message)
    has_new_files = bool(dropped or _files_without(edited.message, target.message))
    is_injected = run is not None and target.id in inbox.given and target.id != run.first.id
    if is_injected and has_new_files and run is not None and await run.steering.withdraw(target.id):
        inbox.take_back_one(target.id)
    if target.id in inbox.given and not (
        run is not None and (await run.edit(edited) or await _is_left_unread(state, target))
    ):
        await _queue_change(state, entry, replace(correction, instance=target.instance))
        return
    inbox.replace(edited)
    is_first = run is not None and run.first.id == edited.id
    if run is not None and is_first:
        run.record = replace(run.record, first=edited)
    await _drop_files(state, target, dropped)
    record = asdict(run.record) if run is not None and is_first else None
    closed: dict[int, End] = {**_without_corrections(state, message_id), entry.seq: "done"}
    replaced = {target.seq: asdict(edited)}
    # A message that was edited after a stop counts as newer to the next owner, unless it is known to be held.
    if run is None and inbox.is_held(edited):
        notices = state.notices_of_held()  # stored together: the next owner takes held messages for announced
        await state.cleanup.end_run(closed, notices, held_seq=inbox.latest_held_seq(), replaced=replaced)
        return
    held_seq = inbox.latest_held_seq() if inbox.is_held(edited) else None
    await state.lease.write(StateChanges(run=record, replaced=replaced, closed=closed, held_seq=held_seq))
    if has_new_files and run is not None and target.id in inbox.waiting:
        inbox.take_back_one(target.id)
        await run.steering.insert(edited)


def _files_without(message: SlackMessage, other: SlackMessage) -> tuple[SlackFile, ...]:
    """Return the files of a message that another version of it lacks."""
    return tuple(each for each in message.files if each.id not in {file.id for file in other.files})


async def _drop_files(state: ConversationState, inbound: PendingMessage, files: Sequence[SlackFile]) -> None:
    """Remove the files of a message that its author withdraws or edits before the model reads it.

    Call it before the change is stored: if the process is killed in between, the next one repeats both.
    """
    files = state.inbox.only_in(inbound, files)
    ids = [each.id for each in files if each.id]
    if not ids:
        return
    with error_boundary("file.not_dropped", conversation=state.id):
        if state.run is not None:
            await state.run.files.drop(files)
        else:
            await state.workspace.sessions.drop_files(inbound.instance, state.id, ids)


async def apply_deletion(state: ConversationState, entry: InboxEntry, deletion: PendingMessage) -> None:
    """Withdraw a pending message; stop the run if it is its first message; otherwise report it to the model."""
    inbox, run = state.inbox, state.run
    target = inbox.find(deletion.message.id)
    gone = replace(deletion.message, files=())  # they are not read for the report
    taken_back = replace(deletion, message=gone, prompt=texts.taken_back(deletion.prompt))
    if target is None:
        await _report_late(state, entry, taken_back)
    elif await _leaves(state, target):
        closed = _withdrawn(state, entry, target)
        await _drop_files(state, target, target.message.files)
        await state.lease.write(StateChanges(closed=closed))
        if not entry.id.endswith(":deleted"):  # an edit withdraws it
            state.workspace.background.unmark_accepted(target.message)
    elif run is not None and target.id == run.first.id and not run.is_over:
        state.workspace.observer.stopped("deletion", deletion.message.user, state.id, run.record.id)
        await _stop_run(state, run, entry, deletion.message.user, deletion.written_s, withdraws_first=True)
    elif run is not None and target.id == run.first.id and await _is_left_unread(state, target):
        run.stop(deletion.message.user, withdraws_first=True)  # the next run does not read it
        await state.lease.write(StateChanges(run=asdict(run.record), closed={entry.seq: "done"}))
    else:
        await _queue_change(state, entry, replace(taken_back, instance=target.instance))


async def apply(state: ConversationState, entry: InboxEntry, gesture: StopRequest | Consent | RequestClick) -> None:
    """Apply a stop, a consent, or an answer to a request."""
    match gesture:
        case StopRequest():
            await apply_stop(state, entry, gesture)
        case Consent():
            await apply_consent(state, entry, gesture)
        case RequestClick():
            await apply_click(state, entry, gesture)


async def apply_stop(state: ConversationState, entry: InboxEntry, stop: StopRequest) -> None:
    """Stop the active run, or the one about to begin. Messages older than the stop start no run by themselves.

    A stop reaction of the author on a pending message that begins no run withdraws this message only; on one that the
    run has read, it is answered. A stop word that would begin a thread of direct messages stops the only run there.
    """
    run, starter = state.run, state.inbox.run_starter
    if stop.agent:
        found = run is not None and not run.is_over and run.stop_agent(stop.agent)
        text = texts.stopping_agent(stop.agent) if found else texts.no_agent_at_work(stop.agent)
        state.cleanup.answer(entry, ThreadNotice(stop.message or state.somewhere, text))
        return
    if run is None and starter is None and stop.message is not None and stop.message.begins_dm_thread:
        text = await state.workspace.stop_in_dm(stop, stop.message.place)
        state.cleanup.answer(entry, ThreadNotice(stop.message, text))
        return
    if (target := _own_pending(state, stop)) is not None and await _leaves(state, target):
        closed = _withdrawn(state, entry, target)
        await _drop_files(state, target, target.message.files)
        notice = Notice(target.message, f"{target.id}:withdrawn", texts.withdrawn(target.prompt))
        await state.announce(notice, closed)
        state.workspace.background.unmark_accepted(target.message)
        return
    state.workspace.observer.stopped(stop.door, stop.user, state.id, run.record.id if run is not None else None)
    # A stop accepted before the run's first message, or older than a message that the run began with, met no run; its
    # author gets an answer that nothing runs.
    is_before = run is not None and (entry.seq < run.first.seq or float(stop.at) < float(run.record.newest_ts))
    is_meant = run is not None and not is_before and run.is_meant(stop)
    # The run that a button or an operator names has ended if none is active.
    names_run = stop.run is not None and stop.ts is None
    is_recent = starter is not None and float(stop.at) >= float(starter.message.ts)
    stops_starter = run is None and is_recent and not names_run
    if run is not None and is_meant and run.can_be_stopped:
        is_own = (stop.ts, stop.user) == (run.first.message.ts, run.first.message.user)
        await _stop_run(state, run, entry, stop.user, float(stop.at), withdraws_first=is_own)
    elif run is not None and not run.is_over and stop.is_own and _message_id(state, stop) in run.delivered_ids:
        read = Notice(state.somewhere, f"{_message_id(state, stop)}:read", texts.READ_ALREADY)
        await state.announce(read, {entry.seq: "done"})
    elif starter is not None and stops_starter and stop.ts in (None, starter.message.ts):
        await _stop_starter(state, entry, stop, starter)
    elif (run is None or run.is_over) and stop.message is not None and (count := await state.stop_all_workers(stop)):
        state.cleanup.answer(entry, ThreadNotice(stop.message, texts.stopping_workers(count)))
    else:
        if stop.ts is None and stop.run is None:  # older messages may wait for this run, or still arrive
            await state.hold(float(stop.at))
        if stop.message is not None and (run is None or is_before or is_meant):
            state.cleanup.answer(entry, ThreadNotice(stop.message, texts.NOTHING_RUNS))
        else:
            await state.close(entry)


async def apply_consent(state: ConversationState, entry: InboxEntry, consent: Consent) -> None:
    """Let a person steer the active run if its owner allows it. Every click changes the question or is answered.

    A click of another user gets a private answer.
    """
    run, background = state.run, state.workspace.background
    place = state.somewhere
    if run is None or run.record.id != consent.run or run.is_over:
        text = texts.OVER_ALREADY
        await state.close(entry)
    elif consent.by != run.owner:
        background.spawn(background.client.post_ephemeral(place.place, consent.by, Content(texts.NOT_YOUR_RUN)))
        await state.close(entry)
        return
    else:
        is_first = run.consent(consent)
        if is_first:
            state.workspace.observer.consented(consent.by, consent.user, state.id, run.record.id, allows=consent.allows)
        await state.lease.write(StateChanges(run=asdict(run.record), closed={entry.seq: "done"}))
        if is_first and consent.allows:
            run.steering.on_consent(consent.user)
        names = [await background.users.known_name_of(user) for user in (run.owner, consent.user)]
        text = texts.consented(*names, allows=run.record.consents[consent.user])
    background.spawn(background.client.update(place.channel, consent.ts, lambda: Content(escape(text)), CallSlot()))


async def apply_click(state: ConversationState, entry: InboxEntry, click: RequestClick) -> None:
    """Apply an answer to a request of the active run. Every click takes effect, or its user reads why not."""
    run, text = state.run, texts.NO_REQUEST
    if run is not None and run.record.id == click.run and not run.is_over:
        text = await run.requests.click(click, {entry.seq: "done"})
    if text:
        state.cleanup.whisper(entry, click, state.somewhere.place, text)
    if state.workspace.home is not None:
        state.workspace.home.changed(click.by)


async def _stop_run(  # noqa: PLR0913 - the parts of a stop
    state: ConversationState, run: SlackRun, entry: InboxEntry, user: str, at_s: float, *, withdraws_first: bool
) -> None:
    """Stop the active run and the workers that it dispatched; `at_s` of the request is in seconds since the epoch."""
    run.stop(user, withdraws_first=withdraws_first)
    await state.stop_workers(run.record)
    await state.hold(at_s)
    record, held_seq = asdict(run.record), state.inbox.latest_held_seq()
    await state.lease.write(StateChanges(run=record, held_seq=held_seq, closed={entry.seq: "done"}))
    # Again: a worker that was being dispatched is listed now, or its dispatch finds the run stopped.
    await state.stop_workers(run.record)


async def _stop_starter(
    state: ConversationState, entry: InboxEntry, stop: StopRequest, starter: PendingMessage
) -> None:
    """Stop a run before it begins with this message."""
    inbox, background = state.inbox, state.workspace.background
    inbox.remove((starter,))
    await state.hold(float(stop.at))
    held_seq = inbox.latest_held_seq() if inbox.run_starter is None else 0  # the next run reads the held messages
    if starter.is_marked_accepted:
        background.unmark_accepted(starter.message)
    by = await background.users.known_name_of(stop.user)
    is_own = stop.ts == starter.message.ts and stop.user == starter.message.user
    withdrawn = starter.prompt if is_own else ""
    await _drop_files(state, starter, starter.message.files)
    await report(state.workspace, starter, "cancelled", "", fence=state.lease.claim.token)
    text = texts.stopped(by, RunSummary("cancelled"), inbox.announce_held(()), withdrawn=withdrawn)
    closed: dict[int, End] = {starter.seq: "withdrawn", entry.seq: "done"}
    notice = Notice(starter.message, f"{starter.id}:stopped", text)
    await state.cleanup.end_run(closed, (notice,), held_seq=held_seq)


def _own_pending(state: ConversationState, stop: StopRequest) -> PendingMessage | None:
    """Return the pending message that got a stop reaction of its author; `None`: no such one, or it begins a run."""
    run, inbox = state.run, state.inbox
    found = inbox.find(_message_id(state, stop)) if stop.ts is not None else None
    if found is None or found.message.user != stop.user:
        return None
    begins_a_run = found.id == run.first.id if run is not None else found is inbox.run_starter
    return None if begins_a_run else found


def _message_id(state: ConversationState, stop: StopRequest) -> str:
    """Return the id of the message that carries a stop reaction."""
    place = ThreadAddress.parse(state.id)
    return f"{place.team}:{place.channel}:{stop.ts}"


async def _leaves(state: ConversationState, target: PendingMessage) -> bool:
    """Take a pending message back from the loop, if the loop has it. Returns False if the model has read it."""
    run = state.run
    if target.id not in state.inbox.given or run is None or await run.steering.withdraw(target.id):
        return True
    return target.id != run.first.id and await _is_left_unread(state, target)


async def _is_left_unread(state: ConversationState, target: PendingMessage) -> bool:
    """Return whether the active run is over, has not read this message, and leaves it to the next one."""
    run = state.run
    is_left = run is not None and run.is_over and (target.id != run.first.id or run.is_requeued)
    return is_left and not await state.delivered(target.instance, {target.id})


def _withdrawn(state: ConversationState, entry: InboxEntry, target: PendingMessage) -> dict[int, End]:
    """Remove a message from the inbox; return the entries that its withdrawal closes."""
    state.inbox.remove((target,))
    return {target.seq: "withdrawn", entry.seq: "done", **_without_corrections(state, target.id)}


async def _report_late(state: ConversationState, entry: InboxEntry, change: PendingMessage) -> None:
    """Report a change of a message that has left the inbox, if the model has read that message."""
    if entry.id == change.message.id:  # it only keeps the message, if that arrives later, from being read
        await state.close(entry, "withdrawn")
        return
    for agent in state.workspace.router.names(first=change.instance):
        if await state.delivered(agent, {change.message.id}):
            await _queue_change(state, entry, replace(change, instance=agent))
            return
    await state.close(entry)


async def _queue_change(state: ConversationState, entry: InboxEntry, change: PendingMessage) -> None:
    """Queue a late change for the model: as an injection into the active run, or for the next run."""
    closed = _without_corrections(state, change.message.id)
    data = {**asdict(change), "is_late": True}
    await state.lease.write(StateChanges(replaced={entry.seq: data}, closed=closed))
    state.inbox.add(change)
    if state.run is not None:
        await state.run.steering.insert(change)


def _without_corrections(state: ConversationState, message_id: str) -> dict[int, End]:
    """Drop pending corrections of the message that a newer change supersedes; return their closed entries."""
    waiting = state.inbox.waiting.values()
    old = [each for each in waiting if each.is_late_change and each.message.id == message_id]
    state.inbox.remove(old)
    return {each.seq: "done" for each in old}
