from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator_interactive.kernel import AmplifierSession, ResponseStream
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, Message
from orchestrator_interactive.testing import TestCoordinator

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

# In a process of its own, which does not wait for amplifier-core's threads at its end.
IN_AMPLIFIER_CORE = """
import asyncio, os, sys
import amplifier_core
import amplifier_module_tool_workdays, hooks_office, provider_parrot

async def main():
    plan = {"session": {"orchestrator": "loop-interactive", "context": "context-simple"}}
    session = amplifier_core.AmplifierSession(plan)
    for module in (provider_parrot, amplifier_module_tool_workdays, hooks_office):
        await module.mount(session.coordinator, {})
    await session.initialize()
    print(await session.execute("Hello!"))
    request = amplifier_core.ChatRequest(messages=[amplifier_core.Message(role="user", content="Who's a pretty boy?")])
    answer = await session.coordinator.get("providers")["parrot"].complete(request)
    print(isinstance(answer, amplifier_core.ChatResponse), answer.content[0].text)
    tool = session.coordinator.get("tools")["working_days"]
    result = await tool.execute({"start": "2026-12-24", "days": 2})
    print(isinstance(result, amplifier_core.ToolResult), result.output)
    denied = await session.coordinator.hooks.emit("tool:pre", {"tool_input": {"path": "x/.env"}})
    print(denied.action, denied.reason)

try:
    asyncio.run(main())
finally:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
"""


@pytest.fixture
def parrot_plan() -> dict[str, Any]:
    return {
        "session": {"orchestrator": "loop-interactive", "context": "context-simple"},
        "providers": [{"module": "provider-parrot", "source": str(EXAMPLES / "provider_parrot.py")}],
    }


async def test_the_provider_answers_in_a_session(parrot_plan: dict[str, Any], make_session) -> None:
    session: AmplifierSession
    async with make_session(parrot_plan) as session:
        assert await session.execute("Polly wants a cracker.\nNow.") == "Polly wants a cracker.\nNow."


async def test_the_provider_says_what_it_has_while_it_is_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import provider_parrot  # noqa: PLC0415 - it is importable only now

    provider = await provider_parrot.mount(TestCoordinator(), {})
    stream = ResponseStream()
    request = ChatRequest(messages=[Message(role="user", content="Polly wants\na cracker.")])
    answer = await provider.complete(request, stream=stream)
    assert stream.pieces == 3
    assert stream.valid_blocks() == answer.content
    assert provider.parse_tool_calls(answer) == []


async def test_the_examples_work_in_a_session_of_amplifier_core() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-Bc",
        IN_AMPLIFIER_CORE,
        env={"PYTHONPATH": f"{EXAMPLES}:{EXAMPLES / 'tool_workdays'}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    told = [
        "Hello!",
        "True Who's a pretty boy?",
        "True Monday, 2026-12-28",
        "deny Access to .env is not allowed.",
    ]
    assert output.decode().splitlines() == told, errors.decode()
