"""Read the messages of a thread that are not addressed to its agent: older ones, talk, and those while it is muted."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from connector.commands import command_of
from connector.events import message_of, plain_text
from connector.protocols import NO_TALK, MessageAuthor, RunFailed, TalkMessage, ThreadTalk
from connector.records import UNREADABLE
from connector.slack_api.client import key_of
from connector.slack_api.errors import SlackCallFailed, error_boundary
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from connector.protocols import ConversationLease, Instance, ThreadFacts
    from connector.records import PendingMessage
    from connector.runs.inbox import Inbox
    from connector.runs.workspace import WorkspaceContext

    Found = dict[str, Any]

log = structlog.get_logger(__name__)

# Without Slack's answer a prompt is read without the talk, which the next one gets.
_WITHIN_S = 4.0
# After a failed read: how long others wait, and until when.
_IMPATIENT_S, _IMPATIENT_FOR_S = 0.3, 30.0
# About 4,000 tokens.
_MOST_CHARS = 16_000


class ThreadReader:
    """Reads the messages of a thread that an instance has not seen since its last turn, each once.

    A message is read once its id is in the log of the instance. Until when the thread was read is stored, too, so that
    Slack is asked only for later messages, and only if there are any.
    """

    def __init__(self, instance: Instance, lease: ConversationLease, inbox: Inbox, workspace: WorkspaceContext) -> None:
        self._instance = instance
        self._lease = lease
        self._inbox = inbox
        self._workspace = workspace
        # Until when the thread was read for each message that is not delivered yet, and the talk that this found.
        self._given: dict[str, tuple[str, ThreadTalk]] = {}
        # Until when the thread was read, as a ts: an older message that arrives later may be known as talk.
        self._read_until = ""
        # Talk from this time on was returned with a message that was then withdrawn.
        self._unread_since = math.inf
        self._reading = asyncio.Lock()

    async def before(self, inbound: PendingMessage, within_s: float = _WITHIN_S) -> ThreadTalk:
        """Return the talk before a message that the instance is about to read; each message is returned once."""
        message, conversation_id = inbound.message, self._lease.conversation_id
        if message.direct or message.worker or inbound.is_late_change:
            return NO_TALK
        async with self._reading:
            with error_boundary("thread.not_read", conversation=conversation_id):
                return await self._unread(inbound, within_s)
        return NO_TALK

    async def _unread(self, inbound: PendingMessage, within_s: float) -> ThreadTalk:
        message, own = inbound.message, f"read:{self._instance.name}"
        _, found = self._given.get(inbound.id, ("", NO_TALK))  # a message may be prepared again
        thread = await self._workspace.runs.thread_of(self._lease.conversation_id)
        since = max([thread.latest.get(own, ""), *(ts for ts, _ in self._given.values())])
        self._read_until = max(self._read_until, since)
        said = [ts for name, ts in thread.latest.items() if name == "talk" or name.startswith("read:")]
        talk, until = NO_TALK, max(message.ts, inbound.edited_ts)
        background, now_s = self._workspace.background, asyncio.get_running_loop().time()
        if message.thread_ts is not None and (not since or any(ts > since for ts in said)):
            try:
                async with asyncio.timeout(within_s if now_s >= background.impatient_until_s else _IMPATIENT_S):
                    talk = await self._read(inbound, thread, since, until)
            except (SlackCallFailed, TimeoutError) as e:
                background.impatient_until_s = now_s + _IMPATIENT_FOR_S
                log.warning("thread.not_read", error=str(e) or "no answer in time")
                return found
        # Some may have arrived by their own events while names were looked up.
        messages = tuple(each for each in (*found.messages, *talk.messages) if self._inbox.find(each.id) is None)
        talk = ThreadTalk(messages, found.left_out + talk.left_out)
        self._given[inbound.id] = until, talk
        self._read_until = max(self._read_until, until)
        return talk

    def on_delivered(self, message_id: str) -> None:
        """Store until when the thread is read."""
        until, _ = self._given.pop(message_id, ("", NO_TALK))
        if until and float(until) <= self._unread_since:
            facts = {f"read:{self._instance.name}": until}
            self._workspace.background.spawn(self._workspace.runs.learn(self._lease.conversation_id, facts))

    def give_up(self, message_id: str) -> None:
        """Forget the talk before a message that will not be delivered with it; a later message gets it."""
        _, talk = self._given.pop(message_id, ("", NO_TALK))
        for each in talk.messages:
            self._unread_since = min(self._unread_since, each.written_s)

    async def _read(self, inbound: PendingMessage, thread: ThreadFacts, since: str, until: str) -> ThreadTalk:
        """Read the thread between two times, as ts.

        Raises:
            SlackCallFailed: Slack refuses, or does not answer.
        """
        history, place = self._workspace.background.client.history, inbound.message.place
        pages = history.messages(place, CallSlot(Priority.PERSON, place.conversation_id), oldest=since)
        found: list[tuple[TalkMessage, bool]] = []
        async for each in pages:
            if float(since or 0) < float(each["ts"]) < float(until) and each["ts"] != inbound.message.ts:
                found += self._talk_of({**each, "channel": place.channel}, thread)
                if self._workspace.router.is_mention(each):  # its event may arrive later
                    person, ts = f"person:{each.get('user')}", each["ts"]
                    first = min(ts, thread.latest.get(person, ts))
                    thread = replace(thread, latest={**thread.latest, person: first})
        ids = {talk.id for talk, _ in found}
        known = await self._delivered(self._instance.name, ids)
        # A message to an agent comes by its own event, and is talk for the others after that agent has read it.
        of_others = await asyncio.gather(
            *(self._delivered(name, ids) for name in self._workspace.router.names() if name != self._instance.name)
        )
        read_by_others = frozenset().union(*of_others)
        new = [talk for talk, is_addressed in found if not is_addressed or talk.id in read_by_others]
        known |= {each.id for _, talk in self._given.values() for each in talk.messages}
        return await self._bounded([each for each in new if each.id not in known and self._inbox.find(each.id) is None])

    async def has_read(self, inbound: PendingMessage) -> bool:
        """Return whether the instance has read a message as talk: it was not known to be for an agent."""
        may_be_talk = inbound.is_aside or inbound.message.bot or inbound.message.ts < self._read_until
        if not may_be_talk or inbound.is_late_change:
            return False
        async with self._reading:
            given = {each.id for _, talk in self._given.values() for each in talk.messages}
            return inbound.id in given or inbound.id in await self._delivered(self._instance.name, {inbound.id})

    async def _delivered(self, instance: str, ids: set[str]) -> frozenset[str]:
        try:
            fence, key = self._lease.claim.token, (instance, self._lease.conversation_id)
            return await self._workspace.sessions.delivered(*key, ids, fence=fence)
        except RunFailed:  # the run reports it
            return frozenset()

    def _talk_of(self, found: Found, thread: ThreadFacts) -> Iterator[tuple[TalkMessage, bool]]:
        """Yield a message as talk, and whether it is addressed to an agent; none for our own, commands and the like."""
        router, ts = self._workspace.router, found["ts"]
        persona, part = found.get("username"), key_of(found).split(":")[1:2]
        is_addressed = False
        if router.is_own_post(found) or part:
            if not (part and part[0].isdigit()) or persona in (None, self._instance.persona.name):
                return
            text, author = found.get("text") or "", MessageAuthor(router.bot_user, str(persona))
            files: tuple[str, ...] = ()
        else:
            try:
                message = message_of(found, router.team)
            except UNREADABLE:
                return
            if message is None or router.is_own(message) or self._is_withdrawn(found):
                return
            is_addressed = router.routed(message, thread) is not None
            text, files = "\n\n".join(filter(None, (message.text, message.quoted))), message.file_names
            author = MessageAuthor(message.user)
            if message.bot:
                author = self._workspace.background.users.author_of(message)
        prompt = plain_text(text, router.bot_user)
        if command_of(prompt) is None and (prompt or files):
            message_id = f"{router.team}:{found['channel']}:{ts}"
            yield TalkMessage(message_id, author, prompt, float(ts), tuple(files)), is_addressed

    def _is_withdrawn(self, found: Found) -> bool:
        """Return whether the author of a message has put the stop reaction on it."""
        name = self._workspace.background.options.stop_reaction
        reactions = (each for each in found.get("reactions") or () if each.get("name") == name)
        return any(found.get("user") in (each.get("users") or ()) for each in reactions)

    async def _bounded(self, found: Sequence[TalkMessage]) -> ThreadTalk:
        """Add the names of people; leave out the oldest messages if all together are too long."""
        kept: list[TalkMessage] = []
        room, users = _MOST_CHARS, self._workspace.background.users
        for each in reversed(found):
            room -= len(each.text)
            if room < 0:
                break
            kept.insert(0, each)
        await users.look_up(each.author.id for each in kept if not each.author.name)
        named = [
            TalkMessage(
                each.id,
                each.author if each.author.name else users.author(each.author.id),
                users.with_ids(each.text),
                each.written_s,
                each.files,
            )
            for each in kept
        ]
        return ThreadTalk(tuple(named), len(found) - len(kept))
