"""Parts for tests of agents: a scripted provider, tools of several tempers, recorders, and `make_agent`."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator_interactive.kernel import (
    AmplifierSession,
    HookResult,
    ModelInfo,
    ModuleLoader,
    ProviderInfo,
    ToolResult,
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
from orchestrator_interactive.modules import context_simple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from orchestrator_interactive.injection import Injection
    from orchestrator_interactive.kernel import CancellationToken, HookRegistry, ModuleCoordinator, ResponseStream
    from orchestrator_interactive.kernel.interfaces import ApprovalSystem, DisplaySystem, Tool

    Row = dict[str, Any]
    Step = Callable[[ChatRequest, ResponseStream], Awaitable[ChatResponse]]
    OnRow = Callable[[Row], Awaitable[None]]

T = TypeVar("T")

# A test that waits longer than this has found a hang; no outcome depends on the number.
HANG_S = 3.0


async def soon(awaitable: Awaitable[T]) -> T:
    """The outcome of what must end by itself; a hang is a failure rather than a stuck test run."""
    async with asyncio.timeout(HANG_S):
        return await awaitable


async def deaf_to_one_cancel(release: asyncio.Event) -> None:
    """Wait for the event, and ignore the first cancellation while waiting."""
    try:
        await release.wait()
    except asyncio.CancelledError:
        await release.wait()


class Milestones:
    """Lets a test wait for the n-th time that something happened."""

    def __init__(self) -> None:
        self.count = 0
        self._events: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)

    def pass_one(self) -> None:
        self.count += 1
        self._events[self.count].set()

    async def reached(self, number: int) -> None:
        await soon(self._events[number].wait())


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


def text_of(row: Row) -> str:
    content = row.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def told(rows: Iterable[Row]) -> list[tuple[str, str]]:
    return [(row["role"], text_of(row)) for row in rows]


def faults(rows: Iterable[Row]) -> list[str]:
    """Tool calls and results that are not paired, one right after the other."""
    found: list[str] = []
    waiting: list[str] = []
    for row in rows:
        if row["role"] == "tool":
            if row["tool_call_id"] in waiting:
                waiting.remove(row["tool_call_id"])
            else:
                found.append(f"result without a call: {row['tool_call_id']}")
            continue
        found += [f"call without a result: {call_id}" for call_id in waiting]
        waiting = _call_ids(row) if row["role"] == "assistant" else []
    return found + [f"call without a result: {call_id}" for call_id in waiting]


def refusals(request: ChatRequest) -> list[str]:
    """Why a strict provider would refuse this request."""
    rows = [message.model_dump(exclude_none=True) for message in request.messages]
    found = faults(rows)
    for row in rows:
        blocks = row["content"] if isinstance(row["content"], list) else []
        if row["role"] == "assistant" and not row["content"]:
            found.append("empty answer")
        found += ["blank text" for block in blocks if block["type"] == "text" and not block["text"].strip()]
        found += ["unsigned thinking" for block in blocks if block["type"] == "thinking" and not block.get("signature")]
    if not rows or rows[-1]["role"] == "assistant":
        found.append("the last word is the model's")
    if request.tool_choice is not None and not request.tools:
        found.append("tool_choice without tools")
    return found


def _call_ids(row: Row) -> list[str]:
    content = row.get("content")
    blocks = content if isinstance(content, list) else []
    ids = [block["id"] for block in blocks if block["type"] == "tool_call"]
    return ids + [c["id"] for c in row.get("tool_calls") or () if c["id"] not in ids]


class ScriptedTool:
    """A tool whose behaviour is given; it records what it was asked and whether it was cancelled."""

    def __init__(self, name: str, behave: Callable[[dict[str, Any]], Awaitable[Any]]) -> None:
        self._name = name
        self._behave = behave
        self._started = Milestones()
        self.inputs: list[dict[str, Any]] = []
        self.cancelled = 0
        self.finished = 0

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return f"Does what '{self._name}' does."

    @property
    def input_schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"text": {"type": "string"}}}

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002 - the name is the contract's
        self.inputs.append(input)
        self._started.pass_one()
        try:
            result = await self._behave(input)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.finished += 1
        return result

    async def started(self, number: int = 1) -> None:
        """Wait until the tool has been started this many times."""
        await self._started.reached(number)


def returning(output: Any, name: str = "give") -> ScriptedTool:
    async def behave(_input: dict[str, Any]) -> Any:
        return output

    return ScriptedTool(name, behave)


def echo(name: str = "echo") -> ScriptedTool:
    async def behave(given: dict[str, Any]) -> ToolResult:
        return ToolResult(output=given.get("text", name))

    return ScriptedTool(name, behave)


def gated(gate: asyncio.Event, name: str = "wait") -> ScriptedTool:
    """A tool that answers once the gate is open."""

    async def behave(given: dict[str, Any]) -> ToolResult:
        await gate.wait()
        return ToolResult(output=given.get("text", name))

    return ScriptedTool(name, behave)


def raising(error: BaseException, name: str = "break") -> ScriptedTool:
    async def behave(_input: dict[str, Any]) -> ToolResult:
        raise error

    return ScriptedTool(name, behave)


def deaf_tool(release: asyncio.Event, name: str = "deaf") -> ScriptedTool:
    """A tool that ignores being cancelled (once)."""

    async def behave(_input: dict[str, Any]) -> ToolResult:
        await deaf_to_one_cancel(release)
        return ToolResult(output="late")

    return ScriptedTool(name, behave)


def acting(action: Callable[[], object], name: str = "act") -> ScriptedTool:
    async def behave(_input: dict[str, Any]) -> ToolResult:
        action()
        return ToolResult(output="done")

    return ScriptedTool(name, behave)


class Recorder:
    """Keeps events in order, from hooks or from progress; `act_on` does something at the instant of one."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self._reached: defaultdict[str, Milestones] = defaultdict(Milestones)
        self._actions: dict[str, list[Callable[[], object]]] = {}
        self._gates: dict[str, asyncio.Event] = {}

    async def __call__(self, event: str, data: dict[str, Any]) -> HookResult:
        self.seen.append((event, data))
        for action in self._actions.pop(event, ()):
            action()
        self._reached[event].pass_one()
        if event in self._gates:
            await self._gates[event].wait()
        return HookResult()

    def act_on(self, event: str, action: Callable[[], object]) -> None:
        """Do something the next time this event comes."""
        self._actions.setdefault(event, []).append(action)

    def hold(self, event: str, gate: asyncio.Event) -> None:
        self._gates[event] = gate

    def listen(self, hooks: HookRegistry, *events: str) -> Recorder:
        for event in events:
            hooks.register(event, self, name="recorder")
        return self

    def names(self) -> list[str]:
        return [event for event, _ in self.seen]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [data for name, data in self.seen if name == event]

    async def reached(self, event: str, number: int = 1) -> None:
        await self._reached[event].reached(number)


