"""A provider that does what its script says, and refuses what a strict API would refuse."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel import (
    ModelInfo,
    ProviderInfo,
)
from orchestrator_interactive.kernel.errors import InvalidRequestError
from orchestrator_interactive.kernel.messages import (
    ChatRequest,
    ChatResponse,
    ContentBlock,
    TextBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)

from .rows import refusals
from .waiting import Milestones, deaf_to_one_cancel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel import ResponseStream

    Row = dict[str, Any]
    Step = Callable[[ChatRequest, ResponseStream], Awaitable[ChatResponse]]
    OnRow = Callable[[Row], Awaitable[None]]


def use(name: str, call_id: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def answer(*blocks: ContentBlock) -> Step:
    """Say exactly these blocks; tool calls among them are called."""
    calls = [ToolCall(id=b.id, name=b.name, arguments=b.input) for b in blocks if isinstance(b, ToolCallBlock)]

    async def step(_request: ChatRequest, _stream: ResponseStream) -> ChatResponse:
        usage = Usage(input_tokens=1, output_tokens=1, total_tokens=2)
        return ChatResponse(content=list(blocks), tool_calls=calls or None, usage=usage, finish_reason="end_turn")

    return step


def say(text: str) -> Step:
    return answer(TextBlock(text=text))


def call(*calls: ToolCall, text: str = "") -> Step:
    said = [TextBlock(text=text)] if text else []
    return answer(*said, *(ToolCallBlock(id=c.id, name=c.name, input=c.arguments) for c in calls))


def fail(error: BaseException) -> Step:
    async def step(_request: ChatRequest, _stream: ResponseStream) -> ChatResponse:
        raise error

    return step


def after(gate: asyncio.Event, then: Step) -> Step:
    async def step(request: ChatRequest, stream: ResponseStream) -> ChatResponse:
        await gate.wait()
        return await then(request, stream)

    return step


def doing(action: Callable[[], object], then: Step) -> Step:
    """Do something at the very end of the model call."""

    async def step(request: ChatRequest, stream: ResponseStream) -> ChatResponse:
        response = await then(request, stream)
        action()
        return response

    return step


def streaming(*pieces: str | ContentBlock, then: Step) -> Step:
    """Feed pieces of text and finished blocks into the stream first."""

    async def step(request: ChatRequest, stream: ResponseStream) -> ChatResponse:
        for piece in pieces:
            if isinstance(piece, str):
                stream.text(piece)
            else:
                stream.block(piece)
        return await then(request, stream)

    return step


def never() -> Step:
    return after(asyncio.Event(), say("unreachable"))


def deaf(release: asyncio.Event, then: Step) -> Step:
    async def step(request: ChatRequest, stream: ResponseStream) -> ChatResponse:
        await deaf_to_one_cancel(release)
        return await then(request, stream)

    return step


class ScriptedProvider:
    """A provider that follows a script, keeps every request, and refuses what a real one would refuse."""

    def __init__(self, *steps: Step, name: str = "scripted", tool_choice: bool = True) -> None:
        self._name = name
        self._capabilities = ["tool_choice"] if tool_choice else []
        self._steps = deque(steps)
        self._asked = Milestones()
        self.requests: list[ChatRequest] = []
        self.cancelled = 0

    @property
    def name(self) -> str:
        return self._name

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self._name, display_name=self._name, capabilities=self._capabilities)

    async def list_models(self) -> list[ModelInfo]:
        return [ModelInfo(id="script", display_name="Script", context_window=100_000, max_output_tokens=1000)]

    async def complete(self, request: ChatRequest, *, stream: ResponseStream, **_: Any) -> ChatResponse:
        self.requests.append(request.model_copy(deep=True))
        self._asked.pass_one()
        if found := refusals(request):
            raise InvalidRequestError("; ".join(found), provider=self._name)
        if not self._steps:
            raise AssertionError(f"The script has no step for call {self._asked.count}.")
        try:
            return await self._steps.popleft()(request, stream)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []

    def add(self, *steps: Step) -> None:
        self._steps.extend(steps)

    async def asked(self, number: int) -> None:
        """Wait until the model has been called this many times."""
        await self._asked.reached(number)

    def sent(self, index: int = -1) -> list[Row]:
        """The messages of one request, as the wire has them."""
        return [message.model_dump(exclude_none=True) for message in self.requests[index].messages]

    def prefix_breaks(self) -> list[int]:
        """The requests that do not begin with all of the request before them, byte by byte."""
        wires = [[message.model_dump_json() for message in request.messages] for request in self.requests]
        return [i for i in range(1, len(wires)) if wires[i][: len(wires[i - 1])] != wires[i - 1]]
