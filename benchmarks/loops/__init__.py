"""The same conversation in several agent loops: a model without latency, a tool that does nothing.

Each file has functions that make a `Conversation`. In all of them the model answers at once with a line of text and one
call, in the library's own types, and says a last word when the turns are over; nothing is traced, nothing leaves the
process.
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

    What makes it is told how many messages are to be there from the beginning, in fours: a prompt, a call, its result,
    an answer.
    """

    async def run(self, turns: int) -> None:
        """Ask, and let the model call the tool that many times before it answers."""
        ...

    @property
    def remains(self) -> object:
        """What an application would keep of it while nobody writes."""
        ...
