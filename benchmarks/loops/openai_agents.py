"""The loop of openai-agents."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from benchmarks.loops import INPUT, LAST_WORD, PROMPT, REMARK, RESULT, TOOL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Item = dict[str, Any]

QUIET = RunConfig(tracing_disabled=True)


class AtOnce(Model):
    def __init__(self) -> None:
        self.turns_left = 0
        self._calls = 0

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        if not self.turns_left:
            return ModelResponse(output=[_said(LAST_WORD)], usage=Usage(requests=1), response_id=None)
        self.turns_left -= 1
        self._calls += 1
        call = ResponseFunctionToolCall(
            arguments=json.dumps(INPUT), call_id=f"call_{self._calls}", name=TOOL, type="function_call"
        )
        return ModelResponse(output=[_said(REMARK), call], usage=Usage(requests=1), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


class Conversation:
    def __init__(self, messages: int) -> None:
        self._items = _items_before(messages)
        self._model = AtOnce()
        self._agent = Agent(name="agent", model=self._model, tools=[look])

    async def run(self, turns: int) -> None:
        self._model.turns_left = turns
        asked: Any = [*self._items, {"role": "user", "content": PROMPT}]
        result = await Runner.run(self._agent, asked, max_turns=turns + 1, run_config=QUIET)
        self._items = result.to_input_list()

    @property
    def remains(self) -> object:
        return self._items


@function_tool
async def look(path: str) -> str:  # noqa: ARG001 - the library derives the tool's schema from the name
    """Look at a file."""
    return RESULT


def _said(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(annotations=[], text=text, type="output_text")
    return ResponseOutputMessage(id="message", content=[part], role="assistant", status="completed", type="message")


def _items_before(messages: int) -> list[Any]:
    before: list[Any] = []
    for number in range(messages // 4):
        call = {"type": "function_call", "call_id": f"old_{number}", "name": TOOL, "arguments": json.dumps(INPUT)}
        before += [
            {"role": "user", "content": PROMPT},
            call,
            {"type": "function_call_output", "call_id": f"old_{number}", "output": RESULT},
            _said(LAST_WORD).model_dump(),
        ]
    return before


async def conversation(messages: int) -> Conversation:
    set_tracing_disabled(disabled=True)
    return Conversation(messages)
