"""The agent's model and tools. Texts and calls are numbered, so that each can be identified."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from orchestrator_interactive.kernel import ModelInfo, ProviderInfo, ResponseStream, ToolResult
from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError, ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    ChatResponse,
    TextBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from orchestrator_interactive.kernel.contracts.request_validation import problems_of
from simulated.engine import PROCESS
from simulated.simulation import Simulation, rng_for

from .store_observer import StoreObserver

# So long that two such texts are two messages in Slack.
_FILLER = "and so on " * 250
# So long that people see a text while it is written.
_SENTENCES = "And so on. " * 20
# The retries of a failed call; the next failure ends the run.
_RETRIES = 3

# The inputs of tools, by the id of the call.
# The usage of each answer, with budgets.
USAGE = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
_INPUTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "ask_user": lambda call: {"question": f"Which of {call}?", "options": ["this", "that"]},
    "delegate": lambda call: {"agent": "helper", "instruction": f"Part {call}."},
    "dispatch_worker": lambda call: {"task": f"Task {call}.", "title": f"Task {call}", "agent": "helper"},
}

# The state of all agents, in the context of every process.
AGENTS: contextvars.ContextVar[AgentState] = contextvars.ContextVar("agents")


@dataclass(frozen=True, slots=True)
class ToolCallRecord:
    """An execution of a tool. `call` is the unique number of the call."""

    call: str
    tool: str
    conversation: str
    at_s: float


@dataclass(slots=True)
class AgentState:
    """What all models and tools share. `active` counts the calls of a process by "model" and "tool".

    `overloads` are the consecutive failures of the model in a conversation.
    """

    sim: Simulation
    observer: StoreObserver
    tool: type[Tool]
    active: Counter[tuple[int, str]] = field(default_factory=Counter)
    overloads: Counter[str] = field(default_factory=Counter)
    tool_calls: list[ToolCallRecord] = field(default_factory=list)
    uploads: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    # By conversation and call of each file that is to be shared: whether that is stored for certain.
    shared: dict[tuple[str, str], bool] = field(default_factory=dict)
    streams: Random = field(init=False)
    texts: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    calls: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.streams = rng_for(self.sim.seed, "streams")

    @contextmanager
    def at(self, process: int, what: str) -> Iterator[None]:
        self.active[process, what] += 1
        try:
            yield
        finally:
            self.active[process, what] -= 1


async def mount(coordinator: Any, _config: dict[str, Any]) -> None:
    """Mount the model and its tools."""
    agents = AGENTS.get()
    conversation = coordinator.config["session"]["context"]["config"].get("conversation_id", "")
    conversation, _, child = conversation.partition("/")  # a step of a sub-agent is one of its conversation
    coordinator.mount("providers", Model(agents, conversation, is_child=bool(child)), name="model")
    for name, is_side_effect_free in (("look", True), ("act", False)):
        tool = agents.tool(agents, conversation, name, is_side_effect_free=is_side_effect_free)
        coordinator.mount("tools", tool)
    if "shares" in agents.sim.features:
        coordinator.mount("tools", ShareTool(agents, conversation, coordinator))


class Model:
    """A provider that says numbered texts, and calls a tool in some of its responses."""

    name = "model"

    def __init__(self, agents: AgentState, conversation: str, *, is_child: bool = False):
        self._agents = agents
        self._conversation = conversation
        self._is_child = is_child
        self._streams = agents.streams

    def get_info(self):
        return ProviderInfo(id=self.name, display_name=self.name, capabilities=["tool_choice"])

    async def list_models(self):
        return [ModelInfo(id="m", display_name="M", context_window=100_000, max_output_tokens=1000)]

    def parse_tool_calls(self, response):
        return response.tool_calls or []

    async def complete(self, request: ChatRequest, *, stream: ResponseStream | None = None, **_: Any) -> ChatResponse:
        agents, sim, process = self._agents, self._agents.sim, PROCESS.get()
        agents.observer.began("the model was called", self._conversation, process)
        sim.count("model called")
        sim.log("model", f"of {process} gets a request: {len(request.messages)} messages")
        for problem in problems_of(request):
            sim.violation(f"A provider would refuse a request of {self._conversation}: {problem}.")
        if sim.occurs("failing model", 0.1):
            agents.overloads[self._conversation] += 1
            if agents.overloads[self._conversation] > _RETRIES:
                agents.observer.failed(self._conversation, process)
            raise ProviderUnavailableError("overloaded")
        agents.overloads[self._conversation] = 0
        if sim.occurs("permanent model errors", 0.12):
            agents.observer.failed(self._conversation, process)
            sim.count("permanent model error")
            raise InvalidRequestError("no such model")
        with agents.at(process, "model"):
            return await self._respond(stream or ResponseStream(), may_call=request.tool_choice != "none")

    async def _respond(self, stream: ResponseStream, *, may_call: bool) -> ChatResponse:
        sim, blocks = self._agents.sim, list[Any]()
        await self._think()
        calls = sim.rng.choice([1, 1, 2]) if may_call and not sim.calm and sim.rng.random() < 0.4 else 0
        texts = [self._text() for _ in range(sim.rng.choice([0, 1, 1]) if calls else sim.rng.choice([1, 2]))]
        for text in texts:
            stream.text(text)
            sim.log("model", f"streams {text[:20]!r}")
            await self._think()
        if texts:
            blocks.append(TextBlock(text="".join(texts)))
            stream.block(blocks[0])
        for number in itertools.islice(self._agents.calls, calls):
            name = sim.rng.choice(["look", "act", *self._more_tools()])
            given = _INPUTS.get(name, lambda call: {"call": call})(f"c{number}")
            blocks.append(ToolCallBlock(id=f"c{number}", name=name, input=given))
            stream.block(blocks[-1])
            sim.log("model", f"calls {name} c{number}")
            await self._think()
        tool_calls = [ToolCall(id=b.id, name=b.name, arguments=b.input) for b in blocks if isinstance(b, ToolCallBlock)]
        reason = "tool_use" if tool_calls else "end_turn"
        usage = Usage(**USAGE) if "budgets" in sim.features else None
        return ChatResponse(content=blocks, tool_calls=tool_calls or None, usage=usage, finish_reason=reason)

    def _more_tools(self) -> list[str]:
        features = self._agents.sim.features
        found = ["ask_user"] if "approvals" in features else []
        found += ["share"] if "shares" in features else []
        return found + (["delegate", "dispatch_worker"] if "workers" in features and not self._is_child else [])

    def _text(self) -> str:
        text = f"Text t{next(self._agents.texts)}. "
        if "streams" in self._agents.sim.features and self._streams.random() < 0.7:
            text += _SENTENCES
        return f"{text}{_FILLER}\n\n" if self._agents.sim.occurs("long answers", 0.4) else text

    async def _think(self) -> None:
        sim = self._agents.sim
        if not sim.calm and sim.rng.random() < 0.7:
            await asyncio.sleep(sim.delay_s(0.1, 1))


class Tool:
    """A tool that takes a while. `look` is free of side effects, `act` is not."""

    input_schema: dict[str, Any] = {"type": "object", "properties": {"call": {"type": "string"}}}  # noqa: RUF012 - as contracts have it

    def __init__(self, agents: AgentState, conversation: str, name: str, *, is_side_effect_free: bool):
        self.name = name
        self.description = f"Can {name}."
        self.side_effect_free = is_side_effect_free
        self._agents = agents
        self._conversation = conversation

    def label(self, arguments: dict[str, Any]) -> str:
        return f"{self.name} {arguments.get('call')}"

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the contract's name
        agents, sim, process, call = self._agents, self._agents.sim, PROCESS.get(), input["call"]
        agents.tool_calls.append(ToolCallRecord(call, self.name, self._conversation, sim.now()))
        agents.observer.began(f"{call} was started", self._conversation, process)
        sim.count(f"tool {self.name}")
        sim.log("tool", f"{self.name} {call} starts in {process}")
        try:
            with agents.at(process, "tool"):
                if not sim.calm and sim.rng.random() < 0.8:
                    await asyncio.sleep(sim.delay_s(0.1, 2))
        finally:
            agents.observer.ended(f"{call} was active", self._conversation, process)
        sim.log("tool", f"{self.name} {call} ends")
        return ToolResult(output=f"done {call}")


class ShareTool:
    """Shares a file that is uploaded already."""

    name = "share"
    description = "Can share."
    repeatable = True
    side_effect_free = False
    input_schema = Tool.input_schema

    def __init__(self, agents: AgentState, conversation: str, coordinator: Any):
        self._agents = agents
        self._conversation = conversation
        self._coordinator = coordinator

    def label(self, arguments: dict[str, Any]) -> str:
        return f"{self.name} {arguments.get('call')}"

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the contract's name
        call = input["call"]
        # A repeated call has uploaded it again.
        file = {"id": f"FA{next(self._agents.uploads)}", "name": f"{call}.txt", "title": call, "digest": call}
        self._agents.shared.setdefault((self._conversation, call), False)
        await self._coordinator.get_capability("people.share")(f"call:{call}", [file], "")
        self._agents.shared[self._conversation, call] = True
        return ToolResult(output=f"done {call}")
