"""The test doubles for module authors keep their contracts and record their inputs."""

import ast
import asyncio
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from orchestrator_interactive import InteractiveOrchestrator, testing
from orchestrator_interactive.kernel import (
    AmplifierSession,
    HookRegistry,
    HookResult,
    ModuleCoordinator,
    ResponseStream,
    ToolResult,
)
from orchestrator_interactive.kernel.contracts.errors import RateLimitError
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, Message, TextBlock, ToolCall
from orchestrator_interactive.kernel.contracts.protocols import ContextManager, Orchestrator, Provider, Tool
from orchestrator_interactive.testing import (
    EventRecorder,
    MockApprovalSystem,
    MockContextManager,
    MockCoordinator,
    MockDisplaySystem,
    MockProvider,
    MockTool,
    ScriptedOrchestrator,
    TestCoordinator,
    create_test_coordinator,
    wait_for,
)

ECHO = ToolCall(id="1", name="echo", arguments={"text": "hi"})
BOUNDARIES = ["execution:start", "execution:end", "orchestrator:complete"]


def _request(text: str = "Hello") -> ChatRequest:
    return ChatRequest(messages=[Message(role="user", content=text)])


async def _run(orchestrator: ScriptedOrchestrator, recorder: EventRecorder, context: MockContextManager) -> str:
    return await orchestrator.execute("go", context, {}, {}, recorder)


def test_every_name_of_amplifier_core_is_exported() -> None:
    package = find_spec("amplifier_core")
    assert package is not None
    assert package.origin is not None
    source = Path(package.origin).with_name("testing.py").read_text()
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    assert {node.name for node in ast.parse(source).body if isinstance(node, kinds)} <= set(testing.__all__)


def test_no_test_framework_is_needed() -> None:
    code = "import sys, orchestrator_interactive.testing; print('pytest' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert result.stdout.strip() == "False"


def test_each_double_keeps_its_contract() -> None:
    assert isinstance(MockTool(), Tool)
    assert isinstance(MockProvider(), Provider)
    assert isinstance(MockContextManager(), ContextManager)
    assert isinstance(ScriptedOrchestrator([]), Orchestrator)
    assert isinstance(TestCoordinator(), ModuleCoordinator)
    assert isinstance(EventRecorder(), HookRegistry)
    assert MockCoordinator is TestCoordinator


async def test_a_coordinator_records_mounts_and_unmounts() -> None:
    coordinator, tool = TestCoordinator(), MockTool()
    await coordinator.mount("tools", tool)
    await coordinator.unmount("tools", name="mock_tool")
    with pytest.raises(ValueError, match="cellar"):
        coordinator.mount("cellar", tool)
    assert coordinator.mount_history == [
        {"mount_point": "tools", "module": tool, "name": None},
        {"mount_point": "cellar", "module": tool, "name": None},
    ]
    assert coordinator.unmount_history == [{"mount_point": "tools", "name": "mock_tool"}]
    assert coordinator.get_mounted("tools") == {}


async def test_a_coordinator_belongs_to_a_test_session() -> None:
    coordinator, seen = TestCoordinator(), EventRecorder()
    coordinator.hooks.register("tool:pre", seen)
    await coordinator.hooks.emit("tool:pre", {})
    assert (coordinator.session_id, coordinator.parent_id) == ("test-session", None)
    assert seen.get_events() == [("tool:pre", {"session_id": "test-session", "parent_id": None})]
    assert coordinator.session.coordinator is coordinator
    assert callable(await coordinator.loader.load("loop-interactive"))
    assert AmplifierSession(coordinator.config, parent_id=coordinator.session_id).parent_id == "test-session"


async def test_the_configuration_of_a_coordinator_may_be_changed_in_place() -> None:
    coordinator = create_test_coordinator()
    coordinator.config["session"]["injection_size_limit"] = 3
    with pytest.raises(ValueError, match="3 bytes"):
        await coordinator.process_hook_result(HookResult(action="inject_context", context_injection="long"), "event")
    assert TestCoordinator().injection_size_limit is None


@pytest.mark.parametrize(
    ("options", "answer"),
    [(["Deny", "Allow once"], "Allow once"), (["No"], "Allow")],
)
async def test_a_coordinator_approves_every_question(options: list[str], answer: str) -> None:
    asked = HookResult(action="ask_user", approval_prompt="Write?", approval_options=options)
    assert (await TestCoordinator().process_hook_result(asked, "tool:pre")).action == "continue"
    assert await MockApprovalSystem().request_approval("Write?", options, 1.0, "deny") == answer


