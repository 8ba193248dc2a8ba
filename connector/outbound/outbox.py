"""What a run says in its thread: written down before it is posted, posted in order, each text once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import structlog

from connector import phrases
from connector.outbound.content import Content
from connector.outbound.errors import SlackCallFailed
from connector.outbound.markdown import pieces
from connector.protocols import Changes, LeaseLost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from connector.messages import Place
    from connector.outbound.wire import Wire
    from connector.protocols import Lease, Persona

log = structlog.get_logger(__name__)

# In the place of a post that Slack has.
_POSTED = ""
_SHORT_CHARS = 1500


@dataclass(frozen=True, slots=True)
class _Post:
    """A text on its way.

    Args:
        part: tells it from the other texts of its run.
        number: its place in their order.
        texts: the messages that it becomes.
        by_agent: under the agent's persona, rather than the service's own name.
        in_doubt: a process that is dead may have posted it.
    """

    part: str
    number: int
    texts: tuple[str, ...]
    by_agent: bool
    in_doubt: bool = False

    def written(self) -> dict[str, Any]:
        return {"number": self.number, "texts": self.texts, "by_agent": self.by_agent}

    @classmethod
    def read(cls, part: str, data: Mapping[str, Any]) -> Self:
        return cls(part, data["number"], tuple(data["texts"]), data["by_agent"], in_doubt=True)


class Outbox:
    """The posts of one run.

    `posts` are those that the run had when it was claimed: what is pending of them is looked up in the thread before it
    is posted, and what is known is not taken again.
    """

    def __init__(self, wire: Wire, lease: Lease, place: Place, run_id: str, persona: Persona) -> None:
        self._wire = wire
        self._lease = lease
        self._place = place
        self._run_id = run_id
        self._persona = persona
        posts = lease.claim.posts if (lease.claim.run or {}).get("id") == run_id else {}
        self._known = set(posts)
        self._waiting: asyncio.Queue[_Post] = asyncio.Queue()
        pending = [_Post.read(part, data) for part, data in posts.items() if data != _POSTED]
        for post in sorted(pending, key=lambda post: post.number):
            self._waiting.put_nowait(post)

    def add(self, part: str, texts: tuple[str, ...], *, by_agent: bool) -> None:
        """Post a text after those before it, unless one with this part is known."""
        if part not in self._known:
            self._known.add(part)
            self._waiting.put_nowait(_Post(part, len(self._known), texts, by_agent))

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
            await self._post(post)
            await self._lease.write(Changes(posts={post.part: _POSTED}))
            self._waiting.task_done()

    async def _post(self, post: _Post) -> None:
        """Post each of its messages; where Slack does not take one, say so instead."""
        for number, text in enumerate(post.texts):
            key = f"{self._run_id}:{post.part}:{number}"
            if (error := await self._refused(post, text, key, self._as(post))) is not None:
                await self._post_instead(post, text, key, error)

    async def _post_instead(self, post: _Post, text: str, key: str, error: str) -> None:
        """Shorter pieces of a text that Slack calls too long; else a sentence, so that nobody waits for nothing."""
        too_long = error == "msg_too_long"
        texts = pieces(text, _SHORT_CHARS) if too_long else [phrases.not_posted(error)]
        for number, piece in enumerate(texts):
            await self._refused(post, piece, f"{key}.{number}", self._as(post) if too_long else None)

    async def _refused(self, post: _Post, text: str, key: str, persona: Persona | None) -> str | None:
        """Post a message; Slack's word for why it did not take it, if it did not.

        Raises:
            LeaseLost: another process owns the conversation.
        """
        where = {"conversation": self._place.conversation_id, "part": post.part}
        in_doubt = post.in_doubt

        async def send() -> None:
            nonlocal in_doubt
            was_in_doubt, in_doubt = in_doubt, True  # where it fails, it may have come through all the same
            confirm = self._lease.confirm
            content = Content(text)
            await self._wire.post(self._place, content, key, persona, in_doubt=was_in_doubt, confirm=confirm)

        try:
            await self._wire.insisting(send)
        except LeaseLost:
            raise
        except SlackCallFailed as e:
            log.exception("answer.not_posted", **where, error=e.error)
            return e.error
        except Exception:  # a Slack handler's border: the texts after it are posted all the same
            log.exception("answer.not_posted", **where)
            return "an unexpected error"
        return None

    def _as(self, post: _Post) -> Persona | None:
        return self._persona if post.by_agent else None
