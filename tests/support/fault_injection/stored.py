"""A conversation in the stores: its inbox, and the rows of its log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fault_injection.model import TAG
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.rows import row_of
from orchestrator_interactive.interactions.stores.base import LogStore
from orchestrator_interactive.transcript.rows import call_ids, delivered_ids_in, is_prompt, metadata_of, text_of
from service.store.base import ConversationRecord, RunStore

AGENT = "alpha"
_ALL = 1_000_000


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """A conversation as its inbox and its log have it."""

    known: ConversationRecord
    rows: Sequence[dict[str, Any]]

    @property
    def delivered(self) -> list[str]:
        """The ids of messages, in the order in which the model was given them."""
        return [id_ for row in self.rows for id_ in delivered_ids_in(row)]

    @property
    def prompts(self) -> set[str]:
        """The messages that runs began with."""
        return {id_ for row in self.rows if is_prompt(row) for id_ in delivered_ids_in(row)}

    @property
    def answers(self) -> list[tuple[str, str]]:
        """The answers to users by tag, each with the first message of its run."""
        found, prompt = [], ""
        for row in self.rows:
            if is_prompt(row):
                prompt = next(iter(delivered_ids_in(row)), "")
            elif _is_told(row):
                found += [(tag, prompt) for tag in TAG.findall(text_of(row))]
        return found

    @property
    def words(self) -> str:
        """All that people said, as the model read it."""
        return "\n".join(text_of(row) for row in self.rows if row.get("role") == "user")

    @property
    def results(self) -> list[str]:
        """The results of tools."""
        return [text_of(row) for row in self.rows if row.get("role") == "tool"] + [
            text_of(row) for row in self.rows if "results" in metadata_of(row)
        ]

    def end_of(self, id_: str) -> str:
        """Return the outcome of a message: delivered, withdrawn, refused, waiting, unknown."""
        if id_ in self.delivered:
            return "delivered"
        if any(entry.id == id_ for entry in self.known.waiting):
            return "waiting"
        end = self.known.ends.get(id_)
        return "unknown" if end is None else (end or "delivered, as its inbox says")


async def told(conversation_id: str, runs: RunStore, logs: LogStore) -> StoredConversation | None:
    """`None`: the store knows nothing of such a conversation."""
    known = await runs.record(conversation_id)
    if known is None:
        return None
    stack = InteractionStack(logs, conversation_id, AGENT)
    rows = [row async for entry in stack.iter_last_n(_ALL) if entry.state and (row := row_of(entry.state)) is not None]
    return StoredConversation(known, rows)


def _is_told(row: dict[str, Any]) -> bool:
    metadata = metadata_of(row)
    is_words = not call_ids(row) or metadata.get("partial") == "urgent"
    return row.get("role") == "assistant" and is_words and metadata.get("hidden") is not True
