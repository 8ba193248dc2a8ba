"""The injection queue: messages for a running loop, their receipts, and the user row that they become."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from orchestrator_interactive.transcript.framing import (
    NOTICE_PREFIX,
    PREFIX,
    Author,
    listed,
    message_text,
    plain_id,
    talk_text,
)
from orchestrator_interactive.transcript.rows import with_images

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

State = Literal["waiting", "delivered", "withdrawn"]


class InjectionError(Exception):
    """A message could not be injected into the run."""


class RunFinished(InjectionError):  # noqa: N818 - named in the design; not a fault
    """The run has checked the queue for the last time: the message needs a new run."""


class InjectionQueueFull(InjectionError):  # noqa: N818 - named after asyncio.QueueFull
    """The bound of pending messages is reached."""


@dataclass(frozen=True, slots=True)
class Talk:
    """Messages among people, which the model reads as context in front of a prompt or an injection, oldest first.

    Args:
        messages: id and text of each, as `framing.message_text` formats it.
        left_out: number of older messages that are left out.
    """

    messages: tuple[tuple[str, str], ...] = ()
    left_out: int = 0

    def __bool__(self) -> bool:
        return bool(self.messages or self.left_out)

    @property
    def ids(self) -> list[str]:
        return [each for each, _ in self.messages]

    @property
    def text(self) -> str:
        return talk_text([text for _, text in self.messages], self.left_out)


NO_TALK = Talk()


@dataclass(frozen=True, slots=True)
class Injection:
    """One message for a running loop.

    Args:
        text: the message; not blank.
        id: identity of the message. The message is delivered once a committed row contains this id.
        author: the author, if known.
        files: names of the attached files.
        images: image blocks, which the model sees after the text.
        order: sort key within a drain: the time of writing. `None`: after those that have one, in order of arrival.
        talk: context in front of the message; the model never reads it without the message.

    Raises:
        ValueError: blank text.
    """

    text: str
    id: str = field(default_factory=lambda: uuid4().hex)
    author: Author | None = None
    files: tuple[str, ...] = ()
    order: float | None = None
    talk: Talk = NO_TALK
    images: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError("A message to the agent needs some text.")

    @classmethod
    def of(cls, content: str | Injection) -> Injection:
        return content if isinstance(content, Injection) else cls(content)

    @property
    def urgent(self) -> bool:
        """Whether the message interrupts the model call in flight: it begins with `!`."""
        return self.text.lstrip().startswith("!")

    def is_older(self, order: float | None) -> bool:
        """Return whether the message was written before another; False if either time is unknown."""
        return self.order is not None and order is not None and self.order < order


@dataclass(frozen=True, slots=True)
class Receipt:
    """The state of one message.

    Args:
        id: identity of the message.
        state: waiting: pending in the queue; delivered: its id is in a committed row; withdrawn: by its author.
        iteration: number of the model call that reads it, from 1, in the run that committed it.
    """

    id: str
    state: State = "waiting"
    iteration: int | None = None


class InjectionQueue:
    """Pending injections of a conversation: a queue of ids in order of arrival, and the injections by id.

    All operations are synchronous, so no other task runs between a check and its consequence. The queue outlives a run
    and belongs to one event loop: other threads use `loop.call_soon_threadsafe(queue.offer, injection)`.

    Args:
        pending: the pending injections by id.
        receipts: the messages of the current or the last run by id, in the order in which they were accepted.
        is_open: whether a run accepts injections; those that are pending stay when it is closed.
        on_change: called, synchronously, with each injection that is offered, edited or restored.
    """

    def __init__(self, bound: int = 100) -> None:
        self._ids: asyncio.Queue[str] = asyncio.Queue()
        self._bound = bound
        self.pending: dict[str, Injection] = {}
        self.receipts: dict[str, Receipt] = {}
        self.on_change: Callable[[Injection], object] | None = None
        self.is_open = True

    @property
    def has_urgent(self) -> bool:
        return any(each.urgent for each in self.pending.values())

    def open(self) -> None:
        """Accept injections for a new run. Those that are still pending stay, with their receipts."""
        self.is_open = True
        self.receipts = {each.id: each for each in self.receipts.values() if each.state == "waiting"}

    def offer(self, injection: Injection) -> Receipt:
        """Add an injection, unless its id is known. One that was withdrawn may be offered again.

        Raises:
            RunFinished: the queue is closed.
            InjectionQueueFull: the bound is reached.
        """
        if (known := self.known(injection.id)) is not None:
            return known
        if not self.is_open:
            raise RunFinished("The run has finished; this message starts a new one.")
        if len(self.pending) >= self._bound:
            raise InjectionQueueFull(f"{self._bound} messages are waiting already; send this one later.")
        self._ids.put_nowait(injection.id)
        self._set(injection)
        return self.new_receipt(injection.id)

    def new_receipt(self, message_id: str) -> Receipt:
        """Return the receipt of a message that is accepted now; it may have been withdrawn before."""
        self.receipts.pop(message_id, None)
        receipt = self.receipts[message_id] = Receipt(message_id)
        return receipt

    def known(self, message_id: str) -> Receipt | None:
        """Return the receipt of a message that is waiting or delivered."""
        known = self.receipts.get(message_id)
        return known if known is not None and known.state != "withdrawn" else None

    def drain(self) -> tuple[Injection, ...]:
        """Take all pending injections, ordered by the time of writing; those without an `order` last, by arrival."""
        if self._ids.empty():
            return ()
        arrived = [self.pending.pop(each) for each in self._take_ids()]
        return tuple(sorted(arrived, key=lambda each: inf if each.order is None else each.order))

    def drain_or_close(self) -> tuple[Injection, ...]:
        """Take all pending injections, or close the queue if there are none."""
        taken = self.drain()
        self.is_open = self.is_open and bool(taken)
        return taken

    def restore(self, injections: Sequence[Injection]) -> None:
        """Put back injections that were taken and not committed; they count as the earliest arrivals."""
        for each in (*injections, *self.drain()):
            self._ids.put_nowait(each.id)
            self._set(each)

    def note_delivered(self, message_ids: Iterable[str], iteration: int) -> None:
        """Note that a committed row has these ids; model call `iteration` reads it."""
        for each in message_ids:
            self.receipts[each] = Receipt(each, "delivered", iteration)

    def edit(self, message_id: str, text: str) -> bool:
        """Replace the text of a pending injection; its place stays. Returns False if it is not pending.

        Raises:
            ValueError: blank text.
        """
        if (injection := self.pending.get(message_id)) is None:
            return False
        self._set(replace(injection, text=text))
        return True

    def withdraw(self, message_id: str) -> bool:
        """Remove a pending injection. Returns False if it is not pending."""
        if self.pending.pop(message_id, None) is None:
            return False
        for each in self._take_ids():
            if each != message_id:
                self._ids.put_nowait(each)
        self.receipts[message_id] = Receipt(message_id, "withdrawn")
        return True

    def _take_ids(self) -> list[str]:
        return [self._ids.get_nowait() for _ in range(self._ids.qsize())]

    def _set(self, injection: Injection) -> None:
        self.pending[injection.id] = injection
        if self.on_change is not None:
            self.on_change(injection)


def injection_rows(injections: Sequence[Injection], *, with_prompt: bool = False) -> list[dict[str, Any]]:
    """Return the user rows for one drain: one row, or with talk, the rows of talk and those that they precede."""
    rows, group = list[dict[str, Any]](), list[Injection]()
    for each in injections:
        if each.talk:
            rows += [injection_row(group, with_prompt=with_prompt)] if group else []
            rows.append(talk_row(each.talk))
            group = []
        group.append(each)
    return [*rows, injection_row(group, with_prompt=with_prompt)]


def injection_row(injections: Sequence[Injection], *, with_prompt: bool = False) -> dict[str, Any]:
    """Return a user row with the ids of the messages, which makes them delivered, in its metadata.

    The metadata also have the ids of the authors, and whether one is urgent.

    Messages `with_prompt` were written before the run began, like its prompt.
    """
    items = [f"{message_text(each.text, each.author, each.files)}\n" for each in injections]
    if not with_prompt:
        items = [f"- {each}" for each in items]
        items[0] = f"{PREFIX}\n{items[0]}"
    items[-1] = items[-1].removesuffix("\n")
    urgent = {"urgent": True} if any(each.urgent for each in injections) else {}
    ids = dict.fromkeys("" if each.author is None else plain_id(each.author.id) for each in injections)
    authors = {"authors": list(ids)} if any(ids) else {}
    return {
        "role": "user",
        "content": with_images((text, each.images) for text, each in zip(items, injections, strict=True)),
        "metadata": {"injections": [injection.id for injection in injections], **authors, **urgent},
    }


def talk_row(talk: Talk) -> dict[str, Any]:
    """Return the user row with talk among people."""
    return {"role": "user", "content": talk.text, "metadata": {"talk": talk.ids}}


def notice_row(notices: Sequence[str], ids: Iterable[str] = ()) -> dict[str, Any]:
    """Return the user row with the notices that arrived between two runs; `ids`: the known ids."""
    return {"role": "user", "content": notice_text(notices), "metadata": {"notices": list(ids)}}


def notice_text(notices: Iterable[str]) -> str:
    return f"{NOTICE_PREFIX}\n{listed([message_text(notice) for notice in notices])}"
