"""Export a conversation as JSON lines, as text for a terminal, as Markdown, or as an HTML page.

Each format is generated in pieces, so that a long conversation is never in memory as a whole. Errors about the
conversation are raised before the first piece; request it before opening an output file: NoSuchConversation if the
store has no such conversation, NoSuchBranch if it has no branch of this name. The branch is by default the current one.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from textwrap import shorten
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.artifacts import NoSuchConversation, metadata_of, owners
from orchestrator_interactive.interactions.errors import UnreadableState
from orchestrator_interactive.interactions.export.items import items_of
from orchestrator_interactive.interactions.export.text import lines, markdown
from orchestrator_interactive.interactions.feedback import feedback
from orchestrator_interactive.interactions.serializers import read_data
from orchestrator_interactive.interactions.stack import entry_fields, nodes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orchestrator_interactive.interactions.export.items import Item
    from orchestrator_interactive.interactions.records import Key, Node
    from orchestrator_interactive.interactions.stores.base import LogStore
    from orchestrator_interactive.interactions.tree import Tree

__all__ = ["as_json_lines", "as_markdown", "as_page", "as_text"]

_PIECE_CHARS = 16_384
_TITLE_CHARS = 80
# Number of first items among which the first message is looked for.
_TITLE_ITEMS = 20


async def as_json_lines(store: LogStore, key: Key, branch: str | None = None) -> AsyncIterator[str]:
    """Yield a branch as one JSON object per line: the conversation, its artifacts, then the ratings of its answers."""
    exported = await _ExportedBranch.of(store, key, branch)
    head = {
        "format": "amplifier-conversation",
        "version": 1,
        "conversation": key.conversation_id,
        "agent": key.agent_id,
        "asked_by": exported.tree.asked_by,
        "branch": exported.branch,
        "states": exported.length,
        "branches": [asdict(branch) for branch in exported.tree.branches()],
    }
    yield f"{json.dumps(head)}\n"
    owned_by = owners(exported.tree)
    async for node in exported.nodes():
        fields = entry_fields(key, node)
        metadata = metadata_of(node, fields.pop("state"))
        data = None
        with suppress(UnreadableState):  # the data of a type that is unknown in this process can be read
            data = read_data(node.envelope)
        rest = {"branch": owned_by[node.segment], "v": node.envelope["v"], "data": data, "metadata": metadata}
        yield f"{json.dumps(fields | rest)}\n"
    async for entry in feedback(store, key):
        yield f"{json.dumps(asdict(entry) | {'state': None, 'data': entry.state.data() if entry.state else None})}\n"


async def as_text(
    store: LogStore, key: Key, branch: str | None = None, *, last_n: int | None = None
) -> AsyncIterator[str]:
    """Yield a branch, or its `last_n` states, as text: each state with its index and local time."""
    exported = await _ExportedBranch.of(store, key, branch)
    start = 0 if last_n is None else max(exported.length - last_n, 0)
    async for item in items_of(exported.nodes(start)):
        yield "".join(f"{line}\n" for line in lines(item))


async def as_markdown(store: LogStore, key: Key, branch: str | None = None) -> AsyncIterator[str]:
    """Yield a branch as Markdown: messages as text, calls and events as one line each."""
    exported = await _ExportedBranch.of(store, key, branch)
    yield f"# Conversation with {key.agent_id}\n\n{key.conversation_id}, branch {exported.branch}\n"
    async for item in items_of(exported.nodes()):
        yield markdown(item)


async def as_page(store: LogStore, key: Key, branch: str | None = None) -> AsyncIterator[str]:
    """Yield a branch as one HTML page without scripts or external resources."""
    from orchestrator_interactive.interactions.export.page import page  # noqa: PLC0415 - only this format needs Jinja

    exported = await _ExportedBranch.of(store, key, branch)
    items = items_of(exported.nodes())
    first: list[Item] = []
    async for item in items:
        first.append(item)
        if item.kind == "person" or len(first) == _TITLE_ITEMS:
            break
    title = _title_of(first) or key.conversation_id
    piece: list[str] = []
    size = 0
    async for part in page().generate_async(exported=exported, title=title, items=_chained(first, items)):
        piece.append(part)
        size += len(part)
        if size >= _PIECE_CHARS:
            yield "".join(piece)
            piece, size = [], 0
    yield "".join(piece)


def _title_of(items: list[Item]) -> str:
    """Return the beginning of the message of a person among the first items; empty if there is none."""
    texts = [part.text for item in items if item.kind == "person" for part in item.parts if part.kind == "text"]
    return shorten(" ".join(texts), _TITLE_CHARS, placeholder=" …")


async def _chained(first: list[Item], rest: AsyncIterator[Item]) -> AsyncIterator[Item]:
    for item in first:
        yield item
    async for item in rest:
        yield item


@dataclass(frozen=True, slots=True)
class _ExportedBranch:
    """The branch to export."""

    store: LogStore
    key: Key
    tree: Tree
    branch: str

    @classmethod
    async def of(cls, store: LogStore, key: Key, branch: str | None) -> _ExportedBranch:
        log = await store.load(key)
        if log is None:
            raise NoSuchConversation(
                f"There is no conversation {key.conversation_id} of the agent {key.agent_id}: "
                "list the existing conversations."
            )
        name = str(log.tree.head.name if branch is None else branch)
        log.tree.named(name)
        return cls(store, key, log.tree, name)

    @property
    def length(self) -> int:
        return self.tree.segments[self.tree.named(self.branch)].end

    def nodes(self, start: int = 0) -> AsyncIterator[Node]:
        return nodes(self.store, self.key, self.tree.pieces(self.tree.named(self.branch), start, self.length))
