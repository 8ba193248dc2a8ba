"""What a module must look like to be mounted. Structural: nothing of these is inherited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, ToolCall
    from orchestrator_interactive.kernel.contracts.models import HookResult, Level, ModelInfo, ProviderInfo, ToolResult
    from orchestrator_interactive.kernel.hooks import HookRegistry

    ProgressCallback = Callable[[str, dict[str, Any]], Awaitable[None]]


@runtime_checkable
class Orchestrator(Protocol):
    async def execute(
        self,
        prompt: str,
        context: ContextManager,
        providers: dict[str, Provider],
        tools: dict[str, Tool],
        hooks: HookRegistry,
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
        """Ask the model. The interactive loop passes `stream=`, a `ResponseStream` to feed as the answer arrives.

        With a stream, a failed call raises at once, and the loop repeats it where the error says that this may help.
        Without one, the provider is free to repeat it.

        Raises:
            LLMError: no answer, or only a part of it.
        """
        ...

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]: ...


@runtime_checkable
class Tool(Protocol):
    """A capability of the agent.

    Optional besides: `input_schema` (property) or `get_schema()`, the JSON schema of the input; `label(input)`, what a
    person reads while it runs (`"Reading notes.md"`); `side_effect_free`, that a call changes nothing, so that it may
    begin early, come to nothing, and be repeated; `timeout_s`, how long a call may take, in seconds. Within a call,
    `report(text)` tells people how far it is.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    async def execute(self, input: dict[str, Any]) -> ToolResult: ...  # noqa: A002 - the name is the contract's


@runtime_checkable
class ContextManager(Protocol):
    """The memory of a conversation. It decides what fits into a request; compaction never destroys history."""

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
            ApprovalTimeoutError: nobody answered in time.
        """
        ...


class DisplaySystem(Protocol):
    def show_message(self, message: str, level: Level, source: str = "hook") -> Any: ...


class ModuleSource(Protocol):
    def resolve(self) -> Path:
        """The directory that holds the importable module."""
        ...


class ModuleSourceResolver(Protocol):
    def resolve(self, module_id: str, profile_hint: Any = None) -> ModuleSource:
        """Where a module comes from.

        Raises:
            ModuleNotFoundError: this resolver does not know it.
        """
        ...
