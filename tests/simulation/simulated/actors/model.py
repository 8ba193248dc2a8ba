"""The model: it improvises, or, when all is calm, answers at once."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel import ModelInfo, ProviderInfo, ResponseStream
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock, ToolCall, ToolCallBlock, Usage
from simulated.scenario import InjectedFault

from .responses import Alive, Block, End, Fail, Improviser, Piece, Step, Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest
    from simulated.invariants import Invariants
    from simulated.scenario import Scenario

_CALM = (Block(TextBlock(text="All done.")),)


class Model:
    """A provider. It streams, unless the seed made it one that is silent until its answer is whole."""

    def __init__(self, name: str, scene: Scenario, judges: Invariants, improviser: Improviser) -> None:
        self.name = name
        self._scene = scene
        self._judges = judges
        self._improviser = improviser
        self._asked = 0
        self._capabilities = ["tool_choice"] if scene.chance.random() < 0.7 else []
        self._streams = scene.chance.random() < 0.85
        self._tells_early = scene.chance.random() < 0.5
        self._tells_cost = "cost limit" in scene.features or scene.chance.random() < 0.3

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name=self.name, capabilities=self._capabilities)

    async def list_models(self) -> list[ModelInfo]:
        return [ModelInfo(id="chaos-1", display_name="Chaos", context_window=100_000, max_output_tokens=1000)]

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []

    async def complete(self, request: ChatRequest, *, stream: ResponseStream | None = None, **_: Any) -> ChatResponse:
        if stream is None:  # the loop listens to every answer; a context that wants a summary does not
            self._judges.requests.asked_for_summary(request)
            return await self._summary()
        scene, run = self._scene, self._judges.run
        self._asked += 1
        activity = self._judges.quiet.began("model", f"request {self._asked}", run)
        self._judges.asked(self.name, request, can_choose=bool(self._capabilities))
        turn = run.model_calls
        run.model_calls += 1
        steps = _CALM if scene.calm else self._improviser.steps(request, turn)
        try:
            with scene.at("waiting for the model"):
                scene.tell("model", f"{self.name} is asked: request {self._asked}, {len(request.messages)} messages")
                return await self._answered(steps, stream if self._streams else ResponseStream())
        finally:
            deaf = asyncio.current_task() in scene.deaf
            if not deaf:  # else its run has gone on without it
                self._judges.call_over(run)
            self._judges.quiet.ended(activity, deaf=deaf)

    async def _answered(self, steps: Sequence[Step], stream: ResponseStream) -> ChatResponse:
        blocks: list[Any] = []
        self._say_what_is_read(stream)
        try:
            await self._perform(steps, stream, blocks)
        except asyncio.CancelledError as e:
            if e.args:
                self._scene.tell("model", "cancels itself")
                raise
            await self._cancelled()
        calls = [ToolCall(id=b.id, name=b.name, arguments=b.input) for b in blocks if isinstance(b, ToolCallBlock)]
        because = next((step.finish_reason for step in steps if isinstance(step, End)), None)
        self._scene.tell("model", f"has answered: {', '.join(map(_named, blocks)) or 'nothing'}{because or ''}")
        usage = self._usage(stream.usage)
        self._judges.spending.completed(usage)
        return ChatResponse(
            content=blocks,
            tool_calls=calls or None,
            usage=usage,
            finish_reason=because or ("tool_use" if calls else "end_turn"),
        )

    def _say_what_is_read(self, stream: ResponseStream) -> None:
        if self._tells_early:
            stream.usage = self._usage(None)
        self._judges.spending.reads(stream.usage if self._streams else None)

    def _usage(self, before: Usage | None) -> Usage | None:
        """What a call has used up: more than before."""
        chance = self._scene.chance
        if self._scene.happens("errors", 0.1):
            return None
        read = before.input_tokens if before else chance.randrange(50)
        written = chance.randrange(20) if before else 0
        cost = Decimal(read + 2 * written + 1) / 2000 if self._tells_cost else None
        return Usage(input_tokens=read, output_tokens=written, total_tokens=read + written, cost_usd=cost)

    async def _summary(self) -> ChatResponse:
        """Sum up what a context leaves out, and take a while."""
        scene = self._scene
        scene.count("summary asked for")
        scene.tell("model", f"{self.name} is asked for a summary")
        if not scene.calm:
            await asyncio.sleep(scene.some_s(0.1, 2))
        if scene.happens("errors", 0.2):
            raise InjectedFault("the model broke over a summary")
        usage = self._usage(None)
        self._judges.spending.summed_up(usage)
        return ChatResponse(content=[TextBlock(text="They talked.")], usage=usage, finish_reason="end_turn")

    async def _perform(self, steps: Sequence[Step], stream: ResponseStream, blocks: list[Any]) -> None:
        for number, step in enumerate(steps):
            if stream.pieces:
                with self._scene.at("streaming"):
                    await self._perform_rest(steps[number:], stream, blocks)
                return
            await self._do(step, stream, blocks)

    async def _perform_rest(self, steps: Sequence[Step], stream: ResponseStream, blocks: list[Any]) -> None:
        for step in steps:
            await self._do(step, stream, blocks)

    async def _do(self, step: Step, stream: ResponseStream, blocks: list[Any]) -> None:
        match step:
            case Wait(seconds):
                await asyncio.sleep(seconds)
            case Piece(text):
                stream.text(text)
                self._scene.tell("model", f"says {text!r}")
            case Block(block):
                stream.block(block)
                blocks.append(block)
                self._scene.tell("model", f"has {_named(block)} ready")
            case Alive():
                stream.heartbeat()
            case Fail(error):
                self._scene.tell("model", f"fails: {error!r}")
                raise error
            case End():
                pass

    async def _cancelled(self) -> None:
        """Heed the cancellation, or be deaf for a while and then answer, fail or end as cancelled."""
        scene = self._scene
        scene.count("model call cancelled")
        if not scene.happens("deaf model", 0.5):
            scene.tell("model", "is cancelled")
            raise asyncio.CancelledError
        scene.count("model call deaf to its cancellation")
        seconds = scene.some_s(0.1, 5)
        scene.turn_deaf("model")
        await scene.sleep_deaf(seconds, "model")
        match scene.chance.choice(["answer", "fail", "end"]):
            case "fail":
                raise InjectedFault("the model broke after its cancellation")
            case "end":
                raise asyncio.CancelledError


def _named(block: Any) -> str:
    return f"{block.name}({block.id})" if isinstance(block, ToolCallBlock) else f"a {block.type} block"
