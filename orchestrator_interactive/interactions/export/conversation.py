"""A conversation to take along: as JSON lines, as text for a terminal, and as one page for a browser.

Each form comes in pieces, and a long conversation is never in memory as a whole. The first piece raises what there is
to raise about the conversation; whoever writes to a file takes it before opening that.
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
    """A branch, by default the current one, as one JSON object per line: the conversation first, then its artifacts.

    Raises:
        NoSuchConversation: the store has none.
        NoSuchBranch: it has no branch of this name.
    """
    told = await _Told.of(store, key, branch)
    yield _line(told.head())
    owned_by = owners(told.tree)
    async for node in told.nodes():
        yield _line(_artifact(key, owned_by[node.segment], node))


async def as_text(
    store: LogStore, key: Key, branch: str | None = None, *, last_n: int | None = None
) -> AsyncIterator[str]:
    """A branch, by default the current one, as text: each state with its index, and its time where this process is.

    Args:
        store: where the log is.
        key: whose it is.
        branch: by its name.
        last_n: how many states, by default all.

    Raises:
        NoSuchConversation: the store has none.
        NoSuchBranch: it has no branch of this name.
    """
    told = await _Told.of(store, key, branch)
    start = 0 if last_n is None else max(told.length - last_n, 0)
    async for item in transcript(told.nodes(start)):
        yield "".join(f"{line}\n" for line in lines(item))


async def as_page(store: LogStore, key: Key, branch: str | None = None) -> AsyncIterator[str]:
    """A branch, by default the current one, as one page of HTML, without scripts and with nothing to load.

    Raises:
        NoSuchConversation: the store has none.
        NoSuchBranch: it has no branch of this name.
    """
    from orchestrator_interactive.interactions.export.page import page  # noqa: PLC0415 - no other form takes a template

    told = await _Told.of(store, key, branch)
    piece: list[str] = []
    size = 0
    async for part in page().generate_async(told=told, items=transcript(told.nodes())):
        piece.append(part)
        size += len(part)
        if size >= _PIECE_CHARS:
            yield "".join(piece)
            piece, size = [], 0
    yield "".join(piece)


@dataclass(frozen=True, slots=True)
class _Told:
    """The branch of which is told."""

    store: LogStore
    key: Key
    tree: Tree
    branch: str

    @classmethod
    async def of(cls, store: LogStore, key: Key, branch: str | None) -> _Told:
        log = await store.load(key)
        if log is None:
            raise NoSuchConversation(
                f"There is no conversation {key.conversation_id} of the agent {key.agent_id}: "
                "look at the list of those there are."
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


def _line(told: dict[str, Any]) -> str:
    return f"{json.dumps(told)}\n"


def _artifact(key: Key, branch: str, node: Node) -> dict[str, Any]:
    """An artifact as JSON knows it; its data are told even where nobody here knows the type."""
    state, problem = read_state(node)
    envelope = node.envelope
    try:
        data = read_data(envelope)
    except UnreadableState:
        data = None
    told = {"ref": node.ref(key), "branch": branch, "index": node.index, "episode": node.episode, "ts": envelope["ts"]}
    told |= {"kind": envelope["t"], "v": envelope["v"], "data": data, "problem": problem}
    return told | {"metadata": metadata_of(node, state), "parents": list(node.parents)}