class WatchedContext:
    """A context with something to do right before a row is added, or right after."""

    def __init__(self, inner: context_simple.SimpleContext) -> None:
        self._inner = inner
        self.before: OnRow | None = None
        self.after: OnRow | None = None
        self.get_messages = inner.get_messages
        self.set_messages = inner.set_messages
        self.clear = inner.clear
        self.get_messages_for_request = inner.get_messages_for_request

    async def add_message(self, message: Row) -> None:
        if self.before:
            await self.before(message)
        await self._inner.add_message(message)
        if self.after:
            await self.after(message)


class Shelf:
    """A module loader that has the test's own modules at hand, and knows the installed ones."""

    def __init__(self, **mounts: Callable[[ModuleCoordinator, dict[str, Any]], Awaitable[Any]]) -> None:
        self._mounts = mounts

    async def load(self, module_id: str, config: dict[str, Any] | None = None, profile_source: Any = None) -> Any:
        if module_id not in self._mounts:
            return await ModuleLoader().load(module_id, config, profile_source)
        mount = self._mounts[module_id]

        async def mount_with_config(coordinator: ModuleCoordinator) -> Any:
            return await mount(coordinator, config or {})

        return mount_with_config


async def mount_watched_context(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    inner = await context_simple.mount(coordinator, config)
    await coordinator.unmount("context")
    await coordinator.mount("context", WatchedContext(inner))


@dataclass
class Agent:
    """A session with the interactive loop, and everything in it within a test's reach."""

    session: AmplifierSession
    provider: ScriptedProvider
    context: WatchedContext
    progress: Recorder = field(default_factory=Recorder)
    events: Recorder = field(default_factory=Recorder)

    @property
    def coordinator(self) -> ModuleCoordinator:
        return self.session.coordinator

    @property
    def hooks(self) -> HookRegistry:
        return self.session.coordinator.hooks

    @property
    def token(self) -> CancellationToken:
        return self.session.coordinator.cancellation

    def inject(self, content: str | Injection) -> None:
        self.coordinator.get_capability("orchestrator.inject_message")(content)

    def notify(self, content: str) -> None:
        self.coordinator.get_capability("orchestrator.notify")(content)

    def stop(self, *, immediate: bool = False) -> bool:
        stopped: bool = self.coordinator.get_capability("orchestrator.stop")(immediate)
        return stopped

    async def run(self, prompt: str = "go") -> str:
        return await soon(self.session.execute(prompt, on_progress=self.progress))

    def start(self, prompt: str = "go") -> asyncio.Task[str]:
        return asyncio.create_task(self.session.execute(prompt, on_progress=self.progress))

    async def history(self) -> list[Row]:
        return await self.context.get_messages()

    async def told(self) -> list[tuple[str, str]]:
        return told(await self.history())

    def on_hook(self, event: str, result: HookResult) -> Callable[[], None]:
        """Answer every event of this name with a hook result."""

        async def handler(_event: str, _data: dict[str, Any]) -> HookResult:
            return result

        return self.hooks.register(event, handler)


async def make_agent(
    *steps: Step,
    provider: ScriptedProvider | None = None,
    tools: Sequence[Tool] = (),
    plan: dict[str, Any] | None = None,
    approvals: ApprovalSystem | None = None,
    display: DisplaySystem | None = None,
    **loop_config: Any,
) -> Agent:
    """An initialised session; `plan` is laid over the `session` section, `loop_config` goes to the loop."""
    provider = provider or ScriptedProvider(*steps)
    config = {
        "session": {
            "orchestrator": {"module": "loop-interactive", "config": loop_config},
            "context": "watched",
            **(plan or {}),
        }
    }
    shelf = Shelf(watched=mount_watched_context)
    session = AmplifierSession(config, loader=shelf, approval_system=approvals, display_system=display)  # type: ignore[arg-type]
    await session.initialize()
    await session.coordinator.mount("providers", provider)
    for tool in tools:
        await session.coordinator.mount("tools", tool)
    return Agent(session, provider, session.coordinator.get("context"))
