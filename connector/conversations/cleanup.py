"""Cleanup after runs: remove their status messages and reactions, and post notices, while later runs proceed."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from connector import texts
from connector.formatting.content import Content
from connector.formatting.inline import escape
from connector.formatting.long_parts import MOST_PARTS
from connector.formatting.splitting import pieces
from connector.protocols import StateChanges
from connector.records import AnsweredRequest, Notice, RunArtifacts
from connector.runs.background_tasks import HOURGLASS
from connector.runs.request_view import answered_content
from connector.runs.run_status import STATUS_KEY, remove_status
from connector.slack_api import streams, uploads
from connector.slack_api.agent_sessions import ACTIVE
from connector.slack_api.client import best_effort, key_of
from connector.slack_api.errors import NO_THREAD, SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot, Priority

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence

    from connector.events import RequestClick, SlackMessage, ThreadAddress
    from connector.protocols import ConversationLease, End, InboxEntry
    from connector.records import PendingCleanup, ThreadNotice
    from connector.runs.background_tasks import BackgroundTasks

    Item = RunArtifacts | AnsweredRequest | Notice
    Message = dict[str, Any]

# How long the next run waits for the cleanup of the one before it.
_RECENT_WITHIN_S = 2.0
_MUTE = "mute"


class Cleanup:
    """Removes run artifacts and posts notices in the background.

    Pending cleanup is stored with the lease, so that the next owner can finish it. Items that are inherited or had a
    call of unknown outcome are searched for once late calls can no longer arrive: late status messages and all but the
    earliest copy of duplicate posts are deleted. The rule is deterministic, so that concurrent cleanups agree.
    """

    def __init__(self, lease: ConversationLease, background: BackgroundTasks) -> None:
        self._lease = lease
        self._background = background
        self.pending: PendingCleanup = ()
        self._tasks: set[asyncio.Task[None]] = set()
        self._recent: set[asyncio.Task[None]] = set()
        self._answers: set[asyncio.Task[None]] = set()
        self._catch_ups: set[asyncio.Task[None]] = set()
        # A record of cleanup is stored, perhaps of none.
        self._is_kept = False
        # Whether catch-ups wait to be started.
        self.has_waiting_catch_ups = False
        self._calls_late_until_s = asyncio.get_running_loop().time() + background.calls_late_s
        # Items that wait until no late call can arrive. Items that wait at the same time share one search.
        self._to_search: list[Item] = []
        self._search_lock = asyncio.Lock()

    def is_done(self, *, with_catch_ups: bool = True) -> bool:
        return not (self._tasks if with_catch_ups else self._tasks - self._catch_ups)

    @property
    def may_find_streams(self) -> bool:
        """Whether streams without text may still be searched for and deleted."""
        return any(each.is_inherited for each in self.pending)

    def expect_late_calls(self) -> None:
        """Search only when the calls that this process has given up can no longer arrive."""
        self._calls_late_until_s = asyncio.get_running_loop().time() + self._background.calls_late_s

    def resume(self, pending: PendingCleanup) -> None:
        """Continue the cleanup of another process, whose late calls may still reach Slack."""
        self._is_kept = True
        inherited = tuple(replace(each, is_inherited=True) for each in pending)
        self.pending += inherited
        self._begin(inherited)

    async def end_run(
        self,
        closed: Mapping[int, End],
        items: Sequence[Item] = (),
        *,
        held_seq: int | None = None,
        replaced: Mapping[int, Mapping[str, Any]] = MappingProxyType({}),
    ) -> None:
        """Store in one step that no run is active and which cleanup is pending, then start the cleanup.

        `closed`, `held_seq` and `replaced` as in `StateChanges`.
        """
        self.pending += tuple(items)
        # Also while answers are being posted: `held_seq` may pass over their entries, which must remain due.
        self._is_kept = bool(self.pending) or self.has_waiting_catch_ups or not self.is_done()
        record = {"cleanup": [asdict(each) for each in self.pending]} if self._is_kept else {}
        await self._lease.write(StateChanges(run=record, closed=closed, held_seq=held_seq, replaced=replaced))
        self._begin(items)

    def answer(self, entry: InboxEntry, answer: ThreadNotice) -> None:
        """Answer a message, and close its entry once Slack has accepted or rejected the answer."""
        self._background.spawn(self._answer(entry, answer), self._tasks, self._answers)

    def carry_out(self, entry: InboxEntry, where: SlackMessage, work: Callable[[], Awaitable[str]]) -> None:
        """Do the work of an entry, post the text that it returns, if any, then close the entry.

        If the process ends first, the next owner repeats the work.
        """
        self._background.spawn(self._carry_out(entry, where, work), self._tasks)

    def is_inherited(self, entry: InboxEntry) -> bool:
        """Return whether an earlier owner may have acted on an entry, because it was pending at the claim."""
        return any(entry.seq == each.seq for each in self._lease.claim.entries)

    def catch_up(self, entry: InboxEntry, work: Callable[[], Awaitable[None]]) -> None:
        """Run a catch-up, then close its entry. If it is cancelled or the process ends, the next owner repeats it."""
        background = self._background
        background.spawn(self._catch_up(entry, work), self._tasks, self._catch_ups, background.catching_up)

    async def keep(self) -> None:
        """Cancel unfinished catch-ups, and store the pending cleanup, for the next owner.

        No run may be active or begin during the call.
        """
        catch_ups = tuple(self._catch_ups)
        for task in catch_ups:
            task.cancel()
        await asyncio.gather(*catch_ups, return_exceptions=True)
        if self.pending or self._is_kept:
            await self.end_run({})

    async def recent_done(self) -> None:
        """Wait for the cleanup started last, for at most `_RECENT_WITHIN_S` seconds."""
        if self._recent:
            await asyncio.wait(self._recent, timeout=_RECENT_WITHIN_S)

    async def answered(self) -> None:
        """Wait until the answers so far are posted, for at most `_RECENT_WITHIN_S` seconds."""
        if self._answers:
            await asyncio.wait(self._answers, timeout=_RECENT_WITHIN_S)

    async def done(self, news: asyncio.Event, *, with_catch_ups: bool = True) -> None:
        """Return when all cleanup is done, or when `news` is set."""
        waiting = asyncio.create_task(news.wait())
        try:
            while not self.is_done(with_catch_ups=with_catch_ups) and not waiting.done():
                await asyncio.wait({waiting, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            await asyncio.wait({waiting})

    def _begin(self, items: Iterable[Item]) -> None:
        self._recent = set()
        for each in items:
            # Report the end of a run now: a run that begins later reports its own state.
            is_run = isinstance(each, RunArtifacts)
            shown = self._background.agent_sessions.show(each.place, ACTIVE) if is_run else None
            self._recent.add(self._background.spawn(self._do(each, shown), self._tasks))

    async def _do(self, item: Item, shown: asyncio.Task[None] | None) -> None:
        is_in_doubt = item.is_inherited
        if isinstance(item, Notice):
            is_in_doubt = await self._post(item)
        elif isinstance(item, AnsweredRequest):
            await best_effort(self._background.client.retry_until_done(partial(self._settle, item)))
        else:
            client, background = self._background.client, self._background
            for ts in item.statuses:
                delete = partial(remove_status, client, item.channel, ts, item.user)
                await best_effort(client.retry_until_done(delete))
            slot = CallSlot(Priority.STATUS, item.user)
            for ts in item.streams:
                await best_effort(client.retry_until_done(partial(streams.discard, client, item.channel, ts, slot)))
            if item.has_hourglass:
                await best_effort(client.retry_until_done(partial(background.remove_hourglass, item)))
                background.release_hourglass(item.channel, item.first_ts)
        if shown is not None:
            await asyncio.wait((shown,))
        if is_in_doubt:
            self._background.spawn(self._end_in_doubt(item), self._tasks)
        else:
            self._drop(item)

    async def _end_in_doubt(self, item: Item) -> None:
        await self._undo_late_calls(item)
        self._drop(item)

    def _drop(self, item: Item) -> None:
        at = self.pending.index(item)
        self.pending = self.pending[:at] + self.pending[at + 1 :]

    async def _post(self, notice: Notice) -> bool:
        """Post a notice, a long one as several messages, until Slack has accepted or rejected it.

        Returns whether a second copy may arrive late.
        """
        client, confirm, in_doubt = self._background.client, self._lease.confirm, notice.is_inherited
        may_arrive = in_doubt

        def on_doubt() -> None:
            nonlocal may_arrive
            may_arrive = True
            self.expect_late_calls()

        async def attempt() -> None:
            nonlocal in_doubt
            was_in_doubt, in_doubt = in_doubt, True  # a failed call may have posted it
            parts = pieces(escape(notice.text))
            for number, text in enumerate(parts):
                key = f"{notice.key}.{number}" if number else notice.key
                await client.post(
                    notice.place,
                    Content(text),
                    key,
                    in_doubt=was_in_doubt,
                    since=notice.message.ts,
                    confirm=confirm,
                    on_doubt=on_doubt,
                )
                if was_in_doubt and not number and len(parts) > 1 and await self._is_whole(notice):
                    return

        await best_effort(client.retry_until_done(attempt))
        return may_arrive

    async def _is_whole(self, notice: Notice) -> bool:
        """Return whether the post of a notice is a `markdown` block with the whole text of an answer."""
        found = await self._background.client.history.find(notice.place, notice.key, notice.message.ts)
        return found is not None and any(each.get("type") == "markdown" for each in found.get("blocks") or ())

    async def _settle(self, item: AnsweredRequest) -> None:
        """Show the answer to a request in place of its buttons."""
        ts, client = item.record.ts, self._background.client
        if not ts:
            found = [each async for each in client.history.posts(item.place) if item.has_posted(key_of(each))]
            numbers = {each["ts"]: key_of(each).rpartition(":")[2] for each in found}
            # The last of its messages; of copies, the earliest one stays.
            ts = max(
                numbers, key=lambda ts: (int(numbers[ts]) if numbers[ts].isdigit() else -1, -float(ts)), default=""
            )
        if ts:
            slot = CallSlot(Priority.CLEANUP, item.place.conversation_id)
            await client.update(item.place.channel, ts, lambda: answered_content(item.record), slot)

    def whisper(self, entry: InboxEntry, click: RequestClick, place: ThreadAddress, text: str) -> None:
        """Tell a person in private why a click did not count, then close its entry."""

        async def tell() -> None:
            client, slot = self._background.client, CallSlot(Priority.PERSON)
            await best_effort(client.post_ephemeral(place, click.by, Content(text), slot))
            await self._lease.write(StateChanges(closed={entry.seq: "done"}))

        self._background.spawn(tell(), self._tasks)

    async def _answer(self, entry: InboxEntry, answer: ThreadNotice) -> None:
        client, message = self._background.client, answer.message
        if answer.muted_ts:
            await best_effort(client.react(message.channel, answer.muted_ts, _MUTE, CallSlot()))
        for ts in answer.unmuted:
            await best_effort(client.unreact(message.channel, ts, _MUTE))
        await self._reply(entry, Notice(message, f"{message.id}:reply", answer.text or texts.NO_TEXT))

    async def _carry_out(self, entry: InboxEntry, where: SlackMessage, work: Callable[[], Awaitable[str]]) -> None:
        if text := await work():
            await self._reply(entry, Notice(where, f"{entry.id}:reply", text))
        else:
            await self._lease.write(StateChanges(closed={entry.seq: "done"}))

    async def _reply(self, entry: InboxEntry, notice: Notice) -> None:
        """Post a notice, which an earlier owner may have posted, then close its entry."""
        notice = replace(notice, is_inherited=self.is_inherited(entry))
        if await self._post(notice):
            await self._undo_late_calls(notice)
        await self._lease.write(StateChanges(closed={entry.seq: "done"}))

    async def _catch_up(self, entry: InboxEntry, work: Callable[[], Awaitable[None]]) -> None:
        await work()
        self._catch_ups -= {asyncio.current_task()}  # it can no longer be cancelled
        await self._lease.write(StateChanges(closed={entry.seq: "done"}))

    async def _undo_late_calls(self, item: Item) -> None:
        """Wait until no late call can arrive, then remove the effects of such calls."""
        self._to_search.append(item)
        while asyncio.get_running_loop().time() < (until_s := self._calls_late_until_s):  # it may be put off
            await self._background.sleep_until(until_s)
        async with self._search_lock:
            if item in self._to_search:
                items, self._to_search = self._to_search, []
                await best_effort(self._search(item.place, items))

    async def _search(self, place: ThreadAddress, items: Sequence[Item]) -> None:
        retry_until_done = self._background.client.retry_until_done
        begun = (each.first_ts if isinstance(each, RunArtifacts) else each.message.ts for each in items)
        since = min((ts or "0" for ts in begun), key=float)
        messages = await retry_until_done(partial(self._messages, place, since))
        for undo in self._undoing(place, items, messages):
            await best_effort(retry_until_done(undo))
        if (shown := self._background.agent_sessions.show_again(place)) is not None:
            await asyncio.wait((shown,))

    async def _messages(self, place: ThreadAddress, since: str) -> list[Message]:
        """Return the messages of the thread; if its root is deleted, those of the channel: Slack posts there then."""
        history, slot = self._background.client.history, CallSlot(Priority.CLEANUP, place.conversation_id)
        try:
            return [message async for message in history.posts_since(place, since, slot)]
        except SlackCallFailed as e:
            if e.error != NO_THREAD:
                raise
        channel = replace(place, thread_ts=None)
        return [message async for message in history.posts_since(channel, since, slot)]

    def _undoing(
        self, place: ThreadAddress, items: Iterable[Item], messages: Sequence[Message]
    ) -> Iterable[Callable[[], Coroutine[Any, Any, None]]]:
        """Yield a call for each late status message, duplicate post, duplicate file and leftover hourglass."""
        client = self._background.client
        for item in items:
            if isinstance(item, AnsweredRequest):
                # The known copy may be deleted below.
                yield partial(self._settle, replace(item, record=replace(item.record, ts="")))
            posts = [each for each in messages if item.has_posted(key_of(each))]
            for each in posts:
                is_misplaced = place.thread_ts is not None and "thread_ts" not in each
                if STATUS_KEY in key_of(each):
                    yield partial(remove_status, client, place.channel, each["ts"])
                elif is_misplaced or any(
                    key_of(each) == key_of(other) and float(each["ts"]) > float(other["ts"]) for other in posts
                ):
                    yield partial(client.delete, place.channel, each["ts"])
            # A file is named after the key of its post without the number of the message; so are long parts of it.
            keys = {key_of(each).rpartition(":")[0] for each in posts}
            keys |= {f"{key}.{place}" for key in keys for place in range(1, MOST_PARTS + 1)}
            for file_id in uploads.shared_again(messages, {uploads.digest_of(key) for key in keys}):
                yield partial(uploads.delete, client, file_id)
            # No other run streams until this is done; see `AnswerStream`.
            may_stream = isinstance(item, RunArtifacts) and place.thread_ts is not None and not place.worker
            for each in messages if may_stream else ():
                if streams.is_blank(each):
                    yield partial(streams.discard, client, place.channel, each["ts"])
            if isinstance(item, RunArtifacts) and _may_be_marked(item, messages):
                yield partial(self._background.remove_hourglass, item)


def _may_be_marked(artifacts: RunArtifacts, messages: Iterable[Message]) -> bool:
    """Return whether the run's first message may have an hourglass; if it is not found, rely on the record."""
    first = next((each for each in messages if each["ts"] == artifacts.first_ts), None)
    if first is None:
        return artifacts.has_hourglass
    return any(each.get("name") == HOURGLASS for each in first.get("reactions") or ())
