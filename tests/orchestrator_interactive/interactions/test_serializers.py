"""Encoding and decoding of states."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import zstandard
from hypothesis import given
from interaction_states import any_state

from orchestrator_interactive.interactions.errors import NewerState, UnknownState, UnreadableState
from orchestrator_interactive.interactions.records import StateEnvelope
from orchestrator_interactive.interactions.serializers import COMPRESSED_FROM_BYTES, decode, encode, pack
from orchestrator_interactive.interactions.states import BaseState, UserMessageState

LONG = UserMessageState(text="Long message. " * 1000)


@given(any_state)
def test_every_state_is_decoded_to_itself(state: BaseState) -> None:
    assert decode(encode(state)) == state


@pytest.mark.parametrize("text", ["\ud800 half", "\x00\x1f", "𝄞" * 3000, "\u2028", "", "x" * 100_000])
def test_unusual_texts_are_decoded_to_themselves(text: str) -> None:
    assert decode(encode(UserMessageState(text=text))) == UserMessageState(text=text)


def test_threads_may_encode_and_decode_concurrently() -> None:
    states = [UserMessageState(f"{number} " * 50_000) for number in range(40)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda state: decode(encode(state)), states)) == states


def test_short_data_are_json_text() -> None:
    envelope = encode(UserMessageState(text="Hello!"), ts=1234567890.123)
    assert envelope == {
        "v": 1,
        "t": "UserMessageState",
        "ts": 1234567890.123,
        "data": '{"text":"Hello!"}',
        "compressed": False,
    }


def test_data_over_2_kb_are_compressed() -> None:
    room = COMPRESSED_FROM_BYTES - len('{"text":""}')
    assert not encode(UserMessageState("x" * room))["compressed"]
    envelope = encode(UserMessageState("x" * (room + 1)))
    assert envelope["compressed"]
    assert len(envelope["data"]) < 100


def test_an_envelope_of_compressed_data_is_json_and_a_packed_one_has_bytes() -> None:
    envelope, packed = encode(LONG, ts=1.0), pack(LONG, ts=1.0)
    assert decode(json.loads(json.dumps(envelope))) == decode(packed) == LONG
    assert packed == {**envelope, "data": base64.b64decode(envelope["data"])}


endless: list[Any] = []
endless.append(endless)


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, object(), endless], ids=["bytes", "set", "object", "endless"])
def test_a_value_that_json_cannot_represent_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="UserMessageState contains a value that JSON cannot represent"):
        encode(UserMessageState("Hello!", meta=value))


@dataclass(slots=True, frozen=True)
class PriceState(BaseState):
    cents: int

    __version__: ClassVar[int] = 2

    @classmethod
    def migrate(cls, data: dict[str, Any], version: int) -> dict[str, Any]:
        return {"cents": round(data["euros"] * 100)} if version == 1 else data


def envelope_of(**changes: Any) -> StateEnvelope:
    return {**encode(UserMessageState("Hello!")), **changes}  # type: ignore[typeddict-item]


class TestVersions:
    def test_data_of_an_older_version_are_migrated(self) -> None:
        assert decode(envelope_of(t="PriceState", v=1, data='{"euros":1.5}')) == PriceState(150)

    def test_the_error_of_a_newer_version_has_a_remedy(self) -> None:
        with pytest.raises(NewerState, match=r"has version 3; this installation knows version 2: update it"):
            decode(envelope_of(t="PriceState", v=3, data='{"euros":1.5,"tax":0.2}'))

    def test_a_failed_migration_is_an_error(self) -> None:
        with pytest.raises(UnreadableState, match=r"PriceState \(version 1\) cannot be built from its data"):
            decode(envelope_of(t="PriceState", v=1, data='{"dollars":1.5}'))

    def test_the_error_of_an_unknown_type_has_a_remedy(self) -> None:
        with pytest.raises(
            UnknownState, match="GhostState is unknown in this process: import the module that defines it"
        ):
            decode(envelope_of(t="GhostState"))


def unsized(data: bytes) -> bytes:
    """Compress without the size of the content in the frame."""
    packer = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    "changes",
    [
        {"data": "{"},
        {"data": "[]"},
        {"data": "null"},
        {"data": None},
        {"data": '{"txt":"Hello!"}'},
        {"data": "{}"},
        {"data": "no base64!", "compressed": True},
        {"data": b"no zstandard", "compressed": True},
        {"data": zstandard.compress(b'{"text":"Hello!"}')[:-2], "compressed": True},
        {"data": unsized(b'{"text":"Hello!"}'), "compressed": True},
        {"data": "[" * 100_000},
    ],
    ids=lambda changes: str(changes)[:40],
)
def test_damaged_data_are_an_error(changes: dict[str, Any]) -> None:
    with pytest.raises(UnreadableState, match="UserMessageState"):
        decode(envelope_of(**changes))


def test_a_flipped_bit_in_compressed_data_is_an_error() -> None:
    envelope = pack(LONG)
    packed = bytearray(envelope["data"])  # type: ignore[arg-type]
    packed[len(packed) // 2] ^= 1
    with pytest.raises(UnreadableState):
        decode({**envelope, "data": bytes(packed)})
