"""Carry out commands on the log of a conversation, each once: branch, rewind, fork and export it, or begin a thread.

The names of branches follow from the entry, and the answer is stored in one step with the entry's end. A command that
is repeated after a crash finds its branch, and changes nothing more.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING

import structlog

from connector import texts
from connector.conversations.asks import ASKS, ask, permalink, post_once, tell
from connector.events import ThreadAddress, message_of, plain_text, worker_of_run
from connector.formatting.content import counted, one_line
from connector.formatting.inline import escape
from connector.protocols import InboxEntry, LogPlace, Rating, Refused
from connector.records import UNREADABLE, Notice, PendingMessage, ThreadNotice
from connector.slack_api import uploads
from connector.slack_api.client import answer_of, best_effort, key_of
from connector.slack_api.errors import SlackCallFailed

if TYPE_CHECKING:
    from connector.conversations.state import ConversationState
    from connector.events import SlackMessage
    from connector.protocols import ConversationHistory, LogBranch
    from connector.records import LogCommand

log = structlog.get_logger(__name__)

# How long the inbox may wait for the present text of a message.
_LOOK_WITHIN_S = 3.0
_NAME_CHARS = 6
_QUOTE_CHARS = 80
# Those that change the branch that the next run continues.
_MOVES = frozenset({"new", "rewind", "checkout", "rerun"})
# Those that read this branch while they are carried out, also when the next owner repeats them.
_COPIES = frozenset({"fork", "export"})


async def apply_command(state: ConversationState, entry: InboxEntry, command: LogCommand) -> PendingMessage | None:
    """Carry out a command, answer it, and close its entry. Return the message that it makes of the entry, if any."""
    if command.kind in ASKS:
        state.cleanup.carry_out(entry, state.somewhere, partial(ask, state, entry, command))
        return None
    history = state.workspace.history
    is_busy = state.run is not None or state.inbox.run_starter is not None
    where = replace(state.somewhere, user=command.user)
    if where.direct:  # a post there is looked for from this time on
        where = replace(where, ts=command.at)
    if history is None:
        text = texts.NO_HISTORY
    elif command.kind in _MOVES and is_busy:
        text = texts.STOP_FIRST
    elif command.kind in _MOVES and state.copying:
        text = texts.COPIES_FIRST
    elif command.kind in _WORK:
        if command.kind in _COPIES:
            state.copying.add(entry.seq)
        state.cleanup.carry_out(entry, where, partial(_work, state, history, entry, command))
        return None
    else:
        try:
            if command.kind == "rerun":
                return await _rerun(state, history, entry, command)
            text = await _move(state, history, entry, command)
        except Refused as e:
            text = str(e)
    await state.announce(Notice(where, f"{entry.id}:reply", text), {entry.seq: "done"})
    return None


def branch_name(kind: str, entry_id: str) -> str:
    """Return the name of the branch that belongs to an entry."""
    return f"{kind}-{sha256(entry_id.encode()).hexdigest()[:_NAME_CHARS]}"


async def _work(state: ConversationState, history: ConversationHistory, entry: InboxEntry, command: LogCommand) -> str:
    try:
        return await _WORK[command.kind](state, history, entry, command)
    finally:
        state.copying.discard(entry.seq)


async def _move(state: ConversationState, history: ConversationHistory, entry: InboxEntry, command: LogCommand) -> str:
    key, fence = (command.instance, state.id), state.lease.claim.token
    match command.kind:
        case "branches":
            return "\n".join(map(_line, await history.branches(*key)))
        case "new":
            return texts.begun_anew(await history.begin_anew(*key, branch_name("new", entry.id), fence=fence))
        case "checkout":
            return texts.checked_out(command.argument, await history.checkout(*key, command.argument, fence=fence))
        case "rewind":
            name, count = branch_name("left", entry.id), int(command.argument or 1)
            return texts.rewound(await history.rewind(*key, count, name, fence=fence))
    raise Refused(texts.NO_HISTORY)


def _line(branch: LogBranch) -> str:
    made = f"made {datetime.fromtimestamp(branch.created_s, UTC):%d %b %H:%M} UTC"
    facts = (counted(branch.states, "state"), made, branch.origin)
    return f"{'→' if branch.is_current else '•'} `{branch.name}`: {', '.join(filter(None, facts))}"


async def _rerun(
    state: ConversationState, history: ConversationHistory, entry: InboxEntry, command: LogCommand
) -> PendingMessage:
    """Rewind to before a message, and make the entry this message, with its present text.

    Raises:
        Refused: it is not on the current branch, or Slack does not have it.
    """
    message = await _present(state, command.target)
    prompt = plain_text(message.text, state.workspace.router.bot_user) or ", ".join(message.file_names)
    if message.quoted:
        prompt = f"{prompt}\n\n{plain_text(message.quoted, '')}".strip()
    if not prompt:
        raise Refused(texts.NO_TEXT_LEFT)
    name, place = branch_name("left", entry.id), LogPlace(message.id)
    left = await history.rewind(command.instance, state.id, place, name, fence=state.lease.claim.token)
    again = PendingMessage(
        message, command.instance, prompt, entry.id, entry.seq, edited_ts=command.at, by=command.user
    )
    notice = Notice(state.somewhere, f"{entry.id}:reply", texts.runs_again(prompt, left))
    await state.cleanup.end_run({}, (notice,), replaced={entry.seq: {**asdict(again), "is_late": True}})
    return again


async def _present(state: ConversationState, ts: str) -> SlackMessage:
    """Return a message of the conversation as Slack has it now."""
    place, client = ThreadAddress.parse(state.id), state.workspace.background.client
    try:
        async with asyncio.timeout(_LOOK_WITHIN_S):
            found = await client.history.message(place.channel, ts)
        if found and key_of(found):  # its author would be the bot
            raise Refused(texts.ASK_AGAIN)
        message = message_of({**(found or {}), "channel": place.channel}, place.team) if found else None
    except (SlackCallFailed, TimeoutError) as e:
        raise Refused(texts.NO_ANSWER_FROM_SLACK) from e
    except UNREADABLE as e:
        raise Refused(texts.NO_SUCH_MESSAGE) from e
    if message is None:
        raise Refused(texts.NO_SUCH_MESSAGE)
    begins = place.thread_ts == message.ts
    return replace(message, thread_ts=None if begins else place.thread_ts, dm_threads=begins and message.direct)


async def _export(
    state: ConversationState, history: ConversationHistory, entry: InboxEntry, command: LogCommand
) -> str:
    try:
        return await _share(state, entry, command, await history.export(command.instance, state.id))
    except Refused as e:
        return str(e)


async def _share(state: ConversationState, entry: InboxEntry, command: LogCommand, content: str) -> str:
    """Post a file, once; return why that is not possible, blank: it is done."""
    client, in_doubt = state.workspace.background.client, state.cleanup.is_inherited(entry)
    share = partial(uploads.share, client, ThreadAddress.parse(state.id), f"{entry.id}:file", content)
    try:
        await client.retry_until_done(partial(share, in_doubt=in_doubt, since=command.at, confirm=state.lease.confirm))
    except SlackCallFailed as e:
        return texts.no_file(e.error)
    return ""


async def _fork(state: ConversationState, history: ConversationHistory, entry: InboxEntry, command: LogCommand) -> str:
    """Begin a thread whose agent knows the conversation up to a place; return the line for the old thread."""
    place, workspace = ThreadAddress.parse(state.id), state.workspace
    try:
        upto, instance = await _upto(state, command)
        await history.fork(instance, state.id, upto, "")
        link = await permalink(state, command.target or place.thread_ts or command.at)
        ts = await post_once(
            state,
            entry,
            command,
            replace(place, thread_ts=None),
            texts.forked_from(link, one_line(command.argument, _QUOTE_CHARS)),
        )
        new = replace(place, thread_ts=ts)
        await history.fork(instance, state.id, upto, new.conversation_id)
    except Refused as e:
        return str(e)
    except SlackCallFailed as e:
        return texts.no_thread(e.error)
    notice = asdict(ThreadNotice(new.message(ts), texts.FORKED))
    facts = {f"person:{command.user}": command.at, "people": command.at}
    known = InboxEntry(f"{entry.id}:forked", "notice", notice)
    await workspace.runs.admit(new.conversation_id, known, instance, facts)
    return texts.forked_to(await permalink(state, ts))


async def _upto(state: ConversationState, command: LogCommand) -> tuple[LogPlace | None, str]:
    """Return the place up to which a fork goes (`None`: the latest answer), and the instance that has it.

    Raises:
        Refused: the message is no answer of an agent.
        SlackCallFailed: Slack refuses to show it.
    """
    if command.prompt_id or not command.target:
        return LogPlace(command.prompt_id) if command.prompt_id else None, command.instance
    client, channel = state.workspace.background.client, ThreadAddress.parse(state.id).channel
    found = await client.retry_until_done(partial(client.history.message, channel, command.target)) or {}
    if worker := worker_of_run(key_of(found).partition(":")[0]):
        raise Refused(texts.no_fork_of_worker(worker))
    answer = answer_of(found)
    if answer is None:
        raise Refused(texts.NO_ANSWER_THERE)
    return LogPlace(answer.prompt_id, answer.part), answer.instance


async def _begin(state: ConversationState, _: ConversationHistory, entry: InboxEntry, command: LogCommand) -> str:
    """Begin a thread with a message of a person that is not in Slack, or of an app, and admit it as theirs."""
    place, workspace = ThreadAddress.parse(state.id), state.workspace
    shown = escape(command.shown) if command.shown else texts.asks(command.user, escape(command.argument))
    try:
        ts = await post_once(state, entry, command, replace(place, thread_ts=None), shown)
    except SlackCallFailed as e:
        log.warning("thread.not_begun", channel=place.channel, entry=entry.id, error=str(e))
        if not command.app:
            await tell(state, entry, command, texts.closed(place.channel, e.error))
        return ""
    new = replace(place, thread_ts=ts)
    message = replace(new.message(ts, command.argument), user=command.user, thread_ts=None, dm_threads=True)
    facts = {f"person:{command.user}": ts, "people": ts}
    if command.app:
        message, facts = replace(message, bot=command.user, app=command.app), {}
    begun = PendingMessage(message, command.instance, command.argument, message.id)
    stored = InboxEntry(message.id, "message", asdict(begun))
    await workspace.runs.admit(new.conversation_id, stored, command.instance, facts)
    return ""


async def _rate(state: ConversationState, history: ConversationHistory, entry: InboxEntry, command: LogCommand) -> str:
    place, answer = ThreadAddress.parse(state.id), LogPlace(command.prompt_id, command.part)
    message_id = f"{place.team}:{place.channel}:{command.target}"
    rating = Rating(entry.id, message_id, answer, command.user, command.reward, float(command.at), command.argument)
    try:
        await history.rate(command.instance, state.id, rating)
    except Refused as e:
        log.warning("feedback.not_stored", conversation=state.id, reason=str(e))
    return ""


async def _recipe(state: ConversationState, _: ConversationHistory, entry: InboxEntry, command: LogCommand) -> str:
    recipes = state.workspace.recipes
    if recipes is None:
        return texts.NO_RECIPES
    try:
        return await recipes.carry_out(command.instance, state.id, command.user, entry.id, command.argument)
    except Refused as e:
        return str(e)


async def _say(state: ConversationState, _: ConversationHistory, entry: InboxEntry, command: LogCommand) -> str:
    """Post a text at the top level of a channel."""
    place = replace(ThreadAddress.parse(state.id), thread_ts=None)
    await best_effort(post_once(state, entry, command, place, escape(command.argument)))
    return ""


async def _schedule(state: ConversationState, _: ConversationHistory, entry: InboxEntry, command: LogCommand) -> str:
    if (schedules := state.workspace.schedules) is None:
        return texts.NO_SCHEDULES
    place = ThreadAddress.parse(state.id)
    answer = await schedules.carry_out(place, command.user, command.instance, command.argument, entry.id)
    if state.workspace.home is not None:
        state.workspace.home.changed(command.user)
    return answer


async def _memory(state: ConversationState, _: ConversationHistory, entry: InboxEntry, command: LogCommand) -> str:
    place, memory = ThreadAddress.parse(state.id), state.workspace.memory
    if memory is None:
        return texts.NO_MEMORY
    channel = f"{place.team}:{place.channel}"
    try:
        if command.argument != "export":
            return await memory.carry_out(channel, command.user, command.argument, entry.id)
        if content := await memory.export(channel):
            return await _share(state, entry, command, content)
    except Refused as e:
        return str(e)
    return texts.NO_FACTS


# The commands that may take time: they are carried out in the background.
_WORK = {
    "fork": _fork,
    "export": _export,
    "begin": _begin,
    "rate": _rate,
    "say": _say,
    "schedule": _schedule,
    "recipe": _recipe,
    "memory": _memory,
}
