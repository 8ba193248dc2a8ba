"""Scripted parts for the run of an orchestrator: model, tools, context, hook."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.errors import ProviderUnavailableError
from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    ChatResponse,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from orchestrator_interactive.kernel.contracts.models import HookResult, ModelInfo, ProviderInfo, ToolResult
from orchestrator_interactive.kernel.interop import accepts_both, to_local
from orchestrator_interactive.testing import MockContextManager
from orchestrator_interactive.validation.orchestrator.scenarios import (
    PROVIDER_FAILURE,
    SIGNATURE,
    Ask,
    Fail,
    Hold,
    Say,
    Scenario,
    result_for,
)

if TYPE_CHECKING:
    from orchestrator_interactive.validation.orchestrator.scenarios import Answer, HookScript
    from orchestrator_interactive.validation.sandbox import RecordingHooks

VIEW = "This row is in the view of the context only."
# After this many model calls an orchestrator is considered endless.
MOST_CALLS = 300


@dataclass(frozen=True, slots=True)
class Request:
    """Messages of a model call, and the number of events emitted before it."""

    messages: list[dict[str, Any]]
    events_before: int


@dataclass(slots=True)
class ModelScript:
    """Progress of a scenario, and the recorded calls of its model and tools.

    `interrupted` is set when the run is to be cancelled: a call is held, or the run does not end.
    """

    scenario: Scenario
    hooks: RecordingHooks
    requests: list[Request] = field(default_factory=list)
    executions: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    invalid_requests: list[str] = field(default_factory=list)
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0
    _calls: int = 0

    def next_answer(self, request: ChatRequest) -> Answer:
        """Return the next answer of the script; a request without usable tools gets no calls."""
        self.asked += 1
        answers = self.scenario.answers
        number = min(self.asked, len(answers)) if self.scenario.endless else self.asked
        if self.asked >= MOST_CALLS:
            return Hold()
        answer = answers[number - 1] if number <= len(answers) else Say()
        return Say() if isinstance(answer, Ask) and not _may_call(request) else answer

    def note_request(self, request: ChatRequest) -> None:
        if self.scenario.endless and self.requests:
            return  # later requests repeat the first and grow
        messages = [message.model_dump() for message in request.messages]
        self.requests.append(Request(messages, len(self.hooks.emitted)))

    def next_call_id(self) -> str:
        self._calls += 1
        return f"call_{self._calls}"

    async def hold(self) -> None:
        self.interrupted.set()
        await asyncio.Event().wait()


def _may_call(request: ChatRequest) -> bool:
    return bool(request.tools) and request.tool_choice != "none"


class ScriptedModel:
    """A provider that returns the answers of the script. Providers of one scenario share the script."""

    def __init__(self, name: str, script: ModelScript) -> None:
        self.name = name
        self._script = script

    def get_info(self) -> ProviderInfo:
        defaults = {"model": "scripted-1", "context_window": 200_000, "max_output_tokens": 8_000}
        capabilities = ["streaming", "tools", "tool_choice"]
        return ProviderInfo(id=self.name, display_name="Scripted", capabilities=capabilities, defaults=defaults)

    async def list_models(self) -> list[ModelInfo]:
        return []

    @accepts_both
    async def complete(self, request: ChatRequest, **_: Any) -> ChatResponse:
        if not isinstance(request, ChatRequest):
            self._script.invalid_requests.append(type(request).__name__)
            raise TypeError(f"complete() takes a ChatRequest, not {type(request).__name__}.")
        answer = self._script.next_answer(request)
        self._script.note_request(request)
        # Yield as a real provider does: otherwise an endless run would block the event loop.
        await asyncio.sleep(0)
        match answer:
            case Say(text=text):
                return _response([TextBlock(text=text)])
            case Ask(calls=wanted):
                thinking = ThinkingBlock(thinking="I need tools.", signature=SIGNATURE)
                ids = [(self._script.next_call_id(), call) for call in wanted]
                calls = [ToolCallBlock(id=i, name=call.tool, input={"path": call.path}) for i, call in ids]
                return _response([thinking, TextBlock(text="Let me see."), *calls])
            case Fail():
                raise ProviderUnavailableError(PROVIDER_FAILURE, provider=self.name, status_code=503)
            case Hold():
                await self._script.hold()
        raise AssertionError(answer)

    def parse_tool_calls(self, response: Any) -> list[ToolCall]:
        return to_local(response).tool_calls or []


def _response(blocks: list[Any]) -> ChatResponse:
    calls = [ToolCall(id=b.id, name=b.name, arguments=b.input) for b in blocks if isinstance(b, ToolCallBlock)]
    return ChatResponse(
        content=blocks,
        tool_calls=calls or None,
        usage=Usage(input_tokens=10, output_tokens=5, total_tokens=15),
        finish_reason="tool_use" if calls else "end_turn",
    )


class ScriptedTool:
    """`echo` answers, `broken` raises, `held` waits until it is cancelled."""

    def __init__(self, name: str, script: ModelScript) -> None:
        self.name = name
        self.description = f"The tool {name} of the scenario."
        self.input_schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        self._script = script

    def get_schema(self) -> dict[str, Any]:
        return self.input_schema

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the name is the contract's
        self._script.executions.append((self.name, dict(input)))
        match self.name:
            case "broken":
                raise RuntimeError("The tool is broken.")
            case "held":
                await self._script.hold()
        return ToolResult(output=result_for(str(input.get("path"))))


TOOLS = ("echo", "broken", "held")


class WatchedContext(MockContextManager):
    """A context whose view has an additional first row, which distinguishes it from the history."""

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        return [{"role": "system", "content": VIEW}, *await super().get_messages_for_request(token_budget, provider)]


class ScriptedHook:
    """A hook that returns its result once. `data` is the data of that event; `events_before` the events before it."""

    def __init__(self, hook_script: HookScript, hooks: RecordingHooks) -> None:
        self.data: dict[str, Any] | None = None
        self.events_before = 0
        self._script = hook_script
        self._hooks = hooks

    async def __call__(self, event: str, data: dict[str, Any]) -> HookResult:  # noqa: ARG002 - registered for one event
        if self.data is not None:
            return HookResult()
        self.data, self.events_before = dict(data), len(self._hooks.emitted)
        if self._script.changes is None:
            return self._script.result
        return self._script.result.model_copy(update={"data": {**data, **self._script.changes}})
