"""Show an answer in its thread while it is written. The outbox completes the message; see `Post.streamed`."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from connector.formatting.native import MOST_CHARS, GrowingText, native_markdown
from connector.slack_api import streams
from connector.slack_api.client import AnswerKey, post_metadata
from connector.slack_api.errors import LIMITED, RetryDecision, SlackCallFailed, error_boundary
from connector.slack_api.rate_limiter import CallCancelled, CallSlot, CancelScope, Priority
from connector.slack_api.streams import Streamed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from connector.protocols import ConversationLease, Persona
    from connector.records import RunRecord
    from connector.runs.background_tasks import BackgroundTasks

log = structlog.get_logger(__name__)

# Between two additions to a stream; more where the rate limit asks for it.
_BETWEEN_S = 1.0
# Slack ends a stream after about five minutes.
_ROTATE_S = 240.0
# How long the completed answer waits for an addition that is under way.
_GRACE_S = 2.0
# How long a press of Slack's button is awaited as an event, which names who pressed it.
_EVENT_WITHIN_S = 3.0
_STOPPED, _EXPIRED = "stopped_by_user", "message_not_in_streaming_state"
_FENCE = re.compile(r"^ *(`{3,})([\w+#.-]*)$", re.MULTILINE)


class AnswerStream:
    """Streams the texts of one run, part after part. It never delays the run, and its errors never end it.

    A stream is started without text, and its ts is stored before it gets any, so that the next owner can remove it.
    Runs that were taken over do not stream: a late call of the earlier owner could not be distinguished from their own.
    """

    def __init__(  # noqa: PLR0913 - the facts of a run, and three callbacks
        self,
        background: BackgroundTasks,
        lease: ConversationLease,
        record: RunRecord,
        persona: Persona,
        *,
        keep: Callable[[tuple[str, ...]], Awaitable[None]],
        is_allowed: Callable[[], bool],
        on_stopped: Callable[[], None],
    ) -> None:
        """`keep` stores the ts of the streams that no post completes yet. `is_allowed` is asked before each start.

        `on_stopped` is called some seconds after a person has stopped a stream by Slack's button.
        """
        self.background = background
        self.client = background.client
        self.lease = lease
        self.first, self.run_id = record.first.message, record.id
        self.answer = partial(AnswerKey, record.first.instance, record.first.id)
        self.persona = persona
        self.is_allowed, self._keep, self._on_stopped = is_allowed, keep, on_stopped
        # The streams that no post completes.
        self.left: tuple[str, ...] = record.streams
        # The number of calls that may start, or have started, a stream whose ts is unknown.
        self.starts_in_doubt = 0
        first = self.first
        self.is_off = record.was_taken_over or first.is_shared or first.place.thread_ts is None
        self.is_off = self.is_off or bool(first.worker or first.key) or not background.options.stream
        self._part: _Part | None = None
        # Parts that another text has replaced, with a call that is under way.
        self._replaced: list[_Part] = []

    @property
    def is_in_doubt(self) -> bool:
        """Whether a stream may exist, or may still be started by a call that was given up, whose ts is unknown."""
        return self.starts_in_doubt > 0

    def on_text(self, number: int, at: int, text: str) -> None:
        """Take a text that begins at character `at` of the part with this number."""
        part = self._part
        if self.is_off or not self.client.takes_streams:
            return
        if part is None or part.number != number or (at < len(part.text) and part.messages):
            self._drop()  # the text before was for the agent only, or another one replaces it
            part = self._part = _Part(self, number)
        if at <= len(part.text):  # else its beginning was too short to be reported
            part.add(at, text)

    async def hand_over(self, number: int, markdown: str, native: str = "") -> tuple[str, tuple[Streamed, ...]]:
        """Return the Markdown of a complete part for Slack, and the messages that show its beginning; none: post it.

        `native` is that Markdown, if it is known.
        """
        part = self._part
        if part is None:
            return "", ()
        await part.end()
        is_shown = part.messages and part.number == number
        native = (native or native_markdown(markdown)) if is_shown else ""
        shown, is_same = tuple(part.messages), native.startswith(part.sent)
        if not native or len(native) > MOST_CHARS or not (is_same or len(shown) == 1):
            self._drop()
            return "", ()
        self._part = None
        self.left = tuple(ts for ts in self.left if ts not in {each.ts for each in shown})
        return native, shown if is_same else (replace(shown[0], sent=-1),)

    async def close(self) -> None:
        """End the streaming, and delete the streams that no post completes."""
        self.is_off = True
        if self._part is not None:
            await self._part.end()
        self._drop()
        await asyncio.gather(*(each.end() for each in self._replaced))

    def remove_left(self) -> None:
        """Delete the streams of an earlier owner."""
        for ts in self.left:
            self._discard(ts)

    def _drop(self) -> None:
        if self._part is not None:
            self._part.cancel()
            for each in self._part.messages:
                self._discard(each.ts)
            self._replaced = [each for each in (*self._replaced, self._part) if each.is_calling]
        self._part = None

    def _discard(self, ts: str) -> None:
        slot = CallSlot(Priority.STATUS, self.first.user)
        call = partial(streams.discard, self.client, self.first.channel, ts, slot)
        self.background.spawn(self.client.retry_until_done(call))

    async def started(self, ts: str) -> None:
        """Store the ts of a new stream."""
        self.left += (ts,)
        await self._keep(self.left)

    def give_up(self, failed: SlackCallFailed) -> None:
        """Stream no more in this run; nor in this workspace, if it does not have streams."""
        self.is_off = True
        if failed.error == _STOPPED:
            asyncio.get_running_loop().call_later(_EVENT_WITHIN_S, self._on_stopped)
        elif failed.decision is RetryDecision.UNAVAILABLE:
            self.client.takes_streams = False
            log.warning("stream.unavailable", error=str(failed))


class _Part:
    """A part that is being written, and the messages that show it."""

    def __init__(self, stream: AnswerStream, number: int) -> None:
        self.number = number
        self.text = ""
        # `None`: it has become too long for a stream.
        self._growing: GrowingText | None = GrowingText()
        # The Markdown that Slack shows, and the Markdown that is being sent.
        self.sent, self._sending = "", ""
        self.messages: list[Streamed] = []
        self._stream = stream
        self._channel = stream.first.channel
        self._scope = CancelScope()
        self._slot = CallSlot(Priority.STATUS, stream.first.user, self._scope)
        self._began_s = 0.0
        # Slack takes no more text in the last message.
        self._is_full = False
        self._changed, self._ended = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_calling(self) -> bool:
        return self._task is not None and not self._task.done()

    def add(self, at: int, text: str) -> None:
        if at < len(self.text):  # another text replaces it
            self._growing = GrowingText()
        self.text = self.text[:at] + text
        self._changed.set()
        if self._task is None:
            self._task = self._stream.background.spawn(self._work())

    def cancel(self) -> None:
        """Send nothing more."""
        self._scope.cancel()
        self._ended.set()
        self._changed.set()

    async def end(self) -> None:
        """Send nothing more. If a call takes too long, the content of the message is unknown."""
        self.cancel()
        if self._task is not None and not (await asyncio.wait({self._task}, timeout=_GRACE_S))[0]:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._lose_track()

    async def _work(self) -> None:
        with error_boundary("stream.crashed", conversation=self._stream.first.place.conversation_id):
            while not (self._ended.is_set() or self._stream.is_off):
                await self._changed.wait()
                self._changed.clear()
                try:
                    await self._show()
                except CallCancelled:
                    return
                except SlackCallFailed as e:
                    self._on_failed(e)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_BETWEEN_S):
                        await self._ended.wait()

    async def _show(self) -> None:
        """Send the new text, in a new message if there is none, or if Slack would soon end the old one."""
        if not self._news():
            return
        now_s = asyncio.get_running_loop().time()
        if self.messages and not self._is_full and now_s - self._began_s > _ROTATE_S:
            await self._end_message()
        if not self.messages or self._is_full:
            if not self._stream.is_allowed():
                self._changed.set()  # ask again
                return
            await self._start()
        last = self.messages[-1]
        await streams.append(self._stream.client, self._channel, last.ts, self._next_text, self._slot)
        self.sent += self._sending
        self.messages[-1] = replace(last, sent=len(self.sent) - last.at)

    def _news(self) -> str:
        """Return the Markdown that Slack does not show yet."""
        if self._growing is None:
            return ""
        shown = self._growing.visible(self.text)
        if len(shown) > MOST_CHARS:
            self._growing = None
            return ""
        return shown[len(self.sent) :] if shown.startswith(self.sent) else ""

    def _next_text(self) -> str:
        self._sending, last = self._news(), self.messages[-1]
        return streams.continued(last, self._sending) if not last.sent else self._sending

    async def _start(self) -> None:
        stream, (fence, language) = self._stream, _open_fence(self.sent)
        stream.starts_in_doubt += 1  # and for good, if the call is cancelled or its outcome is unknown
        try:
            ts = await streams.start(stream.client, stream.first, stream.persona, self._slot, stream.lease.confirm)
        except (CallCancelled, SlackCallFailed) as e:
            if isinstance(e, CallCancelled) or not e.is_transient:
                stream.starts_in_doubt -= 1
            raise
        stream.starts_in_doubt -= 1
        self._began_s, self._is_full = asyncio.get_running_loop().time(), False
        self.messages.append(Streamed(ts, at=len(self.sent), opening=f"{fence}{language}\n" if fence else ""))
        await stream.started(ts)

    async def _end_message(self) -> None:
        """End the message: the next text begins another one."""
        last, (fence, _) = self.messages[-1], _open_fence(self.sent)
        ended = replace(last, closing=f"\n{fence}" if fence else "")
        self.messages[-1], self._is_full = replace(ended, sent=-1), True
        key, answer = f"{self._stream.run_id}:{self.number}:native", self._stream.answer(self.number)
        metadata = post_metadata(f"{key}.{len(self.messages) - 1}", answer)
        await streams.end(self._stream.client, self._channel, last.ts, ended.closing, metadata, self._slot)
        self.messages[-1] = replace(ended, is_ended=True)

    def _lose_track(self) -> None:
        if self.messages:
            self.messages[-1] = replace(self.messages[-1], sent=-1)

    def _on_failed(self, failed: SlackCallFailed) -> None:
        log.info("stream.failed", conversation=self._stream.first.place.conversation_id, error=str(failed))
        if failed.error == LIMITED:
            self._changed.set()  # the rate limiter waits
        elif failed.error == _EXPIRED and self.messages and self.messages[-1].sent > 0:
            # Nothing of the last call has arrived: it begins the next message.
            fence, _ = _open_fence(self.sent)
            self.messages[-1] = replace(self.messages[-1], closing=f"\n{fence}" if fence else "")
            self._is_full = True
            self._changed.set()
        else:
            self._lose_track()
            self._stream.give_up(failed)


def _open_fence(markdown: str) -> tuple[str, str]:
    """Return the fence and the language of the code block that is open at the end of a text; blank: there is none."""
    fence = language = ""
    for found in _FENCE.finditer(markdown):
        if not fence:
            fence, language = found[1], found[2]
        elif found[1] == fence and not found[2]:
            fence = language = ""
    return fence, language
