"""Scripted tool, context and orchestrator."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.models import ToolResult
from orchestrator_interactive.kernel.interop import to_local

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.protocols import ContextManager, Provider, Tool
    from orchestrator_interactive.kernel.hooks import HookRegistry

_NOT_GIVEN = object()


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

    @property
    def return_value(self) -> Any:
        return self.output

    @return_value.setter
    def return_value(self, value: Any) -> None:
        self.output = value

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
        _check_responses(responses)
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
            response = await self._answer(prompt, context)
            ended, status = "completed", "success"
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

    async def _answer(self, prompt: str, context: ContextManager) -> str:
        number = self.call_count
        response = self.responses[number - 1] if number <= len(self.responses) else "DONE"
        await context.add_message({"role": "user", "content": prompt})
        if isinstance(response, BaseException):
            raise response
        await context.add_message({"role": "assistant", "content": response})
        return response


def _check_responses(responses: Any) -> None:
    is_list = isinstance(responses, Sequence) and not isinstance(responses, str)
    if not is_list or not all(isinstance(response, str | BaseException) for response in responses):
        raise TypeError(f"responses must be a list of texts and exceptions, not {responses!r}.")
