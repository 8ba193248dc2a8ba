"""An orchestrator that was written against amplifier-core, in a session of ours: it runs our modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from agents import Recorder, faults, soon, text_of
from anthropic_server import AnthropicServer, text, thinking, tool_call

from orchestrator_interactive.kernel.contracts.errors import RateLimitError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from orchestrator_interactive.kernel import AmplifierSession

    Make = Callable[..., Any]

DEMO = {"module": "provider-demo", "config": {"think_s": 0, "word_s": 0}}
ASK = {"action": "ask_user", "approval_prompt": "May it?"}


@pytest.fixture
def visited(host: Make, tmp_path: Path) -> Callable[..., Any]:
    """A session of ours with the guest's loop, and our provider, tools and context in it."""
    (tmp_path / "party.md").write_text("The cake is not ordered yet.\n", encoding="utf-8")

    async def make(provider: dict[str, Any] = DEMO, **more: Any) -> AmplifierSession:
        files = {"module": "tool-filesystem", "config": {"root": str(tmp_path)}}
        session: AmplifierSession = await host(
            session={"orchestrator": "loop-plain"}, providers=[provider], tools=[files, {"module": "tool-todo"}], **more
        )
        return session

    return make


def guard(event: str, **result: Any) -> list[dict[str, Any]]:
    return [{"module": "hooks-guard", "config": {"event": event, "result": result}}]


async def rows_of(session: AmplifierSession) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = await session.coordinator.get("context").get_messages()
    return rows


async def test_it_looks_through_files_with_our_tools(visited: Make) -> None:
    session = await visited()
    answer = await soon(session.execute("look through the notes and suggest improvements"))
    assert "`party.md`" in answer
    rows = await rows_of(session)
    assert faults(rows) == []
    assert any("The cake is not ordered yet." in text_of(row) for row in rows if row["role"] == "tool")
    assert {item.status for item in session.coordinator.get_capability("todo.items")()} == {"done"}
    assert session.status.status == "completed"


async def test_our_claude_answers_in_types_that_it_knows(visited: Make) -> None:
    async with AnthropicServer() as server:
        config = {"api_key": "k", "base_url": server.base_url}
        session = await visited({"module": "provider-anthropic", "config": config})
        reading = tool_call("read_file", {"path": "party.md"}, call_id="toolu_a")
        server.reply(thinking("Look first.", signature="signed"), text("I look."), reading)
        server.reply(text("No cake yet."))
        assert await soon(session.execute("cake?")) == "No cake yet."
        _, thought, result = server.bodies[-1]["messages"]
    assert [block["type"] for block in thought["content"]] == ["thinking", "text", "tool_use"]
    assert thought["content"][0]["signature"] == "signed"
    assert "not ordered" in str(result["content"])


async def test_its_events_reach_our_hooks(visited: Make) -> None:
    session = await visited()
    heard = Recorder().listen(session.coordinator.hooks, "tool:post", "provider:response", "orchestrator:complete")
    await soon(session.execute("read `party.md`"))
    assert heard.names() == ["provider:response", "tool:post", "provider:response", "orchestrator:complete"]
    assert heard.of("tool:post")[0]["tool_result"]["output"] == "The cake is not ordered yet.\n"


async def test_a_hook_denies_it_the_prompt(visited: Make) -> None:
    session = await visited(hooks=guard("prompt:submit", action="deny", reason="not here"))
    assert await soon(session.execute("hello")) == "Operation denied: not here"


async def test_a_hook_denies_it_a_tool(visited: Make) -> None:
    session = await visited(hooks=guard("tool:pre", action="deny", reason="not here"))
    await soon(session.execute("read `party.md`"))
    assert [row["content"] for row in await rows_of(session) if row["role"] == "tool"] == ["Denied by hook: not here"]


@pytest.mark.parametrize(
    ("answer", "result"), [("Allow", "The cake"), ("Deny", "Denied by hook: User denied: May it?")]
)
async def test_a_person_is_asked(visited: Make, answer: str, result: str) -> None:
    class People:
        async def request_approval(self, *_question: Any) -> str:
            return answer

    session = await visited(hooks=guard("tool:pre", **ASK), approvals=People())
    await soon(session.execute("read `party.md`"))
    (row,) = [row for row in await rows_of(session) if row["role"] == "tool"]
    assert text_of(row).startswith(result)


async def test_an_injection_lasts_or_passes(visited: Make) -> None:
    wish = {"action": "inject_context", "context_injection": "by the way"}
    lasting = await visited(hooks=guard("provider:request", **wish))
    await soon(lasting.execute("hello"))
    assert any(row["content"] == "by the way" for row in await rows_of(lasting))
    passing = await visited(hooks=guard("provider:request", ephemeral=True, **wish))
    await soon(passing.execute("hello"))
    assert "by the way" not in str(await rows_of(passing))


async def test_an_error_of_our_provider_comes_out_as_it_went_in(visited: Make) -> None:
    session = await visited()
    heard = Recorder().listen(session.coordinator.hooks, "provider:error")
    with pytest.raises(RateLimitError, match="rate limit") as caught:
        await soon(session.execute("demo: rate limit"))
    assert (caught.value.provider, caught.value.retry_after) == ("demo", 2.0)
    assert heard.of("provider:error")[0]["error"]["type"] == "RateLimitError"


async def test_a_stop_is_seen_and_the_token_is_fresh_afterwards(visited: Make) -> None:
    session = await visited()
    token = session.coordinator.cancellation
    heard = Recorder().listen(session.coordinator.hooks, "tool:post", "orchestrator:complete", "cancel:completed")
    running: list[list[str]] = []

    def stop() -> None:
        running.append(token.running_tool_names)
        token.request_graceful()

    heard.act_on("tool:post", stop)
    assert await soon(session.execute("read `party.md`")) == ""
    assert running == [["read_file"]]
    assert token.running_tools == set()
    assert heard.of("orchestrator:complete")[0]["status"] == "cancelled"
    assert heard.names()[-1] == "cancel:completed"
    assert "offline demo" in await soon(session.execute("hello"))
