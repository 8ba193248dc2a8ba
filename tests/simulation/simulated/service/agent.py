"""The agent's model and tools. What it says and does has numbers, so that each can be told from all others."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel import ModelInfo, ProviderInfo, ResponseStream, ToolResult
from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError, ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock, ToolCall, ToolCallBlock
from orchestrator_interactive.kernel.contracts.request_validation import problems_of
from simulated.engine import LIFE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator_interactive.kernel import ModuleCoordinator
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest
    from simulated.scenario import Scenario

    from .store_observer import Witness

# So long that two such texts are two messages in Slack.
_FILLING = "and so on " * 250

# In the context of every process: what its modules play with.
CAST: contextvars.ContextVar[Cast] = contextvars.ContextVar("cast")


@dataclass(frozen=True, slots=True)
class Use:
    """A tool at work: `call` is the number that the model has given this call, and no other one."""

    call: str
    tool: str
    conversation: str
    life: int
    began_s: float


@dataclass(slots=True)
class Cast:
    """What all models and tools of a seed share. `at_work` counts those of a process, by "model" and "tool"."""

    scene: Scenario
    witness: Witness
    tool: type[Tool]
    at_work: Counter[tuple[int, str]] = field(default_factory=Counter)
    uses: list[Use] = field(default_factory=list)
    texts: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    calls: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @contextmanager
    def at(self, process: int, what: str) -> Iterator[None]:
        self.at_work[process, what] += 1
        try:
            yield
        finally:
            self.at_work[process, what] -= 1


async def mount(coordinator: ModuleCoordinator, _config: dict[str, Any]) -> None:
    """Mount the model, and its tools with it."""
    cast = CAST.get()
    options = coordinator.config["session"]["context"]["config"]
    place = (options.get("conversation_id", ""), options.get("agent_id", ""))
    coordinator.mount("providers", Model(cast, *place), name="model")
    for name, is_harmless in (("look", True), ("act", False)):
        coordinator.mount("tools", cast.tool(cast, place[0], name, is_harmless=is_harmless))


class Model:
    """Says texts with numbers, calls a tool now and then, and comes to an end soon."""

    name = "model"

    def __init__(self, cast: Cast, conversation: str, agent: str) -> None:
        self._cast = cast
        self._place = conversation, agent

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name=self.name, capabilities=["tool_choice"])

    async def list_models(self) -> list[ModelInfo]:
        return [ModelInfo(id="m", display_name="M", context_window=100_000, max_output_tokens=1000)]

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []

    async def complete(self, request: ChatRequest, *, stream: ResponseStream | None = None, **_: Any) -> ChatResponse:
        cast, scene = self._cast, self._cast.scene
        cast.witness.began("the model was asked", self._place[0], LIFE.get())
        scene.count("model asked")
        scene.tell("model", f"of {LIFE.get()} is asked: {len(request.messages)} messages")
        for problem in problems_of(request):
            scene.blame(f"A provider would refuse a request of {self._place[0]}: {problem}.")
        if scene.happens("failing model", 0.1):
            raise ProviderUnavailableError("overloaded")
        if scene.happens("hopeless model", 0.12):
            cast.witness.failed(self._place[0], LIFE.get())
            scene.count("model failed for good")
            raise InvalidRequestError("no such model")
        with cast.at(LIFE.get(), "model"):
            return await self._answered(stream or ResponseStream(), may_call=request.tool_choice != "none")

    async def _answered(self, stream: ResponseStream, *, may_call: bool) -> ChatResponse:
        scene, blocks = self._cast.scene, list[Any]()
        await self._think(stream)
        calls = scene.chance.choice([1, 1, 2]) if may_call and not scene.calm and scene.chance.random() < 0.4 else 0
        said = [self._text() for _ in range(scene.chance.choice([0, 1, 1]) if calls else scene.chance.choice([1, 2]))]
        for text in said:
            stream.text(text)
            scene.tell("model", f"says {text[:20]!r}")
            await self._think(stream)
        if said:
            blocks.append(TextBlock(text="".join(said)))
            stream.block(blocks[0])
        for number in itertools.islice(self._cast.calls, calls):
            name = scene.chance.choice(["look", "act"])
            blocks.append(ToolCallBlock(id=f"c{number}", name=name, input={"call": f"c{number}"}))
            stream.block(blocks[-1])
            scene.tell("model", f"calls {name} c{number}")
            await self._think(stream)
        tool_calls = [ToolCall(id=b.id, name=b.name, arguments=b.input) for b in blocks if isinstance(b, ToolCallBlock)]
        reason = "tool_use" if tool_calls else "end_turn"
        return ChatResponse(content=blocks, tool_calls=tool_calls or None, finish_reason=reason)

    def _text(self) -> str:
        text = f"Text t{next(self._cast.texts)}. "
        return f"{text}{_FILLING}\n\n" if self._cast.scene.happens("long answers", 0.4) else text

    async def _think(self, _stream: ResponseStream) -> None:
        scene = self._cast.scene
        if not scene.calm and scene.chance.random() < 0.7:
            await asyncio.sleep(scene.some_s(0.1, 1))


class Tool:
    """Takes a while. `look` may be repeated, `act` may not."""

    input_schema: dict[str, Any] = {"type": "object", "properties": {"call": {"type": "string"}}}  # noqa: RUF012 - as contracts have it

    def __init__(self, cast: Cast, conversation: str, name: str, *, is_harmless: bool) -> None:
        self.name = name
        self.description = f"Can {name}."
        self.side_effect_free = is_harmless
        self._cast = cast
        self._conversation = conversation

    def label(self, arguments: dict[str, Any]) -> str:
        return f"{self.name} {arguments.get('call')}"

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the contract's name
        scene = self._cast.scene
        use = Use(input["call"], self.name, self._conversation, LIFE.get(), scene.now())
        self._cast.uses.append(use)
        self._cast.witness.began(f"{use.call} was begun", self._conversation, use.life)
        scene.count(f"tool {self.name}")
        scene.tell("tool", f"{self.name} {use.call} begins in {use.life}")
        try:
            with self._cast.at(use.life, "tool"):
                if not scene.calm and scene.chance.random() < 0.8:
                    await asyncio.sleep(scene.some_s(0.1, 2))
        finally:
            self._cast.witness.ended(f"{use.call} was at work", self._conversation, use.life)
        scene.tell("tool", f"{self.name} {use.call} ends")
        return ToolResult(output=f"done {use.call}")
