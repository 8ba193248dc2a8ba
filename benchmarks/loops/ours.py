"""This project's loop: alone with a list of messages, in a session, and with listening hooks."""

from __future__ import annotations

import asyncio
from functools import cache
from itertools import count
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from benchmarks.loops import INPUT, LAST_WORD, PROMPT, PURPOSE, REMARK, RESULT, TOOL
from benchmarks.loops.bare import rows_before
from orchestrator_interactive import InteractiveOrchestrator
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.kernel import AmplifierSession, HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    ChatResponse,
    TextBlock,
    ToolCall,
    ToolCallBlock,
)
from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo
from orchestrator_interactive.kernel.hooks import HookRegistry

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.stores.base import LogStore

Row = dict[str, Any]

LOOP = {"max_iterations": 1000}
WINDOW = {"context_window": 10_000_000, "max_output_tokens": 1000}
HEARD = ("prompt:submit", "provider:request", "provider:response", "tool:pre", "tool:post")


class Model:
    name = "model"
    info = ProviderInfo(id="model", display_name="Model", capabilities=["tool_choice"], defaults=WINDOW)

    def __init__(self) -> None:
        self.turns_left = 0
        self._calls = 0

    def get_info(self) -> ProviderInfo:
        return self.info

    async def list_models(self) -> list[ModelInfo]:
        return []

    async def complete(self, request: ChatRequest, **_: Any) -> ChatResponse:
        del request
        if not self.turns_left:
            return ChatResponse(content=[TextBlock(text=LAST_WORD)], finish_reason="end_turn")
        self.turns_left -= 1
        self._calls += 1
        call = ToolCall(id=f"call_{self._calls}", name=TOOL, arguments=INPUT)
        blocks = [TextBlock(text=REMARK), ToolCallBlock(id=call.id, name=TOOL, input=INPUT)]
        return ChatResponse(content=blocks, tool_calls=[call], finish_reason="tool_use")

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []


class Look:
    name = TOOL
    description = PURPOSE
    input_schema: ClassVar[Row] = {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
    }

    async def execute(self, input: Row) -> ToolResult:  # noqa: A002 - the name is the contract's
        del input
        return ToolResult(output=RESULT)


class ListContext:
    """A minimal context."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = rows

    async def add_message(self, message: Row) -> None:
        self._rows.append(message)

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any = None) -> list[Row]:
        del token_budget, provider
        return list(self._rows)

    async def get_messages(self) -> list[Row]:
        return list(self._rows)

    async def set_messages(self, messages: list[Row]) -> None:
        self._rows = messages

    async def clear(self) -> None:
        self._rows = []


class ListConversation:
    def __init__(self, messages: int) -> None:
        self._loop = InteractiveOrchestrator(LOOP)
        self._context = ListContext(rows_before(messages))
        self._hooks = HookRegistry()
        self._model = Model()

    async def run(self, turns: int) -> None:
        self._model.turns_left = turns
        await self._loop.execute(PROMPT, self._context, {"model": self._model}, {TOOL: Look()}, self._hooks)

    @property
    def remains(self) -> object:
        return self._context


class SessionConversation:
    def __init__(self, session: AmplifierSession, model: Model) -> None:
        self.session = session
        self._model = model

    async def run(self, turns: int) -> None:
        self._model.turns_left = turns
        await self.session.execute(PROMPT)

    @property
    def remains(self) -> object:
        return self.session


async def with_list(messages: int) -> ListConversation:
    return ListConversation(messages)


async def in_session(messages: int) -> SessionConversation:
    """Make a session with context-simple, mounted from a plan."""
    return await _session(messages, {"module": "context-simple"}, None)


async def logged(store: LogStore, name: str, messages: int) -> SessionConversation:
    """Make a session with context-stack over this store."""
    return await _session(messages, {"module": "context-stack", "config": {"conversation_id": name}}, store)


@cache
def _folder() -> TemporaryDirectory[str]:
    """Return the folder of this process; it is removed at exit."""
    return TemporaryDirectory(prefix="benchmark-")


_stores: dict[asyncio.AbstractEventLoop, LogStore] = {}
_names = count()


async def durable(messages: int) -> SessionConversation:
    """Make a session with context-stack over SQLite, as in the service."""
    loop = asyncio.get_running_loop()
    if loop not in _stores:
        _stores[loop] = await open_store(f"sqlite:{_folder().name}/log-{len(_stores)}.db")
    return await logged(_stores[loop], f"conversation {next(_names)}", messages)


async def _session(messages: int, context: Row, store: LogStore | None) -> SessionConversation:
    plan = {"session": {"orchestrator": {"module": "loop-interactive", "config": LOOP}, "context": context}}
    model = Model()
    session = AmplifierSession(plan)
    if store is not None:
        session.coordinator.register_capability("interactions.store", store)
    await session.initialize()
    await session.coordinator.mount("providers", model, name="model")
    await session.coordinator.mount("tools", Look(), name=TOOL)
    await session.coordinator.get("context").set_messages(rows_before(messages))
    return SessionConversation(session, model)


async def listened_to(messages: int) -> SessionConversation:
    """Make a session with two hooks for each of five events."""

    async def hears(_event: str, _data: Row) -> HookResult:
        return HookResult(action="continue")

    conversation = await in_session(messages)
    for event in HEARD:
        for number in range(2):
            conversation.session.coordinator.hooks.register(event, hears, name=f"{event}-{number}")
    return conversation
