"""What a run says in its thread: written down when it is said, posted in order, each text once."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from connector import texts as phrases
from connector.formatting.content import Content
from connector.formatting.splitting import pieces
from connector.protocols import LeaseLost, StateChanges
from connector.records.entries import UNREADABLE
from connector.runs.post import Post
from connector.slack_api import uploads
from connector.slack_api.best_effort import best_effort
from connector.slack_api.errors import NO_THREAD, RetryDecision, SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connector.protocols import ConversationLease, End, Persona
    from connector.records.run_record import RunRecord
    from connector.slack_api.client import SlackClient
    from connector.slack_api.history import FoundPost

    Record = Callable[[], Mapping[str, Any]]

log = structlog.get_logger(__name__)

# In the place of a post that Slack has.
_POSTED = ""
# The part under which somebody is told, elsewhere, that the conversation is closed to us.
_CLOSED = "closed"
_SHORT_CHARS = 1500
_NOTHING: MappingProxyType[int, End] = MappingProxyType({})


class Send(Protocol):
    """Sends something exactly once, told whether it may have been sent before."""

    async def __call__(self, *, in_doubt: bool) -> object: ...


class Outbox:
    """The posts of one run.

    Of a run that was taken up, what is pending is looked up in the thread before it is posted, and what is known is not
    taken again; `before` is what stood there then. `on_closed` is called, once, where Slack does not let us write in
    the conversation (any more): what is still to be posted there is given up then, and whoever began the run is told so
    in a direct message.
    """

    def __init__(  # noqa: PLR0913 - what the posts of a run have in common
        self,
        wire: SlackClient,
        lease: ConversationLease,
        record: RunRecord,
        persona: Persona,
        before: FoundPost | None,
        *,
        on_closed: Callable[[str], None],
    ) -> None:
        self._wire = wire
        self._lease = lease
        self._first = record.first.message
        self._place = self._first.place
        self._run_id = record.id
        self._persona = persona
        self._before = before
        self._on_closed = on_closed
        posts = lease.claim.posts if record.is_taken_up else {}
        self._known = set(posts)
        self.is_closed = _CLOSED in posts
        # Each with what says that it is written down; `None`: it was before.
        self._waiting: asyncio.Queue[tuple[Post, asyncio.Task[None] | None]] = asyncio.Queue()
        self._keeping: set[asyncio.Task[None]] = set()
        pending = [_pending(part, data) for part, data in posts.items() if data != _POSTED]
        for post in sorted(pending, key=lambda post: post.number):
            self._waiting.put_nowait((post, None))

    async def add(self, *posts: Post, run: Record | None = None, closed: Mapping[int, End] = _NOTHING) -> None:
        """Say these texts after those before them, except for those whose part is known.

        They are written down in one step with what hangs on them, when this returns: `run` and `closed` as in
        `StateChanges`, the run as it is in that moment. Where the caller is cut, that is done all the same.
        """
        new = [post for post in posts if post.part not in self._known]
        if new or run is not None or closed:
            await asyncio.shield(self._keep(new, run, closed))

    def close(self, error: str) -> None:
        """Slack does not let us write here (any more), for a reason in its own word."""
        if self.is_closed:
            return
        self.is_closed = True
        self._on_closed(error)
        if not self._first.direct:
            self._keep([Post(_CLOSED, (phrases.closed(self._first.channel, error),))])

    async def empty(self) -> None:
        """Return once all that was said is with Slack, or has been given up."""
        await self._waiting.join()

    async def work(self) -> None:
        """Post what is said, one text after the other.

        Raises:
            LeaseLost: another process owns the conversation.
        """
        while True:
            post, kept = await self._waiting.get()
            if kept is not None:
                await asyncio.shield(kept)
            if post.part == _CLOSED:
                await self._tell_elsewhere(post)
            else:
                await self._post(await self._with_its_file(post))
            await self._lease.write(StateChanges(posts={post.part: _POSTED}))
            self._waiting.task_done()

    def _keep(
        self, posts: list[Post], run: Record | None = None, closed: Mapping[int, End] = _NOTHING
    ) -> asyncio.Task[None]:
        numbered = [replace(post, number=len(self._known) + place) for place, post in enumerate(posts, 1)]
        self._known.update(post.part for post in posts)
        kept = asyncio.create_task(self._write(numbered, run, closed))
        self._keeping.add(kept)
        kept.add_done_callback(self._kept)
        for post in numbered:
            self._waiting.put_nowait((post, kept))
        return kept

    async def _write(self, posts: list[Post], run: Record | None, closed: Mapping[int, End]) -> None:
        written = {post.part: post.written() for post in posts}
        await self._lease.write(StateChanges(run=None if run is None else run(), posts=written, closed=closed))

    def _kept(self, kept: asyncio.Task[None]) -> None:
        self._keeping.discard(kept)
        if not kept.cancelled():
            kept.exception()  # whoever posts it hears of it

    async def _tell_elsewhere(self, post: Post) -> None:
        # There is no looking it up in a channel that nobody has opened: told twice is better than not at all.
        arguments = {**Content(post.texts[0]).arguments(), "unfurl_links": False, "unfurl_media": False}
        arguments["channel"] = self._first.user
        turn = CallSlot(run=self._place.conversation_id)
        await best_effort(self._wire.insisting(lambda: self._wire.call("chat.postMessage", arguments, turn)))

    async def _with_its_file(self, post: Post) -> Post:
        """Share the file of a post; what is left to be posted then."""
        if not post.file or self.is_closed:
            return post
        key, confirm = f"{self._run_id}:{post.part}", self._lease.confirm
        share = partial(uploads.share, self._wire, self._place, key, post.file, confirm=confirm)
        failed = await self._refused(post, share)
        if failed is None or self.is_closed:
            return post
        if failed.error == NO_THREAD:
            return replace(post, texts=(), file="")
        # Written down before anything of it is posted: whoever goes on with it goes on with the messages.
        post = await post.without_file()
        await self._lease.write(StateChanges(posts={post.part: post.written()}))
        return post

    async def _post(self, post: Post) -> None:
        """Post each of its messages; where Slack does not take one, say so, once, so that nobody waits for nothing."""
        refused = None
        for number, text in enumerate(post.texts):
            key = f"{self._run_id}:{post.part}:{number}"
            failed = await self._refused(post, self._sending(post, text, key))
            if failed is not None and failed.verdict is RetryDecision.TOO_MUCH:
                failed = await self._post_in_short(post, text, key)
            refused = refused or failed
        if refused is not None and refused.error != NO_THREAD:
            key = f"{self._run_id}:{post.part}:refused"
            notice = replace(post, by_agent=False)
            await self._refused(post, self._sending(notice, phrases.not_posted(refused.error), key))

    async def _post_in_short(self, post: Post, text: str, key: str) -> SlackCallFailed | None:
        """Post a text in shorter pieces, of which none has any blocks; why Slack did not take all, if it did not."""
        refused = None
        for number, piece in enumerate(pieces(text, _SHORT_CHARS)):
            failed = await self._refused(post, self._sending(post, piece, f"{key}.{number}"))
            refused = refused or failed
        return refused

    def _sending(self, post: Post, text: str, key: str) -> Send:
        persona = self._persona if post.by_agent else None
        turn = CallSlot(run=self._first.user)  # people take turns
        send = partial(
            self._wire.post, self._place, Content(text), key, persona, turn=turn, confirm=self._lease.confirm
        )
        # Of what this process has sent itself, what stood there before says nothing.
        before = self._before if post.in_doubt else None

        async def unless_there(*, in_doubt: bool) -> None:
            nonlocal before
            if before is not None:
                if await before.find(key) is not None:
                    return
                before, in_doubt = None, False
            await send(in_doubt=in_doubt)

        return unless_there

    async def _refused(self, post: Post, send: Send) -> SlackCallFailed | None:
        """Send something, told whether that is in doubt; why Slack did not take it, if it did not.

        Raises:
            LeaseLost: another process owns the conversation.
        """
        where = {"conversation": self._place.conversation_id, "part": post.part}
        in_doubt = post.in_doubt

        async def attempt() -> None:
            nonlocal in_doubt
            was_in_doubt, in_doubt = in_doubt, True  # where it fails, it may have come through all the same
            await send(in_doubt=was_in_doubt)

        if self.is_closed:
            return None
        try:
            await self._wire.insisting(attempt)
        except LeaseLost:
            raise
        except SlackCallFailed as e:
            log.error("answer.not_posted", **where, error=str(e))  # noqa: TRY400 - Slack's word says it all
            return self._seen(e)
        except Exception:  # a Slack handler's border: the texts after it are posted all the same
            log.exception("answer.not_posted", **where)
            return SlackCallFailed("chat.postMessage", "an unexpected error")
        return None

    def _seen(self, failed: SlackCallFailed) -> SlackCallFailed | None:
        """A refusal that is about one message; one that is about the conversation is told elsewhere, and only once."""
        if failed.verdict is not RetryDecision.CONVERSATION_CLOSED:
            return failed
        self.close(failed.error)
        return None


def _pending(part: str, data: Any) -> Post:
    """A post that another process has written down; a sentence in its place, where it cannot be read."""
    try:
        return Post.read(part, data)
    except UNREADABLE:
        log.exception("post.unreadable", part=part)
        return Post(part, (phrases.UNREADABLE_POST,), in_doubt=True)
