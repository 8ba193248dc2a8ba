"""The artifacts of conversations: each state that was pushed is one, and can be found by what it is about.

There is nothing to publish: the state in the log is the artifact. So none can be missing, and none can say something
else than the conversation.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.interactions.errors import DamagedLog, InteractionError, UnreadableState
from orchestrator_interactive.interactions.records import Key, damaged, place_of
from orchestrator_interactive.interactions.rendering.openai_format import declared_calls
from orchestrator_interactive.interactions.serializers import decode
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
    from collections.abc import AsyncIterator, Collection, Iterable, Sequence

    from orchestrator_interactive.interactions.records import Node
    from orchestrator_interactive.interactions.states import BaseState
    from orchestrator_interactive.interactions.stores.base import Log, LogStore
    from orchestrator_interactive.interactions.tree import Tree

logger = structlog.get_logger(__name__)

# Of states that are read at a time.
_PAGE = 500
# The clocks of two machines may differ by this much.
_CLOCKS_DIFFER_S = 3600


class NoSuchArtifact(InteractionError, LookupError):  # noqa: N818 - a fact about the store, as is the one below
    """The store has no artifact of this ref."""


class NoSuchConversation(InteractionError, LookupError):  # noqa: N818
    """The store has no log of this conversation and agent."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A state of a conversation, with where it stands and what it belongs to.

    Args:
        session: the conversation's id.
        branch: the one in whose part of the log it stands; branches that were forked behind it have it, too.
        episode: the number of the task that it belongs to.
        index: from the beginning of the conversation.
        ts: when it was pushed, in seconds since the epoch.
        kind: the name of its type.
        state: `None` where it cannot be read; `problem` then says why.
        metadata: what helps to find it: `size` (bytes as stored), and by kind `tool`, `call_id`, `reward`, `is_error`,
            `calls`, `agent`, `correlation_id`, `score`, `waits_for`, `messages`.
        parents: the refs of the artifacts that it comes from: the call of a result, the request that another agent's
            conversation answers.
    """

    ref: str
    session: str
    agent_id: str
    branch: str
    episode: int
    index: int
    ts: float
    kind: str
    state: BaseState | None
    problem: str | None
    metadata: dict[str, Any]
    parents: tuple[str, ...]


async def artifact(store: LogStore, ref: str) -> Artifact:
    """The artifact of a ref.

    Raises:
        NoSuchArtifact: there is none.
    """
    key, segment, index = _place(ref)
    log = await store.load(key)
    there = log.tree.segments.get(segment) if log else None
    if log is None or there is None or not there.base <= index < there.end:
        raise NoSuchArtifact(f"There is no artifact {ref!r}: it was pruned with its branch, or never was.")
    found = await store.read(key, segment, index, index + 1)
    return _artifact(key, owners(log.tree), found[0] if found else damaged(segment, index))


async def artifacts(  # noqa: PLR0913 - each is a thing to search by, and given by its name
    store: LogStore,
    *,
    session: str | None = None,
    agent_id: str | None = None,
    branch: str | None = None,
    kinds: Collection[str | type[BaseState]] = (),
    since: float | None = None,
    until: float | None = None,
) -> AsyncIterator[Artifact]:
    """The artifacts that fit everything that is asked for, one conversation after the other.

    Those of one come in its order, branch by branch. With a `branch`, conversations without it have none, and those
    with it have all of its states, the ones that it shares with others too.

    Args:
        store: where the logs are.
        session: the conversation's id.
        agent_id: whose log.
        branch: by its name.
        kinds: types of states, or their names.
        since: from when, in seconds since the epoch.
        until: before when, likewise.
    """
    names = [each if isinstance(each, str) else each.__name__ for each in kinds]
    start, stop = 0.0 if since is None else since, inf if until is None else until
    if session is None and branch is None:
        async for found in _scanned(store, agent_id, start, stop, names):
            yield found
        return
    for key in await _keys(store, session, agent_id):
        log = await _unless_damaged(store, key)
        if log is None or (branch is not None and branch not in log.tree.names()):
            continue
        owned_by = owners(log.tree)
        async for node in nodes(store, key, pieces_of(log.tree, branch)):
            envelope = node.envelope
            if (not names or envelope["t"] in names) and start <= envelope["ts"] < stop:
                yield _artifact(key, owned_by, node)


async def children(store: LogStore, ref: str) -> AsyncIterator[Artifact]:
    """The artifacts that come from this one: results of a call, and the tasks of an agent that was asked.

    Raises:
        NoSuchArtifact: there is none of this ref.
    """
    parent = await artifact(store, ref)
    async for each in artifacts(store, session=parent.session, agent_id=parent.agent_id):
        if ref in each.parents:
            yield each
    since = max(parent.ts - _CLOCKS_DIFFER_S, 0.0)
    async for each in _scanned(store, None, since, inf, (UserMessageState.__name__,)):
        if ref in each.parents and (each.session, each.agent_id) != (parent.session, parent.agent_id):
            yield each


async def nodes(store: LogStore, key: Key, pieces: Iterable[Piece]) -> AsyncIterator[Node]:
    """The states of these pieces of a log, a page at a time; a damaged one in the place of one that is gone."""
    for piece in pieces:
        for start in range(piece.start, piece.stop, _PAGE):
            stop = min(start + _PAGE, piece.stop)
            there = {node.index: node for node in await store.read(key, piece.segment, start, stop)}
            if not there and stop - start == _PAGE:
                raise DamagedLog(f"Of {_PAGE} states of {key.conversation_id} none is there.")
            for index in range(start, stop):
                yield there.get(index) or damaged(piece.segment, index)


def metadata_of(node: Node, state: BaseState | None) -> dict[str, Any]:
    """What helps to find a state; blank fields are left out."""
    told = {"size": len(node.envelope["data"]), **_told(state)}
    return {name: value for name, value in told.items() if value is not None and value != []}


def read_state(node: Node) -> tuple[BaseState | None, str | None]:
    """The state, or why it cannot be read."""
    try:
        return decode(node.envelope), None
    except UnreadableState as e:
        return None, str(e)


def pieces_of(tree: Tree, branch: str | None) -> list[Piece]:
    """Where the states of a branch stand; `None`: those of all branches, each once.

    Raises:
        NoSuchBranch: there is none of this name.
    """
    if branch is None:
        return [Piece(number, each.base, each.end) for number, each in sorted(tree.segments.items())]
    segment = tree.named(branch)
    return tree.pieces(segment, 0, tree.segments[segment].end)


async def _unless_damaged(store: LogStore, key: Key) -> Log | None:
    """The log; none where it is damaged, which is no reason not to look at the others."""
    try:
        return await store.load(key)
    except DamagedLog as e:
        logger.warning("artifacts.log_left_out", problem=str(e))
        return None


async def _scanned(
    store: LogStore, agent_id: str | None, since: float, until: float, names: Sequence[str]
) -> AsyncIterator[Artifact]:
    """The artifacts of all conversations, found by what the store can look for itself."""
    known: tuple[Key, dict[int, str]] | None = None
    async for key, node in store.scan(since, until, names):
        if agent_id is not None and key.agent_id != agent_id:
            continue
        if known is None or known[0] != key:
            log = await _unless_damaged(store, key)
            known = key, owners(log.tree) if log else {}
        if node.segment in known[1]:  # or it was pruned meanwhile
            yield _artifact(key, known[1], node)


async def _keys(store: LogStore, session: str | None, agent_id: str | None) -> list[Key]:
    if session is not None and agent_id is not None:
        return [Key(session, agent_id)]
    return [
        key for key in await store.keys() if session in (None, key.conversation_id) and agent_id in (None, key.agent_id)
    ]


def owners(tree: Tree) -> dict[int, str]:
    """The branch of each segment; that of a pruned one is the branch which has the most of it."""
    found: dict[int, str] = {}
    for number, each in sorted(tree.segments.items(), reverse=True):  # a parent is older than its children
        if each.name is None:
            behind = [(child.base, -n) for n, child in tree.segments.items() if child.parent == number]
            found[number] = found[-max(behind)[1]]
        else:
            found[number] = each.name
    return found


def _artifact(key: Key, owned_by: dict[int, str], node: Node) -> Artifact:
    state, problem = read_state(node)
    return Artifact(
        ref=node.ref(key),
        session=key.conversation_id,
        agent_id=key.agent_id,
        branch=owned_by[node.segment],
        episode=node.episode,
        index=node.index,
        ts=node.envelope["ts"],
        kind=node.envelope["t"],
        state=state,
        problem=problem,
        metadata=metadata_of(node, state),
        parents=node.parents,
    )


def _place(ref: str) -> tuple[Key, int, int]:
    try:
        return place_of(ref)
    except ValueError as e:
        raise NoSuchArtifact(f"{ref!r} is no ref of an artifact: it ends in /segment/index.") from e


def _told(state: BaseState | None) -> dict[str, Any]:
    told: dict[str, Any] = {}
    match state:
        case UserMessageState(meta={"injections": list(ids)}):
            told = {"messages": ids}
        case AssistantMessageState(content=content, tool_calls=beside):
            told = {"calls": [call.id for call in declared_calls(content, beside)]}
        case ToolCallState():
            told = {"tool": state.function_name, "call_id": state.id}
        case ToolResultState():
            failed = True if isinstance(state.meta, dict) and state.meta.get("is_error") else None
            told = {"tool": state.tool_name, "call_id": state.tool_call_id}
            told |= {"reward": state.reward, "is_error": failed}
        case AgentCallState():
            told = {"agent": state.agent_id, "correlation_id": state.correlation_id}
        case AgentResultState():
            told = {"correlation_id": state.correlation_id, "score": state.score}
        case WaitingState():
            told = {"waits_for": state.kind, "correlation_id": state.correlation_id}
    return told
