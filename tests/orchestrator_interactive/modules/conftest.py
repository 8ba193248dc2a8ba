"""A Messages API on this machine, and `provider-anthropic` mounted against it."""

from collections.abc import AsyncIterator

import pytest
from anthropic_server import AnthropicServer
from mounted_anthropic import MountedAnthropic, mounted_at


@pytest.fixture
async def server() -> AsyncIterator[AnthropicServer]:
    async with AnthropicServer() as server:
        yield server


@pytest.fixture
async def mounted(server: AnthropicServer) -> AsyncIterator[MountedAnthropic]:
    async with mounted_at(server.base_url) as mounted:
        yield mounted
