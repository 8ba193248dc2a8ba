"""Sessions that run a recipe, with agents that answer by rule, and people who decide."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import yaml
from agents import Recorder, ScriptedTool, StaticLoader, soon
from killed_runs import SharedState

from orchestrator_interactive.interactions.stores.base import LogStore
from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts.models import ToolResult
from orchestrator_interactive.kernel.tool_support import current_call
from orchestrator_interactive.modules import tool_ask_user, tool_todo
from orchestrator_interactive.recipes import provider

Row = dict[str, Any]
HERE = {"conversation_id": "c", "agent_id": "a"}


def recipe(*steps: str | Row, inputs: Row | None = None, report: str | None = None) -> Row:
    """Return a recipe; each step is a mapping or its YAML."""
    read = [yaml.safe_load(each) if isinstance(each, str) else each for each in steps]
    made: Row = {"name": "trial", "inputs": inputs or {}, "steps": read}
    return made if report is None else {**made, "report": report}


@dataclass
class Rules:
    """How the tools answer: `agent` gives the answer to an instruction, or fails by an exception.

    `repeatable`: whether the tools continue calls of a process that died, as `delegate` does.
    """

    agent: Callable[[str], str] = "done: {}".format
    decision: int = 0
    repeatable: bool = True


@dataclass
class RecipeSession:
    """A process that runs a recipe; `world` is what outlives it: its `done` lists the calls that a tool carried out."""

    recipe: Row
    world: SharedState = field(default_factory=SharedState)
    rules: Rules = field(default_factory=Rules)
    inputs: Row = field(default_factory=dict)
    loop: Row = field(default_factory=dict)
    tools: tuple[str, ...] = ("delegate", "ask_user", "todo", "dispatch_worker", "look")
    progress: Any = field(default_factory=Recorder)
    on_call: Callable[[str], None] = lambda _: None
    hold: dict[str, asyncio.Event] = field(default_factory=dict)  # calls that wait, by id

    async def begin(self, store: LogStore | None = None) -> None:
        plan = {
            "session": {
                "orchestrator": {"module": "loop-interactive", "config": self.loop},
                "context": {"module": "context-stack", "config": HERE},
            }
        }
        self.session = AmplifierSession(plan, loader=StaticLoader())  # type: ignore[arg-type]
        coordinator = self.session.coordinator
        coordinator.register_capability("interactions.store", store or self.world.store)
        coordinator.register_capability("people.ask", self._ask)
        await self.session.initialize()
        await provider.mount(coordinator, {"recipe": self.recipe, "inputs": self.inputs})
        for name in self.tools:
            if name == "todo":
                await tool_todo.mount(coordinator, {})
            elif name == "ask_user":
                await tool_ask_user.mount(coordinator, {})
            else:
                tool = ScriptedTool(name, self._tool(name))
                tool.repeatable = self.rules.repeatable  # type: ignore[attr-defined]
                await coordinator.mount("tools", tool)

    def _tool(self, name: str) -> Callable[[Row], Any]:
        async def behave(given: Row) -> Any:
            call = current_call.get()
            assert call is not None
            self.on_call(call.id)
            if call.id in self.hold:
                await self.hold[call.id].wait()
            self.world.done.append(call.id)
            try:
                return self.rules.agent(str(given.get("instruction") or given.get("text", given)))
            except ValueError as e:
                return ToolResult(success=False, error={"message": str(e)})

        return behave

    async def _ask(self, question: str, options: tuple[str, ...], **_: Any) -> str:
        call = current_call.get()
        assert call is not None
        self.world.done.append(call.id)
        call.decision = {"answer": "click", "chosen": [self.rules.decision]}
        return f"Ana answered: {options[self.rules.decision]}"

    async def run(self, prompt: str = "Run the recipe.", message_id: str = "order") -> str:
        return await soon(self.session.execute(prompt, message_id=message_id, on_progress=self.progress))

    async def resume(self) -> str:
        return await soon(self.session.resume(on_progress=self.progress))

    def arguments(self, rows: Iterable[Row]) -> dict[str, Row]:
        """The arguments of the calls in some rows, by id, except for `todo`."""
        blocks = [block for row in rows if row["role"] == "assistant" for block in row["content"]]
        return {each["id"]: each["input"] for each in blocks if each["type"] == "tool_call" and each["name"] != "todo"}


async def ran(made: Row, **facts: Any) -> tuple[RecipeSession, str]:
    """Run a recipe to its end; return its session and the report."""
    session = RecipeSession(made, **facts)
    await session.begin()
    return session, await session.run()
