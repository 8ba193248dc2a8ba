"""The agent of langchain, which runs on langgraph and replaces langgraph's `create_react_agent`."""

from __future__ import annotations

import os
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

from benchmarks.loops import INPUT, LAST_WORD, PROMPT, REMARK, RESULT, TOOL


class AtOnce(BaseChatModel):
    turns_left: int = 0
    calls: int = 0

    @property
    def _llm_type(self) -> str:
        return "at-once"

    def bind_tools(self, *_: Any, **__: Any) -> AtOnce:
        return self

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._answer())])

    async def _agenerate(self, *_: Any, **__: Any) -> ChatResult:
        return self._generate()

    def _answer(self) -> AIMessage:
        if not self.turns_left:
            return AIMessage(content=LAST_WORD)
        self.turns_left -= 1
        self.calls += 1
        return _asking(f"call_{self.calls}")


class Conversation:
    def __init__(self, messages: int) -> None:
        self._messages = _messages_before(messages)
        self._model = AtOnce()
        self._agent = create_agent(self._model, [look])

    async def run(self, turns: int) -> None:
        self._model.turns_left = turns
        asked: Any = {"messages": [*self._messages, HumanMessage(PROMPT)]}
        result = await self._agent.ainvoke(asked, {"recursion_limit": 10_000})
        self._messages = result["messages"]

    @property
    def remains(self) -> object:
        return self._messages


@tool
async def look(path: str) -> str:  # noqa: ARG001 - the library derives the tool's schema from the name
    """Look at a file."""
    return RESULT


def _asking(call_id: str) -> AIMessage:
    call: Any = {"name": TOOL, "args": INPUT, "id": call_id, "type": "tool_call"}
    return AIMessage(content=REMARK, tool_calls=[call])


def _messages_before(messages: int) -> list[BaseMessage]:
    before: list[BaseMessage] = []
    for number in range(messages // 4):
        before += [
            HumanMessage(PROMPT),
            _asking(f"old_{number}"),
            ToolMessage(RESULT, tool_call_id=f"old_{number}", name=TOOL),
            AIMessage(LAST_WORD),
        ]
    return before


async def conversation(messages: int) -> Conversation:
    os.environ["LANGSMITH_TRACING"] = "false"
    return Conversation(messages)
