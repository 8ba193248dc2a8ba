"""Two handwritten loops: a minimal one, and one with steering, stopping, events and tasks.

The rows are in the form of a chat API, with the arguments of a call as JSON.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from benchmarks.loops import INPUT, LAST_WORD, PROMPT, REMARK, RESULT, TOOL

Row = dict[str, Any]

ARGUMENTS = json.dumps(INPUT)


def rows_before(messages: int) -> list[Row]:
    """Return a history in the row format that ours uses too."""
    rows: list[Row] = []
    for number in range(messages // 4):
        rows += [
            {"role": "user", "content": PROMPT},
            _asking(f"old_{number}"),
            {"role": "tool", "tool_call_id": f"old_{number}", "name": TOOL, "content": RESULT},
            {"role": "assistant", "content": [{"type": "text", "text": LAST_WORD}]},
        ]
    return rows


def _asking(call_id: str) -> Row:
    call = {"type": "tool_call", "id": call_id, "name": TOOL, "input": dict(INPUT)}
    content = [{"type": "text", "text": REMARK}, call]
    return {"role": "assistant", "content": content, "tool_calls": _calls(call_id)}


def _calls(call_id: str) -> list[Row]:
    return [{"id": call_id, "type": "function", "function": {"name": TOOL, "arguments": ARGUMENTS}}]


class Model:
    def __init__(self) -> None:
        self.turns_left = 0
        self._calls = 0

    async def complete(self, _messages: list[Row]) -> Row:
        if not self.turns_left:
            return {"role": "assistant", "content": LAST_WORD}
        self.turns_left -= 1
        self._calls += 1
        return {"role": "assistant", "content": REMARK, "tool_calls": _calls(f"call_{self._calls}")}


async def look(_given: Row) -> str:
    return RESULT


@dataclass(slots=True)
class BareConversation:
    """The minimal loop: a list and a `while`."""

    rows: list[Row]
    model: Model = field(default_factory=Model)

    async def run(self, turns: int) -> None:
        self.model.turns_left = turns
        self.rows.append({"role": "user", "content": PROMPT})
        tools = {TOOL: look}
        while True:
            answer = await self.model.complete(list(self.rows))
            self.rows.append(answer)
            if "tool_calls" not in answer:
                return
            for call in answer["tool_calls"]:
                function = call["function"]
                result = await tools[function["name"]](json.loads(function["arguments"]))
                self.rows.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    @property
    def remains(self) -> object:
        return self.rows


@dataclass(slots=True)
class SteerableConversation:
    """The same with a message queue, a stop check, an event per step, and a task for each call."""

    rows: list[Row]
    model: Model = field(default_factory=Model)
    inbox: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    events: int = 0

    async def run(self, turns: int) -> None:
        self.model.turns_left = turns
        self.rows.append({"role": "user", "content": PROMPT})
        while not self.stop.is_set():
            while not self.inbox.empty():
                self.rows.append({"role": "user", "content": self.inbox.get_nowait()})
            self._tell("thinking")
            answer = await self.model.complete(list(self.rows))
            self.rows.append(answer)
            if "tool_calls" not in answer:
                self._tell("complete")
                return
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._result(**call["function"])) for call in answer["tool_calls"]]
            for call, task in zip(answer["tool_calls"], tasks, strict=True):
                self.rows.append({"role": "tool", "tool_call_id": call["id"], "content": task.result()})

    @property
    def remains(self) -> object:
        return self.rows

    async def _result(self, name: str, arguments: str) -> str:
        self._tell("tool:start", tool=name)
        result = await {TOOL: look}[name](json.loads(arguments))
        self._tell("tool:end", tool=name)
        return result

    def _tell(self, _event: str, **_data: Any) -> None:
        self.events += 1


async def bare(messages: int) -> BareConversation:
    return BareConversation(rows_before(messages))


async def steerable(messages: int) -> SteerableConversation:
    return SteerableConversation(rows_before(messages))
