"""States as they are written, and read again."""

from __future__ import annotations

import base64
import json
import threading
import time
from typing import TYPE_CHECKING, Any

import zstandard

from orchestrator_interactive.interactions.errors import NewerState, UnknownState, UnreadableState
from orchestrator_interactive.interactions.records import DAMAGED
from orchestrator_interactive.interactions.states.base import state_type
from orchestrator_interactive.outside_json import MAX_ROW_NESTING, may_be_deeper, nesting, parse_json

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.records import StateEnvelope
    from orchestrator_interactive.interactions.states.base import BaseState

# Smaller data gain too little from it.
COMPRESSED_FROM_BYTES = 2048
# Of the data of a state: more than any tool brings, and less than a damaged one could claim.
_MOST_BYTES = 256 * 1024 * 1024
# Of a row, and of the state around it.
_MOST_LEVELS = MAX_ROW_NESTING + 10

_JSON = json.JSONEncoder(separators=(",", ":"))


class _Zstd(threading.local):
    """What each thread has for itself: the library's objects are not made to be shared."""

    def __init__(self) -> None:
        self.packer = zstandard.ZstdCompressor(level=3, write_checksum=True)
        self.unpacker = zstandard.ZstdDecompressor()


_ZSTD = _Zstd()


def encode(state: BaseState, ts: float | None = None) -> StateEnvelope:
    """A state as it is written; `ts` is its time in seconds since the epoch, by default now.

    Raises:
        ValueError: it holds what JSON does not know.
    """
    kind = type(state)
    try:
        text = _JSON.encode(state.data())
    except (TypeError, ValueError, RecursionError) as e:
        raise ValueError(f"{kind.__name__} holds what cannot be written as JSON: {e}.") from e
    if may_be_deeper(text, _MOST_LEVELS) and (depth := nesting(state.data())) > _MOST_LEVELS:
        raise ValueError(f"{kind.__name__} is nested {depth} levels deep, and {_MOST_LEVELS} are allowed: flatten it.")
    if len(text) > _MOST_BYTES:
        raise ValueError(f"{kind.__name__} is too large to be written: {len(text)} bytes, {_MOST_BYTES} is the most.")
    compressed = len(text) > COMPRESSED_FROM_BYTES
    return {
        "v": kind.__version__,
        "t": kind.__name__,
        "ts": time.time() if ts is None else ts,
        "data": _ZSTD.packer.compress(text.encode()) if compressed else text,
        "compressed": compressed,
    }


def decode(envelope: StateEnvelope) -> BaseState:
    """The state that was written.

    Raises:
        NewerState: a newer version wrote it.
        UnknownState: its type is not defined here.
        Unreadable: it is damaged.
    """
    name, version = envelope["t"], envelope["v"]
    if name == DAMAGED:
        raise UnreadableState("It is damaged or gone: nothing of it can be read.")
    kind = state_type(name)
    if kind is None:
        raise UnknownState(f"A state of the type {name} is not known here: import the module that defines it.")
    if version > kind.__version__:
        raise NewerState(
            f"{name} was written in version {version}, and here it has version {kind.__version__}: "
            "update this installation to read it."
        )
    data = read_data(envelope)
    try:
        return kind.from_data(data if version == kind.__version__ else kind.migrate(data, version))
    except (TypeError, ValueError, LookupError) as e:
        raise UnreadableState(f"{name}, written in version {version}, cannot be made of its data: {e}.") from e


def read_data(envelope: StateEnvelope) -> dict[str, Any]:
    """The data of an envelope, whatever its type.

    Raises:
        Unreadable: they are damaged.
    """
    try:
        text = envelope["data"]
        if envelope["compressed"]:
            text = _unpacked(text if isinstance(text, bytes) else base64.b64decode(text, validate=True))
        data = parse_json(text, _MOST_LEVELS)
    except (ValueError, TypeError, zstandard.ZstdError) as e:
        raise UnreadableState(f"The data of {envelope['t']} are damaged: {e}.") from e
    if not isinstance(data, dict):
        raise UnreadableState(f"The data of {envelope['t']} are damaged: they are no fields.")
    return data


def _unpacked(packed: bytes) -> bytes:
    if not 0 <= zstandard.frame_content_size(packed) <= _MOST_BYTES:
        raise ValueError("they do not say how large they are")
    return _ZSTD.unpacker.decompress(packed)
