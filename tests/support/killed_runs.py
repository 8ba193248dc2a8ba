"""Runs whose process is killed after any row, and the processes that resume them."""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents import Recorder, ScriptedTool, StaticLoader, faults, soon
from agents.provider import Step

from orchestrator_interactive import Injection, RunFinished
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.stores.base import Change
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.kernel import AmplifierSession, ModelInfo, ProviderInfo, ResponseStream
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, ToolCall
from orchestrator_interactive.kernel.contracts.request_validation import check
from orchestrator_interactive.kernel.hooks import HookRegistry
from orchestrator_interactive.loop import tool_results
from orchestrator_interactive.loop.resume import logged_run
from orchestrator_interactive.modules import context_stack
from orchestrator_interactive.modules.context_stack import StackContext, StackOptions
from orchestrator_interactive.transcript.rows import delivered_ids_in, is_of_hook

Row = dict[str, Any]


PROMPT = Injection("the task", id="prompt")
HARMLESS = "look"
HERE = {"conversation_id": "c", "agent_id": "a"}

Text = tuple[int, str]

# A call and its result, in a row of late results.
_LATE = re.compile(r"^- call (\S+), \w+: (.*)$", re.MULTILINE)


@dataclass
class SharedState:
    """The state outside of a process: the log, the messages, the effects of tools, and the shown texts."""

    store: MemoryStore = field(default_factory=MemoryStore)
    written: list[Injection] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    read: list[Text] = field(default_factory=list)
    is_stopped: bool = False

    async def rows(self) -> list[Row]:
        stack = InteractionStack(self.store, HERE["conversation_id"], HERE["agent_id"])
        return await StackContext(StackOptions(), HookRegistry().emit, stack).get_messages()


class SnapshotStore(MemoryStore):
    """Keeps, at each commit, the log as it was until then, with all that was done until now."""

    def __init__(self, world: SharedState) -> None:
        """A store for this world, with what its store has."""
        super().__init__()
        vars(self).update(_contents(world.store))
        self._world = world
        self.pictures: list[SharedState] = []
        self.on_commit: Callable[[], Awaitable[None]] | None = None

    async def commit(self, key: Key, change: Change) -> None:
        if self.on_commit:
            await self.on_commit()
        self.take()
        await super().commit(key, change)

    def take(self) -> None:
        store, world = MemoryStore(), self._world
        vars(store).update(_contents(self))
        copied = SharedState(store, list(world.written), list(world.done), list(world.read), world.is_stopped)
        self.pictures.append(copied)


def _contents(store: MemoryStore) -> dict[str, Any]:
    return {name: copy.deepcopy(value) for name, value in vars(store).items() if name in vars(MemoryStore())}


class Process:
    """A process that has the conversation's agent in it."""

    def __init__(self, world: SharedState, steps: Callable[[Process], Sequence[Step]], **loop_config: Any) -> None:
        self.world = world
        self._steps = list(steps(self))
        self._config = loop_config
        self.progress = Recorder()
        self.on_tick: Callable[[], Awaitable[None]] | None = None
        self.requests: list[ChatRequest] = []

    name = "continuing"

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name=self.name, capabilities=["tool_choice"])

    async def list_models(self) -> list[ModelInfo]:
        return []

    async def complete(self, request: ChatRequest, *, stream: ResponseStream | None = None, **_: Any) -> ChatResponse:
        """Continue the script after the responses so far, in every process."""
        check(request)
        self.requests.append(request)
        rows = await self.world.rows()
        said = sum(row["role"] == "assistant" and not is_of_hook(row) for row in rows)
        return await self._steps[said](request, stream or ResponseStream())

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []

    async def begin(self, *tools: ScriptedTool) -> None:
        plan = {
            "session": {
                "orchestrator": {"module": "loop-interactive", "config": self._config},
                "context": {"module": "context-stack", "config": HERE},
            }
        }
        shelf = StaticLoader(**{"context-stack": context_stack.mount})
        self.session = AmplifierSession(plan, loader=shelf)  # type: ignore[arg-type]
        self.session.coordinator.register_capability("interactions.store", self.world.store)
        await self.session.initialize()
        await self.session.coordinator.mount("providers", self)
        for tool in tools:
            await self.session.coordinator.mount("tools", tool)

    def tool(self, name: str, behave: Callable[[dict[str, Any]], Awaitable[Any]]) -> ScriptedTool:
        """A tool whose calls are noted, by the text that they are given; `look` is free of side effects."""

        async def noting(given: dict[str, Any]) -> Any:
            self.world.done.append(given["text"])
            return await behave(given)

        tool = ScriptedTool(name, noting)
        tool.side_effect_free = name == HARMLESS  # type: ignore[attr-defined]
        tool.label = lambda given: f"{name} {given['text']}"  # type: ignore[attr-defined]
        return tool

    def write(self, message: Injection) -> None:
        """Inject a message, unless it was injected before."""
        if all(each.id != message.id for each in self.world.written):
            self.world.written.append(message)
            self._hand_over(message)

    def _hand_over(self, message: Injection) -> None:
        try:
            self.session.coordinator.get_capability("orchestrator.inject_message")(message)
        except RunFinished:
            self.world.written.remove(message)  # it would begin a run of its own

    def waits(self, message_id: str) -> bool:
        """Whether a message waits to be read."""
        receipts = self.session.coordinator.get_capability("orchestrator.receipts")()
        return any(each.id == message_id and each.state == "waiting" for each in receipts)

    def stop(self, *, immediate: bool = False) -> None:
        self.world.is_stopped = True
        token = self.session.coordinator.cancellation
        token.request_immediate() if immediate else token.request_graceful()

    def suspend(self) -> bool:
        suspended: bool = self.session.coordinator.get_capability("orchestrator.suspend")()
        return suspended

    async def run(self) -> str:
        """Resume the run in the log, or start the prompt that never reached it."""
        delivered = {each for row in await self.world.rows() for each in delivered_ids_in(row)}
        if self.world.is_stopped:
            self.session.coordinator.cancellation.request_graceful()
        if PROMPT.id not in delivered:
            going = self.session.execute(PROMPT.text, message_id=PROMPT.id, on_progress=self._hear)
        else:
            going = self.session.resume(on_progress=self._hear)
        self._left = [each for each in self.world.written if each.id not in delivered]
        return await soon(going)

    async def _hear(self, event: str, data: dict[str, Any]) -> None:
        await self.progress(event, data)
        match event:
            case "executing":
                for message in self._left:
                    self._hand_over(message)
            case "text":
                self._show(data["part"], data["text"])
        if self.on_tick:
            await self.on_tick()

    def _show(self, part: int, text: str) -> None:
        if (part, text) not in self.world.read:
            self.world.read.append((part, text))

    @property
    def end(self) -> dict[str, Any]:
        [told] = self.progress.of("complete")
        return told

    def texts(self, answer: str) -> list[Text]:
        """Return the texts shown to users, the answer included."""
        told = [(data["part"], data["text"]) for data in self.progress.of("text")]
        return [*told, (self.end["part"], answer)] if answer.strip() else told


