"""Post the question of a person who used an action on a message, and admit it as theirs; each post is sent once.

The key of the post follows from the entry, so that a repeated entry finds its post and admits the same message.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from connector import texts
from connector.events import ASK, SUMMARISE, ThreadAddress
from connector.formatting.content import Content
from connector.formatting.inline import escape
from connector.message_text import quote
from connector.slack_api.client import answer_of, best_effort, key_of
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot

if TYPE_CHECKING:
    from connector.conversations.state import ConversationState
    from connector.protocols import InboxEntry
    from connector.records import LogCommand

ASKS = frozenset({ASK, SUMMARISE})
# Of the question in Slack; the agent reads all of it.
_SHOWN_CHARS = 1000
# Of the quotes of a thread: about 4,000 tokens.
_MOST_CHARS = 16_000


async def ask(state: ConversationState, entry: InboxEntry, command: LogCommand) -> str:
    """Post a question about a message, or the wish for a summary of its thread, and admit it as the person's message.

    If Slack does not permit that, tell the person why in a direct message.
    """
    place, workspace = ThreadAddress.parse(state.id), state.workspace
    is_private = command.kind == SUMMARISE and bool(command.argument)
    try:
        if is_private:
            target, quoted = await _dm_with(state, command.user), await _thread(state, place)
            link = await permalink(state, command.target)
            question, shown = texts.SUMMARISE_QUOTED, texts.asks_summary(command.user, link)
        elif command.kind == SUMMARISE:
            target, quoted, question = place, "", texts.SUMMARISE
            shown = texts.asks(command.user, texts.SUMMARISE)
        else:
            target, quoted, question = place, await _message(state, command), command.argument
            shown = texts.asks(command.user, _shortened(question))
        ts = await post_once(state, entry, command, target, shown)
    except SlackCallFailed as e:
        await tell(state, entry, command, texts.not_asked(place.channel, e.error))
        return ""
    # With a mention, it is for the agent also in a muted thread, and where only mentions are answered.
    text = f"<@{workspace.router.bot_user}> {escape(question)}"
    message = replace(target.message(ts, text), user=command.user, quoted=quoted, dm_threads=is_private)
    await workspace.admit_asked(message, command.instance)
    return ""


async def post_once(
    state: ConversationState, entry: InboxEntry, command: LogCommand, place: ThreadAddress, markup: str
) -> str:
    """Post the message of the entry of a command, once; return its ts.

    Raises:
        SlackCallFailed: Slack refuses it.
    """
    client, in_doubt, key = state.workspace.background.client, state.cleanup.is_inherited(entry), f"{entry.id}:root"

    async def attempt() -> str:
        nonlocal in_doubt
        was_in_doubt, in_doubt = in_doubt, True
        content, confirm = Content(markup), state.lease.confirm
        return await client.post(place, content, key, in_doubt=was_in_doubt, since=command.at, confirm=confirm)

    return await client.retry_until_done(attempt)


async def tell(state: ConversationState, entry: InboxEntry, command: LogCommand, markup: str) -> None:
    """Post a text to the person of a command in a direct message: once, if the app may begin these."""
    try:
        await post_once(state, entry, command, await _dm_with(state, command.user), markup)
    except SlackCallFailed:
        arguments, client = {"channel": command.user, "text": markup}, state.workspace.background.client
        await best_effort(client.call("chat.postMessage", arguments, CallSlot(run=command.user)))


async def permalink(state: ConversationState, ts: str) -> str:
    """Return the address of a message in the conversation's channel; blank if Slack does not have it."""
    arguments = {"channel": ThreadAddress.parse(state.id).channel, "message_ts": ts}
    call = partial(state.workspace.background.client.call, "chat.getPermalink", arguments, CallSlot())
    try:
        return str((await state.workspace.background.client.retry_until_done(call)).get("permalink", ""))
    except SlackCallFailed:
        return ""


async def _dm_with(state: ConversationState, user: str) -> ThreadAddress:
    """Return the direct messages of a person and the bot; errors as of `SlackClient.direct_with`."""
    client = state.workspace.background.client
    channel = await client.retry_until_done(partial(client.direct_with, user))
    return ThreadAddress(ThreadAddress.parse(state.id).team, channel, None)


async def _message(state: ConversationState, command: LogCommand) -> str:
    """Return the message that a question is about, as a quote.

    Raises:
        SlackCallFailed: Slack does not have it, or refuses.
    """
    client, channel = state.workspace.background.client, ThreadAddress.parse(state.id).channel
    found = await client.retry_until_done(partial(client.history.message, channel, command.target))
    if found is None:
        raise SlackCallFailed("conversations.replies", "message_not_found")
    return quote(found, channel)


async def _thread(state: ConversationState, place: ThreadAddress) -> str:
    """Return the messages of a thread as quotes, oldest first; the oldest ones are left out if it is too long.

    Raises:
        SlackCallFailed: Slack refuses.
    """
    client = state.workspace.background.client

    async def read() -> list[dict[str, Any]]:
        return [each async for each in client.history.messages(place)]

    found = sorted(await client.retry_until_done(read), key=lambda each: float(each["ts"]))
    # Of the bot's own posts, only answers are part of the thread: not its status messages and notices.
    said = [quote(each, place.channel) for each in found if not key_of(each) or answer_of(each) is not None]
    kept: list[str] = []
    room = _MOST_CHARS
    for each in reversed(said):
        room -= len(each)
        if room < 0 and kept:
            break
        kept.insert(0, each)
    left_out = len(said) - len(kept)
    return "\n".join([*([texts.left_out(left_out)] if left_out else []), *kept])


def _shortened(question: str) -> str:
    """Return a question in Slack's markup, cut to a length for the thread."""
    return escape(question if len(question) <= _SHOWN_CHARS else f"{question[: _SHOWN_CHARS - 1].rstrip()}…")
