"""A scripted provider that refuses invalid requests as a strict API does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from orchestrator_interactive.kernel import (
    ModelInfo,
    ProviderInfo,
    ResponseStream,
)
from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    ChatResponse,
    ContentBlock,
    TextBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from orchestrator_interactive.kernel.contracts.request_validation import check

from .milestones import Milestones, deaf_to_the_loop
from .rows import Row, Step


def use(name: str, call_id: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def answer(*blocks: ContentBlock, **fields: Any) -> Step:
    """Respond with these blocks; tool calls among them are executed. `fields` are those of the response."""
    calls = [ToolCall(id=b.id, name=b.name, arguments=b.input) for b in blocks if isinstance(b, ToolCallBlock)]
    given = {"usage": Usage(input_tokens=1, output_tokens=1, total_tokens=2), "finish_reason": "end_turn", **fields}

    async def step(_request: ChatRequest, _stream: ResponseStream) -> ChatResponse:
        return ChatResponse(content=list(blocks), tool_calls=calls or None, **given)

    return step


def say(text: str, **fields: Any) -> Step:
    return answer(TextBlock(text=text), **fields)


def call(*calls: ToolCall, text: str = "", **fields: Any) -> Step:
    said = [TextBlock(text=text)] if text else []
    return answer(*said, *(ToolCallBlock(id=c.id, name=c.name, input=c.arguments) for c in calls), **fields)


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
    """Run an action at the end of the model call."""

    async def step(request: ChatRequest, stream: ResponseStream) -> ChatResponse:
        response = await then(request, stream)
        action()
        return response

    return step


def streaming(*pieces: str | ContentBlock | asyncio.Event | Callable[[], object], then: Step) -> Step:
    """Stream texts and blocks first; wait for events among them, and run actions."""

    async def step(request: ChatRequest, stream: ResponseStream) -> ChatResponse:
        for piece in pieces:
            match piece:
                case str():
                    stream.text(piece)
                case asyncio.Event():
                    await piece.wait()
                case _ if callable(piece):
                    piece()
                case _:
                    stream.block(piece)
        return await then(request, stream)

    return step


def never() -> Step:
    return after(asyncio.Event(), say("unreachable"))


def deaf(release: asyncio.Event, then: Step) -> Step:
    async def step(request: ChatRequest, stream: ResponseStream) -> ChatResponse:
        await deaf_to_the_loop(release)
        return await then(request, stream)

    return step


class ScriptedProvider:
    """A scripted provider that keeps every request, and refuses invalid ones."""

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

    async def complete(self, request: ChatRequest, *, stream: ResponseStream | None = None, **_: Any) -> ChatResponse:
        self.requests.append(request.model_copy(deep=True))
        self._asked.pass_one()
        check(request)
        if not self._steps:
            raise AssertionError(f"The script has no step for call {self._asked.count}.")
        try:
            return await self._steps.popleft()(request, stream or ResponseStream())
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []

    def add(self, *steps: Step) -> None:
        self._steps.extend(steps)

    def drop_the_rest(self) -> None:
        """Drop the rest of the script."""
        self._steps.clear()

    async def asked(self, number: int) -> None:
        """Wait until the model has been called this many times."""
        await self._asked.reached(number)

    def sent(self, index: int = -1) -> list[Row]:
        """Return the messages of one request as dicts."""
        return [message.model_dump(exclude_none=True) for message in self.requests[index].messages]

    def prefix_breaks(self) -> list[int]:
        """Return the requests that do not begin with the whole previous request."""
        wires = [[message.model_dump_json() for message in request.messages] for request in self.requests]
        return [i for i in range(1, len(wires)) if wires[i][: len(wires[i - 1])] != wires[i - 1]]
