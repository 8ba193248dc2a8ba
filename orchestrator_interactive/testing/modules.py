"""A tool, a context and an orchestrator whose behaviour is given."""

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
    """A tool that answers always the same, and keeps what it was asked in `inputs`.

    Args:
        output: what it gives back, by amplifier_core's name.
        description: what the model reads; made up from the name where it is not given.
        return_value: what it gives back, by the contracts' name; it counts where both are given. A `ToolResult` is
            returned as it is, an exception is raised, and anything else is the output of a success.
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
        """What it was asked last; `None` before the first call."""
        return self.inputs[-1] if self.inputs else None

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the name is the contract's
        self.inputs.append(dict(input))
        if isinstance(self.output, BaseException):
            raise self.output
        result = to_local(self.output)
        return result if isinstance(result, ToolResult) else ToolResult(output=result)


class MockContextManager:
    """A context that keeps every message in `messages`, and never compacts.

    As the contract asks of every context, a message without a role is refused, and the lists it returns are the
    caller's.
    """

    def __init__(self, messages: Sequence[dict[str, Any]] | None = None) -> None:
        self.messages: list[dict[str, Any]] = list(messages or ())

    async def add_message(self, message: dict[str, Any]) -> None:
        """Append a message.

        Raises:
            ValueError: it has no role.
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
    """An orchestrator that answers from a list, in turn; after the last answer it says "DONE".

    Every run adds the prompt and the answer to the context, and emits what the contract asks of every orchestrator on
    every way out: `execution:start`, `execution:end` and `orchestrator:complete`. (amplifier_core's emits
    `session:start` and `session:end`, which are the session's.) `prompts` keeps what was asked.

    Args:
        responses: answers; an exception among them is raised, so that a run ends with an error or, with
            `asyncio.CancelledError`, cancelled.

    Raises:
        TypeError: `responses` is no list (or other sequence) of texts and exceptions.
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
            finally:  # a run may be cancelled while it tells of its end
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
