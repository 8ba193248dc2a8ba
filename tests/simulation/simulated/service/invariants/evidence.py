"""What a conversation has come to, from all sides."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.modules.context_stack.rows import row_of
from orchestrator_interactive.transcript.rows import delivered_ids_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator_interactive.interactions.stores.base import LogStore
    from service.store.base import ConversationRecord
    from simulated.service.people import Reacted, Written
    from simulated.service.slack import SlackMessage

_TEXT = re.compile(r"\bt\d+\b")
# The first status of a run, and one that stands in for another.
_STATUS = re.compile(r"^\w+:status(:|$)")


@dataclass(frozen=True)
class Evidence:
    """One conversation.

    Args:
        known: what its inbox says.
        rows: of each agent's log, on the current branch.
        written: what people wrote, in order; `reactions` of theirs.
        accepted_s: when each entry was accepted, in seconds.
        posts: the bot's messages that were not deleted, in the order of the thread; `is_there`: whether there is one.
        ever: the bot's messages in the thread, of which some may have been deleted.
        begun: the runs that began with a message, by its id.
        claims_s: when a process has claimed it, in seconds.
        used: the tool calls that were made.
    """

    id: str
    known: ConversationRecord
    rows: dict[str, list[dict[str, Any]]]
    written: list[Written]
    reactions: list[Reacted]
    accepted_s: dict[str, float]
    posts: list[SlackMessage]
    is_there: bool
    ever: list[SlackMessage]
    begun: Mapping[str, list[str]]
    claims_s: Mapping[int, list[float]]
    used: set[str]

    @cached_property
    def delivered(self) -> dict[str, list[str]]:
        """The ids in the rows of each agent's log, in order."""
        return {agent: [each for row in rows for each in delivered_ids_in(row)] for agent, rows in self.rows.items()}

    @cached_property
    def seqs(self) -> dict[str, int]:
        """The place of each entry in the order of acceptance."""
        return {entry_id: seq for seq, entry_id in enumerate(self.known.order, 1)}

    @cached_property
    def waiting(self) -> set[str]:
        return {entry.id for entry in self.known.waiting}

    @cached_property
    def unrecorded(self) -> int:
        """How many calls were made of which no log has a result."""
        recorded = {row["tool_call_id"] for rows in self.rows.values() for row in rows if row["role"] == "tool"}
        return len(self.used - recorded)

    @property
    def statuses(self) -> list[SlackMessage]:
        return [post for post in self.posts if _STATUS.match(post.key)]

    @property
    def told(self) -> list[SlackMessage]:
        """The posts that are to stay."""
        return [post for post in self.posts if not _STATUS.match(post.key)]

    def is_for_us(self, written: Written) -> bool:
        """Whether a message is to an agent: in a thread that others have begun, after a mention that was accepted."""
        return not written.begun_without_us or any(
            each.is_mention and each.id in self.seqs and each.message.ts <= written.message.ts for each in self.written
        )

    def times_delivered(self, message_id: str) -> int:
        return sum(ids.count(message_id) for ids in self.delivered.values())

    def said(self, agent: str) -> dict[str, bool]:
        """The texts of the model that an agent's log has, in order; false for those beside calls, which are its own."""
        rows = (row for row in self.rows[agent] if row["role"] == "assistant")
        return {text: not row.get("tool_calls") for row in rows for text in _TEXT.findall(text_of(row))}

    def shown(self, agent: str) -> list[str]:
        """The texts of the model that the thread has."""
        mine = (post for post in self.told if (post.username or "").lower() == agent)
        return [text for post in mine for text in _TEXT.findall(post.text)]

    def last_version(self, word: str) -> int | None:
        """The version of a message that an agent has read last; `None`: none."""
        found = None
        for rows in self.rows.values():
            for row in rows:
                if row["role"] == "user":
                    versions = re.findall(rf"\b{word}\.(\d+)\b", text_of(row))
                    found = int(versions[-1]) if versions else found
        return found


def text_of(row: dict[str, Any]) -> str:
    content = row["content"]
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text", "") for block in content if block["type"] == "text")


async def rows_of(logs: LogStore, conversation_id: str, agent: str) -> list[dict[str, Any]]:
    """The rows on the current branch."""
    stack = InteractionStack(logs, conversation_id, agent)
    entries = [entry async for entry in stack.iter_last_n(await stack.length())]
    return [row for entry in entries if entry.state is not None and (row := row_of(entry.state)) is not None]
