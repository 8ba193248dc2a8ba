"""Validate stored rows when they are read, so that damage is detected."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.interactions import tree as trees
from orchestrator_interactive.interactions.errors import DamagedLog
from orchestrator_interactive.interactions.records import damaged, node_of
from orchestrator_interactive.interactions.stores.base import Log

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.records import Key, Node, StateEnvelope

# Sanity limit: a damaged length must not cause an endless loop.
_MAX_STATES = 10_000_000
# Types of the fields name, parent, base, end, created, written, origin.
_SEGMENT = (str | None, int | None, int, int, int | float, int | float, str)


def node(segment: int, index: int, envelope: StateEnvelope, fields: Any) -> Node:
    """Build the node of a row from its envelope and the fields of `records.about`; damaged if either is invalid."""
    if _is_envelope(envelope) and _is_about(fields, index):
        return node_of(segment, index, envelope, fields)
    return damaged(segment, index)


def log(key: Key, version: Any, end: Any, written: Any, tree: Any) -> Log:
    """Build the log of a row; `tree` is JSON.

    Raises:
        DamagedLog: the row is invalid.
    """
    try:
        found = trees.from_dict(json.loads(tree)).with_end(end, written)
        if type(version) is int and _is_tree(found):
            return Log(version, found)
    except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
        pass
    raise DamagedLog(
        f"The stored branches of conversation {key.conversation_id} of {key.agent_id} are damaged: "
        "restore it from a backup."
    )


def _is_envelope(envelope: StateEnvelope) -> bool:
    return (
        type(envelope["v"]) is int
        and isinstance(envelope["t"], str)
        and isinstance(envelope["ts"], float | int)
        and isinstance(envelope["data"], str | bytes)
    )


def _is_about(fields: Any, index: int) -> bool:
    return (
        isinstance(fields, dict)
        and type(fields.get("e")) is int
        and isinstance(fields.get("l", ""), str)
        and isinstance(fields.get("o", []), list)
        and all(_are_texts(call) and len(call) == 3 for call in fields.get("o", ()))
        and _are_texts(fields.get("p", []))
        and type(fields.get("b", 0)) is int
        and 0 <= fields.get("b", 0) <= index
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
        and 0 <= each.base <= each.end <= _MAX_STATES
        # A parent is older than its children, which rules out cycles.
        and (each.parent is None or (each.parent < number and each.parent in tree.segments))
    )
