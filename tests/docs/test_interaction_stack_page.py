"""docs/interaction-stack.md: its example runs, and the tests in its table exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from documented_tests import TESTS, names_of_tests, there_are

from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts.messages import ToolCallBlock
from orchestrator_interactive.testing import MockProvider
from service.sessions.module_sources import LocalSources

PAGE = (TESTS.parent / "docs" / "interaction-stack.md").read_text(encoding="utf-8")
NAMED = names_of_tests(PAGE)


def test_every_test_that_the_table_names_exists() -> None:
    assert NAMED
    assert [f"{path}::{name}" for path, name in NAMED if name not in there_are(path)] == []


def test_every_row_is_complete() -> None:
    (table,) = re.findall(r"^\| section .*\n(?:^\|.*\n)+", PAGE, re.MULTILINE)
    rows = [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines()]
    assert all(len(row) == 4 or set(row[0]) <= {"-", "|"} for row in rows)
    assert all(cell for row in rows for cell in row)


BLOCKS = re.findall(r"```(?:python)?\n(.*?)```", PAGE, re.DOTALL)
EXAMPLES_OF_THE_PAGE = [(code, BLOCKS[place + 1]) for place, code in enumerate(BLOCKS) if "asyncio.run" in code]


@pytest.mark.parametrize(("example", "printed"), EXAMPLES_OF_THE_PAGE, ids=["stack", "agents"])
def test_an_example_prints_what_the_page_says(example: str, printed: str, tmp_path: Path) -> None:
    ran = subprocess.run(  # noqa: S603 - the example of the page
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=50
    )
    assert "".join(line for line in ran.stdout.splitlines(keepends=True) if "debug" not in line) == printed


async def test_the_example_brings_a_function_and_an_agent_into_a_session() -> None:
    asked = [
        [ToolCallBlock(id="1", name="count_words", input={"text": "one two three"})],
        [ToolCallBlock(id="2", name="call_agent", input={"agent_id": "editor", "message": "Hello! What can you do?"})],
        "Done.",
    ]
    source = str(TESTS.parent / "docs" / "examples" / "tool_helpers.py")
    session = AmplifierSession(
        {
            "session": {"orchestrator": "loop-interactive", "context": "context-stack"},
            "tools": [{"module": "tool-helpers", "source": source}],
        }
    )
    session.coordinator.register_capability("interactions.store", MemoryStore())
    session.coordinator.mount("module-source-resolver", LocalSources())
    async with session:
        await session.coordinator.mount("providers", MockProvider(asked), name="mock")
        assert await session.execute("Count, and ask") == "Done."
        rows = await session.coordinator.get("context").get_messages()
    counted, answered = [row["content"] for row in rows if row["role"] == "tool"]
    assert counted == "3"
    assert "offline demo" in answered