async def test_approval_requests_and_user_messages_are_recorded() -> None:
    coordinator = TestCoordinator()
    approvals = coordinator.approval_system = MockApprovalSystem("Deny")
    display = coordinator.display_system = MockDisplaySystem()
    question = {"approval_prompt": "Write?", "approval_timeout": 5}
    asked = HookResult(action="ask_user", user_message="Mind", user_message_level="warning", **question)
    assert (await coordinator.process_hook_result(asked, "tool:pre", "lint")).action == "deny"
    assert approvals.requests == [("Write?", ["Allow", "Deny"], 5, "deny")]
    assert display.messages == [("Mind", "warning", "lint")]


async def test_a_prepared_coordinator_has_a_context_and_two_tools() -> None:
    coordinator = create_test_coordinator()
    tools = coordinator.get_mounted("tools")
    assert (await tools["echo"].execute({})).output == "Echo response"
    assert not (await tools["fail"].execute({})).success
    assert isinstance(coordinator.get_mounted("context"), MockContextManager)
    assert coordinator.get_mounted("providers") == {}
    assert coordinator.mount_history == []


@pytest.mark.parametrize(
    ("tool", "result"),
    [
        (MockTool(), ToolResult(output="Success")),
        (MockTool("old", "by position"), ToolResult(output="by position")),
        (MockTool(return_value=None), ToolResult(output=None)),
        (MockTool(output="weaker", return_value={"a": 1}), ToolResult(output={"a": 1})),
        (MockTool(return_value=ToolResult(success=False, output="no")), ToolResult(success=False, output="no")),
    ],
)
async def test_a_tool_returns_its_configured_output(tool: MockTool, result: ToolResult) -> None:
    assert await tool.execute({}) == result


async def test_a_tool_records_its_inputs() -> None:
    tool, given = MockTool(), {"n": 1}
    assert (tool.call_count, tool.last_input) == (0, None)
    await tool.execute(given)
    given["n"] = 2
    await tool.execute(given)
    assert (tool.call_count, tool.last_input, tool.inputs) == (2, {"n": 2}, [{"n": 1}, {"n": 2}])


async def test_a_tool_raises_a_configured_exception() -> None:
    tool = MockTool(return_value=OSError("disk full"))
    with pytest.raises(OSError, match="disk full"):
        await tool.execute({})
    tool.return_value = "fine"
    assert (await tool.execute({})).output == tool.output == "fine"
    assert tool.call_count == 2


async def test_a_provider_gives_its_answers_in_order_and_then_the_default() -> None:
    whole = ChatResponse(content=[TextBlock(text="whole")])
    provider = MockProvider(["one", TextBlock(text="two"), whole, RateLimitError("slow down")], default="rest")
    assert [(await provider.complete(_request())).text for _ in range(3)] == ["one", "two", "whole"]
    with pytest.raises(RateLimitError, match="slow down"):
        await provider.complete(_request())
    assert [(await provider.complete(_request())).text for _ in range(2)] == ["rest", "rest"]
    assert provider.call_count == 6


@pytest.mark.parametrize(
    ("answer", "text", "calls"),
    [(ECHO, "", [ECHO]), (["Looking.", ECHO], "Looking.", [ECHO]), ("Done.", "Done.", [])],
)
async def test_a_provider_calls_tools(answer: Any, text: str, calls: list[ToolCall]) -> None:
    provider = MockProvider([answer])
    response = await provider.complete(_request())
    assert (response.text, provider.parse_tool_calls(response)) == (text, calls)
    assert provider.parse_tool_calls(response.model_copy(update={"tool_calls": None})) == calls


async def test_a_provider_streams_its_answer_first() -> None:
    stream = ResponseStream()
    response = await MockProvider(["Hello"]).complete(_request(), stream=stream)
    assert stream.valid_blocks() == response.content
    assert stream.pieces == 2


async def test_a_provider_records_copies_of_its_requests() -> None:
    provider, request = MockProvider(), _request("before")
    assert provider.last_request is None
    await provider.complete(request)
    request.messages[0].content = "after"
    assert provider.last_request == provider.requests[0] == _request("before")


async def test_a_provider_describes_itself_and_its_model() -> None:
    provider = MockProvider(name="primary")
    info, [model] = provider.get_info(), await provider.list_models()
    assert (provider.name, info.id) == ("primary", "primary")
    assert info.defaults["context_window"] == model.context_window


@pytest.mark.parametrize("answers", ["text", None, [1], [["text", 1]], [None]])
def test_a_provider_refuses_invalid_answers(answers: Any) -> None:
    with pytest.raises(TypeError, match="answers"):
        MockProvider(answers)


