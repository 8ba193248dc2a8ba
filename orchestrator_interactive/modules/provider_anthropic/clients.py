"""HTTP clients shared by the sessions of an event loop that use the same key and address."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from anthropic import AsyncAnthropic, DefaultAioHttpClient
from httpx2 import create_ssl_context

if TYPE_CHECKING:
    import ssl

ClientKey = tuple[str, str]


@dataclass(slots=True)
class _Shared:
    client: AsyncAnthropic
    users: int = 0


@dataclass(slots=True)
class ClientLease:
    """A use of a shared client; `release` may be called more than once."""

    client: AsyncAnthropic
    _clients: dict[ClientKey, _Shared] = field(repr=False)
    _address: ClientKey = field(repr=False)
    _held: bool = True

    async def release(self) -> None:
        """Release the client; the last user closes it."""
        if not self._held:
            return
        self._held = False
        shared = self._clients[self._address]
        shared.users -= 1
        if not shared.users:
            del self._clients[self._address]
            await shared.client.close()


class ClientPool:
    """Counts the users of each client.

    A client owns a pool of connections. Connections belong to one event loop, so each loop has its own clients.
    """

    def __init__(self) -> None:
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ClientKey, _Shared]] = WeakKeyDictionary()

    def lease(self, api_key: str, base_url: str) -> ClientLease:
        clients = self._by_loop.setdefault(asyncio.get_running_loop(), {})
        address = (api_key, base_url)
        if address not in clients:
            clients[address] = _Shared(_client(api_key, base_url))
        shared = clients[address]
        shared.users += 1
        return ClientLease(shared.client, clients, address)


def _client(api_key: str, base_url: str) -> AsyncAnthropic:
    # The SDK's own retries are off because they are invisible; the provider retries and emits events.
    http_client = DefaultAioHttpClient(verify=_tls_context())
    return AsyncAnthropic(api_key=api_key, base_url=base_url, max_retries=0, http_client=http_client)


@cache
def _tls_context() -> ssl.SSLContext:
    """Return the SDK's default context. Loading certificates takes tens of milliseconds, so all clients share it."""
    return create_ssl_context()


CLIENTS = ClientPool()
