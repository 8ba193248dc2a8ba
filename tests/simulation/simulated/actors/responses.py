"""What a model in a bad mood does with one request: a list of steps."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import TextBlock, ThinkingBlock, ToolCallBlock
from orchestrator_interactive.loop.tool_results import STILL_RUNNING
from simulated.scenario import InjectedFault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest
    from simulated.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of text; it becomes part of the text block that follows."""

    text: str


@dataclass(frozen=True, slots=True)
class Block:
    block: Any


@dataclass(frozen=True, slots=True)
class Alive:
    """A sign of life."""


@dataclass(frozen=True, slots=True)
class Fail:
    error: BaseException


@dataclass(frozen=True, slots=True)
class End:
    """The answer ends, for a reason other than that it is complete."""

    finish_reason: str


Step = Wait | Piece | Block | Alive | Fail | End

_SAYINGS = ("Let me look. ", "I have found it. ", "Hm", " \n", "The answer is 42. ", "```py\nx = 1\n```\n", "…")


class Improviser:
    """Thinks, talks, calls tools, fails, falls silent: as the seed has it."""

    def __init__(self, scene: Scenario, tools: list[str], stall_timeout_s: float) -> None:
        self._scene = scene
        self._tools = tools
        self._stall_timeout_s = stall_timeout_s
        self._call_count = 0
        self._use_count = 0

    def steps(self, request: ChatRequest, turn: int) -> list[Step]:
        """What to do in the `turn`-th call of a run."""
        return list(self._steps(request, turn))

    def _steps(self, request: ChatRequest, turn: int) -> Iterator[Step]:
        scene = self._scene
        yield from self._pause(0.3)
        if scene.happens("errors", 0.12):
            yield Fail(self._error())
        yield from self._thinking()
        if not scene.happens("empty answers", 0.15):
            yield from self._talk()
        if scene.happens("errors", 0.06):
            yield Fail(self._error())
        if self._calls_tools(request, turn):
            yield from self._calls()
        if scene.happens("cut answers", 0.4):
            yield End(scene.chance.choice(["max_tokens", "length"]))
        if scene.happens("refusals", 0.15):
            yield End("refusal")

    def _pause(self, scale_s: float) -> Iterator[Step]:
        scene = self._scene
        if scene.happens("stalls", 0.05):
            yield Wait(self._stall_timeout_s * scene.chance.uniform(0.5, 3))
        elif scene.chance.random() < 0.7:
            yield Wait(scene.some_s(scale_s))

    def _thinking(self) -> Iterator[Step]:
        scene = self._scene
        if not scene.happens("thinking", 0.5):
            return
        for _ in range(scene.chance.randrange(3)):
            yield Alive()
            yield from self._pause(0.1)
        signature = None if scene.happens("unsigned thinking", 0.3) else f"sig-{scene.chance.randrange(10**6)}"
        yield Block(ThinkingBlock(thinking="I wonder.", signature=signature))

    def _talk(self) -> Iterator[Step]:
        chance = self._scene.chance
        said = [chance.choice(_SAYINGS) for _ in range(chance.randrange(1, 4))]
        for text in said:
            yield Piece(text)
            yield from self._pause(0.05)
        yield Block(TextBlock(text="".join(said)))

    def _calls_tools(self, request: ChatRequest, turn: int) -> bool:
        if request.tools is None or request.tool_choice == "none":
            return self._scene.happens("disobedience", 0.3)
        eagerly = 0.1 if any(message.content == STILL_RUNNING for message in request.messages[-3:]) else 0.85
        return self._scene.chance.random() < eagerly / (1 + turn / 4)

    def _calls(self) -> Iterator[Step]:
        scene = self._scene
        count = scene.chance.choice([1, 1, 2, 3, 6]) if "many calls" in scene.features else 1
        for _ in range(count):
            name = "no_such_tool" if scene.happens("unknown tools", 0.15) else scene.chance.choice(self._tools)
            call_id = self._call_id()
            self._use_count += 1
            # By this the call is known to the cast and the judges, whatever becomes of its id.
            yield Block(ToolCallBlock(id=call_id, name=name, input={"text": "look", "call": f"use-{self._use_count}"}))
            yield from self._pause(0.05)

    def _call_id(self) -> str:
        if self._call_count and self._scene.happens("repeated call ids", 0.1):
            return f"call-{self._scene.chance.randint(1, self._call_count)}"
        self._call_count += 1
        return f"call-{self._call_count}"

    def _error(self) -> BaseException:
        kinds = (
            lambda: errors.RateLimitError("slow down", retry_after=3.0),
            lambda: errors.RateLimitError("come back later", retry_after=300.0),
            lambda: errors.RateLimitError("slow down"),
            lambda: errors.AuthenticationError("wrong key"),
            lambda: errors.ContextLengthError("too long"),
            lambda: errors.ContentFilterError("no"),
            lambda: errors.InvalidRequestError("malformed"),
            lambda: errors.ProviderUnavailableError("overloaded"),
            lambda: errors.LLMTimeoutError("too slow"),
            lambda: InjectedFault("the model's client broke"),
            lambda: asyncio.CancelledError("the model's client cancelled itself"),
        )
        error: BaseException = self._scene.chance.choice(kinds)()
        return error
