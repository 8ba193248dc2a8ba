"""A call with unusable arguments has a result that says why, and its conversation continues in every store."""

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from agents import Recorder, ScriptedTool, echo, faults, soon, text_of
from anthropic_server import AnthropicServer, Gate, message, text, tool_call
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts.messages import ToolCall
from orchestrator_interactive.transcript.rows import assistant_row, tool_row, user_row

ODD_NUMBERS = st.floats() | st.integers() | st.sampled_from([10**4299, -(2**64)])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | ODD_NUMBERS | st.text(st.characters(exclude_categories=()), max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)
NAMES = count()
LEVELS = st.sampled_from([0, 0, 0, 1, 95, 99, 100, 250, 500, 700, 990, 3000])


def deep(levels: int) -> str:
    """JSON of so many levels, with more brackets inside its strings."""
    return '{"a]}": ' * levels + r'"[{\""' + "}" * levels


@dataclass
class Talk:
    """One session of a conversation, with a local Messages API server."""

    session: AmplifierSession
    server: AnthropicServer
    tool: ScriptedTool
    progress: Recorder

    async def run(self, prompt: str = "go") -> str:
        return await soon(self.session.execute(prompt, on_progress=self.progress))

    async def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = await self.session.coordinator.get("context").get_messages()
        return rows

    def result(self) -> dict[str, Any]:
        """Return the last result in the last request."""
        block: dict[str, Any] = self.server.bodies[-1]["messages"][-1]["content"][-1]
        assert block["type"] == "tool_result"
        return block

    def replayed(self) -> Any:
        """Return the input of the last call in the last request."""
        blocks = [b for m in self.server.bodies[-1]["messages"] if m["role"] == "assistant" for b in m["content"]]
        return [block["input"] for block in blocks if block["type"] == "tool_use"][-1]


@asynccontextmanager
async def talk(url: str, server: AnthropicServer, name: str = "c", **loop: Any) -> AsyncIterator[Talk]:
    """Open the conversation in a new session."""
    claude = {"api_key": "sk-ant-x", "base_url": server.base_url, "retry_base_delay_s": 0}
    context = {"module": "context-stack", "config": {"store": url, "conversation_id": name}}
    plan = {
        "session": {"orchestrator": {"module": "loop-interactive", "config": loop}, "context": context},
        "providers": [{"module": "provider-anthropic", "config": claude}],
    }
    async with AmplifierSession(plan) as session:
        tool = echo("note")
        tool.side_effect_free = True  # type: ignore[attr-defined]
        await session.coordinator.mount("tools", tool)
        yield Talk(session, server, tool, Recorder())


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as server:
        yield server


UNUSABLE = [
    (deep(101), "nested more than 100 levels deep"),
    (deep(600), "nested more than 100 levels deep"),
    (deep(960), "nested more than 100 levels deep"),
    (deep(5000), "nested more than 100 levels deep"),
    ('{"text": "a" "b"}', "not valid JSON: Expecting ',' delimiter: line 1 column 14 (char 13)"),
    ('{"text": "half', "not valid JSON: Unterminated string starting at: line 1 column 10 (char 9)"),
    ('{"n": ' + "1" * 5000 + "}", "not valid JSON: Exceeds the limit"),
    ('{"text": "' + "x" * 60_000, "not valid JSON: an error after more than 50000 characters"),
    ("[1]", "are a list, not a JSON object"),
    ('"text"', "are a string, not a JSON object"),
    ("3", "are a number, not a JSON object"),
    ("true", "are true or false, not a JSON object"),
]


@pytest.mark.parametrize(("given_text", "why"), UNUSABLE, ids=range(len(UNUSABLE)))
async def test_the_model_reads_the_reason_and_is_called_again(tmp_path, server, given_text, why) -> None:
    async with talk(f"sqlite:{tmp_path}/logs.db", server) as now:
        server.reply(tool_call("note", None, given_text))
        server.reply(tool_call("note", {"text": "right"}))
        server.reply(text("Done."))
        assert await now.run() == "Done."
        assert now.tool.inputs == [{"text": "right"}]
        refused = server.bodies[1]["messages"]
        assert refused[-2]["content"][-1]["input"] == {"INVALID_JSON": given_text[:50_000]}
        assert refused[-1]["content"][-1]["is_error"] is True
        assert why in refused[-1]["content"][-1]["content"]
        assert "The tool was not started." in refused[-1]["content"][-1]["content"]


@pytest.mark.parametrize("given_text", [deep(600), deep(960), deep(20_000), '{"text": '])
async def test_the_conversation_continues_after_a_restart(lasting_url, server, given_text) -> None:
    async with talk(lasting_url, server) as before:
        server.reply(tool_call("note", None, given_text))
        server.reply(text("I see."))
        assert await before.run() == "I see."
    async with talk(lasting_url, server) as after:
        server.reply(text("Still here."))
        assert await after.run("next") == "Still here."
        assert faults(await after.rows()) == []
        assert len([row for row in await after.rows() if row["role"] == "tool"]) == 1


