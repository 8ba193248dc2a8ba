"""The model: it improvises, or, when all is calm, answers at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel import ModelInfo, ProviderInfo, ResponseStream
from orchestrator_interactive.kernel.messages import ChatResponse, TextBlock, ToolCall, ToolCallBlock, Usage
from simulated.scene import Mishap

from .improvising import Alive, Block, Fail, Improviser, Piece, Step, Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator_interactive.kernel.messages import ChatRequest
    from simulated.judge import Judges
    from simulated.scene import Scene

_CALM = (Block(TextBlock(text="All done.")),)


class Model:
    """A provider. It streams, unless the seed made it one that is silent until its answer is whole."""

    name = "chaos"

    def __init__(self, scene: Scene, judges: Judges, improviser: Improviser) -> None:
        self._scene = scene
        self._judges = judges
        self._improviser = improviser
        self._asked = 0
        self._capabilities = ["tool_choice"] if scene.chance.random() < 0.7 else []
        self._streams = scene.chance.random() < 0.85

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name="Chaos", capabilities=self._capabilities)

    async def list_models(self) -> list[ModelInfo]:
        return [ModelInfo(id="chaos-1", display_name="Chaos", context_window=100_000, max_output_tokens=1000)]

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []

    async def complete(self, request: ChatRequest, *, stream: ResponseStream | None = None, **_: Any) -> ChatResponse:
        scene, run = self._scene, self._judges.run
        self._asked += 1
        activity = self._judges.quiet.began("model", f"request {self._asked}", run)
        self._judges.asked(request, run, can_choose=bool(self._capabilities))
        turn = run.model_calls
        run.model_calls += 1
        steps = _CALM if scene.calm else self._improviser.steps(request, turn)
        try:
            with scene.at("waiting for the model"):
                scene.tell("model", f"is asked: request {self._asked}, {len(request.messages)} messages")
                answer = await self._answered(steps, stream if self._streams and stream else ResponseStream())
            self._judges.answered(run)
            return answer
        finally:
            self._judges.quiet.ended(activity, deaf=asyncio.current_task() in scene.deaf)

    async def _answered(self, steps: Sequence[Step], stream: ResponseStream) -> ChatResponse:
        blocks: list[Any] = []
        try:
            await self._perform(steps, stream, blocks)
        except asyncio.CancelledError as e:
            if e.args:
                self._scene.tell("model", "cancels itself")
                raise
            await self._cancelled()
        calls = [ToolCall(id=b.id, name=b.name, arguments=b.input) for b in blocks if isinstance(b, ToolCallBlock)]
        self._scene.tell("model", f"has answered: {', '.join(map(_named, blocks)) or 'nothing'}")
        return ChatResponse(
            content=blocks,
            tool_calls=calls or None,
            usage=Usage(input_tokens=10, output_tokens=5, total_tokens=15),
            finish_reason="tool_use" if calls else "end_turn",
        )

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
                stream.alive()
            case Fail(error):
                self._scene.tell("model", f"fails: {error!r}")
                raise error

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
                raise Mishap("the model broke after its cancellation")
            case "end":
                raise asyncio.CancelledError


def _named(block: Any) -> str:
    return f"{block.name}({block.id})" if isinstance(block, ToolCallBlock) else f"a {block.type} block"
