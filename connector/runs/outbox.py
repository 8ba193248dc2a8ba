"""The posts of a run: they are stored first, then delivered in order, each exactly once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import structlog

from connector import texts
from connector.formatting.content import Content, section
from connector.formatting.inline import escape
from connector.formatting.native import fenced, native_markdown
from connector.formatting.splitting import pieces
from connector.protocols import StateChanges
from connector.records import UNREADABLE
from connector.runs.posts import Post, feedback_block, stored_post
from connector.slack_api import canvases, streams, uploads
from connector.slack_api.client import AnswerKey, best_effort
from connector.slack_api.errors import NO_THREAD, RetryDecision, SlackCallFailed, error_boundary
from connector.slack_api.rate_limiter import CallCancelled, CallSlot, CancelScope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from connector.protocols import ConversationLease, End, Persona
    from connector.records import RunRecord
    from connector.slack_api.client import SlackClient

    Record = Callable[[], Mapping[str, Any]]
    # Sends something exactly once; with `in_doubt`, an earlier attempt may have succeeded.
    Send = Callable[..., Awaitable[object]]

log = structlog.get_logger(__name__)

# Replaces the data of a delivered post.
_POSTED = ""
# Part of the direct message that reports a closed conversation.
_CLOSED = "closed"
_SHORT_CHARS = 1500
# How long a streamed answer waits for a call that completes it, in seconds.
_COMPLETED_WITHIN_S = 2.0
_SECTION_CHARS = 3000
_NOTHING: MappingProxyType[int, End] = MappingProxyType({})


class Outbox:
    """The posts of one run.

    After a takeover, pending posts are looked up in the thread before they are sent, and known parts are not added
    again. If Slack no longer accepts posts in the conversation, the outbox calls `on_closed` once, drops the remaining
    posts, and informs the author of the first message in a direct message.
    """

    def __init__(  # noqa: PLR0913 - the facts of a run, and two callbacks
        self,
        client: SlackClient,
        lease: ConversationLease,
        record: RunRecord,
        persona: Persona,
        *,
        on_closed: Callable[[str], None],
        on_posted: Callable[[str, str], None] = lambda _part, _ts: None,
        has_canvases: bool = False,
    ) -> None:
        """`has_canvases`: very long answers become canvases, where Slack makes them.

        `on_posted` is called with the part of a post and the ts of its message; blank: Slack rejected it.
        """
        self._client = client
        self._lease = lease
        self._first = record.first.message
        self._since = f"{record.first.written_s:.6f}"
        self._place = self._first.place
        self._run_id = record.id
        self._instance, self._prompt_id = record.first.instance, record.first.id
        self._persona = persona
        self._on_closed = on_closed
        self._has_canvases = has_canvases
        self._on_posted = on_posted
        posts = lease.claim.posts if record.was_taken_over else {}
        self._known = set(posts)
        self.is_closed = _CLOSED in posts
        # Whether a second copy of a post may arrive late.
        self.is_in_doubt = False
        # All posts are delivered, and no more are accepted.
        self.is_finished = False
        # Each post with the task that stores it; `None`: stored by an earlier owner.
        self._waiting: asyncio.Queue[tuple[Post, asyncio.Task[None] | None]] = asyncio.Queue()
        self._storing: set[asyncio.Task[None]] = set()
        pending = [_pending(part, data) for part, data in posts.items() if data != _POSTED]
        for post in sorted(pending, key=lambda post: post.number):
            self._waiting.put_nowait((post, None))
        self._undelivered = len(pending)

    @property
    def is_idle(self) -> bool:
        """Whether no post waits for its delivery."""
        return self._undelivered == 0

    async def add(self, *posts: Post, run: Record | None = None, closed: Mapping[int, End] = _NOTHING) -> None:
        """Append posts, except those whose part is known.

        On return they are stored, in one step with `run` and `closed` (see `StateChanges`). `run` is called at the time
        of the write. Cancelling the caller does not cancel the write.
        """
        new = [post for post in posts if post.part not in self._known]
        if new or run is not None or closed:
            await asyncio.shield(self._store(new, run, closed))

    def close(self, error: str) -> None:
        """Stop posting: Slack no longer accepts posts in the conversation. `error` is Slack's error code."""
        if self.is_closed:
            return
        self.is_closed = True
        self._on_closed(error)
        if not self._first.direct:
            self._store([Post(_CLOSED, (texts.closed(self._first.channel, error),))])

    async def empty(self) -> None:
        """Wait until every post is delivered or dropped."""
        known = None
        while known != len(self._known):  # posts may be added while this waits
            known = len(self._known)
            await self._waiting.join()

    @asynccontextmanager
    async def delivering(self) -> AsyncIterator[None]:
        """Deliver posts while the body runs, and the remaining ones at its end.

        If the body fails or is cancelled, the remaining posts stay stored.

        Raises:
            LeaseLost: in an exception group, if another process owns the conversation.
        """
        async with asyncio.TaskGroup() as tasks:
            working = tasks.create_task(self._work())
            yield
            await self.empty()
            self.is_finished = True
            working.cancel()

    async def _work(self) -> None:
        while True:
            post, stored = await self._waiting.get()
            if stored is not None:
                await asyncio.shield(stored)
            if post.part == _CLOSED:
                await self._post_direct(post)
            elif post.shared:
                await self._share(post)
            else:
                await self._post(await self._with_its_file(post) if post.file else post)
            await self._lease.write(StateChanges(posts={post.part: _POSTED}))
            self._undelivered -= 1
            self._waiting.task_done()

    def _store(
        self, posts: list[Post], run: Record | None = None, closed: Mapping[int, End] = _NOTHING
    ) -> asyncio.Task[None]:
        numbered = [replace(post, number=len(self._known) + place) for place, post in enumerate(posts, 1)]
        self._known.update(post.part for post in posts)
        self._undelivered += len(posts)

        async def write() -> None:
            written = {post.part: asdict(post) for post in numbered}
            await self._lease.write(StateChanges(run=None if run is None else run(), posts=written, closed=closed))

        def on_stored(stored: asyncio.Task[None]) -> None:
            self._storing.discard(stored)
            if not stored.cancelled():
                stored.exception()  # mark as retrieved; `_work` raises it

        stored = asyncio.create_task(write())
        self._storing.add(stored)
        stored.add_done_callback(on_stored)
        for post in numbered:
            self._waiting.put_nowait((post, stored))
        return stored

    async def _post_direct(self, post: Post) -> None:
        # A direct message channel may not exist yet, so the post cannot be looked up: it may be sent twice.
        arguments = {**Content(post.texts[0]).arguments(), "unfurl_links": False, "unfurl_media": False}
        arguments["channel"] = self._first.user
        slot = CallSlot(run=self._place.conversation_id)
        await best_effort(self._client.retry_until_done(lambda: self._client.call("chat.postMessage", arguments, slot)))

    async def _share(self, post: Post) -> None:
        """Share uploaded files; if Slack refuses, post one notice about it."""
        confirm = self._lease.confirm
        share = partial(
            uploads.complete, self._client, self._place, post.shared, post.comment, since=self._since, confirm=confirm
        )
        refused = await self._attempt(post, share)
        if refused is not None and refused.error != NO_THREAD:
            notice = replace(post, by_agent=False, shared=())
            sentence = texts.not_shared([each.name for each in post.shared], refused.error)
            await self._send(notice, escape(sentence), f"{self._run_id}:{post.part}:refused")

    async def _with_its_file(self, post: Post) -> Post:
        """Share the file of a post, or its canvas, and return the remaining messages to post."""
        if post.kind == uploads.ANSWER and not post.blocks and self._has_canvases and self._client.takes_canvases:
            with_link = await self._with_its_canvas(post)
            if with_link is not None:
                return with_link
        key, confirm = f"{self._run_id}:{post.part}", self._lease.confirm
        share = partial(
            uploads.share, self._client, self._place, key, post.file, post.kind, since=self._since, confirm=confirm
        )
        failed = await self._attempt(post, share)
        if failed is None or self.is_closed:
            return post
        if failed.error == NO_THREAD:
            return replace(post, texts=(), file="")
        # Stored before the first message is sent, so that the next owner continues with messages, too.
        texts = await asyncio.to_thread(post.file_texts)  # may take seconds
        post = replace(post, texts=(*texts, *(post.texts if post.blocks else ())), file="")
        await self._lease.write(StateChanges(posts={post.part: asdict(post)}))
        return post

    async def _with_its_canvas(self, post: Post) -> Post | None:
        """Show the canvas of a post, and return the messages with a link to it; `None`: there is none."""
        link = ""

        async def send(*, in_doubt: bool) -> None:  # noqa: ARG001 - repeated calls have the same result
            nonlocal post, link
            if not post.canvas:
                markdown = await asyncio.to_thread(native_markdown, post.file) or fenced(post.file)  # takes a while
                post = replace(post, canvas=await canvases.create(self._client, uploads.title_of(post.file), markdown))
                # Stored before anybody sees it, so that the next owner continues with the same canvas.
                await self._lease.write(StateChanges(posts={post.part: asdict(post)}))
            link = await canvases.show(self._client, post.canvas, self._first, self._lease.confirm)

        failed = await self._attempt(post, send)
        if failed is None:
            return None if self.is_closed else replace(post, texts=uploads.summary_of(post.file, link), file="")
        # Slack may refuse access in one channel only.
        if failed.decision is RetryDecision.UNAVAILABLE and failed.method != canvases.SET_ACCESS:
            self._client.takes_canvases = False
        log.warning("answer.no_canvas", error=failed.error)
        return None

    async def _post(self, post: Post) -> None:
        """Post the messages of a post; if Slack rejects any, post one notice about it."""
        if post.streamed:
            if await self._complete(post) is None:
                return
            slot = CallSlot(run=self._first.user)  # the answer waits for it
            for each in post.streamed:
                discard = partial(streams.discard, self._client, self._place.channel, each.ts, slot)
                await best_effort(self._client.retry_until_done(discard))
        if post.native:
            # A block may have been posted by an earlier owner: then it is found by its key.
            if self._client.takes_markdown or post.in_doubt:
                refused = await self._post_native(post)
                if refused is None or refused.decision is not RetryDecision.TOO_MUCH:
                    await self._report_refused(post, refused)
                    return
            # Stored before the first text is sent, so that the next owner continues with texts, too.
            post = replace(post, native="", streamed=())
            await self._lease.write(StateChanges(posts={post.part: asdict(post)}))
        refused = None
        for number, text in enumerate(post.texts):
            key = f"{self._run_id}:{post.part}:{number}"
            blocks = post.blocks if number == len(post.texts) - 1 else ()
            failed = await self._send(post, text, key, blocks)
            if failed is not None and failed.decision is RetryDecision.TOO_MUCH and not post.blocks:
                short = pieces(text, _SHORT_CHARS)
                results = [await self._send(post, piece, f"{key}.{place}") for place, piece in enumerate(short)]
                failed = next(filter(None, results), None)
            refused = refused or failed
        await self._report_refused(post, refused)

    async def _report_refused(self, post: Post, refused: SlackCallFailed | None) -> None:
        if refused is not None:
            self._on_posted(post.part, "")
        if refused is not None and refused.error != NO_THREAD:
            notice = replace(post, by_agent=False, blocks=())
            await self._send(notice, texts.not_posted(refused.error), f"{self._run_id}:{post.part}:refused")

    async def _post_native(self, post: Post) -> SlackCallFailed | None:
        """Post the Markdown of a post as one message; as `_attempt`."""
        shown = ({"type": "markdown", "text": post.native},)
        refused = await self._send(post, "\n\n".join(post.texts), f"{self._run_id}:{post.part}:native", shown)
        if refused is not None and refused.decision is RetryDecision.TOO_MUCH:
            self._client.takes_markdown = not refused.error.startswith("invalid_blocks")
            log.warning("answer.no_markdown_block", error=refused.error)
        return refused

    async def _complete(self, post: Post) -> SlackCallFailed | None:
        """Complete the messages that show the beginning of a post; as `_attempt`."""
        answer, text = self._answer_key(post), "\n\n".join(post.texts)
        key = f"{self._run_id}:{post.part}:native"
        scope, confirm = CancelScope(), self._lease.confirm
        slot = CallSlot(run=self._first.user, scope=scope)  # fair between people
        channel, is_rated, is_busy = self._place.channel, post.is_rated and self._client.takes_feedback, False

        async def send(*, in_doubt: bool) -> None:
            below = (feedback_block(answer),) if is_rated and self._client.takes_feedback else ()
            content = Content(text, below)
            complete = partial(streams.complete, self._client, channel, post.streamed, post.native, content)
            try:
                self._on_posted(post.part, await complete(key, answer, slot, in_doubt=in_doubt, confirm=confirm))
            except CallCancelled:
                nonlocal is_busy
                is_busy = True

        # Slack ends few streams in a minute. An answer does not wait for that: it is posted.
        timer = asyncio.get_running_loop().call_later(_COMPLETED_WITHIN_S, scope.cancel)
        failed = await self._attempt(post, send)
        timer.cancel()
        if is_busy:
            log.info("stream.busy", conversation=self._place.conversation_id)
            return SlackCallFailed("chat.stopStream", "busy")
        if failed is not None and is_rated and failed.error.startswith("invalid_blocks"):
            self._client.takes_feedback = False
            log.warning("feedback.no_buttons", error=failed.error)
            failed = await self._attempt(replace(post, in_doubt=True), send)
        return failed

    async def _send(
        self, post: Post, text: str, key: str, blocks: tuple[dict[str, Any], ...] = ()
    ) -> SlackCallFailed | None:
        if post.is_rated and (blocks or text is post.texts[-1]) and self._client.takes_feedback:
            shown = blocks or tuple(map(section, pieces(text, _SECTION_CHARS)))
            rated = Content(text, (*shown, feedback_block(self._answer_key(post))))
            failed = await self._send_content(post, rated, key)
            if failed is None or failed.decision is not RetryDecision.TOO_MUCH:
                return failed
            if failed.error.startswith("invalid_blocks"):  # this workspace lacks the block
                self._client.takes_feedback = False
                log.warning("feedback.no_buttons", error=failed.error)
        return await self._send_content(post, Content(text, blocks), key)

    def _answer_key(self, post: Post) -> AnswerKey:
        return AnswerKey(self._instance, self._prompt_id, int(post.part))

    async def _send_content(self, post: Post, content: Content, key: str) -> SlackCallFailed | None:
        persona = self._persona if post.by_agent else None
        slot = CallSlot(run=self._first.user)  # fair between people
        confirm = self._lease.confirm
        answer = self._answer_key(post) if post.by_agent and post.part.isdigit() else None
        post_once = partial(self._client.post, self._place, content, key, persona, since=self._since, answer=answer)

        def on_doubt() -> None:
            self.is_in_doubt = True

        async def send(*, in_doubt: bool) -> None:
            ts = await post_once(slot=slot, confirm=confirm, in_doubt=in_doubt, on_doubt=on_doubt)
            self._on_posted(post.part, ts)

        return await self._attempt(post, send)

    async def _attempt(self, post: Post, send: Send) -> SlackCallFailed | None:
        """Send a post with retries. Returns the failure if Slack rejects it; closes the outbox if it accepts no more.

        Raises:
            LeaseLost: another process owns the conversation.
        """
        where = {"conversation": self._place.conversation_id, "part": post.part}
        in_doubt = post.in_doubt

        async def attempt() -> None:
            nonlocal in_doubt
            was_in_doubt, in_doubt = in_doubt, True  # a failed call may have posted it
            await send(in_doubt=was_in_doubt)

        if self.is_closed:
            return None
        with error_boundary("answer.not_posted", **where):  # later posts are still delivered
            try:
                await self._client.retry_until_done(attempt)
            except SlackCallFailed as e:
                log.error("answer.not_posted", **where, error=str(e))  # noqa: TRY400 - Slack's error code suffices
                if e.decision is not RetryDecision.CONVERSATION_CLOSED:
                    return e
                self.close(e.error)
            return None
        return SlackCallFailed("chat.postMessage", "an unexpected error")


def _pending(part: str, data: Any) -> Post:
    """Parse a post stored by another process; return a notice in its place if it is unreadable."""
    try:
        return stored_post(part, data)
    except UNREADABLE:
        log.exception("post.unreadable", part=part)
        return Post(part, (texts.UNREADABLE_POST,), in_doubt=True)
