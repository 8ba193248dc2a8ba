"""An orchestrator that is written for amplifier-core, in our session with our modules."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents import Recorder, faults, soon, text_of
from anthropic_server import AnthropicServer, text, thinking, tool_call

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts.errors import RateLimitError

Make = Callable[..., Any]

DEMO = {"module": "provider-demo", "config": {"think_s": 0, "word_s": 0}}
ASK = {"action": "ask_user", "approval_prompt": "May it?"}


@pytest.fixture
def session_of(local_session: Make, tmp_path: Path) -> Callable[..., Any]:
    """Make a session of ours with the foreign loop and our provider, tools and context."""
    (tmp_path / "party.md").write_text("The cake is not ordered yet.\n", encoding="utf-8")

    async def make(provider: dict[str, Any] = DEMO, **more: Any) -> AmplifierSession:
        files = {"module": "tool-filesystem", "config": {"root": str(tmp_path)}}
        session: AmplifierSession = await local_session(
            session={"orchestrator": "loop-plain"}, providers=[provider], tools=[files, {"module": "tool-todo"}], **more
        )
        return session

    return make


def guard(event: str, **result: Any) -> list[dict[str, Any]]:
    return [{"module": "hooks-guard", "config": {"event": event, "result": result}}]


async def rows_of(session: AmplifierSession) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = await session.coordinator.get("context").get_messages()
    return rows


async def test_it_uses_our_tools(session_of: Make) -> None:
    session = await session_of()
    answer = await soon(session.execute("look through the notes and suggest improvements"))
    assert "`party.md`" in answer
    rows = await rows_of(session)
    assert faults(rows) == []
    assert any("The cake is not ordered yet." in text_of(row) for row in rows if row["role"] == "tool")
    items = session.coordinator.get_capability("todo.items")()
    assert [item.status for item in items][-2:] == ["done", "in_progress"], "the answer was written then"
    assert session.status.status == "completed"


async def test_our_provider_answers_in_its_types(session_of: Make) -> None:
    async with AnthropicServer() as server:
        config = {"api_key": "k", "base_url": server.base_url}
        session = await session_of({"module": "provider-anthropic", "config": config})
        reading = tool_call("read_file", {"path": "party.md"}, call_id="toolu_a")
        server.reply(thinking("Look first.", signature="signed"), text("I look."), reading)
        server.reply(text("No cake yet."))
        assert await soon(session.execute("cake?")) == "No cake yet."
        _, thought, result = server.bodies[-1]["messages"]
    assert [block["type"] for block in thought["content"]] == ["thinking", "text", "tool_use"]
    assert thought["content"][0]["signature"] == "signed"
    assert "not ordered" in str(result["content"])


async def test_our_hooks_get_its_events(session_of: Make) -> None:
    session = await session_of()
    recorder = Recorder().listen(session.coordinator.hooks, "tool:post", "provider:response", "orchestrator:complete")
    await soon(session.execute("read `party.md`"))
    assert recorder.names() == ["provider:response", "tool:post", "provider:response", "orchestrator:complete"]
    assert recorder.of("tool:post")[0]["tool_result"]["output"] == "The cake is not ordered yet.\n"


async def test_a_hook_denies_a_tool(session_of: Make) -> None:
    session = await session_of(hooks=guard("tool:pre", action="deny", reason="not here"))
    await soon(session.execute("read `party.md`"))
    assert [row["content"] for row in await rows_of(session) if row["role"] == "tool"] == ["Denied by hook: not here"]


@pytest.mark.parametrize(
    ("answer", "result"), [("Allow", "The cake"), ("Deny", "Denied by hook: User denied: May it?")]
)
async def test_an_approval_decides_about_a_tool(session_of: Make, answer: str, result: str) -> None:
    class People:
        async def request_approval(self, *_question: Any) -> str:
            return answer

    session = await session_of(hooks=guard("tool:pre", **ASK), approvals=People())
    await soon(session.execute("read `party.md`"))
    (row,) = [row for row in await rows_of(session) if row["role"] == "tool"]
    assert text_of(row).startswith(result)


async def test_an_injection_is_persistent_or_ephemeral(session_of: Make) -> None:
    result = {"action": "inject_context", "context_injection": "by the way"}
    lasting = await session_of(hooks=guard("provider:request", **result))
    await soon(lasting.execute("hello"))
    assert any(row["content"] == "by the way" for row in await rows_of(lasting))
    passing = await session_of(hooks=guard("provider:request", ephemeral=True, **result))
    await soon(passing.execute("hello"))
    assert "by the way" not in str(await rows_of(passing))


async def test_an_error_of_our_provider_is_raised_with_its_type(session_of: Make) -> None:
    session = await session_of()
    recorder = Recorder().listen(session.coordinator.hooks, "provider:error")
    with pytest.raises(RateLimitError, match="rate limit") as caught:
        await soon(session.execute("demo: rate limit"))
    assert (caught.value.provider, caught.value.retry_after) == ("demo", 2.0)
    assert recorder.of("provider:error")[0]["error"]["type"] == "RateLimitError"


async def test_a_stop_ends_its_run_and_resets_the_token(session_of: Make) -> None:
    session = await session_of()
    token = session.coordinator.cancellation
    recorder = Recorder().listen(session.coordinator.hooks, "tool:post", "orchestrator:complete", "cancel:completed")
    running: list[list[str]] = []

    def stop() -> None:
        running.append(token.running_tool_names)
        token.request_graceful()

    recorder.act_on("tool:post", stop)
    assert await soon(session.execute("read `party.md`")) == ""
    assert running == [["read_file"]]
    assert token.running_tools == set()
    assert recorder.of("orchestrator:complete")[0]["status"] == "cancelled"
    assert recorder.names()[-1] == "cancel:completed"
    assert "offline demo" in await soon(session.execute("hello"))
