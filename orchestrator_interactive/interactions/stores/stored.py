"""What stores have written, read again: nothing that was damaged meanwhile goes on unseen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.interactions import tree as trees
from orchestrator_interactive.interactions.errors import DamagedLog
from orchestrator_interactive.interactions.records import damaged, node_of
from orchestrator_interactive.interactions.stores.base import Log

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.records import Key, Node, StateEnvelope

# A damaged length would have readers count for ever; no conversation has so many states.
_MOST_STATES = 10_000_000
# By these fields: name, parent, base, end, created, written, origin.
_SEGMENT = (str | None, int | None, int, int, int | float, int | float, str)


def node(segment: int, index: int, envelope: StateEnvelope, told: Any) -> Node:
    """The node of a row, `told` being what stood beside its envelope; a damaged one where a part of it is."""
    if _is_envelope(envelope) and _is_about(told, index):
        return node_of(segment, index, envelope, told)
    return damaged(segment, index)


def log(key: Key, version: Any, end: Any, written: Any, tree: Any) -> Log:
    """The log of a row, `tree` being JSON.

    Raises:
        DamagedLog: it is damaged.
    """
    try:
        found = trees.read(json.loads(tree)).grown(end, written)
        if type(version) is int and _is_tree(found):
            return Log(version, found)
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
        pass
    raise DamagedLog(
        f"What is stored of the branches of conversation {key.conversation_id} of {key.agent_id} is damaged: "
        "restore it from a backup."
    )


def _is_envelope(envelope: StateEnvelope) -> bool:
    return (
        type(envelope["v"]) is int
        and isinstance(envelope["t"], str)
        and isinstance(envelope["ts"], float | int)
        and isinstance(envelope["data"], str | bytes)
    )


def _is_about(told: Any, index: int) -> bool:
    return (
        isinstance(told, dict)
        and type(told.get("e")) is int
        and isinstance(told.get("l", ""), str)
        and isinstance(told.get("o", []), list)
        and all(_are_texts(call) and len(call) == 3 for call in told.get("o", ()))
        and _are_texts(told.get("p", []))
        and type(told.get("b", 0)) is int
        and 0 <= told.get("b", 0) <= index
    )


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)


def _is_tree(tree: trees.Tree) -> bool:
    return (
        all(_is_segment(tree, number) for number in tree.segments)
        and tree.head.name is not None
        and type(tree.next_segment) is int
        and tree.next_segment > max(tree.segments)
        and isinstance(tree.asked_by, str | None)
    )


def _is_segment(tree: trees.Tree, number: int) -> bool:
    each = tree.segments[number]
    fields = (each.name, each.parent, each.base, each.end, each.created, each.written, each.origin)
    return (
        all(isinstance(value, kind) for value, kind in zip(fields, _SEGMENT, strict=True))
        and 0 <= each.base <= each.end <= _MOST_STATES
        # A parent is older than its children, so that nothing goes round in circles.
        and (each.parent is None or (each.parent < number and each.parent in tree.segments))
    )
