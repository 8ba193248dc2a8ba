"""`provider-anthropic`, mounted against a server on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from orchestrator_interactive.kernel.contracts.events import PROVIDER_RETRY
from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    ChatResponse,
    ContentBlock,
    Message,
    ResponseStream,
)
from orchestrator_interactive.kernel.contracts.models import HookResult
from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
from orchestrator_interactive.kernel.session import AmplifierSession
from orchestrator_interactive.modules.provider_anthropic import AnthropicProvider, mount

KEY = "sk-ant-secret"


class RecordingStream(ResponseStream):
    """Records the texts and blocks that are passed on."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.handed_on: list[ContentBlock] = []
        self.began = asyncio.Event()
        self.spoke = asyncio.Event()
        self.handed = asyncio.Event()

    def alive(self) -> None:
        super().heartbeat()
        self.began.set()

    def text(self, delta: str) -> None:
        super().text(delta)
        self.texts.append(delta)
        self.spoke.set()

    def block(self, block: ContentBlock) -> None:
        super().block(block)
        self.handed_on.append(block)
        self.handed.set()


def a_coordinator() -> ModuleCoordinator:
    return AmplifierSession({"session": {"orchestrator": "x", "context": "y"}}).coordinator


def a_request(**fields: Any) -> ChatRequest:
    return ChatRequest(**{"messages": [Message(role="user", content="hello")], **fields})


class MountedAnthropic:
    """A provider that uses the server, and the retries that its hooks receive."""

    def __init__(self, coordinator: ModuleCoordinator) -> None:
        self.provider: AnthropicProvider = coordinator.get("providers", "anthropic")
        self.hooks = coordinator.hooks
        self.retries: list[dict[str, Any]] = []
        self.retrying = asyncio.Event()
        self.hooks.register(PROVIDER_RETRY, self._remember)

    async def _remember(self, _event: str, data: dict[str, Any]) -> HookResult:
        self.retries.append(data)
        self.retrying.set()
        return HookResult()

    async def complete(self, request: ChatRequest | None = None, **kwargs: Any) -> ChatResponse:
        return await self.provider.complete(request or a_request(), **kwargs)


@asynccontextmanager
async def mounted_at(base_url: str, **config: Any) -> AsyncIterator[MountedAnthropic]:
    coordinator = a_coordinator()
    clean_up = await mount(coordinator, {"api_key": KEY, "base_url": base_url, "retry_base_delay_s": 0, **config})
    assert clean_up is not None
    try:
        yield MountedAnthropic(coordinator)
    finally:
        await clean_up()
