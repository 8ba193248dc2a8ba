"""An orchestrator written against amplifier_core: it builds requests of its types, and reads results of its types."""

import asyncio

from amplifier_core import ChatRequest, Message, ToolCallBlock, ToolResult, ToolSpec
from amplifier_core.events import (
    EXECUTION_END,
    EXECUTION_START,
    ORCHESTRATOR_COMPLETE,
    PROVIDER_REQUEST,
    PROVIDER_RESPONSE,
    TOOL_ERROR,
    TOOL_POST,
    TOOL_PRE,
)


class ForeignLoop:
    def __init__(self, config):
        self.most = config.get("max_iterations", 20)

    async def execute(self, prompt, context, providers, tools, hooks, **kwargs):
        coordinator = kwargs["coordinator"]
        ended, text, turns = "error", "", 0
        try:
            await hooks.emit(EXECUTION_START, {"prompt": prompt})
            await context.add_message({"role": "user", "content": prompt})
            name, provider = next(iter(providers.items()))
            while turns < self.most:
                if not await self.request(context, hooks, coordinator, name):
                    text = "Denied."
                    break
                rows = await context.get_messages_for_request(provider=provider)
                turns += 1
                answer = await provider.complete(self.chat_request(rows, tools))
                told = {"provider": name, "response": answer, "usage": answer.usage}
                await hooks.emit(PROVIDER_RESPONSE, told)
                calls = provider.parse_tool_calls(answer)
                row = {"role": "assistant", "content": [block.model_dump() for block in answer.content]}
                await context.add_message(row)
                text = "".join(block.text for block in answer.content if block.type == "text")
                assert all(isinstance(b, ToolCallBlock) for b in answer.content if b.type == "tool_call")
                if not calls:
                    break
                await self.use(calls, tools, context, hooks, coordinator)
            ended = "completed"
        except asyncio.CancelledError:
            ended, text = "cancelled", ""
            raise
        except Exception:
            text = ""
            raise
        finally:
            await hooks.emit(EXECUTION_END, {"response": text, "status": ended})
            status = {"completed": "success", "cancelled": "cancelled"}.get(ended, "incomplete")
            complete = {"orchestrator": "loop-foreign", "turn_count": turns, "status": status}
            await hooks.emit(ORCHESTRATOR_COMPLETE, complete)
        return text

    async def request(self, context, hooks, coordinator, name):
        rows = await context.get_messages_for_request()
        result = await hooks.emit(PROVIDER_REQUEST, {"provider": name, "messages": rows, "model": None})
        result = await coordinator.process_hook_result(result, PROVIDER_REQUEST, "orchestrator")
        return result.action != "deny"

    def chat_request(self, rows, tools):
        specs = [ToolSpec(name=n, description=t.description, parameters=t.input_schema) for n, t in tools.items()]
        return ChatRequest(messages=[Message(**row) for row in rows], tools=specs)

    async def use(self, calls, tools, context, hooks, coordinator):
        results, injections = {}, []
        try:
            for call in calls:
                results[call.id] = await self.use_one(call, tools, hooks, coordinator, injections)
        finally:
            for call in calls:
                said = results.get(call.id, "Cancelled.")
                await context.add_message({"role": "tool", "tool_call_id": call.id, "content": said})
        for result, event in injections:
            await coordinator.process_hook_result(result, event, "orchestrator")

    async def use_one(self, call, tools, hooks, coordinator, injections):
        about = {"tool_name": call.name, "tool_input": call.arguments, "tool_call_id": call.id}
        if call.name not in tools:
            return f"No tool {call.name}."
        about, denied = await self.consult(TOOL_PRE, about, hooks, coordinator, injections)
        if denied:
            return denied
        try:
            result = await tools[call.name].execute(about["tool_input"])
        except asyncio.CancelledError:
            await hooks.emit(TOOL_ERROR, {**about, "error": {"message": "cancelled"}})
            raise
        except Exception as e:  # noqa: BLE001 - a tool may not take the run down
            result = ToolResult(success=False, error={"message": str(e)})
            await hooks.emit(TOOL_ERROR, {**about, "error": result.error})
            return result.get_serialized_output()
        about, denied = await self.consult(TOOL_POST, {**about, "tool_result": result}, hooks, coordinator, injections)
        return denied or about["tool_result"].get_serialized_output()

    async def consult(self, event, about, hooks, coordinator, injections):
        result = await hooks.emit(event, about)
        if result.action == "inject_context":
            injections.append((result, event))
            return about, None
        result = await coordinator.process_hook_result(result, event, "orchestrator")
        if result.action == "deny":
            return about, f"Denied: {result.reason}"
        return (result.data if result.action == "modify" else about), None


async def mount(coordinator, config=None):
    loop = ForeignLoop(config or {})
    await coordinator.mount("orchestrator", loop)