def texts_in(rows: Iterable[Row]) -> list[Text]:
    """Return the texts for users in the rows."""
    state = logged_run(list(rows))
    told, rest = state.texts, state.interim_texts.flush()
    return [(part.number, part.text) for part in (*told, *([rest] if rest else ()))]


def ends_in(rows: Iterable[Row]) -> dict[str, str]:
    """Return the outcome of each call as the model reads it."""
    ends: dict[str, str] = {}
    for row in rows:
        if row["role"] == "tool":
            ends[row["tool_call_id"]] = row["content"]
        elif "results" in row.get("metadata", {}):
            ends |= dict(_LATE.findall(row["content"]))
    return {call_id: said for call_id, said in ends.items() if said != tool_results.STILL_RUNNING}


def outcome_of(call_id: str, said: str, tools: Mapping[str, str]) -> str:
    """Return the outcome of a call that users see, from its result."""
    match said.removeprefix("failed: "):
        case "done" | tool_results.UNCHECKED:
            return "finished"
        case str(why) if "outcome is unknown" in why and (
            tools[call_id] != HARMLESS or why == tool_results.PROCESS_ENDED
        ):
            return "unknown"
    return "cancelled"


def tools_in(rows: Iterable[Row]) -> dict[str, str]:
    """The tool that each call in the rows is made to."""
    calls = (call for row in rows if row["role"] == "assistant" for call in row.get("tool_calls", ()))
    return {call["id"]: call["function"]["name"] for call in calls}


def all_is_told(rows: list[Row], process: Process) -> None:
    """Check that the end reports the outcome of each call; unknown ones are named when the run resumes."""
    tools, said = tools_in(rows), ends_in(rows)
    told = {each["id"]: each["outcome"] for each in process.end["tools"] if each["id"] in tools}
    assert told == {call_id: outcome_of(call_id, why, tools) for call_id, why in said.items()}
    lost = [call_id for call_id, why in said.items() if why.endswith(tool_results.PROCESS_ENDED)]
    for resumed in process.progress.of("resumed"):
        assert sorted(each["id"] for each in resumed["tools"]) == sorted(lost)
        assert resumed["unknown"] == [
            f"{tools[each['id']]} {tools[each['id']]} {each['id']}" for each in resumed["tools"]
        ]


def all_is_well(rows: list[Row], world: SharedState) -> None:
    """Check that the log is valid, each message is in it once and in order, and no side effect is repeated."""
    assert faults(rows) == []
    ids = [each for row in rows for each in delivered_ids_in(row) if each != PROMPT.id]
    assert ids == [each.id for each in world.written if each.id in ids]
    assert sum(PROMPT.id in delivered_ids_in(row) for row in rows) <= 1
    twice = [text for text, times in Counter(world.done).items() if times > 1 and not text.startswith(HARMLESS)]
    assert twice == []