async def test_an_unusable_call_does_not_start_early(sqlite_url: str, server: AnthropicServer) -> None:
    gate = Gate()
    async with talk(sqlite_url, server) as now:
        server.reply(tool_call("note", None, deep(600)), tool_call("note", {"text": "early"}), text(gate, "So."))
        server.reply(text("Done."))
        now.progress.act_on("tool:start", gate.open)
        assert await now.run() == "Done."
        assert now.tool.inputs == [{"text": "early"}]


async def test_resume_completes_an_unusable_call_with_the_reason(lasting_url: str, server: AnthropicServer) -> None:
    called = ToolCall.model_validate({"id": "a", "name": "note", "arguments": deep(600)})
    async with talk(lasting_url, server) as before:
        context = before.session.coordinator.get("context")
        await context.set_messages([user_row("go"), assistant_row((), [called])])
    async with talk(lasting_url, server) as after:
        server.reply(text("Done."))
        assert await soon(after.session.resume(on_progress=after.progress)) == "Done."
        assert after.tool.inputs == []
        assert "nested more than 100 levels deep" in after.result()["content"]
        assert after.progress.of("resumed") == [{"unknown": [], "retried": [], "tools": []}]


async def test_repeated_unusable_calls_reach_the_iteration_limit(sqlite_url: str, server: AnthropicServer) -> None:
    def otherwise(body: dict[str, Any]) -> Any:
        is_last = body.get("tool_choice") == {"type": "none"}
        return message(text("I give up.") if is_last else tool_call("note", None, '{"text": '))

    server.otherwise = otherwise
    async with talk(sqlite_url, server, max_iterations=3) as now:
        assert await now.run() == "I give up."
        assert len(server.bodies) == 4
        assert now.progress.of("complete")[-1]["reason"] == "max_iterations"


@pytest.mark.parametrize(
    "where", [b'{"type": %s}', b'{"type": "content_block_start", "index": 0, "content_block": %s}']
)
async def test_a_deeply_nested_event_is_a_provider_failure(sqlite_url, server, where: bytes) -> None:
    async with talk(sqlite_url, server) as now:
        server.reply_steps(b"event: content_block_start\ndata: " + where % deep(20_000).encode() + b"\n\n")
        server.reply(text("At the second try."))
        assert await now.run() == "At the second try."


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(st.tuples(ANY_JSON, LEVELS, st.floats(0.5, 3)), min_size=1, max_size=8))
async def test_the_next_message_is_answered_after_any_tool_input(tmp_path, calls) -> None:
    wholes = [('{"a": ' * levels + json.dumps(value) + "}" * levels, part) for value, levels, part in calls]
    given_texts = [whole[: int(len(whole) * part)] for whole, part in wholes]
    url, name = f"sqlite:{tmp_path}/logs.db", str(next(NAMES))
    async with AnthropicServer() as server:
        async with talk(url, server, name) as before:
            server.reply(*(tool_call("note", None, each) for each in given_texts))
            server.reply(text("One."))
            assert await before.run() == "One."
        async with talk(url, server, name) as after:
            server.reply(text("Two."))
            assert await after.run("next") == "Two."
            rows = await after.rows()
    assert faults(rows) == []
    results = [text_of(row) for row in rows if row["role"] == "tool"]
    assert len(results) == len(calls)
    assert len(before.tool.inputs) == sum("not started" not in result for result in results)


@pytest.mark.parametrize(("damage", "run"), [("b = -1", 4), ("data", 4)])
async def test_calls_of_a_damaged_log_are_completed_within_the_limit_of_calls(tmp_path, server, damage, run) -> None:
    calls = [ToolCall(id=f"c{number}", name="note", arguments={"text": str(number)}) for number in range(30)]
    rows = [user_row("go"), assistant_row((), calls), *(tool_row(each, "done") for each in calls[:6])]
    async with talk(f"sqlite:{tmp_path}/logs.db", server) as before:
        await before.session.coordinator.get("context").set_messages(rows)
    with closing(sqlite3.connect(tmp_path / "logs.db")) as database, database:
        if damage == "data":
            database.execute("UPDATE nodes SET data = 'x{' WHERE idx = 35")
        else:
            [(index, about)] = database.execute("SELECT idx, about FROM nodes ORDER BY idx DESC LIMIT 1").fetchall()
            damaged = json.dumps({**json.loads(about), "b": -1})
            database.execute("UPDATE nodes SET about = ? WHERE idx = ?", (damaged, index))
    async with talk(f"sqlite:{tmp_path}/logs.db", server, max_calls_per_answer=10) as after:
        server.reply(text("Done."))
        assert await soon(after.session.resume(on_progress=after.progress)) == "Done."
        assert run <= len(after.tool.inputs) <= run + 1
    async with talk(f"sqlite:{tmp_path}/logs.db", server) as after:
        server.reply(text("Still here."))
        assert await after.run("next") == "Still here."
        assert faults(await after.rows()) == []
