"""Time to write and read the data of a state, and their size after compression."""

from __future__ import annotations

import json
import zlib
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import zstandard

from benchmarks.harness import Benchmark, Row, Side

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from benchmarks.harness import Operations

HERE = Path(__file__).parent
SIZES = {"3": 3_000, "20": 20_000, "200": 200_000}


class Codec(NamedTuple):
    pack: Callable[[bytes], bytes]
    unpack: Callable[[bytes], bytes]


def zstd(level: int) -> Codec:
    packer = zstandard.ZstdCompressor(level=level, write_checksum=True)
    return Codec(packer.compress, zstandard.ZstdDecompressor().decompress)


def deflate(level: int) -> Codec:
    return Codec(partial(zlib.compress, level=level), zlib.decompress)


@asynccontextmanager
async def operations(make: Callable[[int], Codec], level: int) -> AsyncIterator[Operations]:
    codec = make(level)
    texts = {name: sample(size) for name, size in SIZES.items()}
    made: dict[str, Callable[[], object]] = {"size": lambda: len(codec.pack(texts["20"])) / len(texts["20"]) * 100}
    for name, text in texts.items():
        made |= {f"pack_{name}": partial(codec.pack, text), f"unpack_{name}": partial(codec.unpack, codec.pack(text))}
    yield {key: partial(called, function) for key, function in made.items()}


async def called(function: Callable[[], object]) -> object:
    return function()


def sample(size: int) -> bytes:
    """Return tool results: the text of files, as JSON."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.py")))
    return json.dumps({"result": (text * (size // len(text) + 1))[:size]}).encode()


BENCHMARK = Benchmark(
    title="Compressing the data of a state",
    rows=(
        *(Row(f"pack_{name}", f"write {name} KB") for name in SIZES),
        *(Row(f"unpack_{name}", f"read {name} KB") for name in SIZES),
        Row("size", "size of 20 KB after compression, %", unit="times", meter="itself", once=True),
    ),
    sides=(
        Side("zstandard 3, used for states", partial(operations, zstd, 3)),
        Side("zlib 6", partial(operations, deflate, 6)),
        Side("zlib 1", partial(operations, deflate, 1)),
    ),
    notes=("Data below 2 KB are not compressed. The samples are Python files, as a tool reads them.",),
)
