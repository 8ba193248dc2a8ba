"""An orchestrator for amplifier_core: hooks through the coordinator, concurrent tools."""

import asyncio
from dataclasses import dataclass
from typing import Any

from amplifier_core import (
    ChatRequest,
    ChatResponse,
    HookRegistry,
    HookResult,
    Message,
    ModuleCoordinator,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    ToolSpec,
)
from amplifier_core.events import (
    EXECUTION_END,
    EXECUTION_START,
    ORCHESTRATOR_COMPLETE,
    PROMPT_SUBMIT,
    PROVIDER_ERROR,
    PROVIDER_REQUEST,
    PROVIDER_RESPONSE,
    TOOL_POST,
    TOOL_PRE,
)

__amplifier_module_type__ = "orchestrator"


class DeniedError(Exception):
    """A hook denied the step."""


class PlainLoop:
    """Call the first provider until it answers without tool calls."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.max_iterations = int(config.get("max_iterations", 10))

    async def execute(  # noqa: PLR0917 - the signature is the contract's
        self,
        prompt: str,
        context: Any,
        providers: dict[str, Any],
        tools: dict[str, Any],
        hooks: HookRegistry,
        coordinator: ModuleCoordinator,
    ) -> str:
        turn = Turn(context, *next(iter(providers.items())), tools, hooks, coordinator)
        await hooks.emit(EXECUTION_START, {"prompt": prompt})
        try:
            await turn.apply_hooks(PROMPT_SUBMIT, {"prompt": prompt})
            await context.add_message({"role": "user", "content": prompt})
            text, status = await self.loop(turn)
        except DeniedError as e:
            text, status = f"Operation denied: {e}", "incomplete"
        await hooks.emit(EXECUTION_END, {"response": text, "status": "completed"})
        complete = {"orchestrator": "loop-plain", "turn_count": turn.count, "status": status}
        await hooks.emit(ORCHESTRATOR_COMPLETE, complete)
        return text

    async def loop(self, turn: "Turn") -> tuple[str, str]:
        while turn.count < self.max_iterations:
            if turn.coordinator.cancellation.is_cancelled:
                return "", "cancelled"
            turn.count += 1
            answer = await turn.ask()
            calls = turn.provider.parse_tool_calls(answer)
            await turn.remember(answer, calls)
            if not calls:
                return "\n\n".join(block.text for block in answer.content if isinstance(block, TextBlock)), "success"
            results = await asyncio.gather(*(turn.use(call) for call in calls))
            for call, result in zip(calls, results, strict=True):
                await turn.context.add_message({"role": "tool", "tool_call_id": call.id, "content": result})
        return "", "incomplete"


@dataclass
class Turn:
    context: Any
    provider_name: str
    provider: Any
    tools: dict[str, Any]
    hooks: HookRegistry
    coordinator: ModuleCoordinator
    count: int = 0

    async def apply_hooks(self, event: str, data: dict[str, Any]) -> HookResult:
        result = await self.coordinator.process_hook_result(await self.hooks.emit(event, data), event, "loop-plain")
        if result.action == "deny":
            raise DeniedError(result.reason)
        return result

    async def ask(self) -> ChatResponse:
        result = await self.apply_hooks(PROVIDER_REQUEST, {"provider": self.provider_name})
        rows = await self.context.get_messages_for_request(provider=self.provider)
        if result.action == "inject_context" and result.ephemeral:
            rows = [*rows, {"role": result.context_injection_role, "content": result.context_injection}]
        specs = [
            ToolSpec(name=t.name, description=t.description, parameters=t.input_schema) for t in self.tools.values()
        ]
        try:
            answer = await self.provider.complete(ChatRequest(messages=[Message(**row) for row in rows], tools=specs))
        except Exception as e:
            error = {"type": type(e).__name__, "msg": str(e)}
            await self.hooks.emit(PROVIDER_ERROR, {"provider": self.provider_name, "error": error})
            raise
        for block in answer.content:
            if not isinstance(block, TextBlock | ThinkingBlock | ToolCallBlock):
                raise TypeError(f"Another type: {type(block).__module__}.{type(block).__qualname__}")
        await self.hooks.emit(PROVIDER_RESPONSE, {"provider": self.provider_name, "usage": answer.usage})
        return answer

    async def remember(self, answer: ChatResponse, calls: list[ToolCall]) -> None:
        row: dict[str, Any] = {"role": "assistant", "content": [block.model_dump() for block in answer.content]}
        if calls:
            row["tool_calls"] = [{"id": call.id, "tool": call.name, "arguments": call.arguments} for call in calls]
        await self.context.add_message(row)

    async def use(self, call: ToolCall) -> str:
        self.coordinator.cancellation.register_tool_start(call.id, call.name)
        data = {"tool_name": call.name, "tool_input": call.arguments}
        try:
            result = await self.apply_hooks(TOOL_PRE, data)
            given = result.data["tool_input"] if result.action == "modify" and result.data else call.arguments
            result = await self.tools[call.name].execute(given)
            await self.apply_hooks(TOOL_POST, {**data, "tool_result": result.model_dump()})
        except DeniedError as e:
            return f"Denied by hook: {e}"
        else:
            return result.get_serialized_output()
        finally:
            self.coordinator.cancellation.register_tool_complete(call.id)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    await coordinator.mount("orchestrator", PlainLoop(config or {}))
