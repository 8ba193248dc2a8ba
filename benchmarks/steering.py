"""Latency from a message to its request, and from a stop to the end of the run."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Benchmark, Row, Side
from benchmarks.loops import PROMPT, PURPOSE, TOOL
from benchmarks.loops.ours import Model
from benchmarks.messages_api import HANGING, messages_api
from orchestrator_interactive.kernel import AmplifierSession, ToolResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from contextlib import AbstractAsyncContextManager

    from benchmarks.harness import Operations
    from orchestrator_interactive.kernel import ResponseStream
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse

    NewAgent = Callable[[], AbstractAsyncContextManager["Agent"]]

STEER = "Look at the other file too."
# Time until the first deltas arrive.
FIRST_WORDS_S = 0.005
# No measurement takes this long; bounds a run that hangs.
PATIENCE_S = 5.0


class HangingModel(Model):
    """Calls the tool a given number of times; then sends a few words and stalls."""

    def __init__(self, reached: asyncio.Queue[str]) -> None:
        super().__init__()
        self._reached = reached

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        if self.turns_left:
            return await super().complete(request, **kwargs)
        stream: ResponseStream = kwargs["stream"]
        stream.text("Let me see")
        self._reached.put_nowait(request.messages[-1].model_dump_json())
        await asyncio.Event().wait()
        raise AssertionError


@dataclass
class HangingTool:
    """Runs until `end` is set; a deaf one ignores cancellation."""

    reached: asyncio.Queue[str]
    name = TOOL
    description = PURPOSE
    deaf: bool = False
    end: asyncio.Event = field(default_factory=asyncio.Event)

    async def execute(self, _input: dict[str, Any]) -> ToolResult:
        self.reached.put_nowait(self.name)
        try:
            await self.end.wait()
        except asyncio.CancelledError:
            if not self.deaf:
                raise
            await self.end.wait()
        return ToolResult(output="It has ended.")


@dataclass
class Agent:
    """A session with the progress of its run: the last message of each model request, and tool starts."""

    session: AmplifierSession
    reached: asyncio.Queue[str]
    tool: HangingTool = field(init=False)

    def __post_init__(self) -> None:
        self.tool = HangingTool(self.reached)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[str]]:
        """Start a run and wait until it is in the model or in the tool; stop it at exit."""
        await self.session.coordinator.mount("tools", self.tool, name=TOOL)
        async with asyncio.timeout(PATIENCE_S):
            run = asyncio.create_task(self.session.execute(PROMPT))
            try:
                await self.reached.get()
                await asyncio.sleep(FIRST_WORDS_S)
                yield run
            finally:
                self.tool.end.set()
                self.call("stop", immediate=True)
                await run

    def call(self, capability: str, *arguments: Any, **named: Any) -> None:
        function: Any = self.session.coordinator.get_capability(f"orchestrator.{capability}")
        function(*arguments, **named)

    async def steered(self) -> float:
        """Return the time at which the message was in a request."""
        while STEER not in await self.reached.get():
            pass
        return time.perf_counter()


async def steer(new: NewAgent) -> float:
    async with new() as agent, agent.running():
        began = time.perf_counter()
        agent.call("inject_message", f"!{STEER}")
        return await agent.steered() - began


async def steer_at_the_boundary(new: NewAgent) -> float:
    async with new() as agent, agent.running():
        agent.call("inject_message", STEER)
        began = time.perf_counter()
        agent.tool.end.set()
        return await agent.steered() - began


async def stop(new: NewAgent, *, immediate: bool = False, deaf: bool = False) -> float:
    async with new() as agent:
        agent.tool.deaf = deaf
        async with agent.running() as run:
            began = time.perf_counter()
            agent.call("stop", immediate=immediate)
            await asyncio.wait({run})
            return time.perf_counter() - began


@asynccontextmanager
async def scripted(tool_calls: int) -> AsyncIterator[Agent]:
    async with _session() as session:
        reached: asyncio.Queue[str] = asyncio.Queue()
        model = HangingModel(reached)
        model.turns_left = tool_calls
        await session.coordinator.mount("providers", model, name="model")
        yield Agent(session, reached)


@asynccontextmanager
async def scripted_operations() -> AsyncIterator[Operations]:
    in_the_model, in_a_tool = partial(scripted, 0), partial(scripted, 1)
    yield {
        **_model_operations(in_the_model),
        "steer_tool": partial(steer, in_a_tool),
        "boundary": partial(steer_at_the_boundary, in_a_tool),
        "stop_tool": partial(stop, in_a_tool, immediate=True),
        "stop_deaf_tool": partial(stop, in_a_tool, immediate=True, deaf=True),
    }


@asynccontextmanager
async def http_operations() -> AsyncIterator[Operations]:
    reached: asyncio.Queue[str] = asyncio.Queue()

    async def on_request(body: dict[str, Any]) -> None:
        reached.put_nowait(str(body["messages"][-1]))

    @asynccontextmanager
    async def claude() -> AsyncIterator[Agent]:
        provider = {"module": "provider-anthropic", "config": {"api_key": "no-key", "base_url": url, "model": HANGING}}
        async with _session(provider) as session:
            yield Agent(session, reached)

    # In the service, sessions are long-lived and share a client; this one keeps it open here.
    async with messages_api(on_request) as url, claude():
        yield _model_operations(claude)


def _session(*providers: dict[str, Any]) -> AmplifierSession:
    session = {"orchestrator": "loop-interactive", "context": "context-simple"}
    return AmplifierSession({"session": session, "providers": list(providers)})


def _model_operations(new: NewAgent) -> dict[str, Callable[[], Awaitable[float]]]:
    return {"steer_model": partial(steer, new), "stop_model": partial(stop, new)}


BENCHMARK = Benchmark(
    title="Steering and stopping",
    rows=(
        Row("steer_model", "`!` while the model streams → in a request", unit="ms", target=1000, meter="itself"),
        Row("steer_tool", "`!` while a tool runs → in a request", unit="ms", target=1000, meter="itself"),
        Row("boundary", "the tool ends → pending messages in a request", unit="ms", meter="itself"),
        Row("stop_model", "stop while the model streams → run ended", unit="ms", target=200, meter="itself"),
        Row("stop_tool", "immediate stop while a tool runs → run ended", unit="ms", target=1000, meter="itself"),
        Row("stop_deaf_tool", "the same, the tool ignores its cancellation", unit="ms", target=1000, meter="itself"),
    ),
    sides=(
        Side("ours, a model in the process", scripted_operations),
        Side("ours, provider-anthropic over HTTP", http_operations),
    ),
    notes=(
        (
            "The session uses context-simple. In a request: the provider or the HTTP server has received it. Run "
            "ended: `execute` has returned."
        ),
    ),
)
