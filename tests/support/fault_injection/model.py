"""A model that follows the instructions in its requests."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from anthropic_server import AnthropicServer, Block, Reply, message, text, tool_call

MARK = re.compile(r"#(\d+)")
# The start of an answer: the mark of its prompt and the length of the conversation, unique together.
TAG = re.compile(r"answer (\d+/\d+)")
_ORDERS = re.compile(r" do: ([^\n]*)")
_CALL = re.compile(r"(note|look)([\d.]*)")
# The start of texts of the loop, which are no prompts.
_NO_PROMPT = "["


@dataclass(frozen=True, slots=True)
class Item:
    """A content block of a request."""

    role: str
    block: dict[str, Any]

    @property
    def is_prompt(self) -> bool:
        return self.role == "user" and self.block["type"] == "text" and not self.block["text"].startswith(_NO_PROMPT)

    @property
    def marks(self) -> list[str]:
        is_said = self.role == "user" and self.block["type"] == "text"
        return MARK.findall(self.block["text"]) if is_said else []


@dataclass(frozen=True, slots=True)
class Instructions:
    """The remaining steps for a prompt."""

    mark: str
    length: int
    read: tuple[str, ...]
    calls: tuple[tuple[str, float], ...]
    done: int
    think_s: float

    @classmethod
    def of(cls, body: dict[str, Any]) -> Instructions:
        items = [Item(m["role"], block) for m in body["messages"] for block in _blocks(m["content"])]
        start = max(place for place, item in enumerate(items) if item.is_prompt)
        words = items[start].block["text"]
        task = items[start:]
        calls, think_s = _orders(words)
        done = sum(item.block["type"] == "tool_use" for item in task)
        read = tuple(mark for item in task for mark in item.marks)
        return cls(items[start].marks[0] if items[start].marks else "0", len(items), read, calls, done, think_s)

    def next_calls(self) -> list[Block]:
        """Return the calls of the next answer; two adjacent calls of one tool are made at once."""
        left = self.calls[self.done : self.done + 2]
        if len(left) == 2 and left[0][0] != left[1][0]:
            left = left[:1]
        marks = [f"{self.mark}.{self.length}.{number}" for number in range(len(left))]
        return [
            tool_call(name, {"mark": mark, "seconds": seconds}, call_id=f"toolu_{mark.replace('.', '_')}")
            for mark, (name, seconds) in zip(marks, left, strict=True)
        ]

    def answer(self) -> str:
        return f"answer {self.mark}/{self.length} names {' '.join(self.read)}."


class InstructedModel:
    """Answers over HTTP. `asked` counts requests by the mark of their prompt; `problems` are those not understood."""

    def __init__(self) -> None:
        self.server = AnthropicServer()
        self.server.otherwise = self._reply
        self.asked: Counter[str] = Counter()
        self.problems: list[str] = []

    def _reply(self, body: dict[str, Any]) -> Reply:
        self.server.requests.clear()  # many are long
        try:
            orders = Instructions.of(body)
        except (KeyError, ValueError) as e:
            self.problems.append(f"{e!r}: {body}")
            raise
        self.asked[orders.mark] += 1
        if calls := orders.next_calls():
            return message(pause(orders.think_s), *calls)
        words = orders.answer()
        middle = words.index(" names")
        return message(pause(orders.think_s), text(words[:middle], pause(2 * orders.think_s), words[middle:]))


def pause(seconds: float) -> asyncio.Event:
    """Return an event that is set after a delay."""
    over = asyncio.Event()
    if seconds:
        asyncio.get_running_loop().call_later(seconds, over.set)
    else:
        over.set()
    return over


def _orders(words: str) -> tuple[tuple[tuple[str, float], ...], float]:
    found = _ORDERS.search(words)
    if found is None:
        return (), 0.0
    think = re.search(r"think([\d.]+)", found[1])
    calls = tuple((name, float(seconds or 0)) for name, seconds in _CALL.findall(found[1]))
    return calls, float(think[1]) if think else 0.0


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
