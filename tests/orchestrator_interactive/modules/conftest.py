"""The API of a model on this machine, and a provider mounted against it: `provider-anthropic`, unless `api` differs."""

from collections.abc import AsyncIterator

import pytest
from anthropic_server import AnthropicServer
from mounted_provider import ANTHROPIC, Api, MountedProvider, mounted_at


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as server:
        yield server


@pytest.fixture
def api() -> Api:
    return ANTHROPIC


@pytest.fixture
async def mounted(server: AnthropicServer, api: Api) -> AsyncIterator[MountedProvider]:
    async with mounted_at(server.base_url, api) as mounted:
        yield mounted
