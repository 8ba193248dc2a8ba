"""The contracts' own examples of tests, word for word, with the small modules that they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive import InteractiveOrchestrator
from orchestrator_interactive.kernel import HookRegistry, HookResult, ModelInfo, ProviderInfo, ToolResult
from orchestrator_interactive.kernel.messages import ChatRequest, ChatResponse, TextBlock, ToolCall
from orchestrator_interactive.kernel.testing import (
    EventRecorder,
    MockContextManager,
    MockCoordinator,
    MockProvider,
    MockTool,
    ScriptedOrchestrator,
    TestCoordinator,
    create_test_coordinator,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel import ModuleCoordinator

Row = dict[str, Any]


class MyTool:
    name = "my_tool"
    description = "Performs specific action with given parameters."

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the name is the contract's
        required_param = input.get("required_param")
        if not required_param:
            return ToolResult(success=False, error={"message": "required_param is required"})
        return ToolResult(success=True, output=required_param)


class MyProvider:
    name = "my-provider"

    def __init__(self, api_key: str) -> None:
        self.api_key: str | None = api_key

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name="Mine")

    async def list_models(self) -> list[ModelInfo]:
        return []

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        return ChatResponse(content=[TextBlock(text="Hi")])

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []

    async def close(self) -> None:
        self.api_key = None


async def mount_provider(coordinator: ModuleCoordinator, config: Row) -> Callable[[], Awaitable[None]] | None:
    api_key = config.get("api_key")
    if not api_key:
        return None
    provider = MyProvider(api_key=api_key)
    await coordinator.mount("providers", provider, name="my-provider")

    async def cleanup() -> None:
        await provider.close()

    return cleanup


async def my_validation_hook(event: str, data: dict[str, Any]) -> HookResult:
    if data.get("tool_input", {}).get("file_path", "").startswith("/etc/"):
        return HookResult(action="deny", reason="Access denied")
    return HookResult(action="continue")


async def mount_hook(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Callable[[], None]:
    handlers = [coordinator.hooks.register("tool:pre", my_validation_hook, priority=10)]

    def cleanup() -> None:
        for unregister in handlers:
            unregister()

    return cleanup


class MyContextManager:
    """Keeps the most recent rows, and every tool result with its call."""

    def __init__(self, max_tokens: int, compaction_threshold: float = 0.8) -> None:
        self._limit = max_tokens * compaction_threshold
        self._messages: list[Row] = []

    async def add_message(self, message: Row) -> None:
        if "role" not in message:
            raise ValueError("Message must have 'role' field")
        self._messages.append(message)

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any = None) -> list[Row]:
        start = 0
        while sum(len(str(row)) // 4 for row in self._messages[start:]) > (token_budget or self._limit):
            start += 1
        while start > 0 and self._messages[start].get("role") == "tool":
            start -= 1
        return self._messages[start:]

    async def get_messages(self) -> list[Row]:
        return list(self._messages)

    async def set_messages(self, messages: list[Row]) -> None:
        self._messages = list(messages)

    async def clear(self) -> None:
        self._messages = []


MyOrchestrator = InteractiveOrchestrator


async def test_tool_execution() -> None:
    tool = MyTool(config={})

    result = await tool.execute({"required_param": "value"})

    assert result.success
    assert result.error is None


async def test_mock_tool_for_testing_orchestrators() -> None:
    mock_tool = MockTool(name="test_tool", description="Test tool", return_value="mock result")
    call = ToolCall(id="call_1", name="test_tool", arguments={"path": "notes.md"})
    context, provider, hooks = MockContextManager(), MockProvider([call]), HookRegistry()

    await MyOrchestrator().execute("Test prompt", context, {"test": provider}, {"test_tool": mock_tool}, hooks)

    # After use
    assert mock_tool.call_count == 1
    assert mock_tool.last_input == {"path": "notes.md"}


async def test_provider_mount() -> None:
    mount = mount_provider
    coordinator = create_test_coordinator()
    cleanup = await mount(coordinator, {"api_key": "test-key"})

    assert "my-provider" in coordinator.get_mounted("providers")

    if cleanup:
        await cleanup()


async def test_hook_handler() -> None:
    # Test handler directly
    result = await my_validation_hook("tool:pre", {"tool_name": "Write", "tool_input": {"file_path": "/etc/passwd"}})

    assert result.action == "deny"
    assert result.reason is not None
    assert "denied" in result.reason.lower()


async def test_hook_registration() -> None:
    mount = mount_hook
    coordinator = TestCoordinator()
    cleanup = await mount(coordinator, {})

    # Verify handlers registered
    event = {"tool_name": "Write", "tool_input": {"file_path": "/etc/passwd"}}
    assert (await coordinator.hooks.emit("tool:pre", event)).action == "deny"

    cleanup()

    assert (await coordinator.hooks.emit("tool:pre", event)).action == "continue"


async def test_event_recorder_for_testing() -> None:
    recorder = EventRecorder()

    # Use in tests
    await recorder.record("tool:pre", {"tool_name": "Write"})

    # Assert
    events = recorder.get_events()
    assert len(events) == 1
    assert events[0][0] == "tool:pre"  # events are (event_name, data) tuples


async def test_orchestrator_basic() -> None:
    orchestrator = MyOrchestrator(config={})
    context = MockContextManager()
    providers = {"test": MockProvider()}
    tools = {"test_tool": MockTool()}
    hooks = HookRegistry()

    result = await orchestrator.execute(
        prompt="Test prompt",
        context=context,
        providers=providers,
        tools=tools,
        hooks=hooks,
    )

    assert isinstance(result, str)
    assert len(context.messages) > 0


async def test_scripted_orchestrator_for_testing() -> None:
    # For testing components that use orchestrators
    orchestrator = ScriptedOrchestrator(responses=["Response 1", "Response 2"])
    surroundings: Any = (MockContextManager(), {}, {}, MockCoordinator().hooks)

    result = await orchestrator.execute("Test prompt", *surroundings)
    assert result == "Response 1"


async def test_context_manager() -> None:
    context = MyContextManager(max_tokens=1000)

    # Add messages
    await context.add_message({"role": "user", "content": "Hello"})
    await context.add_message({"role": "assistant", "content": "Hi there!"})

    # Get messages for request (may compact)
    messages = await context.get_messages_for_request()
    assert len(messages) == 2
    assert messages[0]["role"] == "user"

    # Get raw messages (no compaction)
    raw_messages = await context.get_messages()
    assert len(raw_messages) == 2

    # Test clear
    await context.clear()
    assert len(await context.get_messages()) == 0


async def test_compaction_preserves_tool_pairs() -> None:
    """Verify tool_use and tool_result stay together during compaction."""
    context = MyContextManager(max_tokens=100, compaction_threshold=0.5)

    # Add messages including tool sequence
    await context.add_message({"role": "user", "content": "Read file.txt"})
    await context.add_message(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_123", "type": "function", "function": {...}}],
        }
    )
    await context.add_message({"role": "tool", "tool_call_id": "call_123", "content": "File contents..."})

    # Force compaction by adding more messages
    for i in range(50):
        await context.add_message({"role": "user", "content": f"Message {i}"})

    # Get messages for request (triggers compaction)
    messages = await context.get_messages_for_request()

    # Verify tool pairs are preserved
    tool_use_ids = set()
    tool_result_ids = set()
    for msg in messages:
        if msg.get("tool_calls"):
            for tc in msg["tool_calls"]:
                tool_use_ids.add(tc.get("id"))
        if msg.get("role") == "tool":
            tool_result_ids.add(msg.get("tool_call_id"))

    # Every tool result should have matching tool use
    assert tool_result_ids.issubset(tool_use_ids), "Orphaned tool results found!"


async def test_session_resume() -> None:
    """Verify set_messages works for session resume."""
    context = MyContextManager(max_tokens=1000)

    saved_messages = [
        {"role": "user", "content": "Previous conversation"},
        {"role": "assistant", "content": "Previous response"},
    ]

    await context.set_messages(saved_messages)

    messages = await context.get_messages()
    assert len(messages) == 2
    assert messages[0]["content"] == "Previous conversation"


async def test_mock_context_manager_for_testing() -> None:
    # For testing orchestrators
    context = MockContextManager()

    await context.add_message({"role": "user", "content": "Test"})
    messages = await context.get_messages_for_request()
    assert messages == [{"role": "user", "content": "Test"}]

    # Access internal state for assertions
    assert len(context.messages) == 1
