"""The providers of APIs, mounted against a server on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import ModuleType
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
from orchestrator_interactive.kernel.contracts.protocols import Provider
from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
from orchestrator_interactive.kernel.session import AmplifierSession
from orchestrator_interactive.modules import provider_anthropic, provider_openai
from orchestrator_interactive.modules.provider_anthropic.provider import CLIENTS as ANTHROPIC_CLIENTS
from orchestrator_interactive.modules.provider_openai.provider import CLIENTS as OPENAI_CLIENTS

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


@dataclass(frozen=True)
class Api:
    """A provider, and what differs in the API that it calls.

    `ended` are its finish reasons by those of the Messages API.
    """

    name: str
    module: ModuleType
    clients: Any
    config: dict[str, Any]
    model: str
    ended: dict[str, str]
    path: str = ""
    signs_thinking: bool = False

    def variable(self, name: str) -> str:
        return f"{self.name.upper()}_{name}"

    def url(self, base_url: str) -> str:
        return base_url + self.path

    def lease(self, base_url: str) -> Any:
        rest = ("", "") if self.name == "openai" else ()
        return self.clients.lease(KEY, self.url(base_url), *rest)


ANTHROPIC = Api("anthropic", provider_anthropic, ANTHROPIC_CLIENTS, {}, "claude-sonnet-5", {}, signs_thinking=True)
OPENAI = Api(
    *("openai", provider_openai, OPENAI_CLIENTS, {"model": "gpt-of-the-test"}, "gpt-of-the-test"),
    {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"},
    path="/v1",
)


class MountedProvider:
    """A provider that uses the server, and the retries that its hooks receive."""

    def __init__(self, coordinator: ModuleCoordinator, api: Api = ANTHROPIC) -> None:
        self.provider: Provider = coordinator.get("providers", api.name)
        self.api = api
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
async def mounted_at(base_url: str, api: Api = ANTHROPIC, **config: Any) -> AsyncIterator[MountedProvider]:
    coordinator = a_coordinator()
    options = {"api_key": KEY, "base_url": api.url(base_url), "retry_base_delay_s": 0, **api.config, **config}
    clean_up = await api.module.mount(coordinator, options)
    assert clean_up is not None
    try:
        yield MountedProvider(coordinator, api)
    finally:
        await clean_up()
