"""What a run says in its thread: written down before it is posted, posted in order, each text once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

import structlog

from connector import phrases
from connector.outbound import files
from connector.outbound.answers import messages_of
from connector.outbound.content import Content
from connector.outbound.errors import SlackCallFailed, Verdict
from connector.outbound.pieces import pieces
from connector.protocols import Changes, LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from connector.messages import Place
    from connector.outbound.wire import Wire
    from connector.protocols import Lease, Persona

log = structlog.get_logger(__name__)

# In the place of a post that Slack has.
_POSTED = ""
# The part under which it is written down that people have been told that the conversation is closed to us.
_CLOSED = "closed"
_SHORT_CHARS = 1500


class Send(Protocol):
    """Sends something exactly once, told whether it may have been sent before."""

    async def __call__(self, *, in_doubt: bool) -> object: ...


@dataclass(frozen=True, slots=True)
class _Post:
    """A text on its way.

    Args:
        part: tells it from the other texts of its run.
        number: its place in their order.
        texts: the messages that it becomes.
        by_agent: under the agent's persona, rather than the service's own name.
        file: what comes before them as a file, in Markdown; blank: nothing does.
        in_doubt: a process that is dead may have posted it.
    """

    part: str
    number: int
    texts: tuple[str, ...]
    by_agent: bool
    file: str = ""
    in_doubt: bool = False

    def written(self) -> dict[str, Any]:
        post = {"number": self.number, "texts": self.texts, "by_agent": self.by_agent}
        return {**post, "file": self.file} if self.file else post

    async def without_file(self) -> Self:
        """The same as messages alone, where Slack does not take the file."""
        return replace(self, texts=await asyncio.to_thread(messages_of, self.file), file="")

    @classmethod
    def read(cls, part: str, data: Mapping[str, Any]) -> Self:
        return cls(part, data["number"], tuple(data["texts"]), data["by_agent"], data.get("file", ""), in_doubt=True)


class Outbox:
    """The posts of one run.

    `posts` are those that the run had when it was claimed: what is pending of them is looked up in the thread before it
    is posted, and what is known is not taken again. `on_closed` is called, once, where Slack does not let us write in
    the conversation (any more): what is still to be posted then is given up.
    """

    def __init__(  # noqa: PLR0913 - what the posts of a run have in common
        self,
        wire: Wire,
        lease: Lease,
        place: Place,
        run_id: str,
        persona: Persona,
        *,
        on_closed: Callable[[str], None],
    ) -> None:
        self._wire = wire
        self._lease = lease
        self._place = place
        self._run_id = run_id
        self._persona = persona
        self._on_closed = on_closed
        self._is_closed = False
        posts = lease.claim.posts if (lease.claim.run or {}).get("id") == run_id else {}
        self._known = set(posts)
        self._waiting: asyncio.Queue[_Post] = asyncio.Queue()
        pending = [_Post.read(part, data) for part, data in posts.items() if data != _POSTED]
        for post in sorted(pending, key=lambda post: post.number):
            self._waiting.put_nowait(post)

    def add(self, part: str, texts: tuple[str, ...], *, by_agent: bool, file: str = "") -> None:
        """Post a text after those before it, unless one with this part is known; the file, if there is one, before it.

        Where Slack does not take the file, what it says is posted in messages instead.
        """
        if part not in self._known:
            self._known.add(part)
            self._waiting.put_nowait(_Post(part, len(self._known), texts, by_agent, file))

    async def empty(self) -> None:
        """Return once all that was added is with Slack, or has been given up."""
        await self._waiting.join()

    async def work(self) -> None:
        """Post what is added, one after the other.

        Raises:
            LeaseLost: another process owns the conversation.
        """
        while True:
            post = await self._waiting.get()
            if not post.in_doubt:
                await self._lease.write(Changes(posts={post.part: post.written()}))
            await self._post(await self._with_its_file(post))
            await self._lease.write(Changes(posts={post.part: _POSTED}))
            self._waiting.task_done()

    async def _with_its_file(self, post: _Post) -> _Post:
        """Share the file of a post; what is left to be posted then."""
        if not post.file or self._is_closed:
            return post
        key, confirm = f"{self._run_id}:{post.part}", self._lease.confirm
        share = partial(files.share, self._wire, self._place, key, post.file, confirm=confirm)
        failed = await self._refused(post, share)
        if failed is None or self._is_closed:
            return post
        if failed.error == files.NO_THREAD:
            return replace(post, texts=(), file="")
        # Written down before anything of it is posted: whoever goes on with it goes on with the messages.
        post = await post.without_file()
        await self._lease.write(Changes(posts={post.part: post.written()}))
        return post

    async def _post(self, post: _Post) -> None:
        """Post each of its messages; where Slack does not take one, say so, once, so that nobody waits for nothing."""
        refused = None
        for number, text in enumerate(post.texts):
            key = f"{self._run_id}:{post.part}:{number}"
            failed = await self._refused(post, self._sending(text, key, self._as(post)))
            if failed is not None and failed.verdict is Verdict.TOO_MUCH:
                failed = await self._post_in_short(post, text, key)
            refused = refused or failed
        if refused is not None and refused.error != files.NO_THREAD:
            key = f"{self._run_id}:{post.part}:refused"
            await self._refused(post, self._sending(phrases.not_posted(refused.error), key, None))

    async def _post_in_short(self, post: _Post, text: str, key: str) -> SlackCallFailed | None:
        """Post a text in shorter pieces, of which none has any blocks; why Slack did not take all, if it did not."""
        refused = None
        for number, piece in enumerate(pieces(text, _SHORT_CHARS)):
            failed = await self._refused(post, self._sending(piece, f"{key}.{number}", self._as(post)))
            refused = refused or failed
        return refused

    def _sending(self, text: str, key: str, persona: Persona | None) -> Send:
        return partial(self._wire.post, self._place, Content(text), key, persona, confirm=self._lease.confirm)

    async def _refused(self, post: _Post, send: Send) -> SlackCallFailed | None:
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

        if self._is_closed:
            return None
        try:
            await self._wire.insisting(attempt)
        except LeaseLost:
            raise
        except SlackCallFailed as e:
            log.error("answer.not_posted", **where, error=str(e))  # noqa: TRY400 - Slack's word says it all
            return await self._seen(e)
        except Exception:  # a Slack handler's border: the texts after it are posted all the same
            log.exception("answer.not_posted", **where)
            return SlackCallFailed("chat.postMessage", "an unexpected error")
        return None

    async def _seen(self, failed: SlackCallFailed) -> SlackCallFailed | None:
        """A refusal that is about one message; one that is about the conversation is told elsewhere, and only once."""
        if failed.verdict is not Verdict.CONVERSATION_CLOSED:
            return failed
        self._is_closed = True
        if _CLOSED not in self._known:
            self._known.add(_CLOSED)
            await self._lease.write(Changes(posts={_CLOSED: _POSTED}))
            self._on_closed(failed.error)
        return None

    def _as(self, post: _Post) -> Persona | None:
        return self._persona if post.by_agent else None
