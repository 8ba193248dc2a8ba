"""Scripted tool, context, provider and orchestrator."""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.messages import (
    ChatResponse,
    ContentBlock,
    TextBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo, ToolResult
from orchestrator_interactive.kernel.contracts.request_validation import check
from orchestrator_interactive.kernel.contracts.tool_calls import calls_of
from orchestrator_interactive.kernel.interop import to_local

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ResponseStream
    from orchestrator_interactive.kernel.contracts.protocols import ContextManager, Provider, Tool
    from orchestrator_interactive.kernel.hooks import HookRegistry

    Part = str | ToolCall | ContentBlock
    Answer = Part | Sequence[Part] | ChatResponse | BaseException

_NOT_GIVEN = object()
_LIMITS = {"context_window": 200_000, "max_output_tokens": 8_000}


class MockTool:
    """A tool with a fixed result that records its inputs in `inputs`.

    Args:
        output: the result, by amplifier_core's name.
        description: description for the model; derived from the name by default.
        return_value: the result, by the contracts' name; takes precedence over `output`. A `ToolResult` is returned
            as is, an exception is raised, any other value is the output of a successful result.
    """

    def __init__(
        self,
        name: str = "mock_tool",
        output: Any = "Success",
        *,
        description: str | None = None,
        return_value: Any = _NOT_GIVEN,
    ) -> None:
        self.name = name
        self.description = f"Mock tool: {name}" if description is None else description
        self.input_schema: dict[str, Any] = {"type": "object", "properties": {}}
        self.output = output if return_value is _NOT_GIVEN else return_value
        self.inputs: list[dict[str, Any]] = []

    def _set_output(self, value: Any) -> None:
        self.output = value

    return_value = property(lambda self: self.output, _set_output)

    @property
    def call_count(self) -> int:
        return len(self.inputs)

    @property
    def last_input(self) -> dict[str, Any] | None:
        """Input of the last call; `None` before the first call."""
        return self.inputs[-1] if self.inputs else None

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the name is the contract's
        self.inputs.append(dict(input))
        if isinstance(self.output, BaseException):
            raise self.output
        result = to_local(self.output)
        return result if isinstance(result, ToolResult) else ToolResult(output=result)


class MockContextManager:
    """A context that keeps every message in `messages` and never compacts.

    As the contract requires, it refuses a message without a role and returns copies of its list.
    """

    def __init__(self, messages: Sequence[dict[str, Any]] | None = None) -> None:
        self.messages: list[dict[str, Any]] = list(messages or ())

    async def add_message(self, message: dict[str, Any]) -> None:
        """Append a message.

        Raises:
            ValueError: the message has no role.
        """
        if not message.get("role"):
            raise ValueError(f"message needs a 'role' (user, assistant, tool, system); this one has none: {message}.")
        self.messages.append(message)

    async def get_messages_for_request(
        self,
        token_budget: int | None = None,  # noqa: ARG002 - the signature is the contract's
        provider: Any | None = None,  # noqa: ARG002
    ) -> list[dict[str, Any]]:
        return list(self.messages)

    async def get_messages(self) -> list[dict[str, Any]]:
        return list(self.messages)

    async def set_messages(self, messages: Sequence[dict[str, Any]]) -> None:
        self.messages = list(messages)

    async def clear(self) -> None:
        self.messages = []


class MockProvider:
    """A provider that returns the answers of a list in order, then its default text.

    `requests` records a copy of each request. A request that real providers would refuse raises an
    `InvalidRequestError`. A `stream=` receives the answer before it is returned.

    Args:
        answers: each is a text, a `ToolCall`, a content block, a sequence of such values, a `ChatResponse`, or an
            exception, which is raised.
        default: the text after the last answer.

    Raises:
        TypeError: `answers` is not a sequence, or contains a value of another type.
    """

    def __init__(self, answers: Sequence[Answer] = (), *, default: str = "Mock response", name: str = "mock") -> None:
        if isinstance(answers, str) or not isinstance(answers, Sequence):
            raise TypeError(f"answers must be a list of answers, not {answers!r}; one for every call is default=….")
        self.name = name
        self.default = default
        self.requests: list[ChatRequest] = []
        self._script = deque(_step(answer) for answer in answers)

    @property
    def call_count(self) -> int:
        return len(self.requests)

    @property
    def last_request(self) -> ChatRequest | None:
        """Last request; `None` before the first call."""
        return self.requests[-1] if self.requests else None

    def get_info(self) -> ProviderInfo:
        capabilities = ["streaming", "tools", "tool_choice"]
        defaults = {"model": "mock-model", **_LIMITS}
        return ProviderInfo(id=self.name, display_name="Mock provider", capabilities=capabilities, defaults=defaults)

    async def list_models(self) -> list[ModelInfo]:
        return [ModelInfo(id="mock-model", display_name="Mock model", **_LIMITS)]

    async def complete(self, request: ChatRequest, *, stream: ResponseStream | None = None, **_: Any) -> ChatResponse:
        self.requests.append(copy.deepcopy(request))
        check(to_local(request))
        step = self._script.popleft() if self._script else _step(self.default)
        if isinstance(step, BaseException):
            raise step
        if stream is not None:
            for block in step.content:
                if isinstance(block, TextBlock):
                    stream.text(block.text)
                stream.block(block)
        return step

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return calls_of(response.content) if response.tool_calls is None else list(response.tool_calls)


def _step(answer: Any) -> ChatResponse | BaseException:
    answer = to_local(answer)
    if isinstance(answer, ChatResponse | BaseException):
        return answer
    parts = answer if isinstance(answer, list | tuple) else [answer]
    content = [_block(to_local(part)) for part in parts]
    calls = calls_of(content)
    return ChatResponse(
        content=content,
        tool_calls=calls or None,
        usage=Usage(input_tokens=1, output_tokens=1, total_tokens=2),
        finish_reason="tool_use" if calls else "end_turn",
    )


def _block(part: Any) -> ContentBlock:
    match part:
        case str():
            return TextBlock(text=part)
        case ToolCall():
            return ToolCallBlock(id=part.id, name=part.name, input=part.arguments)
        case _ if isinstance(part, ContentBlock):
            block: ContentBlock = part
            return block
        case _:
            raise TypeError(f"answers may hold texts, tool calls, blocks, responses and exceptions, not {part!r}.")


class ScriptedOrchestrator:
    """An orchestrator that returns the answers of a list in order, then "DONE".

    Every run adds the prompt and the answer to the context, and on every exit path emits the events that the contract
    requires: `execution:start`, `execution:end` and `orchestrator:complete`. (amplifier_core's emits `session:start`
    and `session:end`, which belong to the session.) `prompts` records the prompts.

    Args:
        responses: answers. An exception is raised and ends the run with an error; `asyncio.CancelledError` cancels it.

    Raises:
        TypeError: `responses` is not a sequence of texts and exceptions.
    """

    name = "scripted"

    def __init__(self, responses: Sequence[str | BaseException]) -> None:
        is_list = isinstance(responses, Sequence) and not isinstance(responses, str)
        if not is_list or not all(isinstance(response, str | BaseException) for response in responses):
            raise TypeError(f"responses must be a list of texts and exceptions, not {responses!r}.")
        self.responses = list(responses)
        self.prompts: list[str] = []

    @property
    def call_count(self) -> int:
        return len(self.prompts)

    async def execute(
        self,
        prompt: str,
        context: ContextManager,
        providers: dict[str, Provider],  # noqa: ARG002
        tools: dict[str, Tool],  # noqa: ARG002
        hooks: HookRegistry,
        **_: Any,
    ) -> str:
        """Return the next answer."""
        self.prompts.append(prompt)
        ended, status, response = "error", "incomplete", ""
        try:
            await hooks.emit(events.EXECUTION_START, {"prompt": prompt})
            await context.add_message({"role": "user", "content": prompt})
            answer = self.responses[self.call_count - 1] if self.call_count <= len(self.responses) else "DONE"
            if isinstance(answer, BaseException):
                raise answer
            await context.add_message({"role": "assistant", "content": answer})
            ended, status, response = "completed", "success", answer
        except asyncio.CancelledError:
            ended, status = "cancelled", "cancelled"
            raise
        finally:
            complete = {"orchestrator": self.name, "turn_count": 1, "status": status}
            try:
                await hooks.emit(events.EXECUTION_END, {"response": response, "status": ended})
            finally:  # the run may be cancelled during the emit
                await hooks.emit(events.ORCHESTRATOR_COMPLETE, complete)
        return response
