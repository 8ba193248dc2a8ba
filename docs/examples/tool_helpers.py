"""`tool-helpers`: registers a function as a tool, and an agent that `call_agent` can call."""

from typing import Any

from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.kernel import ModuleCoordinator
from orchestrator_interactive.registries import (
    AgentRegistry,
    AgentRepository,
    LLMAgents,
    ToolRegistry,
    call_agent,
    mount_tools,
    tool,
)
from orchestrator_interactive.registries.schemas import LLMAgentConfig, ToolConfig


@tool(ToolConfig(name="count_words", description="Count the words of a text.", side_effect_free=True))
def count_words(text: str) -> int:
    return len(text.split())


EDITOR = LLMAgentConfig(
    type="llm",
    id="editor",
    llm_model="demo/words",  # or anthropic/claude-…
    behavior_template="You are {{ agent_id }}, and shorten texts. Today is {{ today }}.",
)

TOOLS = ToolRegistry()
TOOLS.register(count_words)
TOOLS.register(call_agent)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    store = coordinator.get_capability("interactions.store") or await open_store("memory:")
    agents = AgentRepository(store)
    await agents.save(EDITOR)
    coordinator.register_capability("agents.registry", AgentRegistry(agents, LLMAgents(store, tools=TOOLS)))
    await mount_tools(coordinator, TOOLS.list_tools(), TOOLS)
