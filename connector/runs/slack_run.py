"""One run in Slack: its messages, its posts, and how it ends."""

from __future__ import annotations

import asyncio
import json
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import structlog

from connector import texts
from connector.events import ALLOW_ACTION, DENY_ACTION, TIME_LIMIT, StopRequest
from connector.formatting.content import one_line
from connector.formatting.splitting import complete_sentences
from connector.protocols import NO_TALK, LeaseLost, Refused, RunFailed, StateChanges
from connector.records import RunSummary, stop_entry, unknown_calls
from connector.runs.answer_stream import AnswerStream
from connector.runs.message_files import MessageFiles
from connector.runs.outbox import Outbox
from connector.runs.posts import agent_post, question_post, service_post
from connector.runs.requests import Requests
from connector.runs.run_status import STATUS_KEY, RunStatus
from connector.runs.steering import Steering
from connector.runs.thread_reader import ThreadReader
from connector.runs.worker_report import report
from connector.slack_api.client import key_of
from connector.slack_api.errors import error_boundary

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from connector.events import Consent, ThreadAddress
    from connector.protocols import ConversationLease, End, Participation, ThreadFacts
    from connector.records import BackupGap, PendingMessage, RunArtifacts, RunRecord
    from connector.runs.inbox import Inbox
    from connector.runs.posts import Post
    from connector.runs.run_slots import RunSlot
    from connector.runs.workspace import WorkspaceContext

log = structlog.get_logger(__name__)

_KEY_CHARS = 12
# Delay between the graceful stop at the time limit and the immediate one, in seconds.
_AFTER_LIMIT_S = 30.0
_NAME_CHARS = 40
# Greatest difference between the clocks of Slack and of a store, in seconds, that keeps answers from being repeated.
_CLOCKS_DIFFER_S = 30.0


@dataclass(frozen=True, slots=True)
class New:
    """Start with the first message, which is not delivered yet."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Resume a run of another process from its log; `delivered_ids` are the ids of the delivered messages."""

    delivered_ids: frozenset[str]


@dataclass(frozen=True, slots=True)
class Unrecoverable:
    """Report failure: the log of a run of another process is unreadable."""

    why: RunFailed


@dataclass(frozen=True, slots=True)
class Finished:
    """Only deliver the remaining posts: another process finished the run."""

    delivered_ids: frozenset[str] = frozenset()


StartMode = New | Resumed | Unrecoverable | Finished


