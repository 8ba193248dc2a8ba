"""Orchestrators of other authors, as single files: with the exact signatures of the documents.

`EXACT` takes only the five arguments of the contract, `STEERED` has the capability `session.steer`, and `DOCUMENTED`
has the injection queue and the progress callback of the design document. Tools run one after another.
"""

from __future__ import annotations

_TURNS = '''
import asyncio

from orchestrator_interactive.kernel.contracts.messages import ChatRequest, Message, ToolSpec


async def turns(prompt, context, providers, tools, hooks, steps):
    """Call the first provider until it answers without tool calls; `steps` adds messages before each call."""
    name, provider = next(iter(providers.items()))
    specs = [ToolSpec(name=t.name, description=t.description, parameters=t.input_schema) for t in tools.values()]
    await context.add_message({"role": "user", "content": prompt})
    while True:
        await steps()
        await hooks.emit("provider:request", {"provider": name})
        rows = await context.get_messages_for_request()
        answer = await provider.complete(ChatRequest(messages=[Message(**row) for row in rows], tools=specs or None))
        calls = provider.parse_tool_calls(answer)
        blocks = [block.model_dump() for block in answer.content]
        await context.add_message({"role": "assistant", "content": blocks})
        if not calls:
            return "".join(block.get("text", "") for block in blocks)
        for call in calls:
            data = {"tool_name": call.name, "tool_input": call.arguments, "tool_call_id": call.id}
            denied = (await hooks.emit("tool:pre", data)).action == "deny"
            result = None if denied else await tools[call.name].execute(call.arguments)
            if result is not None:
                await hooks.emit("tool:post", {**data, "tool_result": result})
            content = "denied" if denied else str(result.output)
            await context.add_message({"role": "tool", "tool_call_id": call.id, "content": content})
'''

EXACT = (
    _TURNS
    + """

class Loop:
    async def execute(self, prompt, context, providers, tools, hooks):
        async def steps():
            pass

        return await turns(prompt, context, providers, tools, hooks, steps)


async def mount(coordinator, config):
    await coordinator.mount("orchestrator", Loop())
"""
)

STEERED = (
    _TURNS
    + """

class Loop:
    def __init__(self):
        self.queue = asyncio.Queue(2)

    def steer(self, message):
        try:
            self.queue.put_nowait(message)
        except asyncio.QueueFull as e:
            raise RuntimeError("the queue is full") from e

    async def execute(self, prompt, context, providers, tools, hooks, coordinator=None):
        async def steps():
            while not self.queue.empty():
                await context.add_message({"role": "user", "content": self.queue.get_nowait()})

        try:
            return await turns(prompt, context, providers, tools, hooks, steps)
        finally:
            while not self.queue.empty():
                self.queue.get_nowait()


async def mount(coordinator, config):
    loop = Loop()
    await coordinator.mount("orchestrator", loop)
    coordinator.register_capability("session.steer", loop.steer)
"""
)

DOCUMENTED = (
    _TURNS
    + """

class Loop:
    def __init__(self):
        self.queue = asyncio.Queue()

    def inject_message(self, content: str) -> None:
        self.queue.put_nowait(content)

    async def execute(self, prompt, context, providers, tools, hooks, coordinator=None, on_progress=None):
        async def steps():
            waiting = []
            while not self.queue.empty():
                waiting.append(self.queue.get_nowait())
            if waiting:
                content = "[The user sent additional messages:]\\n" + "\\n".join(f"- {each}" for each in waiting)
                await context.add_message({"role": "user", "content": content})
                await on_progress("injection:applied", {"messages": waiting, "count": len(waiting)})

        await on_progress("executing", {"prompt": prompt})
        answer = await turns(prompt, context, providers, tools, hooks, steps)
        await on_progress("complete", {"iterations": 1, "status": "success"})
        return answer


async def mount(coordinator, config):
    loop = Loop()
    await coordinator.mount("orchestrator", loop)
    coordinator.register_capability("orchestrator.inject_message", loop.inject_message)
"""
)
