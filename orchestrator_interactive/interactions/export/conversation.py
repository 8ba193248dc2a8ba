"""Export a conversation as JSON lines, as text for a terminal, or as an HTML page.

Each format is generated in pieces, so that a long conversation is never in memory as a whole. Errors about the
conversation are raised before the first piece; request it before opening an output file.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.interactions.artifacts import (
    NoSuchConversation,
    metadata_of,
    nodes,
    owners,
    read_state,
)
from orchestrator_interactive.interactions.errors import UnreadableState
from orchestrator_interactive.interactions.export.plain_text import lines
from orchestrator_interactive.interactions.export.transcript import transcript
from orchestrator_interactive.interactions.serializers import read_data

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orchestrator_interactive.interactions.records import Key, Node
    from orchestrator_interactive.interactions.stores.base import LogStore
    from orchestrator_interactive.interactions.tree import Tree

FORMAT, FORMAT_VERSION = "amplifier-conversation", 1
_PIECE_CHARS = 16_384


async def as_json_lines(store: LogStore, key: Key, branch: str | None = None) -> AsyncIterator[str]:
    """Yield a branch, by default the current one, as one JSON object per line: the conversation, then its artifacts.

    Raises:
        NoSuchConversation: the store has no such conversation.
        NoSuchBranch: it has no branch of this name.
    """
    exported = await _ExportedBranch.of(store, key, branch)
    yield _line(exported.head())
    owned_by = owners(exported.tree)
    async for node in exported.nodes():
        yield _line(_artifact(key, owned_by[node.segment], node))


async def as_text(
    store: LogStore, key: Key, branch: str | None = None, *, last_n: int | None = None
) -> AsyncIterator[str]:
    """Yield a branch, by default the current one, as text: each state with its index and local time.

    Args:
        store: the store of the log.
        key: key of the log.
        branch: branch name.
        last_n: number of states, by default all.

    Raises:
        NoSuchConversation: the store has no such conversation.
        NoSuchBranch: it has no branch of this name.
    """
    exported = await _ExportedBranch.of(store, key, branch)
    start = 0 if last_n is None else max(exported.length - last_n, 0)
    async for item in transcript(exported.nodes(start)):
        yield "".join(f"{line}\n" for line in lines(item))


async def as_page(store: LogStore, key: Key, branch: str | None = None) -> AsyncIterator[str]:
    """Yield a branch, by default the current one, as one HTML page without scripts or external resources.

    Raises:
        NoSuchConversation: the store has no such conversation.
        NoSuchBranch: it has no branch of this name.
    """
    from orchestrator_interactive.interactions.export.page import page  # noqa: PLC0415 - only this format needs Jinja

    exported = await _ExportedBranch.of(store, key, branch)
    piece: list[str] = []
    size = 0
    async for part in page().generate_async(exported=exported, items=transcript(exported.nodes())):
        piece.append(part)
        size += len(part)
        if size >= _PIECE_CHARS:
            yield "".join(piece)
            piece, size = [], 0
    yield "".join(piece)


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
        name = log.tree.head.name if branch is None else branch
        log.tree.named(str(name))
        return cls(store, key, log.tree, str(name))

    @property
    def length(self) -> int:
        return self.tree.segments[self.tree.named(self.branch)].end

    def nodes(self, start: int = 0) -> AsyncIterator[Node]:
        pieces = self.tree.pieces(self.tree.named(self.branch), start, self.length)
        return nodes(self.store, self.key, pieces)

    def head(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "conversation": self.key.conversation_id,
            "agent": self.key.agent_id,
            "asked_by": self.tree.asked_by,
            "branch": self.branch,
            "states": self.length,
            "branches": [asdict(branch) for branch in self.tree.branches()],
        }


def _line(value: dict[str, Any]) -> str:
    return f"{json.dumps(value)}\n"


def _artifact(key: Key, branch: str, node: Node) -> dict[str, Any]:
    """Return an artifact as JSON values, with its data even if its type is unknown in this process."""
    state, problem = read_state(node)
    envelope = node.envelope
    try:
        data = read_data(envelope)
    except UnreadableState:
        data = None
    fields = {"ref": node.ref(key), "branch": branch, "index": node.index, "episode": node.episode}
    fields |= {"ts": envelope["ts"]}
    fields |= {"kind": envelope["t"], "v": envelope["v"], "data": data, "problem": problem}
    return fields | {"metadata": metadata_of(node, state), "parents": list(node.parents)}
