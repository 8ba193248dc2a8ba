"""Admit messages to the inbox of their conversation."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

import structlog

from connector import texts
from connector.commands import ThreadCommand, command_of
from connector.events import (
    BY_WORD,
    WORKER_ID,
    StopRequest,
    edited_ts_of,
    home_of,
    is_stop_word,
    message_of,
    plain_text,
)
from connector.formatting.content import Content
from connector.inbound.access_policy import CANNOT_CHECK, MAX_NAMES, AccessPolicy, AccessRules, Actor, LatestEntries
from connector.inbound.stored_commands import StoredCommands
from connector.observer import Observer
from connector.protocols import InboxEntry, change_fact
from connector.records import (
    UNREADABLE,
    PendingMessage,
    RunRecord,
    ThreadCatchUp,
    ThreadNotice,
    UnreadableEntry,
    parse_entry,
    parse_run_record,
    stop_entry,
)
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from connector.events import SlackMessage, ThreadAddress
    from connector.protocols import Instance, RunService, Workers
    from connector.routing import Router
    from connector.runs.background_tasks import BackgroundTasks

    Routed = tuple[Instance, str]

log = structlog.get_logger(__name__)

# A root mention whose event is older than this on arrival was delivered late, or again.
_LATE_S = 1.0
_MAX_UNROUTED = 1_000
# A message that begins with the id of a worker.
_TO_WORKER = re.compile(rf"@?({WORKER_ID.pattern})[:,]?\s+(?=\S)", re.IGNORECASE)


class UnroutedReply(NamedTuple):
    """A reply that is for no agent, its author (access not checked), and the time of its last edit."""

    reply: SlackMessage
    actor: Actor
    edited_ts: str


class UnroutedReplies:
    """The latest replies that were for no agent: the mention that calls an agent into their thread may arrive later."""

    def __init__(self) -> None:
        # `None`: the reply was deleted.
        self._replies: LatestEntries[UnroutedReply | None] = LatestEntries(_MAX_UNROUTED)

    def add(self, reply: SlackMessage, actor: Actor, edited_ts: str = "") -> None:
        """Store a reply, unless it was deleted or a later edit of it is known."""
        new = UnroutedReply(reply, actor, edited_ts)
        known = self._replies.get(reply.id, new)
        if known is not None and edited_ts >= known.edited_ts:
            self._replies[reply.id] = new

    def edit(self, reply: SlackMessage, actor: Actor, edited_ts: str) -> None:
        """Replace a reply by its edited version, if the reply is stored."""
        if reply.id in self._replies:
            self.add(reply, actor, edited_ts)

    def has(self, reply_id: str) -> bool:
        return reply_id in self._replies

    def drop(self, reply_id: str) -> None:
        """Remove a deleted reply, and ignore it if it arrives later."""
        self._replies[reply_id] = None

    def was_deleted(self, reply_id: str) -> bool:
        return reply_id in self._replies and self._replies[reply_id] is None

    def latest(self, reply: SlackMessage, edited_ts: str) -> tuple[SlackMessage, str]:
        """Return the latest known version of a reply, which may be later than this one, and the time of its edit."""
        known = self._replies.get(reply.id)
        return (reply, edited_ts) if known is None or known.edited_ts <= edited_ts else (known.reply, known.edited_ts)

    def after(self, conversation_id: str, ts: str) -> list[UnroutedReply]:
        """Return the replies of a conversation posted after `ts`, oldest first."""
        found = [
            each
            for each in filter(None, self._replies.values())
            if each.reply.place.conversation_id == conversation_id and float(each.reply.ts) > float(ts)
        ]
        return sorted(found, key=lambda each: float(each.reply.ts))

    def take_after(self, conversation_id: str, ts: str) -> list[UnroutedReply]:
        """Remove and return the replies of a conversation posted after `ts`, oldest first."""
        found = self.after(conversation_id, ts)
        for each in found:
            del self._replies[each.reply.id]
        return found


class Admitter:
    """Admits messages for an agent if the access policy allows their authors.

    A reply in a thread without an agent is acknowledged and not stored. The mention that calls an agent into the thread
    may be older than the reply and arrive later. `unrouted` holds the latest such replies. Replies missing there,
    because this process ended or another one acknowledged them, are read from Slack: see `ThreadCatchUp`.
    """

    def __init__(  # noqa: PLR0913 - the last four have defaults
        self,
        tasks: BackgroundTasks,
        router: Router,
        runs: RunService,
        bot_user: str,
        policy: AccessRules | None = None,
        *,
        enterprise: str = "",
        observer: Observer | None = None,
        workers: Workers | None = None,
    ) -> None:
        self.unrouted = UnroutedReplies()
        # The conversations of the messages that this process has admitted, by their ids.
        self.admitted: LatestEntries[str] = LatestEntries(MAX_NAMES)
        self.policy = AccessPolicy(policy or AccessRules(), router.team, tasks.users, enterprise=enterprise)
        self._observer = observer or Observer()
        # Refused messages: Slack delivers a mention as two events.
        self._refused: LatestEntries[None] = LatestEntries(MAX_NAMES)
        self._tasks = tasks
        self._router = router
        self._runs = runs
        self._bot_user = bot_user
        self.workers = workers
        self.commands = StoredCommands(router, runs, workers, tasks.now_s)
        # Each lock lives as long as an event uses it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def is_allowed(self, actor: Actor, message: SlackMessage | None = None, *, if_unknown: bool = False) -> bool:
        """Return whether a user may use the bot here, with a `message` for an agent.

        A refused user who addressed the bot gets the reason. If it may not apply, it is the answer to each message.
        `if_unknown` is the result while Slack does not tell whether the user is a guest.
        """
        refusal = await self.policy.refusal(actor)
        if refusal is None or (refusal == CANNOT_CHECK and if_unknown):
            return True
        is_new = message is None or message.id not in self._refused
        if is_new:
            self._observer.refused(actor.user, actor.channel, refusal)
        if message is None:
            return False
        self._refused[message.id] = None
        is_addressed = self._router.is_addressed(message) and not actor.is_bot
        is_due = is_new if refusal == CANNOT_CHECK else is_addressed and self.policy.should_notify(actor)
        if is_due:
            log.info("access.refused", user=actor.user, channel=actor.channel)
            self._tasks.spawn(self._tasks.client.post_ephemeral(message, message.user, Content(refusal)))
        return False

    async def admit(
        self, message: SlackMessage, routed: Routed, actor: Actor, called_ts: str, edited_ts: str = ""
    ) -> None:
        """Admit a message to an agent, and then the replies to it that arrived before it.

        `called_ts` is the time of the post, or of the edit that added the mention; `edited_ts` of the last edit.
        """
        message = replace(message, is_shared=True) if actor.is_shared else message
        conversation_id = message.place.conversation_id
        begins_thread = message.thread_ts is None and not (message.direct or message.bot)
        calls_agent = (begins_thread or message.mentions(self._bot_user)) and _says_something(message, routed)
        if calls_agent and await self._may_have_missed_replies(message, called_ts):
            # Stored before the message: if this process ends in between, Slack delivers the event again.
            await self.ask_for_catch_up(pending_of(message, routed, edited_ts), called_ts, actor)
        await self._store_entry(message, routed, edited_ts, called_ts)
        if calls_agent and await self._has_talk_after(message, called_ts):
            await self.ask_for_catch_up(pending_of(message, routed, edited_ts), called_ts, actor)
        if calls_agent:
            await self.admit_passed(conversation_id, called_ts)

    async def ask_for_catch_up(
        self, mention: PendingMessage, since: str, actor: Actor, facts: Mapping[str, str] | None = None
    ) -> None:
        """Store the request to read a thread from this time on, and facts with it; a second one changes nothing."""
        catch_up = ThreadCatchUp(mention, since, actor.is_shared)
        entry = InboxEntry(catch_up.id, "catch_up", asdict(catch_up))
        await self._runs.admit(mention.message.place.conversation_id, entry, facts=facts)

    async def admit_passed(self, conversation_id: str, since: str) -> None:
        """Admit the replies after this time that arrived before the mention which calls an agent into their thread."""
        passed = self.unrouted.take_after(conversation_id, since)
        # Concurrently: each check may wait for Slack.
        allowed = await asyncio.gather(*(self.is_allowed(each.actor) for each in passed))
        for reply, _, edited_ts in compress(passed, allowed):
            if (routed := await self._router.route(reply)) is not None:
                await self._store_entry(reply, routed, edited_ts)
            else:
                await self.note_talk(reply)

    async def admit_asked(self, message: SlackMessage, instance: str) -> None:
        """Admit a message that the bot has posted for a person, as if the person had written it to the instance."""
        routed = self._router.instance(instance), plain_text(message.text, self._bot_user)
        async with self.in_order(message.place.conversation_id):
            await self.admit(message, routed, Actor(message.user, message.channel, None, None), message.ts)

    async def admit_found(self, found: dict[str, Any], actor: Actor, *, with_replies: bool = False) -> bool:
        """Admit a message found by a look-up if it addresses the bot, has text or files, and its author is allowed.

        `with_replies` also admits a reply without a mention in a thread with an agent. Returns whether the message was
        admitted.
        """
        message = message_of(found, self._router.team, dm_threads=self._tasks.options.dm_threads)
        if message is None or not (
            self._router.is_addressed(message) or (with_replies and not self.unrouted.has(message.id))
        ):
            return False
        routed = await self._router.route(message)
        if routed is None or not _says_something(message, routed):
            return False
        if not await self.is_allowed(replace(actor, user=message.user, home=home_of(found), is_bot=bool(message.bot))):
            return False
        if not await self._store_command(message):
            await self.admit(message, routed, actor, message.ts, edited_ts_of(found))
        return True

    async def note_talk(self, message: SlackMessage) -> None:
        """Record that a thread with an agent has a message that is not addressed to it."""
        await self._runs.learn(message.place.conversation_id, {"talk": message.ts})

    async def stop(self, conversation_id: str, stop: StopRequest) -> None:
        """Store a stop. All ways to stop a run end here; duplicates are detected by id."""
        await self._runs.admit(conversation_id, stop_entry(stop))

    async def stop_in_dm(self, stop: StopRequest, place: ThreadAddress) -> str:
        """Stop the only run of a direct message channel, for a stop outside of its thread; return the answer to it.

        A run is also one that is about to begin with a pending message.
        """
        found = await self._runs.at_work(f"{place.team}:{place.channel}")
        at_work = {name: work for name, each in found.items() if (work := _prompt_at_work(*each)) is not None}
        match list(at_work.items()):
            case [(name, (run_id, prompt))]:
                await self.stop(name, StopRequest(f"{stop.id}{BY_WORD}", stop.user, stop.at, run=run_id))
                return texts.stopping(prompt)
            case several:
                return texts.which_to_stop([prompt for _, (_, prompt) in several])

    async def catch_up(self, catch_up: ThreadCatchUp) -> None:
        """Admit the mention that called an agent into a thread, and the messages after it that are not yet known.

        Waits until Slack answers. The mention is admitted first, so messages posted from then on are routed to the
        agent by their own events.
        """
        pending, mention = catch_up.mention, catch_up.mention.message
        routed = self._router.instance(pending.instance), pending.prompt
        await self._store_entry(mention, routed, pending.edited_ts)
        place, slot = mention.place, CallSlot(Priority.PERSON)
        history, since = self._tasks.client.history, catch_up.since
        # Once a person has written, that of a bot is talk, and its edits are not stored.
        oldest = f"{float(mention.ts) - 1e-6:.6f}" if mention.bot else since

        async def written_since() -> list[dict[str, Any]]:
            messages = history.messages(place, slot, oldest=oldest)
            return [each async for each in messages if float(each["ts"]) > float(oldest)]

        try:
            messages = await self._tasks.client.retry_until_done(written_since)
        except SlackCallFailed as e:
            log.warning("thread.not_read", conversation=place.conversation_id, error=str(e))
            return
        for found in messages:
            try:
                dm_threads = self._tasks.options.dm_threads
                message = message_of({**found, "channel": place.channel}, self._router.team, dm_threads=dm_threads)
            except UNREADABLE:
                log.warning("message.unreadable", conversation=place.conversation_id, ts=found["ts"])
                continue
            if message is None or self._router.is_own(message):
                continue
            is_bot = bool(message.bot)
            actor = Actor(message.user, message.channel, home_of(found), catch_up.is_shared, is_bot)
            async with self.in_order(message.place.conversation_id):
                edited_ts = edited_ts_of(found)
                if message.id in self.admitted and not edited_ts:
                    continue
                found_for = await self._router.route(message)
                if found_for is None and message.id == mention.id:
                    found_for = await self._router.resolve(message)
                if found_for is None:
                    await self.note_talk(message)
                elif await self.is_allowed(actor, message):
                    await self._store_entry(message, found_for, edited_ts)

    async def _may_have_missed_replies(self, mention: SlackMessage, called_ts: str) -> bool:
        """Return whether a process may have acknowledged a reply to a mention before the mention was admitted.

        In an existing thread a reply may follow at any moment. A root message gets no reply within `_LATE_S`.
        """
        if mention.direct:
            return False
        conversation_id = mention.place.conversation_id
        is_late = abs(self._tasks.now_s() - float(called_ts)) > _LATE_S
        if is_late or self.unrouted.after(conversation_id, called_ts):
            return True
        thread = await self._runs.thread_of(conversation_id)
        return mention.thread_ts is not None and not (thread.agent and thread.takes_part(mention.user, mention.ts))

    async def _has_talk_after(self, mention: SlackMessage, called_ts: str) -> bool:
        """Return whether a reply to a root mention may count as talk: another mention in its thread came first."""
        if mention.direct or mention.thread_ts is not None:
            return False
        return (await self._runs.thread_of(mention.place.conversation_id)).latest.get("talk", "") > called_ts

    async def to_worker(self, message: SlackMessage, routed: Routed) -> tuple[SlackMessage, Routed, str]:
        """Return a message that names a worker of its thread, such as `@w3f2a9c …`, as one to it, and its title."""
        _, prompt = routed
        match = _TO_WORKER.match(f"{prompt} {message.attached}")
        if match is None or self.workers is None:
            return message, routed, ""
        addressed = replace(message, worker=match[1].lower())
        worker = await self.workers.find(addressed.place.conversation_id)
        if worker is None:
            return message, routed, ""
        return addressed, (self._router.instance(worker.instance), prompt[match.end() :]), worker.title

    async def _store_command(self, message: SlackMessage) -> bool:
        """Store a command that was found, perhaps before its event arrived. Return whether the message is one.

        A private answer comes with the event only: it may have been given.
        """
        command = None if message.bot else command_of(plain_text(message.text, self._bot_user))
        if isinstance(command, ThreadCommand):
            await self.commands.store(message, command, await self._router.thread_of(message))
        return command is not None

    async def _store_entry(
        self, message: SlackMessage, routed: Routed, edited_ts: str = "", called_ts: str = ""
    ) -> None:
        if await self._store_command(message):
            return
        message, routed, title = await self.to_worker(message, routed)
        conversation_id = message.place.conversation_id
        if _says_something(message, routed):
            inbound = replace(pending_of(message, routed, edited_ts), title=title)
            if not await self._store_message(inbound) and edited_ts:
                await self._store_missed_edit(inbound)
        elif is_stop_word(routed[1]):
            stop = StopRequest(message.id, message.user, called_ts or message.ts, message=message)
            await self.stop(conversation_id, stop)
        else:
            answer = ThreadNotice(message, texts.unreadable(message.unreadable) if message.unreadable else "")
            mention = InboxEntry(f"{message.id}:mention", "mention", asdict(answer))
            await self._runs.admit(conversation_id, mention, routed[0].name, await self._router.facts_of(message))

    async def _store_message(self, inbound: PendingMessage) -> bool:
        """Store a message; return False if the inbox has it already."""
        entry, message = InboxEntry(inbound.id, "message", asdict(inbound)), inbound.message
        conversation_id, facts = message.place.conversation_id, await self._router.facts_of(message)
        if inbound.edited_ts:
            facts |= change_fact(message.ts, inbound.edited_ts)
        is_new = await self._runs.admit(conversation_id, entry, inbound.instance, facts)
        self.admitted[inbound.id] = conversation_id
        return is_new

    async def _store_missed_edit(self, inbound: PendingMessage) -> None:
        """Store the edit of a message if the inbox has an older version.

        The event of the edit arrived at a process that did not know yet that the message is for an agent.
        """
        message, edited_ts = inbound.message, inbound.edited_ts
        conversation_id = message.place.conversation_id
        if edited_ts > (await self._runs.thread_of(conversation_id)).changed(message.ts):
            files = tuple(each.id for each in message.files)
            edit = replace(inbound, id=f"{message.id}:edit:{edited_ts}", old_files=files)
            facts = change_fact(message.ts, edited_ts)
            await self._runs.admit(conversation_id, InboxEntry(edit.id, "edit", asdict(edit)), facts=facts)

    async def leave_unanswered(self, message: SlackMessage) -> None:
        """Log the id of a bot that may not be answered; of another one, say once that the thread waits for a person."""
        if not message.mentions(self._bot_user):
            return
        if not self._router.is_heard(message):
            log.info("bot.not_listed", bot=message.bot, app=message.app, channel=message.channel)
            return
        thread, exchanges = await self._router.thread_of(message), self._router.bots.exchanges
        if last := thread.last_exchange(message.ts, exchanges):
            notice = ThreadNotice(message, texts.waits_for_person(message.app, exchanges))
            entry = InboxEntry(f"{message.place.conversation_id}:exchanges:{last}", "notice", asdict(notice))
            await self._runs.admit(message.place.conversation_id, entry)

    def in_order(self, conversation_id: str) -> asyncio.Lock:
        """Return the lock that serializes the events of one conversation in the order of their arrival."""
        return self._locks.setdefault(conversation_id, asyncio.Lock())


def _prompt_at_work(run: Mapping[str, Any] | None, entries: tuple[InboxEntry, ...]) -> tuple[str | None, str] | None:
    """Return the id (`None`: not begun yet) and the first message of a conversation's run; `None`: there is none."""
    with suppress(UnreadableEntry):
        if isinstance(record := parse_run_record(run or {}), RunRecord) and not record.is_over:
            return record.id, record.first.prompt
        for entry in entries:
            if entry.kind == "message" and isinstance(first := parse_entry(entry), PendingMessage):
                return None, first.prompt
    return None


def _says_something(message: SlackMessage, routed: Routed) -> bool:
    """Return whether a message has text other than a stop word, quotes, or files."""
    _, prompt = routed
    return bool(prompt or message.files or message.quoted) and not is_stop_word(prompt)


def pending_of(message: SlackMessage, routed: Routed, edited_ts: str, id_: str = "") -> PendingMessage:
    """Return a message, or with an `id_` the change of that id, as an inbox stores it."""
    instance, prompt = routed
    # Mentions of the bot stay in quotes: the model reads whom the quoted author meant.
    parts = (prompt, plain_text(message.quoted, ""))
    prompt = "\n\n".join(filter(None, parts)) or ", ".join(message.file_names)
    if prompt and message.unreadable:
        prompt = f"{prompt}\n\n{texts.not_readable(message.unreadable)}"
    return PendingMessage(message, instance.name, prompt, id_ or message.id, edited_ts=edited_ts)
