from __future__ import annotations

from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.kernel.contracts.messages import ToolCallBlock
from orchestrator_interactive.testing import MockProvider


def test_every_row_is_complete(page):
    rows = page.table("section")
    assert [row for row in rows if len(row) != 4 or not all(row)] == []


async def test_the_example_adds_a_function_and_an_agent_to_a_session(examples, make_session):
    answers = [
        [ToolCallBlock(id="1", name="count_words", input={"text": "one two three"})],
        [ToolCallBlock(id="2", name="call_agent", input={"agent_id": "editor", "message": "Hello! What can you do?"})],
        "Done.",
    ]
    plan = {
        "session": {"orchestrator": "loop-interactive", "context": "context-stack"},
        "tools": [{"module": "tool-helpers", "source": str(examples / "tool_helpers.py")}],
    }
    session = make_session(plan, MockProvider(answers))
    session.coordinator.register_capability("interactions.store", MemoryStore())
    async with session:
        assert await session.execute("Count, and ask") == "Done."
        rows = await session.coordinator.get("context").get_messages()
    counted, answered = [row["content"] for row in rows if row["role"] == "tool"]
    assert counted == "3"
    assert "offline demo" in answered
