"""A minimal loop on amplifier-core: its session, its hooks, its message models."""

from __future__ import annotations

from typing import Any

import amplifier_core
from amplifier_core import ChatRequest, ChatResponse, ToolResult
from amplifier_core.message_models import Message, TextBlock, ToolCall, ToolCallBlock

from benchmarks.loops import INPUT, LAST_WORD, PROMPT, PURPOSE, REMARK, RESULT, TOOL
from benchmarks.loops.bare import rows_before

Row = dict[str, Any]


class Model:
    name = "model"

    def __init__(self) -> None:
        self.turns_left = 0
        self._calls = 0

    async def complete(self, _request: Any, **_: Any) -> ChatResponse:
        if not self.turns_left:
            return ChatResponse(content=[TextBlock(text=LAST_WORD)], finish_reason="end_turn")
        self.turns_left -= 1
        self._calls += 1
        call = ToolCall(id=f"call_{self._calls}", name=TOOL, arguments=INPUT)
        blocks = [TextBlock(text=REMARK), ToolCallBlock(id=call.id, name=TOOL, input=INPUT)]
        return ChatResponse(content=blocks, tool_calls=[call], finish_reason="tool_use")

    async def close(self) -> None:
        pass

    get_info = list_models = parse_tool_calls = close


class Look:
    name = TOOL
    description = PURPOSE

    async def execute(self, _input: Row) -> ToolResult:
        return ToolResult(success=True, output=RESULT)


class ListContext:
    """Stores messages in request form, so that none is validated twice."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages

    async def add_message(self, message: Message) -> None:
        self.messages.append(message)

    async def get_messages_for_request(self, *_: Any, **__: Any) -> list[Message]:
        return list(self.messages)

    get_messages = set_messages = clear = get_messages_for_request


class SmallestLoop:
    """Calls the model, emits the four events of the contract, runs the tools, appends."""

    async def execute(self, prompt: str, context: Any, providers: Any, tools: Any, hooks: Any, **_: Any) -> str:
        (model,) = providers.values()
        await context.add_message(Message(role="user", content=prompt))
        while True:
            request = ChatRequest.model_construct(messages=await context.get_messages_for_request())
            await hooks.emit("provider:request", {"provider": model.name})
            answer: ChatResponse = await model.complete(request)
            await hooks.emit("provider:response", {"provider": model.name})
            await context.add_message(Message(role="assistant", content=answer.content))
            if not answer.tool_calls:
                return LAST_WORD
            for call in answer.tool_calls:
                data = {"tool_name": call.name, "tool_call_id": call.id, "tool_input": call.arguments}
                await hooks.emit("tool:pre", data)
                result = await tools[call.name].execute(call.arguments)
                await hooks.emit("tool:post", data)
                row = Message(role="tool", tool_call_id=call.id, content=str(result.output))
                await context.add_message(row)


class Conversation:
    def __init__(self, session: Any, model: Model) -> None:
        self._session = session
        self._model = model

    async def run(self, turns: int) -> None:
        self._model.turns_left = turns
        await self._session.execute(PROMPT)

    @property
    def remains(self) -> object:
        return self._session


async def conversation(messages: int) -> Conversation:
    context = ListContext([Message.model_validate(row) for row in rows_before(messages)])
    model = Model()
    modules = {"loop": ("orchestrator", SmallestLoop()), "context": ("context", context), "model": ("providers", model)}

    async def load(module_id: str, *_: Any, **__: Any) -> Any:
        async def mount(coordinator: Any) -> None:
            point, module = modules[module_id]
            await coordinator.mount(point, module, name=module_id)

        return mount

    plan = {"session": {"orchestrator": "loop", "context": "context"}, "providers": [{"module": "model"}], "tools": []}
    session: Any = amplifier_core.AmplifierSession(plan)
    session.coordinator.loader = amplifier_core.ModuleLoader()
    session.coordinator.loader.load = load
    await session.initialize()
    await session.coordinator.mount("tools", Look(), name=TOOL)
    return Conversation(session, model)
