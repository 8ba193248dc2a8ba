"""Encode and decode states."""

from __future__ import annotations

import base64
import threading
import time
from typing import TYPE_CHECKING, Any

import zstandard

from orchestrator_interactive.interactions.errors import NewerState, UnknownState, UnreadableState
from orchestrator_interactive.interactions.records import DAMAGED, as_json
from orchestrator_interactive.interactions.states import state_type
from orchestrator_interactive.json_limits import MAX_ROW_NESTING, may_be_deeper, nesting, parse_json

if TYPE_CHECKING:
    from orchestrator_interactive.interactions.records import Node, StateEnvelope
    from orchestrator_interactive.interactions.states import BaseState

# Compression gains too little below this size.
COMPRESSED_FROM_BYTES = 2048
# Limit on the data of one state: above any tool result, and a bound on the size that a damaged frame may claim.
_MAX_BYTES = 256 * 1024 * 1024
# Nesting limit of a row plus its state.
_MAX_LEVELS = MAX_ROW_NESTING + 10


class _Zstd(threading.local):
    """Per-thread compressors: zstandard objects are not thread-safe."""

    def __init__(self) -> None:
        self.packer = zstandard.ZstdCompressor(level=3, write_checksum=True)
        self.unpacker = zstandard.ZstdDecompressor()


_ZSTD = _Zstd()


def encode(state: BaseState, ts: float | None = None) -> StateEnvelope:
    """Serialize a state as JSON data; `ts` is its time in seconds since the epoch, by default now.

    Compressed data are base64.

    Raises:
        ValueError: as in `pack`.
    """
    envelope = pack(state, ts)
    if isinstance(data := envelope["data"], bytes):
        envelope["data"] = base64.b64encode(data).decode()
    return envelope


def pack(state: BaseState, ts: float | None = None) -> StateEnvelope:
    """Serialize a state for a store; compressed data are bytes, which take three quarters of the space.

    Raises:
        ValueError: a field is not representable as JSON, too deep or too large.
    """
    kind = type(state)
    try:
        text = as_json(state.data())
    except (TypeError, ValueError, RecursionError) as e:
        raise ValueError(f"{kind.__name__} contains a value that JSON cannot represent: {e}.") from e
    if may_be_deeper(text, _MAX_LEVELS) and (depth := nesting(state.data())) > _MAX_LEVELS:
        raise ValueError(f"{kind.__name__} is nested {depth} levels deep; the limit is {_MAX_LEVELS}: flatten it.")
    if len(text) > _MAX_BYTES:
        raise ValueError(f"{kind.__name__} is too large: {len(text)} bytes; the limit is {_MAX_BYTES}.")
    compressed = len(text) > COMPRESSED_FROM_BYTES
    return {
        "v": kind.__version__,
        "t": kind.__name__,
        "ts": time.time() if ts is None else ts,
        "data": _ZSTD.packer.compress(text.encode()) if compressed else text,
        "compressed": compressed,
    }


def decode(envelope: StateEnvelope) -> BaseState:
    """Deserialize a state.

    Raises:
        NewerState: a newer version wrote it.
        UnknownState: its type is not defined in this process.
        UnreadableState: its data are damaged.
    """
    name, version = envelope["t"], envelope["v"]
    if name == DAMAGED:
        raise UnreadableState("The state is damaged or missing.")
    kind = state_type(name)
    if kind is None:
        raise UnknownState(f"The state type {name} is unknown in this process: import the module that defines it.")
    if version > kind.__version__:
        raise NewerState(
            f"{name} has version {version}; this installation knows version {kind.__version__}: "
            "update it to read the state."
        )
    data = read_data(envelope)
    try:
        return kind(**(data if version == kind.__version__ else kind.migrate(data, version)))
    except (TypeError, ValueError, LookupError) as e:
        raise UnreadableState(f"{name} (version {version}) cannot be built from its data: {e}.") from e


def read_state(node: Node) -> tuple[BaseState | None, str | None]:
    """Decode a node's state; return None and the reason if it is unreadable."""
    try:
        return decode(node.envelope), None
    except UnreadableState as e:
        return None, str(e)


def read_data(envelope: StateEnvelope) -> dict[str, Any]:
    """Return the data of an envelope of any type.

    Raises:
        UnreadableState: the data are damaged.
    """
    try:
        text = envelope["data"]
        if envelope["compressed"]:
            text = _unpacked(text if isinstance(text, bytes) else base64.b64decode(text, validate=True))
        data = parse_json(text, _MAX_LEVELS)
    except (ValueError, TypeError, zstandard.ZstdError) as e:
        raise UnreadableState(f"The data of {envelope['t']} are damaged: {e}.") from e
    if not isinstance(data, dict):
        raise UnreadableState(f"The data of {envelope['t']} are damaged: they are not an object.")
    return data


def _unpacked(packed: bytes) -> bytes:
    if not 0 <= zstandard.frame_content_size(packed) <= _MAX_BYTES:
        raise ValueError("the compressed frame does not state a valid size")
    return _ZSTD.unpacker.decompress(packed)
