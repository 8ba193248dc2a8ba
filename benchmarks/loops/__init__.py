"""The same conversation in several agent loops: a model without latency, a tool that does nothing.

Each file has functions that make a `Conversation`. In each the model answers at once with a line of text and one
call, in the library's own types, and with a final text after the last turn. Tracing is off; there is no network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    NewConversation = Callable[[int], Awaitable["Conversation"]]

PROMPT = "Look at the notes and say what they are about."
REMARK = "I look."
TOOL = "look"
PURPOSE = "Look at a file."
INPUT = {"path": "notes/plan.md"}
RESULT = "Nothing to see."
LAST_WORD = "They say this and that."


class Conversation(Protocol):
    """A conversation that keeps its messages from one run to the next.

    Its factory takes the number of initial messages, a multiple of four: a prompt, a call, its result, an answer.
    """

    async def run(self, turns: int) -> None:
        """Run a prompt; the model calls the tool that many times before it answers."""
        ...

    @property
    def remains(self) -> object:
        """Return the objects that an application keeps while the conversation is idle."""
        ...
