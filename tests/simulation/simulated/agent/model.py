"""A provider whose responses, delays and failures come from the seed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from orchestrator_interactive.kernel import ModelInfo, ProviderInfo, ResponseStream
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    ChatResponse,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from orchestrator_interactive.loop.tool_results import STILL_RUNNING
from simulated.simulation import InjectedError, Simulation

from .invariants import Invariants, ModelCall


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


@dataclass(frozen=True, slots=True)
class Delta:
    """A part of the text block that follows."""

    text: str


@dataclass(frozen=True, slots=True)
class Block:
    block: Any


@dataclass(frozen=True, slots=True)
class Alive:
    """A keep-alive signal."""


@dataclass(frozen=True, slots=True)
class Fail:
    error: BaseException


@dataclass(frozen=True, slots=True)
class End:
    """The response ends for another reason than that it is complete."""

    finish_reason: str


Step = Wait | Delta | Block | Alive | Fail | End

_CALM = (Block(TextBlock(text="All done.")),)
_TEXTS = ("Let me look. ", "I have found it. ", "Hm", " \n", "The answer is 42. ", "```py\nx = 1\n```\n", "…")
_ERRORS = (
    lambda: errors.RateLimitError("slow down", retry_after=3.0),
    lambda: errors.RateLimitError("come back later", retry_after=300.0),
    lambda: errors.RateLimitError("slow down"),
    lambda: errors.AuthenticationError("wrong key"),
    lambda: errors.ContextLengthError("too long"),
    lambda: errors.ContentFilterError("no"),
    lambda: errors.InvalidRequestError("malformed"),
    lambda: errors.ProviderUnavailableError("overloaded"),
    lambda: errors.LLMTimeoutError("too slow"),
    lambda: InjectedError("the model's client broke"),
    lambda: asyncio.CancelledError("the model's client cancelled itself"),
)


class Responses:
    """Draws the responses of all models of a conversation as lists of steps."""

    def __init__(self, sim: Simulation, tools: list[str], stall_timeout_s: float):
        self._sim = sim
        self._tools = tools
        self._stall_timeout_s = stall_timeout_s
        self._call_ids = self._calls_made = 0

    def steps(self, request: ChatRequest, turn: int) -> Iterator[Step]:
        """Draw the response to the `turn`-th call of a run."""
        sim = self._sim
        yield from self._pause(0.3)
        if sim.occurs("errors", 0.12):
            yield self._failure()
        yield from self._thinking()
        if not sim.occurs("empty answers", 0.15):
            yield from self._text()
        if sim.occurs("errors", 0.06):
            yield self._failure()
        if self._calls_tools(request, turn):
            yield from self._tool_calls()
        if sim.occurs("cut answers", 0.4):
            yield End(sim.rng.choice(["max_tokens", "length"]))
        if sim.occurs("refusals", 0.15):
            yield End("refusal")

    def _pause(self, mean_s: float) -> Iterator[Step]:
        sim = self._sim
        if sim.occurs("stalls", 0.05):
            yield Wait(self._stall_timeout_s * sim.rng.uniform(0.5, 3))
        elif sim.rng.random() < 0.7:
            yield Wait(sim.delay_s(mean_s))

    def _thinking(self) -> Iterator[Step]:
        sim = self._sim
        if not sim.occurs("thinking", 0.5):
            return
        for _ in range(sim.rng.randrange(3)):
            yield Alive()
            yield from self._pause(0.1)
        signature = None if sim.occurs("unsigned thinking", 0.3) else f"sig-{sim.rng.randrange(10**6)}"
        yield Block(ThinkingBlock(thinking="I wonder.", signature=signature))

    def _text(self) -> Iterator[Step]:
        texts = [self._sim.rng.choice(_TEXTS) for _ in range(self._sim.rng.randrange(1, 4))]
        for text in texts:
            yield Delta(text)
            yield from self._pause(0.05)
        yield Block(TextBlock(text="".join(texts)))

    def _calls_tools(self, request: ChatRequest, turn: int) -> bool:
        if request.tools is None or request.tool_choice == "none":
            return self._sim.occurs("forbidden tool calls", 0.3)
        likely = 0.1 if any(message.content == STILL_RUNNING for message in request.messages[-3:]) else 0.85
        return self._sim.rng.random() < likely / (1 + turn / 4)

    def _tool_calls(self) -> Iterator[Step]:
        sim = self._sim
        for _ in range(sim.rng.choice([1, 1, 2, 3, 6]) if "many calls" in sim.features else 1):
            name = "no_such_tool" if sim.occurs("unknown tools", 0.15) else sim.rng.choice(self._tools)
            call_id = self._call_id()
            self._calls_made += 1
            # This mark identifies the call for tools and invariants even if its id is not unique.
            yield Block(ToolCallBlock(id=call_id, name=name, input={"text": "look", "call": f"use-{self._calls_made}"}))
            yield from self._pause(0.05)

    def _call_id(self) -> str:
        if self._call_ids and self._sim.occurs("repeated call ids", 0.1):
            return f"call-{self._sim.rng.randint(1, self._call_ids)}"
        self._call_ids += 1
        return f"call-{self._call_ids}"

    def _failure(self) -> Fail:
        return Fail(self._sim.rng.choice(_ERRORS)())


class Model:
    """A provider. It streams, unless the seed makes it one that is silent until its response is complete."""

    def __init__(self, name: str, sim: Simulation, invariants: Invariants, responses: Responses):
        self.name = name
        self._sim = sim
        self._invariants = invariants
        self._responses = responses
        self._requests = 0
        self._capabilities = ["tool_choice"] if sim.rng.random() < 0.7 else []
        self._streams = sim.rng.random() < 0.85
        self._reports_early = sim.rng.random() < 0.5
        self._reports_cost = "cost limit" in sim.features or sim.rng.random() < 0.3

    def get_info(self):
        return ProviderInfo(id=self.name, display_name=self.name, capabilities=self._capabilities)

    async def list_models(self):
        return [ModelInfo(id="chaos-1", display_name="Chaos", context_window=100_000, max_output_tokens=1000)]

    def parse_tool_calls(self, response):
        return response.tool_calls or []

    async def complete(self, request: ChatRequest, *, stream: ResponseStream | None = None, **_: Any) -> ChatResponse:
        if stream is None:  # the loop streams every response; a context that asks for a summary does not
            self._invariants.requests.check_summary_request(request)
            return await self._summary()
        sim, invariants, run = self._sim, self._invariants, self._invariants.run
        self._requests += 1
        activity = invariants.stops.started("model", f"request {self._requests}", run)
        call = ModelCall(self.name, request, bool(self._capabilities), invariants.token_budget, invariants.is_whole)
        invariants.emit("model_called", call)
        turn = run.model_calls
        run.model_calls += 1
        steps = _CALM if sim.calm else list(self._responses.steps(request, turn))
        try:
            with sim.at("waiting for the model"):
                sim.log("model", f"{self.name} gets request {self._requests}: {len(request.messages)} messages")
                return await self._respond(steps, stream if self._streams else ResponseStream())
        finally:
            uncancellable = asyncio.current_task() in sim.uncancellable
            if not uncancellable and not run.over:  # else the run has continued without it
                invariants.emit("model_returned")
            invariants.stops.ended(activity, uncancellable=uncancellable)

    async def _respond(self, steps: Sequence[Step], stream: ResponseStream) -> ChatResponse:
        blocks: list[Any] = []
        if self._reports_early:
            stream.usage = self._usage(None)
        self._invariants.budgets.call_reported(stream.usage if self._streams else None)
        try:
            await self._perform(steps, stream, blocks)
        except asyncio.CancelledError as e:
            if e.args:
                self._sim.log("model", "cancels itself")
                raise
            await self._cancelled()
        calls = [ToolCall(id=b.id, name=b.name, arguments=b.input) for b in blocks if isinstance(b, ToolCallBlock)]
        reason = next((step.finish_reason for step in steps if isinstance(step, End)), None)
        self._sim.log("model", f"has responded: {', '.join(map(_described, blocks)) or 'nothing'}{reason or ''}")
        usage = self._usage(stream.usage)
        self._invariants.budgets.call_completed(usage)
        return ChatResponse(
            content=blocks,
            tool_calls=calls or None,
            usage=usage,
            finish_reason=reason or ("tool_use" if calls else "end_turn"),
        )

    def _usage(self, before: Usage | None) -> Usage | None:
        """Draw the usage of a call: more than before."""
        rng = self._sim.rng
        if self._sim.occurs("errors", 0.1):
            return None
        read = before.input_tokens if before else rng.randrange(50)
        written = rng.randrange(20) if before else 0
        cost = Decimal(read + 2 * written + 1) / 2000 if self._reports_cost else None
        return Usage(input_tokens=read, output_tokens=written, total_tokens=read + written, cost_usd=cost)

    async def _summary(self) -> ChatResponse:
        sim = self._sim
        sim.count("summary requested")
        sim.log("model", f"{self.name} gets a request for a summary")
        if not sim.calm:
            await asyncio.sleep(sim.delay_s(0.1, 2))
        if sim.occurs("errors", 0.2):
            raise InjectedError("the model broke during a summary")
        usage = self._usage(None)
        self._invariants.budgets.summarized(usage)
        return ChatResponse(content=[TextBlock(text="They talked.")], usage=usage, finish_reason="end_turn")

    async def _perform(self, steps: Sequence[Step], stream: ResponseStream, blocks: list[Any]) -> None:
        is_streaming = False
        try:
            for step in steps:
                if stream.pieces and not is_streaming:
                    is_streaming = True
                    self._sim.enter("streaming")
                await self._do(step, stream, blocks)
        finally:
            if is_streaming:
                self._sim.leave("streaming")

    async def _do(self, step: Step, stream: ResponseStream, blocks: list[Any]) -> None:
        match step:
            case Wait(seconds):
                await asyncio.sleep(seconds)
            case Delta(text):
                stream.text(text)
                self._sim.log("model", f"streams {text!r}")
            case Block(block):
                stream.block(block)
                blocks.append(block)
                self._sim.log("model", f"has {_described(block)} ready")
            case Alive():
                stream.heartbeat()
            case Fail(error):
                self._sim.log("model", f"fails: {error!r}")
                raise error

    async def _cancelled(self) -> None:
        """End as cancelled, or ignore the cancellation for a while and then respond, fail or end as cancelled."""
        sim = self._sim
        sim.count("model call cancelled")
        if not sim.occurs("uncancellable model", 0.5):
            sim.log("model", "is cancelled")
            raise asyncio.CancelledError
        sim.count("model call ignores its cancellation")
        seconds = sim.delay_s(0.1, 5)
        sim.ignore_cancellation("model")
        await sim.sleep_uncancellable(seconds, "model")
        match sim.rng.choice(["respond", "fail", "end"]):
            case "fail":
                raise InjectedError("the model broke after its cancellation")
            case "end":
                raise asyncio.CancelledError


def _described(block: Any) -> str:
    return f"{block.name}({block.id})" if isinstance(block, ToolCallBlock) else f"a {block.type} block"
