"""Limits on the bodies that servers answer over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import httpx2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# A header of requests: a small compressed body can be one that does not fit in memory.
UNCOMPRESSED = {"Accept-Encoding": "identity"}


class LimitedStream(httpx2.AsyncByteStream):
    """The body of a response. Reading raises `StreamError` if it is compressed, or has more than `max_bytes`."""

    def __init__(self, response: httpx2.Response, max_bytes: int) -> None:
        self._stream = cast("httpx2.AsyncByteStream", response.stream)
        self._encoding = response.headers.get("Content-Encoding", "identity")
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding.lower() != "identity":
            raise httpx2.StreamError("the answer of the server is compressed, which was not asked for")
        left = self._max_bytes
        async for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise httpx2.StreamError(f"the answer of the server has more than {self._max_bytes:,} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
