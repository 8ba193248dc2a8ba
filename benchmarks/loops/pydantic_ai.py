"""The loop of pydantic-ai."""

from __future__ import annotations

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

from benchmarks.loops import INPUT, LAST_WORD, PROMPT, REMARK, RESULT, TOOL


class Conversation:
    def __init__(self, messages: int) -> None:
        self._turns_left = 0
        self._calls = 0
        self._messages = _messages_before(messages)
        self._agent = Agent(FunctionModel(self._answer))
        self._agent.tool_plain(look)

    async def run(self, turns: int) -> None:
        self._turns_left = turns
        no_limit = UsageLimits(request_limit=None)
        result = await self._agent.run(PROMPT, message_history=self._messages, usage_limits=no_limit)
        self._messages = result.all_messages()

    @property
    def remains(self) -> object:
        return self._messages

    async def _answer(self, _messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        if not self._turns_left:
            return ModelResponse(parts=[TextPart(LAST_WORD)], usage=_usage())
        self._turns_left -= 1
        self._calls += 1
        call = ToolCallPart(TOOL, INPUT, f"call_{self._calls}")
        return ModelResponse(parts=[TextPart(REMARK), call], usage=_usage())


def _usage() -> RequestUsage:
    # Without it the test model would estimate the tokens of all messages, which is not part of the loop.
    return RequestUsage(input_tokens=1, output_tokens=1)


async def look(path: str) -> str:  # noqa: ARG001 - the library derives the tool's schema from the name
    """Look at a file."""
    return RESULT


def _messages_before(messages: int) -> list[ModelMessage]:
    before: list[ModelMessage] = []
    for number in range(messages // 4):
        before += [
            ModelRequest(parts=[UserPromptPart(PROMPT)]),
            ModelResponse(parts=[TextPart(REMARK), ToolCallPart(TOOL, INPUT, f"old_{number}")]),
            ModelRequest(parts=[ToolReturnPart(TOOL, RESULT, f"old_{number}")]),
            ModelResponse(parts=[TextPart(LAST_WORD)]),
        ]
    return before


async def conversation(messages: int) -> Conversation:
    return Conversation(messages)