async def test_a_context_returns_copies_of_its_list() -> None:
    given = [{"role": "user", "content": "Hello"}]
    context = MockContextManager(given)
    for messages in (given, await context.get_messages(), await context.get_messages_for_request(10, None)):
        messages.clear()
    assert context.messages == [{"role": "user", "content": "Hello"}]
    await context.set_messages([{"role": "user", "content": "Again"}])
    assert await context.get_messages() == [{"role": "user", "content": "Again"}]
    await context.clear()
    assert context.messages == []


async def test_a_context_refuses_a_message_without_a_role() -> None:
    with pytest.raises(ValueError, match="'role'"):
        await MockContextManager().add_message({"content": "Whose?"})


async def test_an_orchestrator_gives_its_answers_in_order_and_then_done() -> None:
    orchestrator, context = ScriptedOrchestrator(["One", "Two"]), MockContextManager()
    answers = [await _run(orchestrator, EventRecorder(), context) for _ in range(3)]
    assert answers == ["One", "Two", "DONE"]
    assert (orchestrator.call_count, orchestrator.prompts) == (3, ["go"] * 3)
    assert context.messages[:2] == [{"role": "user", "content": "go"}, {"role": "assistant", "content": "One"}]


@pytest.mark.parametrize(
    ("response", "ended", "status"),
    [
        ("Fine", {"response": "Fine", "status": "completed"}, "success"),
        (RuntimeError("broken"), {"response": "", "status": "error"}, "incomplete"),
        (asyncio.CancelledError(), {"response": "", "status": "cancelled"}, "cancelled"),
    ],
)
async def test_an_orchestrator_emits_its_events_on_every_path(response: Any, ended: Any, status: str) -> None:
    recorder = EventRecorder()
    outcome, *_ = await asyncio.gather(
        _run(ScriptedOrchestrator([response]), recorder, MockContextManager()), return_exceptions=True
    )
    assert type(outcome) is type(response)
    assert [event for event, _ in recorder.events] == BOUNDARIES
    assert recorder.events[0][1] == {"prompt": "go"}
    assert recorder.events[1][1] == ended
    assert recorder.events[2][1] == {"orchestrator": "scripted", "turn_count": 1, "status": status}


@pytest.mark.parametrize("responses", ["text", [1], None])
def test_an_orchestrator_refuses_invalid_answers(responses: Any) -> None:
    with pytest.raises(TypeError, match="responses"):
        ScriptedOrchestrator(responses)


async def test_a_recorder_is_a_hook_registry() -> None:
    recorder, provider = EventRecorder(), MockProvider([ECHO, "Done."])
    answer = await InteractiveOrchestrator().execute(
        "go", MockContextManager(), {"mock": provider}, {"echo": MockTool("echo")}, recorder
    )
    assert answer == "Done."
    names = [event for event, _ in recorder.get_events()]
    asked = ["provider:request", "provider:response"]
    start, *ends = BOUNDARIES
    assert names == [start, "prompt:submit", *asked, "tool:pre", "tool:post", *asked, *ends]


async def test_handlers_registered_with_a_recorder_are_called() -> None:
    async def deny(_event: str, _data: dict[str, Any]) -> HookResult:
        return HookResult(action="deny")

    recorder = EventRecorder()
    unregister = recorder.register("tool:pre", deny)
    assert (await recorder.emit("tool:pre", {})).action == "deny"
    assert [result.action for result in await recorder.emit_and_collect("tool:pre", {})] == ["deny"]
    unregister()
    assert (await recorder.emit("tool:pre", {})).action == "continue"
    assert len(recorder.get_events("tool:pre")) == 3


async def test_a_recorder_is_a_handler_and_can_be_filtered_and_cleared() -> None:
    recorder, hooks, data = EventRecorder(), HookRegistry(), {"n": 1}
    hooks.register("a", recorder)
    await hooks.emit("a", data)
    assert (await recorder.record("b", data)).action == "continue"
    data["n"] = 2
    assert recorder.get_events("a") == [("a", {"n": 1})]
    assert recorder.get_events() == [("a", {"n": 1}), ("b", {"n": 1})]
    recorder.clear()
    assert recorder.get_events() == []


@pytest.mark.parametrize(("holds", "timeout_s"), [(True, 0), (True, 0.01), (False, 0.01)])
async def test_a_condition_is_checked_at_least_once(*, holds: bool, timeout_s: float) -> None:
    assert await wait_for(lambda: holds, timeout=timeout_s) is holds


async def test_the_basic_example_of_the_contract() -> None:
    context = MockContextManager()
    result = await InteractiveOrchestrator(config={}).execute(
        prompt="Test prompt",
        context=context,
        providers={"test": MockProvider()},
        tools={"test_tool": MockTool(name="test_tool", description="Test tool")},
        hooks=HookRegistry(),
    )
    assert isinstance(result, str)
    assert len(context.messages) > 0
