"""Search the states of conversations as artifacts.

Artifacts are not stored separately: each pushed state is an artifact. They therefore always agree with the log.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.interactions.errors import DamagedLog, InteractionError
from orchestrator_interactive.interactions.feedback import FeedbackState
from orchestrator_interactive.interactions.records import Key, damaged, place_of
from orchestrator_interactive.interactions.rows import declared_calls
from orchestrator_interactive.interactions.stack import StackEntry, entry_fields, nodes
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    WaitingState,
)
from orchestrator_interactive.interactions.tree import Piece

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from orchestrator_interactive.interactions.records import Node
    from orchestrator_interactive.interactions.states import BaseState
    from orchestrator_interactive.interactions.stores.base import LogStore
    from orchestrator_interactive.interactions.tree import Tree

logger = structlog.get_logger(__name__)

# Maximum clock difference between two machines.
_CLOCKS_DIFFER_S = 3600
# Searchable fields by type of state: the field's name, and the attribute with its value.
_FIELDS: dict[type, dict[str, str]] = {
    FeedbackState: {"reward": "reward", "answer": "ref"},
    ToolCallState: {"tool": "function_name", "call_id": "id"},
    ToolResultState: {"tool": "tool_name", "call_id": "tool_call_id", "reward": "reward"},
    AgentCallState: {"agent": "agent_id", "correlation_id": "correlation_id"},
    AgentResultState: {"correlation_id": "correlation_id", "score": "score"},
    WaitingState: {"waits_for": "kind", "correlation_id": "correlation_id"},
}


class NoSuchArtifact(InteractionError, LookupError):  # noqa: N818 - states a fact about the store
    """The store has no artifact of this ref."""


class NoSuchConversation(InteractionError, LookupError):  # noqa: N818
    """The store has no log of this conversation and agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact(StackEntry):
    """A state of a conversation with its position and context.

    Args:
        session: the conversation's id.
        agent_id: the agent that has the log.
        branch: the branch that owns the state; branches forked after it share it.
        metadata: searchable fields: `size` (bytes as stored), and depending on the kind `tool`, `call_id`, `reward`,
            `is_error`, `calls`, `agent`, `correlation_id`, `score`, `waits_for`, `messages`.
    """

    session: str
    agent_id: str
    branch: str
    metadata: dict[str, Any]


async def artifact(store: LogStore, ref: str) -> Artifact:
    """Return the artifact with this ref.

    Raises:
        NoSuchArtifact: the store has no such artifact.
    """
    try:
        key, segment, index = place_of(ref)
    except ValueError as e:
        raise NoSuchArtifact(f"{ref!r} is not an artifact ref: a ref ends in /segment/index.") from e
    log = await store.load(key)
    found = log.tree.segments.get(segment) if log else None
    if log is None or found is None or not found.base <= index < found.end:
        raise NoSuchArtifact(f"There is no artifact {ref!r}: it was pruned with its branch or never existed.")
    rows = await store.read(key, segment, index, index + 1)
    return _artifact(key, owners(log.tree), rows[0] if rows else damaged(segment, index))


async def artifacts(  # noqa: PLR0913 - each is a keyword filter
    store: LogStore,
    *,
    session: str | None = None,
    agent_id: str | None = None,
    branch: str | None = None,
    kinds: Collection[str | type[BaseState]] = (),
    since: float | None = None,
    until: float | None = None,
) -> AsyncIterator[Artifact]:
    """Yield the artifacts that match all filters, grouped by conversation.

    Within a conversation they come branch by branch, in log order. A `branch` filter skips conversations without that
    branch and yields all of its states, including shared ones.

    Args:
        store: the store to search.
        session: conversation id.
        agent_id: agent whose log is searched.
        branch: branch name.
        kinds: state types or their names.
        since: inclusive start, in seconds since the epoch.
        until: exclusive end, in seconds since the epoch.
    """
    names = [each if isinstance(each, str) else each.__name__ for each in kinds]
    start, stop = 0.0 if since is None else since, inf if until is None else until
    keys = await store.keys() if session is None or agent_id is None else [Key(session, agent_id)]
    for key in keys:
        if session not in (None, key.conversation_id) or agent_id not in (None, key.agent_id):
            continue
        try:
            log = await store.load(key)
        except DamagedLog as e:
            logger.warning("artifacts.log_skipped", problem=str(e))
            continue
        if log is None or (branch is not None and branch not in log.tree.names()):
            continue
        if max(each.written for each in log.tree.segments.values()) < start - _CLOCKS_DIFFER_S:
            continue  # without reading its states
        owned_by = owners(log.tree)
        async for node in nodes(store, key, pieces_of(log.tree, branch)):
            envelope = node.envelope
            if (not names or envelope["t"] in names) and start <= envelope["ts"] < stop:
                yield _artifact(key, owned_by, node)


async def children(store: LogStore, ref: str) -> AsyncIterator[Artifact]:
    """Yield the artifacts caused by this one: results of a call, and tasks of a requested agent.

    Raises:
        NoSuchArtifact: the store has no artifact with this ref.
    """
    parent = await artifact(store, ref)
    async for each in artifacts(store, session=parent.session, agent_id=parent.agent_id):
        if ref in each.parents:
            yield each
    since = max(parent.ts - _CLOCKS_DIFFER_S, 0.0)
    async for each in artifacts(store, kinds=[UserMessageState], since=since):
        if ref in each.parents and (each.session, each.agent_id) != (parent.session, parent.agent_id):
            yield each


def metadata_of(node: Node, state: BaseState | None) -> dict[str, Any]:
    """Return the searchable fields of a state, without empty ones."""
    fields = {name: getattr(state, field) for name, field in _FIELDS.get(type(state), {}).items()}
    match state:
        case UserMessageState(meta={"injections": list(ids)}):
            fields["messages"] = ids
        case AssistantMessageState(content=content, tool_calls=tool_calls):
            fields["calls"] = [call.id for call in declared_calls(content, tool_calls)]
        case ToolResultState(meta={"is_error": failed}) if failed:
            fields["is_error"] = True
    fields["size"] = len(node.envelope["data"])
    return {name: value for name, value in fields.items() if value is not None and value != []}


def pieces_of(tree: Tree, branch: str | None) -> list[Piece]:
    """Return the pieces of a branch, or with `None` those of all branches without duplicates.

    Raises:
        NoSuchBranch: the conversation has no branch of this name.
    """
    if branch is None:
        return [Piece(number, each.base, each.end) for number, each in sorted(tree.segments.items())]
    segment = tree.named(branch)
    return tree.pieces(segment, 0, tree.segments[segment].end)


def owners(tree: Tree) -> dict[int, str]:
    """Map each segment to its branch; a pruned segment maps to the branch that shares most of it."""
    found: dict[int, str] = {}
    for number, each in sorted(tree.segments.items(), reverse=True):  # a parent is older than its children
        if each.name is None:
            behind = [(child.base, -n) for n, child in tree.segments.items() if child.parent == number]
            found[number] = found[-max(behind)[1]]
        else:
            found[number] = each.name
    return found


def _artifact(key: Key, owned_by: dict[int, str], node: Node) -> Artifact:
    fields = entry_fields(key, node)
    return Artifact(
        **fields,
        session=key.conversation_id,
        agent_id=key.agent_id,
        branch=owned_by[node.segment],
        metadata=metadata_of(node, fields["state"]),
    )
