"""What a run shows in Slack: the hourglass, the status message, interim texts, the answer."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import structlog

from connector import phrases
from connector.activity import Activity
from connector.markdown import escape, markdown_to_slack, pieces
from connector.wire import SlackCallFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from typing import Any

    from connector.messages import Message
    from connector.protocols import Persona
    from connector.wire import Wire

log = structlog.get_logger(__name__)

HOURGLASS = "hourglass_flowing_sand"
# How the key of a status message ends.
STATUS_KEY = ":status"
STATUS_SPACING_S = 2.0
_SHORT_CHARS = 1500


class _Post(NamedTuple):
    text: str
    persona: Persona | None


class View:
    """The traces of one run in its thread. Showing them never holds the run up."""

    def __init__(self, wire: Wire, first: Message, persona: Persona) -> None:
        self._wire = wire
        self._place = first.place
        self._first = first
        self._persona = persona
        self._key = uuid4().hex
        self._activity = Activity()
        self._shown = ""
        self._changed = asyncio.Event()
        self._status_ts: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._outgoing: asyncio.Queue[_Post | None] = asyncio.Queue()

    async def status_ts(self) -> str | None:
        """The status message's ts as soon as Slack has told it; `None` where it could not be posted."""
        return await asyncio.shield(self._status_ts)

    def is_status(self, ts: str) -> bool | None:
        """Whether this is the ts of the status message; `None` while Slack has not told it."""
        return self._status_ts.result() == ts if self._status_ts.done() else None

    def hear(self, event: str, data: dict[str, Any]) -> None:
        """Take note of what the run is doing; the status message says so soon."""
        self._activity.hear(event, data)
        self._changed.set()

    def say(self, markdown: str) -> bool:
        """Post a text of the agent under its persona, after those before it; whether there was anything to see."""
        texts = pieces(markdown_to_slack(markdown))
        for text in texts:
            self._outgoing.put_nowait(_Post(text, self._persona))
        return bool(texts)

    def notice(self, text: str) -> None:
        """Post a sentence of the service's own, after the texts before it."""
        self._outgoing.put_nowait(_Post(escape(text), None))

    @asynccontextmanager
    async def shown(self, last_word: Callable[[], str | None]) -> AsyncIterator[None]:
        """Show hourglass and status; at the end post what is left to say, then the last word, then take both away."""
        async with asyncio.TaskGroup() as tasks:
            hourglass = tasks.create_task(best_effort(self._wire.react(self._place.channel, self._first.ts, HOURGLASS)))
            status = tasks.create_task(self._open_status())
            updates = tasks.create_task(self._update_status())
            posts = tasks.create_task(self._post_outgoing())
            try:
                yield
            finally:
                self._outgoing.put_nowait(None)
                await posts
                if (word := last_word()) is not None:
                    await best_effort(self._wire.post(self._place, word, f"{self._key}:last"))
                updates.cancel()
                await asyncio.wait((hourglass, status, updates))
                await self._take_away()

    async def _open_status(self) -> None:
        ts = None
        try:
            ts = await self._wire.post(self._place, self._next_phrase(), f"{self._key}{STATUS_KEY}")
        except Exception:  # a Slack handler's border: a run goes on without its status
            log.exception("status.not_posted", conversation=self._place.conversation_id)
        finally:
            self._status_ts.set_result(ts)

    async def _update_status(self) -> None:
        ts = await self.status_ts()
        while ts is not None:
            await asyncio.sleep(STATUS_SPACING_S)
            while escape(self._activity.phrase()) == self._shown:
                self._changed.clear()
                self._activity.told()
                if escape(self._activity.phrase()) == self._shown:
                    await self._changed.wait()
            await best_effort(self._wire.update(self._place.channel, ts, self._next_phrase()))

    def _next_phrase(self) -> str:
        self._shown = escape(self._activity.phrase())
        self._activity.told()
        return self._shown

    async def _post_outgoing(self) -> None:
        number = 0
        while (post := await self._outgoing.get()) is not None:
            number += 1
            try:
                await self._wire.post(self._place, post.text, f"{self._key}:{number}", post.persona)
            except SlackCallFailed as e:
                log.exception("answer.not_posted", conversation=self._place.conversation_id, part=number, error=e.error)
                await self._post_instead(post, number, e.error)
            except Exception:  # a Slack handler's border: the texts after it are posted all the same
                log.exception("answer.not_posted", conversation=self._place.conversation_id, part=number)
                await self._post_instead(post, number, "an unexpected error")

    async def _post_instead(self, post: _Post, number: int, error: str) -> None:
        """Shorter pieces of a text that Slack calls too long; else a sentence, so that nobody waits for nothing."""
        texts = pieces(post.text, _SHORT_CHARS) if error == "msg_too_long" else [phrases.not_posted(error)]
        for part, text in enumerate(texts):
            key = f"{self._key}:{number}.{part}"
            await best_effort(self._wire.post(self._place, text, key, post.persona if len(texts) > 1 else None))

    async def _take_away(self) -> None:
        ts = await self.status_ts()
        if ts is not None:
            await best_effort(self._wire.delete(self._place.channel, ts))
        await best_effort(self._wire.unreact(self._place.channel, self._first.ts, HOURGLASS))


async def best_effort(call: Coroutine[Any, Any, object]) -> None:
    """Await a call to Slack whose failure is logged and changes nothing else."""
    try:
        await call
    except SlackCallFailed as e:
        log.warning("slack.call_failed", error=str(e))
    except Exception:  # a Slack handler's border: what decorates a run may not end it
        log.exception("slack.call_crashed")