class SlackRun:
    """A run from its first message to its last post."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a run
        self,
        record: RunRecord,
        lease: ConversationLease,
        inbox: Inbox,
        workspace: WorkspaceContext,
        start_mode: StartMode,
        may_stream: Callable[[], bool],
        announced: Callable[[], Awaitable[None]],
    ) -> None:
        """`may_stream` is asked before each stream; `announced` returns when the notices so far are posted."""
        self._announced = announced
        self.record = record
        self.instance = workspace.router.instance(record.first.instance)
        self.place: ThreadAddress = record.first.message.place
        client = workspace.background.client
        self.outbox = Outbox(
            client,
            lease,
            record,
            self.instance.persona,
            on_closed=self._on_closed,
            on_posted=self._on_posted,
            has_canvases=workspace.background.options.canvas,
        )
        self.requests = Requests(
            lease,
            self.outbox,
            workspace,
            lambda: self.record,
            self._keep,
            self._store_record,
            self._on_requests,
        )
        self.status = RunStatus(
            workspace.background,
            lease,
            record,
            self.instance.persona,
            name=record.first.worker_name or (self.instance.persona.name if len(workspace.router.names()) > 1 else ""),
            keep_ts=lambda ts: self._store(status_ts=ts),
            on_closed=self.outbox.close,
        )
        self.stream = AnswerStream(
            workspace.background,
            lease,
            record,
            self.instance.persona,
            keep=lambda streams: self._store(streams=streams),
            # Messages appear in the order of their texts.
            is_allowed=lambda: self.outbox.is_idle and may_stream(),
            on_stopped=self._on_stream_stopped,
        )
        self.summary: RunSummary | None = None
        # From the moment at which its end is being stored.
        self.has_ended = False
        # The text that is being added to the outbox, or was added last.
        self._adding: asyncio.Task[None] | None = None
        self._lease = lease
        self._inbox = inbox
        self._workspace = workspace
        self._sessions = workspace.sessions
        self._background = workspace.background
        self._slots = workspace.slots
        # `None`: a resumed run requests one itself.
        self.slot: RunSlot | None = None
        self._key = (self.instance.name, self.place.conversation_id)
        self._reader = ThreadReader(self.instance, lease, inbox, workspace)
        self.files = MessageFiles(self._key, workspace, lease, self.outbox, self.status.on_event)
        self.steering = Steering(
            self._key, inbox, workspace, self.outbox, self._reader, self.may_steer, self._ask_owner, self.files
        )
        # Set by a stop or a suspension, for a run whose loop has not begun.
        self._interrupted = asyncio.Event()
        self._router = workspace.router
        self._runs = workspace.runs
        # Who took part in the thread when the run began; `None`: not needed, or not known yet.
        self._participants: ThreadFacts | None = None
        self._start_mode = start_mode
        self.delivered_ids = set(start_mode.delivered_ids) if isinstance(start_mode, Resumed | Finished) else set()
        self._has_begun = self.first.id in self.delivered_ids
        # The loop has ended; posts may still be pending.
        self.is_over = isinstance(start_mode, Finished)
        self.was_suspended = False
        self._parts = 0
        self._is_first_delivered = self._is_suspending = self._is_cancelled = False
        if record.stops:
            self.status.stop()

    @property
    def first(self) -> PendingMessage:
        return self.record.first

    @property
    def can_be_stopped(self) -> bool:
        """Whether a stop has an effect: on this run, or on the next one that would start by itself."""
        return not self.is_over or self.record.stops > 0 or self._inbox.run_starter is not None

    def is_meant(self, stop: StopRequest) -> bool:
        """Return whether a stop applies: it is not older than the run, and names this run (id or message) or none."""
        if float(stop.at) < float(self.record.newest_ts):
            return False
        if stop.run is not None:
            return stop.run == self.record.id
        return stop.ts is None or stop.ts == self.first.message.ts or self.status.is_mine(stop.ts)

    def stop(self, user: str, *, withdraws_first: bool = False) -> None:
        """Stop gracefully; on a second call, immediately.

        `withdraws_first`: the author takes the first message back, so no later run reads it either.
        """
        if withdraws_first and self.record.was_waiting and not self._is_first_delivered:
            self.record = replace(self.record, was_waiting=False)
            self._background.unmark_accepted(self.first.message)
        if self.is_over:
            return
        by = self.record.stopped_by or user
        self.record = replace(self.record, stopped_by=by, stops=self.record.stops + 1)
        self.status.stop()
        # Has no effect on a session that has not begun; `_execute` and `_start_steering` handle that case.
        self._stop_loop()

    def stop_agent(self, name: str) -> bool:
        """Stop the sub-agents of this name; return whether any is at work."""
        return self._sessions.stop(*self._key, agent=name)

    def may_steer(self, inbound: PendingMessage) -> bool:
        """Return whether the run reads this message, by the policy of its instance and channel."""
        user, participation = inbound.message.user, self._participation
        if user == self.owner or inbound.message.direct or inbound.is_note or participation.steerers == "anyone":
            return True
        if participation.steerers == "participants" and not participation.asks_consent:
            return not inbound.is_aside
        took_part = self._participants is not None and self._participants.takes_part(user, self.first.message.ts)
        return self.record.consents.get(user, participation.steerers == "participants" and took_part)

    @property
    def owner(self) -> str:
        """The user who began the run."""
        return self.first.owner

    @property
    def _participation(self) -> Participation:
        """The policy. Without a person who could be asked, all who take part steer the run."""
        policy = self._router.participation(self.instance, self.place.channel)
        if not policy.asks_consent or self.first.has_person:
            return policy
        return replace(policy, steerers="anyone" if policy.steerers == "anyone" else "participants", asks_consent=False)

    async def _ask_owner(self, inbound: PendingMessage) -> None:
        """Ask the owner once whether a person who mentions the bot may steer the run, if the settings ask for that."""
        user, run = inbound.message.user, self.record.id
        asks = self._participation.asks_consent and self._router.is_addressed(inbound.message)
        if not asks or user in self.record.consents or inbound.is_late_change or self.is_over:
            return
        name = inbound.message.app or await self._background.users.known_name_of(user)
        labels = {ALLOW_ACTION: f"Let {one_line(name, _NAME_CHARS)} steer", DENY_ACTION: "Not now"}
        markup = texts.may_steer(self.owner, name, self._background.users.with_names(inbound.prompt))
        await self.outbox.add(question_post(f"consent:{user}", markup, f"{run}:{user}", labels))

    def consent(self, consent: Consent) -> bool:
        """Apply the owner's answer; the first one counts. Return whether this is it."""
        if consent.user in self.record.consents:
            return False
        self.record = replace(self.record, consents={**self.record.consents, consent.user: consent.allows})
        return True

    def suspend(self) -> None:
        """End at the next boundary, so that another process can resume the run."""
        if not self._is_suspending:
            self._is_suspending = True
            self.steering.close()
            self._interrupted.set()
            self._sessions.suspend(*self._key)
            if self.slot is not None:  # a run that waits for its slot notices the suspension
                self.slot.changed.set()

    def cancel(self) -> None:
        """End the run at once, because it reached no boundary in time."""
        self._is_cancelled = True
        self._suspend_loop()
        self._stop_loop()

    async def edit(self, inbound: PendingMessage) -> bool:
        """Replace the message with the same id in the loop, if it has it. Returns False if it is delivered."""
        if inbound.id == self.first.id:
            return not self._has_begun
        try:
            text = self._background.users.with_ids(inbound.prompt)
            return await self._sessions.edit(*self._key, inbound.id, text, self.files.of(inbound))
        except Refused:
            return False

    def _keep(self, **changes: Any) -> None:
        """Replace fields of the record."""
        self.record = replace(self.record, **changes)

    async def _store(self, **changes: Any) -> None:
        """Replace fields of the record, and store it."""
        self._keep(**changes)
        await self._store_record()

    async def _store_record(self, closed: Mapping[int, End] | None = None) -> None:
        """Store the record, unless the run has ended: a late call reports to it, and another run may be stored."""
        run = None if self.has_ended else asdict(self.record)
        if run is not None or closed:
            await self._lease.write(StateChanges(run=run, closed=closed or {}))

    def _on_stream_stopped(self) -> None:
        """Stop the run: a person has stopped its stream, and no event has told who."""
        if not self.record.stops:
            self._request_stop(self.owner, "stream")

    def _request_stop(self, user: str, name: str) -> None:
        """Store a request to stop the run, once for each name. The owner of the conversation stops its workers, too."""
        at = f"{max(self._background.now_s(), float(self.record.newest_ts)):.6f}"  # this clock may be behind Slack's
        stop = StopRequest(f"{self.record.id}:{name}", user, at, run=self.record.id)
        self._background.spawn(self._runs.admit(self.place.conversation_id, stop_entry(stop)))

    @property
    def artifacts(self) -> RunArtifacts:
        """The artifacts to remove when the run is over."""
        shown = self.status.artifacts
        return replace(shown, streams=self.stream.left, is_inherited=shown.is_inherited or self.is_in_doubt)

    @property
    def is_in_doubt(self) -> bool:
        """Whether calls of this process without a response may have left something in the thread, or still will."""
        return self.stream.is_in_doubt or self.outbox.is_in_doubt or self.status.is_in_doubt

    def _on_posted(self, part: str, ts: str) -> None:
        self.requests.on_posted(part, ts)

    def _on_requests(self) -> None:
        """Show the requests that the run waits for. It needs no slot while it waits."""
        waiting = self.requests.waiting
        self.status.show_waiting(waiting)
        if self.slot is None:
            return
        if waiting:
            self._slots.leave(self.place.conversation_id)
        elif not self.is_over:  # it has room at once
            self.slot = self._slots.enter(self.place.conversation_id, self.first.message, is_resumed=True)

    def _on_closed(self, error: str) -> None:
        """End the run, because Slack no longer accepts posts in the conversation."""
        log.error("conversation.closed", conversation=self.place.conversation_id, error=error)
        self.cancel()

    async def go(self) -> None:
        """Run to the end, or to the suspension, and post the result.

        Raises:
            LeaseLost: another process owns the conversation.
        """
        if not self.record.was_taken_over:
            await self._store_record()
        if self.first.message.key:  # a notice says why the run begins: it comes before all posts of the run
            await self._announced()
        self.stream.remove_left()
        async with self.outbox.delivering():
            if isinstance(self._start_mode, Finished):
                self.files.close()  # it reads no more messages
            else:
                async with self.status.shown():
                    with self._time_limit():
                        await self._run()
                    await self.stream.close()
                    await self.outbox.empty()

    @contextmanager
    def _time_limit(self) -> Iterator[None]:
        """Stop the run at its time limit, and at once if it does not end soon after it."""
        if not self.first.until_s:
            yield
            return
        left_s, loop = max(self.first.until_s - self._background.now_s(), 0.0), asyncio.get_running_loop()
        timers = [
            loop.call_later(left_s + more_s, self._request_stop, TIME_LIMIT, name)
            for name, more_s in (("limit", 0.0), ("limit2", _AFTER_LIMIT_S))
        ]
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()

    async def _run(self) -> None:
        """Execute the run and post its result, or why there is none."""
        failure = texts.UNEXPECTED
        with error_boundary("run.crashed", conversation=self.place.conversation_id):
            try:
                await self._post_result(await self._execute())
            except RunFailed as e:
                failure = str(e)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                log.exception("run.cancelled_inside", conversation=self.place.conversation_id)
            else:
                return
        self.summary = self.summary or RunSummary()
        notice = texts.failed(failure, self.summary, await self._announce_waiting())
        await self._post_last("error", failure, *service_post("end", self._of_worker(notice)))

    async def _execute(self) -> str:
        users, message = self._background.users, self.first.message
        await users.look_up((message.user,), self.first.mentioned)
        try:
            if self.record.gap is not None and await self._was_answered(self.record.gap):
                raise RunFailed(texts.RESTORED)
            await self._wait_for_slot()
            talk = NO_TALK
            if not (isinstance(self._start_mode, Resumed | Unrecoverable) or self._is_suspending or self._is_stopped):
                talk = await self._reader.before(self.first)
                if self.first.message.files:
                    await self._fetch_files()
            match self._start_mode:
                case Unrecoverable(why):
                    raise why
                case _ if self._is_suspending:
                    return ""
                case Resumed():
                    fence = self._lease.claim.token
                    self.requests.resume()
                    people = self.requests
                    return await self._sessions.resume(*self._key, self._on_progress, people=people, fence=fence)
                case _ if self._is_stopped:
                    self.summary = RunSummary("cancelled")
                    return ""
                case _:
                    self._has_begun = True
                    if self.place.worker and not message.key and self._workspace.workers is not None:
                        fence = self._lease.claim.token
                        await self._workspace.workers.begun(self.place.conversation_id, fence=fence)
                    return await self._sessions.execute(
                        *self._key,
                        users.with_ids(self.first.prompt),
                        self._on_progress,
                        message_id=self.first.id,
                        author=None if message.worker and message.key else users.author_of(message),
                        written_s=self.first.written_s,
                        files=self.files.of(self.first),
                        talk=talk,
                        people=self.requests,
                        notes=self._inbox.give_notes(self.instance.name) | self._background.app_views.news_for(message),
                        fence=self._lease.claim.token,
                    )
        finally:
            self.is_over = True
            self.steering.close()
            self.files.close()

    async def _fetch_files(self) -> None:
        """Fetch the files of the first message, and those that an edit adds, until the run is stopped or suspended."""
        interrupted = asyncio.create_task(self._interrupted.wait())
        try:
            fetched = None
            while fetched != self.first.message.files and not self._interrupted.is_set():
                fetched = self.first.message.files
                fetching = asyncio.create_task(self.files.fetch((self.first,)))
                await asyncio.wait((fetching, interrupted), return_when=asyncio.FIRST_COMPLETED)
                fetching.cancel()
                await asyncio.wait((fetching,))
        finally:
            interrupted.cancel()
            await asyncio.wait((interrupted,))
        await self.files.tell(self.first)

    async def _was_answered(self, gap: BackupGap) -> bool:
        """Return whether the bot posted after the first message and in the gap, apart from the posts in the outbox."""
        client, first_s = self._background.client, float(self.first.message.ts)
        known = tuple(f"{self.record.id}:{part}:" for part in self._lease.claim.posts)

        async def look() -> bool:
            async for each in client.history.posts(self.place, oldest=self.first.message.ts):
                is_in_gap = max(gap.since_s - _CLOCKS_DIFFER_S, first_s) < float(each["ts"]) < gap.until_s
                key = key_of(each)
                if is_in_gap and key and STATUS_KEY not in key and not key.startswith(known):
                    return True
            return False

        return await client.retry_until_done(look)

    async def _wait_for_slot(self) -> None:
        """Wait for the run's slot; return without one if the run will not begin."""
        if isinstance(self._start_mode, Unrecoverable):
            return
        if self.slot is None:
            self.slot = self._slots.enter(self.place.conversation_id, self.first.message, is_resumed=True)
        slot = self.slot
        if slot.is_granted:
            return
        log.info("run.waiting", conversation=self.place.conversation_id, place=self._slots.place(slot))
        while not (slot.is_granted or self._is_stopped or self._is_suspending):
            runs, bound = self._slots.obstacle(slot)
            self.status.on_event("waiting", {"place": self._slots.place(slot), "runs": runs, "bound": bound})
            await slot.changed.wait()
            slot.changed.clear()
        if not slot.is_granted:
            self._slots.leave(self.place.conversation_id)
        self.status.on_event("waited", {})

    @property
    def _is_stopped(self) -> bool:
        return self.record.stops > 0 or self.outbox.is_closed

    def _suspend_loop(self) -> None:
        """Suspend a loop that has begun since `suspend`, before it is stopped: then it could not be suspended."""
        if self._is_suspending and not self._is_stopped:
            self._sessions.suspend(*self._key)

    def _stop_loop(self) -> None:
        self.steering.close()
        self._interrupted.set()
        if self.slot is not None:  # a run that waits for its slot notices the stop
            self.slot.changed.set()
        is_immediate = self.record.stops > 1 or self._is_cancelled or self.outbox.is_closed
        self._sessions.stop(*self._key, immediate=is_immediate)

    async def _post_result(self, answer: str) -> None:
        await self._texts_added()
        # It ended only because this process shuts down.
        ends = {"suspended", "cancelled"} if self._is_cancelled and not self._is_stopped else {"suspended"}
        if self._is_suspending and (self.summary is None or self.summary.status in ends):
            self.was_suspended = self.status.is_suspended = True
            return
        summary = self.summary = self.summary or RunSummary("success")
        was_cancelled = summary.status == "cancelled"
        markdown = f"{answer.strip()} …" if was_cancelled and answer.strip() else answer
        text = await self._answer_post(summary.part or self._parts + 1, markdown.strip())
        if self._background.options.feedback and not was_cancelled and not self.place.worker:
            text = tuple(replace(post, is_rated=post.part.isdigit()) for post in text)
        if was_cancelled:
            by = await self._background.users.known_name_of(self.record.stopped_by)
            notice = texts.stopped(by, summary, await self._announce_waiting())
        elif summary.status == "incomplete" or self.record.stops:
            notice = texts.incomplete(summary, await self._announce_waiting())
        else:
            notice = ""
        notice = self._of_worker(notice or ("" if text else texts.NO_ANSWER))
        await self._post_last(summary.status, answer, *text, *service_post("end", notice))

    async def _add_text(self, part: int, text: str, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        posts = await self._answer_post(part, text)
        is_shown = any(each.streamed for each in posts)
        await self.outbox.add(*posts, run=self._with_streams if is_shown else None)

    def _with_streams(self) -> dict[str, Any]:
        """Return the record for the write that stores a post: only then is its stream no longer one to delete."""
        self.record = replace(self.record, streams=self.stream.left)
        return asdict(self.record)

    async def _texts_added(self) -> None:
        """Wait until the texts so far are in the outbox. One that failed was reported to the loop, unless it stopped.

        Raises:
            LeaseLost: another process owns the conversation.
        """
        if self._adding is not None:
            await asyncio.wait({self._adding})
            if isinstance(failed := self._adding.exception(), LeaseLost):
                raise failed

    async def _answer_post(self, part: int, markdown: str) -> tuple[Post, ...]:
        """Return the post of a text of the agent, whose beginning may be in the thread."""
        posts = agent_post(str(part), self._of_worker(markdown))
        # A longer one becomes a file, or several messages.
        is_one = len(posts) == 1 and not posts[0].file
        native, shown = await self.stream.hand_over(part, markdown if is_one else "", posts[0].native if is_one else "")
        if not shown:
            return posts
        return (replace(posts[0], native=native, streamed=shown),)

    def _of_worker(self, text: str) -> str:
        """Return a text of the run, with the name of its worker, if it is one's."""
        name = self.first.worker_name
        return f"🛠️ {name}: {text}" if name and text else text

    async def _post_last(self, status: str, answer: str, *posts: Post) -> None:
        """Store the last posts and `is_over` in one step: after a takeover, the next owner only delivers the posts."""
        await self._texts_added()
        self.requests.void()
        await report(self._workspace, self.first, status, answer, fence=self._lease.claim.token)

        def over() -> dict[str, Any]:
            self.record = replace(self.record, is_over=True, announced_seq=self._inbox.announced_seq)
            return self._with_streams()

        await self.outbox.add(*posts, run=over)

    @property
    def is_requeued(self) -> bool:
        """Whether the undelivered first message becomes pending again.

        True if a notice promised that the next run reads it, or if it reports a late edit or deletion. Otherwise the
        stop applies to the message itself.
        """
        was_held = self.record.was_waiting and not self._is_first_delivered and self.record.stopped_by is not None
        return was_held or self.first.is_late_change

    def report_first(self) -> None:
        """Show that the first message is delivered, if it had to wait. After a stop, the loop does not report it."""
        if self._is_first_delivered:
            return
        self._is_first_delivered = True
        self._reader.on_delivered(self.first.id)
        if self.record.was_waiting or self.first.is_marked_accepted:
            self._background.mark_delivered(self.first.id)

    async def _announce_waiting(self) -> int:
        """Count the messages that wait for the next run, and record that a notice counts them."""
        await self._inbox.asides_now(self._router, self._runs, self.place.conversation_id)
        return self._inbox.announce_held(
            self.delivered_ids if self.is_requeued else self.delivered_ids | {self.first.id}
        )

    async def _start_steering(self) -> None:
        """Apply a stop or a suspension requested before the loop started, then start to inject messages."""
        if self._participation.asks_consent:
            self._participants = await self._runs.thread_of(self.place.conversation_id)
        self._suspend_loop()
        if self._is_stopped or self._is_cancelled:
            self._stop_loop()
        await self.steering.open()

    async def _on_progress(self, event: str, data: dict[str, Any]) -> None:
        if event == "writing:text":
            self.stream.on_text(data["part"], data["at"], data["text"])
            return
        match event:
            case "executing":
                await self._start_steering()
            case "thinking":
                self.report_first()
            case "injection:applied":
                for message_id in data.get("ids", ()):
                    self.delivered_ids.add(message_id)
                    self._reader.on_delivered(message_id)
                    self._background.mark_delivered(message_id)
                self.steering.flush()
            case "resumed":
                calls = unknown_calls(data)
                # Resumptions of one run with different unknown calls post different notices.
                ids = json.dumps([call.id or call.label for call in calls])
                part = f"resumed:{sha256(ids.encode()).hexdigest()[:_KEY_CHARS]}"
                await self.outbox.add(*service_post(part, texts.resumed([call.label for call in calls])))
            case "text":
                self._parts = data.get("part", self._parts + 1)
                text = complete_sentences(data["text"]) if data.get("partial") else data["text"]
                # After a stop the loop does not wait for it, and the end of the run does: the text is in the log.
                self._adding = asyncio.create_task(self._add_text(self._parts, text, self._adding))
                await asyncio.shield(self._adding)
            case "complete":
                self.summary = RunSummary.of(data)
        if not self._is_suspending:  # the next owner asks again
            self.requests.on_event(event, data)
        self.status.on_event(event, data)
