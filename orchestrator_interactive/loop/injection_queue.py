"""What people write while the agent works: the queue it waits in, and the row it becomes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from orchestrator_interactive.transcript.framing import NOTICE_PREFIX, PREFIX, Author, listed, message_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager


class InjectionError(Exception):
    """A message could not be handed to the run."""


class RunFinished(InjectionError):  # noqa: N818 - the design's word: a fact rather than a fault
    """The run has taken its last look: this message needs a run of its own."""


class InjectionQueueFull(InjectionError):  # noqa: N818 - named after asyncio.QueueFull
    """Too many messages are waiting for the run."""


@dataclass(frozen=True, slots=True)
class Injection:
    """One message for a running loop.

    Args:
        text: what was written; not blank.
        id: identity of the message; what has this id in a committed row was delivered.
        author: who wrote it, where that is known.
        files: names of files that came along.

    Raises:
        ValueError: blank text.
    """

    text: str
    id: str = field(default_factory=lambda: uuid4().hex)
    author: Author | None = None
    files: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("A message to the agent needs some text.")

    @classmethod
    def of(cls, content: str | Injection) -> Injection:
        return content if isinstance(content, Injection) else cls(content)

    @property
    def urgent(self) -> bool:
        """Whether it asks to be read now, by a leading `!`, rather than at the next boundary."""
        return self.text.lstrip().startswith("!")


class InjectionQueue:
    """Messages on their way into a run, in order.

    All operations are synchronous, so nothing can come between a look and its consequence. It belongs to one event
    loop: another thread goes through `loop.call_soon_threadsafe(queue.offer, injection)`.
    """

    def __init__(self, bound: int = 100) -> None:
        self._waiting: list[Injection] = []
        self._bound = bound
        self._open = True
        self._watchers: list[Callable[[Injection], object]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_open(self) -> bool:
        """Whether it takes messages."""
        return self._open

    @property
    def has_urgent(self) -> bool:
        """Whether one of the messages is to be read now."""
        return any(each.urgent for each in self._waiting)

    def waiting(self) -> tuple[Injection, ...]:
        """What is queued, oldest first; it stays queued."""
        return tuple(self._waiting)

    def open(self) -> None:
        """Take messages for a new run. What an earlier run left behind stays and leads."""
        self._open = True

    def close(self) -> None:
        """Refuse messages from here on; what is queued stays."""
        self._open = False

    def offer(self, injection: Injection) -> None:
        """Queue a message.

        Raises:
            RunFinished: after the close.
            InjectionQueueFull: the bound is reached.
        """
        if not self._open:
            raise RunFinished("The run has finished; this message starts a new one.")
        if len(self._waiting) >= self._bound:
            raise InjectionQueueFull(f"{self._bound} messages are waiting already; send this one later.")
        self._waiting.append(injection)
        for watcher in tuple(self._watchers):
            watcher(injection)

    def drain(self) -> tuple[Injection, ...]:
        """Take everything that is queued, oldest first."""
        if not self._waiting:
            return ()
        taken, self._waiting = self._waiting, []
        return tuple(taken)

    def drain_or_close(self) -> tuple[Injection, ...]:
        """Take everything, or, where there is nothing, close."""
        taken = self.drain()
        if not taken:
            self.close()
        return taken

    def restore(self, injections: Sequence[Injection]) -> None:
        """Put back, in front, what was taken and not committed."""
        self._waiting[:0] = injections

    def edit(self, message_id: str, text: str) -> bool:
        """Replace the text of a message that waits; its place stays. False: it does not wait here.

        Raises:
            ValueError: blank text.
        """
        for place, each in enumerate(self._waiting):
            if each.id == message_id:
                edited = self._waiting[place] = replace(each, text=text)
                for watcher in tuple(self._watchers):
                    watcher(edited)
                return True
        return False

    def withdraw(self, message_id: str) -> bool:
        """Take out a message that waits. False: it does not wait here."""
        kept = [each for each in self._waiting if each.id != message_id]
        found = len(kept) < len(self._waiting)
        self._waiting = kept
        return found

    def watch(self, callback: Callable[[Injection], object]) -> AbstractContextManager[None]:
        """Call `callback`, synchronously, with each message that is offered or edited, and with all at entry."""
        return _Watch(self, self._watchers, callback)


class _Watch:
    __slots__ = ("_callback", "_queue", "_watchers")

    def __init__(
        self,
        queue: InjectionQueue,
        watchers: list[Callable[[Injection], object]],
        callback: Callable[[Injection], object],
    ) -> None:
        self._queue, self._watchers, self._callback = queue, watchers, callback

    def __enter__(self) -> None:
        for injection in self._queue.waiting():
            self._callback(injection)
        self._watchers.append(self._callback)

    def __exit__(self, *_: object) -> None:
        self._watchers.remove(self._callback)


def injection_row(injections: Sequence[Injection]) -> dict[str, Any]:
    """The one user row that a drain becomes. Its metadata names the messages: their ids stand there once delivered."""
    lines = listed([message_text(each.text, each.author, each.files) for each in injections])
    return {
        "role": "user",
        "content": f"{PREFIX}\n{lines}",
        "metadata": {"injections": [injection.id for injection in injections]},
    }


def notice_row(notices: Sequence[str]) -> dict[str, Any]:
    """The user row that tells the agent what happened between two runs."""
    lines = listed([message_text(notice) for notice in notices])
    return {"role": "user", "content": f"{NOTICE_PREFIX}\n{lines}", "metadata": {"notices": len(notices)}}
