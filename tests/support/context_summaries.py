"""A provider that summarises, and contexts that ask it and keep their events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from agents import Milestones
from context_rows import a_coordinator, is_note, tool_steps, user

from orchestrator_interactive.kernel import ProviderInfo
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse
from orchestrator_interactive.kernel.contracts.request_validation import check
from orchestrator_interactive.modules import context_simple
from orchestrator_interactive.testing import EventRecorder, MockProvider

Row = dict[str, Any]

PAIR = [events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT]
ROWS = [user("the task"), *tool_steps(40)]


class SummaryProvider(MockProvider):
    """A provider that refuses invalid requests, and may be held before it answers."""

    def __init__(self, *answers: Any, hold: Callable[[], Awaitable[object]] | None = None, window: int = 1000) -> None:
        super().__init__(list(answers), default="They looked around.")
        self.asked = Milestones()
        self._hold = hold
        self._window = window

    def get_info(self) -> ProviderInfo:
        defaults = {"context_window": self._window + 1500, "max_output_tokens": 500}
        return ProviderInfo(
            id="teller", display_name="SummaryProvider", capabilities=["tool_choice"], defaults=defaults
        )

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        check(request)
        self.asked.pass_one()
        if self._hold is not None:
            await self._hold()
        return await super().complete(request, **kwargs)

    def told(self, number: int = -1) -> str:
        """Return the text to summarise."""
        content = self.requests[number].messages[-1].content
        assert isinstance(content, str)
        return content


class MountedContext:
    """A context in a session that keeps the events of compaction."""

    def __init__(self, context: context_simple.SimpleContext, recorder: EventRecorder) -> None:
        self.context, self._recorder = context, recorder

    def events(self) -> list[str]:
        return [event for event, _ in self._recorder.events]

    def last(self) -> dict[str, Any]:
        return self._recorder.events[-1][1]


async def mounted(*rows: Row, **config: Any) -> MountedContext:
    coordinator, recorder = a_coordinator(), EventRecorder()
    for event in PAIR:
        coordinator.hooks.register(event, recorder)
    context = await context_simple.mount(coordinator, {"strategy": "summary", "summary_max_tokens": 150, **config})
    await context.set_messages(rows)
    return MountedContext(context, recorder)


def note_of(view: list[Row]) -> str:
    (note,) = [row for row in view if is_note(row)]
    text: str = note["content"]
    return text
