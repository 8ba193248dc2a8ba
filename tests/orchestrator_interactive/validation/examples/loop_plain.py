"""An orchestrator that keeps to the contract, one tool after the other."""

import asyncio

from orchestrator_interactive.kernel.contracts.messages import ChatRequest, Message, ToolSpec
from orchestrator_interactive.kernel.contracts.models import ToolResult

MOST_TURNS = 25


class DeniedError(Exception):
    pass


class PlainLoop:
    async def execute(self, prompt, context, providers, tools, hooks, *, coordinator=None, **kwargs):
        run = Run(context, providers, tools, (hooks, coordinator))
        ended, status, text = "error", "incomplete", ""
        try:
            await hooks.emit("execution:start", {"prompt": prompt})
            text = await run.go(prompt)
            ended, status = "completed", "success"
        except asyncio.CancelledError:
            ended, status = "cancelled", "cancelled"
            raise
        finally:
            await hooks.emit("execution:end", {"response": text, "status": ended})
            complete = {"orchestrator": "loop-plain", "turn_count": run.turns, "status": status}
            await hooks.emit("orchestrator:complete", complete)
        return text


class Run:
    def __init__(self, context, providers, tools, session):
        self.context = context
        self.provider_name, self.provider = next(iter(providers.items()))
        self.tools = tools
        self.hooks, self.coordinator = session
        self.turns = 0
        self.later = []
        self.remarks = []

    async def go(self, prompt):
        try:
            await self.consult("prompt:submit", {"prompt": prompt})
            await self.context.add_message({"role": "user", "content": prompt})
            while self.turns < MOST_TURNS:
                answer = await self.ask()
                calls = self.provider.parse_tool_calls(answer)
                await self.keep(answer, calls)
                if not calls:
                    return answer.text
                await self.use_all(calls)
                await self.hooks.emit("loop-plain:turn", {"turn": self.turns})
        except DeniedError as e:
            return f"Denied: {e}"
        return "That took too many turns."

    async def consult(self, event, data):
        result = await self.hooks.emit(event, data)
        if result.action == "inject_context":
            self.later.append((result, event))
            if event not in ("tool:pre", "tool:post"):
                await self.inject()
            return data
        result = await self.coordinator.process_hook_result(result, event, result.hook_name)
        if result.action == "deny":
            raise DeniedError(result.reason)
        return result.data if result.action == "modify" else data

    async def inject(self):
        for result, event in self.later:
            await self.coordinator.process_hook_result(result, event, result.hook_name)
            self.remarks += [each.content for each in result.injections() if each.ephemeral]
        self.later.clear()

    async def ask(self):
        rows = await self.context.get_messages_for_request(provider=self.provider)
        about = {"provider": self.provider_name, "messages": rows, "model": None}
        await self.consult("provider:request", about)
        rows = await self.context.get_messages_for_request(provider=self.provider)
        rows += [{"role": "user", "content": remark} for remark in self.remarks]
        self.remarks.clear()
        self.turns += 1
        answer = await self.provider.complete(self.request(rows))
        told = {"provider": self.provider_name, "response": answer, "usage": answer.usage}
        await self.consult("provider:response", told)
        return answer

    def request(self, rows):
        messages = [Message.model_validate({**row, "content": row["content"] or ""}) for row in rows]
        specs = [
            ToolSpec(name=name, description=tool.description, parameters=tool.input_schema)
            for name, tool in self.tools.items()
        ]
        return ChatRequest(messages=messages, tools=specs)

    async def keep(self, answer, calls):
        row = {"role": "assistant", "content": [block.model_dump() for block in answer.content]}
        if calls:
            row["tool_calls"] = [call.model_dump() for call in calls]
        await self.context.add_message(row)

    async def use_all(self, calls):
        results = {call.id: "Cancelled: the outcome is unknown." for call in calls}
        try:
            for call in calls:
                results[call.id] = await self.use(call)
        finally:
            for call in calls:
                row = {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": results[call.id]}
                await self.context.add_message(row)
        await self.inject()

    async def use(self, call):
        if call.name not in self.tools:
            return f"There is no tool '{call.name}'."
        about = {"tool_name": call.name, "tool_input": call.arguments, "tool_call_id": call.id}
        try:
            about = await self.consult("tool:pre", about)
        except DeniedError as e:
            return f"Denied: {e}"
        return await self.run_tool(self.tools[call.name], about)

    async def run_tool(self, tool, about):
        try:
            result = await tool.execute(about["tool_input"])
        except asyncio.CancelledError:
            await self.hooks.emit("tool:error", {**about, "error": {"message": "cancelled"}})
            raise
        except Exception as e:  # noqa: BLE001 - a tool may not take the run down
            result = ToolResult(success=False, error={"message": str(e)})
            await self.consult("tool:error", {**about, "tool_result": result, "error": result.error})
            return result.get_serialized_output()
        try:
            about = await self.consult("tool:post", {**about, "tool_result": result})
        except DeniedError as e:
            return f"Withheld: {e}"
        return about["tool_result"].get_serialized_output()


async def mount(coordinator, config):
    coordinator.register_contributor("observability.events", "loop-plain", lambda: ["loop-plain:turn"])
    orchestrator = PlainLoop()
    await coordinator.mount("orchestrator", orchestrator)
    return orchestrator
