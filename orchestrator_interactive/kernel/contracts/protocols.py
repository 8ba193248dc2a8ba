"""Protocols of mountable modules. They are structural: modules need not inherit from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, ToolCall
    from orchestrator_interactive.kernel.contracts.models import HookResult, Level, ModelInfo, ProviderInfo, ToolResult

    ProgressCallback = Callable[[str, dict[str, Any]], Awaitable[None]]


@runtime_checkable
class Orchestrator(Protocol):
    async def execute(
        self,
        prompt: str,
        context: ContextManager,
        providers: dict[str, Provider],
        tools: dict[str, Tool],
        hooks: Hooks,
        **kwargs: Any,
    ) -> str:
        """Run the agent loop on a prompt and return the final text. The session adds `coordinator=`."""
        ...


@runtime_checkable
class Provider(Protocol):
    @property
    def name(self) -> str: ...

    def get_info(self) -> ProviderInfo: ...

    async def list_models(self) -> list[ModelInfo]: ...

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Call the model. The interactive loop passes `stream=`, a `ResponseStream` that receives partial responses.

        With a stream, a failed call raises at once, and the loop retries if the error is retryable. Without a stream,
        the provider may retry.

        Raises:
            LLMError: no response, or an incomplete one.
        """
        ...

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]: ...


@runtime_checkable
class Tool(Protocol):
    """A capability of the agent.

    Optional members: `input_schema` (property) or `get_schema()`, the JSON schema of the input; `label(input)`, the
    status text while it runs (`"Reading notes.md"`); `side_effect_free`, true if a call changes nothing and may
    start early, be discarded and be repeated; `repeatable`, true if a call without a result may be made again;
    `resumable`, true if it then continues its work; `timeout_s`, the time limit of a call in seconds. During a call,
    `report_progress(text)` shows its progress to users.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    async def execute(self, input: dict[str, Any]) -> ToolResult: ...  # noqa: A002 - the name is the contract's


@runtime_checkable
class ContextManager(Protocol):
    """Messages of a conversation. It selects those that fit into a request; compaction never deletes history."""

    async def add_message(self, message: dict[str, Any]) -> None: ...

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]: ...

    async def get_messages(self) -> list[dict[str, Any]]: ...

    async def set_messages(self, messages: list[dict[str, Any]]) -> None: ...

    async def clear(self) -> None: ...


@runtime_checkable
class HookHandler(Protocol):
    async def __call__(self, event: str, data: dict[str, Any]) -> HookResult: ...


class Hooks(Protocol):
    """The hook registry of a session, as modules use it. See `hooks.HookRegistry`."""

    def register(
        self, event: str, handler: Callable[..., Any], priority: int = 0, name: str | None = None
    ) -> Callable[[], None]: ...

    def listens(self, event: str) -> bool: ...

    async def emit(self, event: str, data: dict[str, Any] | None = None) -> HookResult: ...


class Session(Protocol):
    """What a coordinator knows about its session."""

    session_id: str
    parent_id: str | None
    config: dict[str, Any]
    loader: Any


class Coordinator(Protocol):
    """What connects the modules of a session, as the kernel's own parts use it. See `coordinator.ModuleCoordinator`."""

    approval_system: ApprovalSystem | None
    display_system: DisplaySystem | None

    @property
    def injection_budget_per_turn(self) -> int | None: ...

    @property
    def injection_size_limit(self) -> int | None: ...

    def get(self, mount_point: str, name: str | None = None) -> Any: ...


class ApprovalSystem(Protocol):
    async def request_approval(
        self,
        prompt: str,
        options: list[str],
        timeout: float,  # noqa: ASYNC109 - the contract's name
        default: Literal["allow", "deny"],
    ) -> str:
        """Ask a person and return the chosen option; `timeout` is in seconds.

        Raises:
            ApprovalTimeoutError: no answer in time.
        """
        ...


class DisplaySystem(Protocol):
    def show_message(self, message: str, level: Level, source: str = "hook") -> Any: ...


class ModuleSource(Protocol):
    def resolve(self) -> Path:
        """Return the directory that contains the importable module."""
        ...


class ModuleSourceResolver(Protocol):
    def resolve(self, module_id: str, profile_hint: Any = None) -> ModuleSource | None:
        """Return the source of a module; None to have it looked up among the installed modules.

        Raises:
            ModuleNotFoundError: the resolver does not know the module.
        """
        ...
