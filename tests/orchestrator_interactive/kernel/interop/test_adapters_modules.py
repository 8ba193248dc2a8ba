"""Our modules in a session of amplifier-core, mounted through their entry points: whole runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import amplifier_core
import pytest
from agents import call, echo, faults, returning, say, text_of, told, use
from anthropic_server import AnthropicServer, text, thinking, tool_call

from orchestrator_interactive.kernel import HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.messages import ImageBlock
from orchestrator_interactive.kernel.interop import to_local_coordinator

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    Make = Callable[..., Any]

DEMO = {"module": "provider-demo", "config": {"think_s": 0, "word_s": 0}}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "party.md").write_text("The cake is not ordered yet.\n", encoding="utf-8")
    (tmp_path / "budget.md").write_text("100 for the hall.\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def plan(notes: Path) -> dict[str, Any]:
    """Every module that ships, except the one that needs a key."""
    files = {"module": "tool-filesystem", "config": {"root": str(notes)}}
    return {"providers": [DEMO], "tools": [files, {"module": "tool-todo"}]}


@pytest.fixture
async def claude() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as server:
        yield server


async def test_every_module_is_where_it_belongs(abroad: Make, plan: dict[str, Any]) -> None:
    points = (await abroad(plan=plan)).coordinator.mount_points
    assert type(points["orchestrator"]).__name__ == "InteractiveOrchestrator"
    assert type(points["context"]).__name__ == "SimpleContext"
    assert list(points["providers"]) == ["demo"]
    assert sorted(points["tools"]) == ["list_files", "read_file", "search_files", "todo", "write_file"]


async def test_a_run_looks_through_files_keeps_a_list_and_writes(
    abroad: Make, plan: dict[str, Any], notes: Path
) -> None:
    session = await abroad(plan=plan)
    review = await session.run("look through the notes and suggest improvements")
    assert "`party.md`" in review
    assert "`budget.md`" in review
    assert {item.status for item in session.capability("todo.items")()} == {"done"}
    await session.run("save it into `review.md`")
    assert "party.md" in (notes / "review.md").read_text(encoding="utf-8")
    rows = await session.rows()
    assert faults(rows) == []
    assert {row["name"] for row in rows if row["role"] == "tool"} == {"list_files", "read_file", "todo", "write_file"}


async def test_its_events_arrive_in_order_with_what_they_carry(abroad: Make, plan: dict[str, Any]) -> None:
    session = await abroad(plan=plan)
    answer = await session.run("read `party.md`")
    names = session.events.names()
    # It reads a file only, so it may begin before the answer is complete.
    assert sorted(names[3:7]) == ["provider:request", "provider:response", "tool:post", "tool:pre"]
    assert [name for name in names if not name.startswith("tool:")] == [
        "session:start",
        "execution:start",
        "prompt:submit",
        *("provider:request", "provider:response"),
        *("provider:request", "provider:response"),
        "execution:end",
        "orchestrator:complete",
    ]
    (before,), (after,) = session.events.of("tool:pre"), session.events.of("tool:post")
    assert (before["tool_name"], before["tool_input"]) == ("read_file", {"path": "party.md"})
    assert after["tool_result"] == {"success": True, "output": "The cake is not ordered yet.\n"}
    assert session.events.of("provider:response")[0]["usage"]["output_tokens"] > 0
    (end,), (complete,) = session.events.of("execution:end"), session.events.of("orchestrator:complete")
    assert (end["response"], end["status"]) == (answer, "completed")
    assert (complete["orchestrator"], complete["turn_count"], complete["status"]) == ("loop-interactive", 2, "success")
    assert {data["session_id"] for _, data in session.events.seen} == {session.session.session_id}


async def test_they_say_which_events_are_theirs(abroad: Make, claude: AnthropicServer) -> None:
    config = {"api_key": "k", "base_url": claude.base_url}
    session = await abroad(plan={"providers": [{"module": "provider-anthropic", "config": config}]})
    named = await session.coordinator.collect_contributions("observability.events")
    assert {"injection:applied", "context:pre_compact", "context:post_compact", "provider:retry"} <= {
        event for events in named for event in events
    }


async def test_claude_thinks_calls_a_tool_and_answers(
    abroad: Make, plan: dict[str, Any], claude: AnthropicServer
) -> None:
    config = {"api_key": "k", "base_url": claude.base_url, "retry_base_delay_s": 0}
    plan["providers"] = [{"module": "provider-anthropic", "config": config}]
    session = await abroad(plan=plan)
    claude.fail(529, "overloaded_error")
    reading = tool_call("read_file", {"path": "budget.md"}, call_id="toolu_a")
    claude.reply(thinking("Look first.", signature="signed"), text("I look."), reading)
    claude.reply(text("100 for the hall."))
    assert await session.run("what is the budget?") == "100 for the hall."
    (retry,) = session.events.of("provider:retry")
    assert (retry["provider"], retry["attempt"]) == ("anthropic", 1)
    _, thought, result = claude.bodies[-1]["messages"]
    assert [block["type"] for block in thought["content"]] == ["thinking", "text", "tool_use"]
    assert thought["content"][0]["signature"] == "signed"
    assert result["content"][0]["tool_use_id"] == "toolu_a"
    assert "100 for the hall." in str(result["content"])


async def test_a_conversation_goes_on_from_run_to_run(abroad: Make) -> None:
    session = await abroad(say("One."), say("Two."))
    assert [await session.run("1"), await session.run("2")] == ["One.", "Two."]
    assert told(await session.rows()) == [("user", "1"), ("assistant", "One."), ("user", "2"), ("assistant", "Two.")]
    assert session.provider.prefix_breaks() == []


async def test_a_conversation_goes_on_in_another_session_where_its_log_is(abroad: Make, tmp_path: Path) -> None:
    context = {"module": "context-stack", "config": {"store": f"sqlite:{tmp_path}/log.db", "conversation_id": "c"}}
    first = await abroad(call(use("echo", "c1", text="hi")), say("One."), tools=[echo()], context=context)
    assert await first.run("1") == "One."
    second = await abroad(say("Two."), context=context)
    assert await second.run("2") == "Two."
    assert (await second.rows())[:4] == await first.rows()
    assert faults(second.provider.sent()) == []


async def test_without_listeners_nothing_differs(plan: dict[str, Any]) -> None:
    config = {"session": {"orchestrator": "loop-interactive", "context": "context-simple"}, **plan}
    async with amplifier_core.AmplifierSession(config) as session:
        assert "The cake is not ordered yet." in await session.execute("read `party.md`")


async def test_the_context_compacts_and_says_so(abroad: Make) -> None:
    steps = [call(use("echo", f"c{i}", text="word " * 40)) for i in range(8)]
    context = {"module": "context-simple", "config": {"max_tokens": 400}}
    session = await abroad(*steps, say("Done."), tools=[echo()], context=context)
    assert await session.run() == "Done."
    (before, *_), (after, *_) = session.events.of("context:pre_compact"), session.events.of("context:post_compact")
    assert after["token_count"] < before["token_count"]
    assert len(await session.rows()) == 18
    assert faults(session.provider.sent()) == []
    assert "earlier messages of this conversation are not shown" in str(session.provider.sent())


async def test_they_answer_in_its_types_whoever_asks(abroad: Make, plan: dict[str, Any]) -> None:
    coordinator = (await abroad(plan=plan)).coordinator
    result = await coordinator.get("tools", "read_file").execute({"path": "party.md"})
    assert isinstance(result, amplifier_core.ToolResult)
    provider = coordinator.get("providers", "demo")
    assert isinstance(provider.get_info(), amplifier_core.ProviderInfo)
    (model,) = await provider.list_models()
    assert isinstance(model, amplifier_core.ModelInfo)
    tools = [amplifier_core.ToolSpec(name="search_files", parameters={})]
    message = amplifier_core.Message(role="user", content="search for cake")
    answer = await provider.complete(amplifier_core.ChatRequest(messages=[message], tools=tools))
    assert isinstance(answer, amplifier_core.ChatResponse)
    assert isinstance(answer.content[-1], amplifier_core.ToolCallBlock)
    (wanted,) = provider.parse_tool_calls(answer)
    assert isinstance(wanted, amplifier_core.ToolCall)
    assert wanted.arguments == {"query": "cake"}


async def test_a_call_that_only_its_blocks_tell_of_is_found(abroad: Make) -> None:
    config = {"api_key": "k", "base_url": "http://127.0.0.1:1"}
    session = await abroad(plan={"providers": [{"module": "provider-anthropic", "config": config}]})
    block = amplifier_core.ToolCallBlock(id="a", name="echo", input={"text": "x"})
    answer = amplifier_core.ChatResponse(content=[block])
    (wanted,) = session.coordinator.get("providers", "anthropic").parse_tool_calls(answer)
    assert wanted == amplifier_core.ToolCall(id="a", name="echo", arguments={"text": "x"})


async def test_between_our_own_nothing_is_turned(abroad: Make) -> None:
    """amplifier-core takes no picture by its address; our loop and our tools need not ask it."""
    picture = ToolResult(content=[ImageBlock(source={"type": "url", "url": "https://example.org/cake.png"})])
    session = await abroad(call(use("see", "a")), say("Nice."), tools=[returning(picture, name="see")])
    with pytest.raises(ValueError, match="image"):
        await session.coordinator.get("tools", "see").execute({})
    assert await session.run() == "Nice."
    assert session.provider.sent()[-1]["content"][0]["source"]["url"] == "https://example.org/cake.png"


async def test_a_module_finds_its_own_kernel_there(abroad: Make) -> None:
    session = await abroad()
    home = session.home
    assert home.hooks.listens("tool:post")
    assert not home.hooks.listens("nobody:cares")
    session.change("tool:post", tool_result="other")
    wish = await home.hooks.emit("tool:post", {"tool_result": ToolResult(output="one"), "tool_name": "echo"})
    assert isinstance(wish, HookResult)
    assert (wish.action, wish.data) == ("modify", {"tool_result": "other"})
    home.cancellation.request_immediate()
    steps: list[str] = []
    with home.cancellation.watch(lambda: steps.append(home.cancellation.state)):
        assert steps == ["immediate"]
    assert to_local_coordinator(home) is home


async def test_they_fail_in_its_types(abroad: Make, plan: dict[str, Any]) -> None:
    provider = (await abroad(plan=plan)).coordinator.get("providers", "demo")
    message = amplifier_core.Message(role="user", content="demo: rate limit")
    with pytest.raises(amplifier_core.RateLimitError) as caught:
        await provider.complete(amplifier_core.ChatRequest(messages=[message]))
    assert (caught.value.provider, caught.value.status_code, caught.value.retry_after) == ("demo", 429, 2.0)
    assert caught.value.retryable


async def test_a_tool_finds_its_folder_where_the_application_says(notes: Path, plan: dict[str, Any]) -> None:
    plan["tools"] = [{"module": "tool-filesystem"}]
    config = {"session": {"orchestrator": "loop-interactive", "context": "context-simple"}, **plan}
    session = amplifier_core.AmplifierSession(config)
    session.coordinator.register_capability("session.working_dir", str(notes))
    async with session:
        result = await session.coordinator.get("tools", "list_files").execute({})
    assert "party.md" in result.output


async def test_a_wrong_option_is_told(abroad: Make) -> None:
    with pytest.raises(RuntimeError, match="loop-interactive: there is no 'speed'"):
        await abroad(loop={"speed": 3})


async def test_a_session_can_be_resumed_with_its_rows(abroad: Make) -> None:
    first = await abroad(call(use("echo", "a", text="x")), say("Done."), tools=[echo()])
    await first.run("begin")
    second = await abroad(say("Yes."))
    await second.coordinator.get("context").set_messages(await first.rows())
    assert await second.run("go on?") == "Yes."
    assert [text_of(row) for row in second.provider.sent()] == ["begin", "", "x", "Done.", "go on?"]
