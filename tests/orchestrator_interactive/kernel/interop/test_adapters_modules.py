"""Our modules in a session of amplifier-core, mounted through their entry points."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import amplifier_core
import amplifier_core.module_sources
import pytest
from agents import call, echo, faults, returning, say, use
from anthropic_server import AnthropicServer, text, thinking, tool_call

from orchestrator_interactive.kernel import HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.messages import ImageBlock
from orchestrator_interactive.kernel.interop import to_local_coordinator

Make = Callable[..., Any]

DEMO = {"module": "provider-demo", "config": {"think_s": 0, "word_s": 0}}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "party.md").write_text("The cake is not ordered yet.\n", encoding="utf-8")
    (tmp_path / "budget.md").write_text("100 for the hall.\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def plan(notes: Path) -> dict[str, Any]:
    """Return a plan with every shipped module that needs no key."""
    files = {"module": "tool-filesystem", "config": {"root": str(notes)}}
    return {"providers": [DEMO], "tools": [files, {"module": "tool-todo"}]}


@pytest.fixture
async def claude() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as server:
        yield server


async def test_every_module_is_mounted_and_contributes_its_events(core_session: Make, plan: dict[str, Any]) -> None:
    coordinator = (await core_session(plan=plan)).coordinator
    points = coordinator.mount_points
    assert type(points["orchestrator"]).__name__ == "InteractiveOrchestrator"
    assert type(points["context"]).__name__ == "SimpleContext"
    assert list(points["providers"]) == ["demo"]
    assert set(points["tools"]) > {"list_files", "move_file", "search_files", "todo"}
    contributed = await coordinator.collect_contributions("observability.events")
    assert {"injection:applied", "context:pre_compact"} <= {event for events in contributed for event in events}


class PreparedBundle:
    """A resolver like that of amplifier-foundation, which refuses a module that has no `source`."""

    async def async_resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any:
        assert source_hint is None
        raise amplifier_core.module_sources.ModuleNotFoundError(f"No source hint provided for '{module_id}'.")


async def test_a_bundle_names_the_installed_modules_without_a_source(plan: dict[str, Any]) -> None:
    session = {"orchestrator": "loop-interactive", "context": "context-simple"}
    core = amplifier_core.AmplifierSession({"session": session, **plan})
    await core.coordinator.mount("module-source-resolver", PreparedBundle())
    async with core:
        assert {"read_file", "todo"} <= set(core.coordinator.get("tools"))
        assert "`party.md`" in await core.execute("look through the notes and suggest improvements")


async def test_a_run_uses_the_tools(core_session: Make, plan: dict[str, Any], notes: Path) -> None:
    session = await core_session(plan=plan)
    review = await session.run("look through the notes and suggest improvements")
    assert "`party.md`" in review
    assert "`budget.md`" in review
    items = session.capability("todo.items")()
    assert [item.status for item in items][-2:] == ["done", "in_progress"], "the answer was written then"
    await session.run("save it into `review.md`")
    assert "party.md" in (notes / "review.md").read_text(encoding="utf-8")
    rows = await session.rows()
    assert faults(rows) == []
    assert {row["name"] for row in rows if row["role"] == "tool"} == {"list_files", "read_file", "todo", "write_file"}


async def test_the_events_of_a_run_have_their_order_and_fields(core_session: Make, plan: dict[str, Any]) -> None:
    session = await core_session(plan=plan)
    answer = await session.run("read `party.md`")
    names = session.events.names()
    # A tool that only reads may start before the answer is complete.
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


async def test_anthropic_thinks_calls_a_tool_and_answers(core_session, plan, claude) -> None:
    config = {"api_key": "k", "base_url": claude.base_url, "retry_base_delay_s": 0}
    plan["providers"] = [{"module": "provider-anthropic", "config": config}]
    session = await core_session(plan=plan)
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


async def test_a_conversation_continues_in_another_session_over_its_log(core_session: Make, tmp_path: Path) -> None:
    context = {"module": "context-stack", "config": {"store": f"sqlite:{tmp_path}/log.db", "conversation_id": "c"}}
    first = await core_session(call(use("echo", "c1", text="hi")), say("One."), tools=[echo()], context=context)
    assert await first.run("1") == "One."
    second = await core_session(say("Two."), context=context)
    assert await second.run("2") == "Two."
    assert (await second.rows())[:4] == await first.rows()
    assert faults(second.provider.sent()) == []


async def test_a_run_needs_no_listeners(plan: dict[str, Any]) -> None:
    config = {"session": {"orchestrator": "loop-interactive", "context": "context-simple"}, **plan}
    async with amplifier_core.AmplifierSession(config) as session:
        assert "The cake is not ordered yet." in await session.execute("read `party.md`")


async def test_modules_return_the_types_of_amplifier_core(core_session: Make, plan: dict[str, Any]) -> None:
    coordinator = (await core_session(plan=plan)).coordinator
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


async def test_nothing_is_converted_between_our_modules(core_session: Make) -> None:
    """amplifier-core does not accept an image URL; a result of our tool reaches our loop unconverted."""
    picture = ToolResult(content=[ImageBlock(source={"type": "url", "url": "https://example.org/cake.png"})])
    session = await core_session(call(use("see", "a")), say("Nice."), tools=[returning(picture, name="see")])
    with pytest.raises(ValueError, match="image"):
        await session.coordinator.get("tools", "see").execute({})
    assert await session.run() == "Nice."
    assert session.provider.sent()[-1]["content"][0]["source"]["url"] == "https://example.org/cake.png"


async def test_the_local_coordinator_has_our_hooks_and_cancellation(core_session: Make) -> None:
    session = await core_session()
    local = session.local
    assert local.hooks.listens("tool:post")
    assert not local.hooks.listens("nobody:cares")
    session.change("tool:post", tool_result="other")
    result = await local.hooks.emit("tool:post", {"tool_result": ToolResult(output="one"), "tool_name": "echo"})
    assert isinstance(result, HookResult)
    assert (result.action, result.data) == ("modify", {"tool_result": "other"})
    local.cancellation.request_immediate()
    steps: list[str] = []
    with local.cancellation.watch(lambda: steps.append(local.cancellation.state)):
        assert steps == ["immediate"]
    assert to_local_coordinator(local) is local


async def test_modules_raise_the_errors_of_amplifier_core(core_session: Make, plan: dict[str, Any]) -> None:
    provider = (await core_session(plan=plan)).coordinator.get("providers", "demo")
    message = amplifier_core.Message(role="user", content="demo: rate limit")
    with pytest.raises(amplifier_core.RateLimitError) as caught:
        await provider.complete(amplifier_core.ChatRequest(messages=[message]))
    assert (caught.value.provider, caught.value.status_code, caught.value.retry_after) == ("demo", 429, 2.0)
    assert caught.value.retryable


async def test_a_tool_uses_the_working_directory_of_the_application(notes: Path, plan: dict[str, Any]) -> None:
    plan["tools"] = [{"module": "tool-filesystem"}]
    config = {"session": {"orchestrator": "loop-interactive", "context": "context-simple"}, **plan}
    session = amplifier_core.AmplifierSession(config)
    session.coordinator.register_capability("session.working_dir", str(notes))
    async with session:
        result = await session.coordinator.get("tools", "list_files").execute({})
    assert "party.md" in result.output
