"""Derive the current task and its history from a request."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.modules.provider_demo.rows import (
    PAUSE,
    DemoQuestion,
    DemoText,
    DemoToolCall,
    Event,
    InjectedText,
    LateResults,
    events_in,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator_interactive.kernel.contracts.messages import Message

_CONTINUE = re.compile(
    r"\W*(?:please\s+)?(?:continue|go on|carry on|keep going|resume)\b\W*(?:please)?\W*", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Task:
    """The current task: the prompt and the steps since.

    If messages arrived after the answer, the first of them is the prompt and is also in `steps`. `afterwards` are
    results that arrived after the answer, if no message followed.
    """

    prompt: str
    steps: tuple[Event, ...]
    before: tuple[Event, ...]
    afterwards: tuple[DemoToolCall, ...] = ()

    @property
    def wrote(self) -> list[InjectedText]:
        return [step for step in self.steps if isinstance(step, InjectedText)]

    @property
    def used(self) -> list[DemoToolCall]:
        return [step for step in self.steps if isinstance(step, DemoToolCall)]

    @property
    def pending(self) -> list[DemoToolCall]:
        """The calls that are still running."""
        return [use for use in self.used if use.is_pending]

    @property
    def cut_pauses(self) -> list[str]:
        """The texts of interrupted pauses."""
        said = [step.text for step in self.steps if isinstance(step, DemoText) and not step.is_answer]
        return [text for text in said if text.startswith(PAUSE) or PAUSE.startswith(text)]

    @property
    def user_texts(self) -> list[str]:
        """All texts of the user, oldest first, including the task."""
        everything = (*self.before, *self.steps)
        texts = [event.text for event in everything if isinstance(event, DemoQuestion | InjectedText)]
        return texts if any(text == self.prompt for text in texts) else [*texts, self.prompt]

    @property
    def last_answer(self) -> str:
        answers = [event.text for event in self.before if _is_answer(event) and isinstance(event, DemoText)]
        return answers[-1] if answers else ""

    def result(self, name: str, given: dict[str, Any]) -> DemoToolCall | None:
        """Return the latest result of exactly this call."""
        return next((use for use in reversed(self.used) if use.name == name and use.input == given), None)


def task_of(messages: Iterable[Message]) -> Task:
    """Return the current task of a conversation."""
    events = events_in(messages)
    asked = [i for i, event in enumerate(events) if isinstance(event, DemoQuestion)]
    start = asked.pop() if asked else -1
    after = start + 1
    while asked and _CONTINUE.fullmatch(_text_at(events, start)):
        start = asked.pop()
    answered = [i for i in range(after, len(events)) if _is_answer(events[i])]
    since = events[answered[-1] :] if answered else []
    if steered := next((i for i, event in enumerate(since) if isinstance(event, InjectedText)), 0):
        steered += answered[-1]
        return Task(_text_at(events, steered), tuple(events[steered:]), tuple(events[:steered]))
    leading = start
    while leading > 0 and isinstance(
        events[leading - 1], InjectedText | LateResults
    ):  # left over from a run that was stopped
        leading -= 1
    return Task(
        prompt=_text_at(events, start),
        steps=(*events[max(leading, 0) : max(start, 0)], *events[start + 1 :]),
        before=tuple(events[: max(leading, 0)]),
        afterwards=tuple(use for event in since if isinstance(event, LateResults) for use in event.uses),
    )


def _text_at(events: Sequence[Event], index: int) -> str:
    event = events[index] if index >= 0 else None
    return event.text if isinstance(event, DemoQuestion | InjectedText) else ""


def _is_answer(event: Event) -> bool:
    return isinstance(event, DemoText) and event.is_answer
