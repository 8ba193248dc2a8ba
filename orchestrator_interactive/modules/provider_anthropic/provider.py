"""The provider: calls to Claude, model information, and the shared HTTP clients."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import structlog
from anthropic import AsyncAnthropic, BadRequestError, DefaultAioHttpClient
from httpx2 import AsyncByteStream, Timeout

from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo
from orchestrator_interactive.modules.provider_anthropic.config import AnthropicConfig
from orchestrator_interactive.modules.provider_anthropic.convert import (
    api_request,
    check_tool_pairs,
    images_of,
    without_images,
)
from orchestrator_interactive.modules.provider_anthropic.errors import FAILURES, kernel_error
from orchestrator_interactive.modules.provider_anthropic.streaming import StreamedAnswer
from orchestrator_interactive.modules.provider_base import (
    CONNECT_TIMEOUT_S,
    TAIL_S,
    YIELD_EVERY_S,
    ApiRequest,
    BaseProvider,
    ClientPool,
    tls_context,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from anthropic.types import ModelInfo as ApiModel

    from orchestrator_interactive.kernel.contracts.errors import LLMError
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, ResponseStream
    from orchestrator_interactive.kernel.hooks import HookRegistry

log = structlog.get_logger(__name__)

_ABOUT_IMAGES = re.compile("image", re.IGNORECASE)


class AnthropicProvider(BaseProvider[AnthropicConfig]):
    """Claude, through the Messages API."""

    name = "anthropic"

    def __init__(self, client: AsyncAnthropic, config: AnthropicConfig, hooks: HookRegistry) -> None:
        super().__init__(config, hooks)
        self._client = client
        # Digests of the images in the requests that the API refused because of an image.
        self._refused_images: frozenset[str] = frozenset()

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(
            id=self.name,
            display_name="Anthropic",
            credential_env_vars=["ANTHROPIC_API_KEY"],
            capabilities=["streaming", "tools", "thinking", "tool_choice"],
            defaults={
                "model": self._config.model,
                "context_window": self._config.context_window,
                "max_output_tokens": self._config.max_output_tokens,
            },
        )

    async def list_models(self) -> list[ModelInfo]:
        """List the models that the key may use, newest first.

        Raises:
            LLMError: the API rejected the request or could not be reached.
        """
        try:
            return [self._model_info(model) async for model in self._client.models.list(limit=1000)]
        except FAILURES as e:
            raise self._kernel_error(e, self._config.model) from e

    def _api_call(self, request: ChatRequest, *, thinks: bool) -> ApiRequest:
        api_call = api_request(request, self._config.with_thinking() if thinks else self._config)
        check_tool_pairs(api_call.body["messages"])
        return without_images(api_call, self._refused_images) if self._refused_images else api_call

    async def _ask(self, api_call: ApiRequest, stream: ResponseStream | None) -> ChatResponse:
        answer = StreamedAnswer(api_call, stream, self._config.prices if api_call.model == self._config.model else None)
        timeout = Timeout(self._config.timeout_s, connect=CONNECT_TIMEOUT_S)
        await self._announce_request(api_call)
        try:
            async with asyncio.timeout(None) as tail:
                async with await self._client.messages.create(**api_call.body, stream=True, timeout=timeout) as sent:
                    if stream is not None:
                        sent.response.stream = _ObservedBody(sent.response.stream, stream)
                    last_s = time.monotonic()
                    async for event in sent:
                        answer.feed(event)
                        if time.monotonic() - last_s > YIELD_EVERY_S:  # the SDK does not yield between buffered events
                            await asyncio.sleep(0)
                            last_s = time.monotonic()
                        if answer.complete:
                            tail.reschedule(asyncio.get_running_loop().time() + TAIL_S)
        except (*FAILURES, TimeoutError) as e:
            if isinstance(e, BadRequestError) and _ABOUT_IMAGES.search(str(e)) and (images := images_of(api_call)):
                # One damaged image would make each later request of the conversation fail.
                log.warning("provider.images_refused", model=api_call.model, images=len(images))
                self._refused_images |= images
                return await self._ask(without_images(api_call, images), stream)
            if not answer.complete:
                raise self._kernel_error(e, api_call.model) from e
        if not answer.complete:
            raise self._kernel_error(None, api_call.model)
        response = answer.response()
        await self._announce_response(api_call, response)
        return response

    def _kernel_error(self, error: Exception | None, model: str) -> LLMError:
        return kernel_error(error, model=model, api_key=self._config.api_key, timeout_s=self._config.timeout_s)

    def _model_info(self, model: ApiModel) -> ModelInfo:
        capabilities = ["streaming", "tools", "tool_choice"]
        if model.capabilities and model.capabilities.thinking.supported:
            capabilities.append("thinking")
        if model.capabilities and model.capabilities.image_input.supported:
            capabilities.append("vision")
        return ModelInfo(
            id=model.id,
            display_name=model.display_name,
            context_window=model.max_input_tokens or self._config.context_window,
            max_output_tokens=model.max_tokens or self._config.max_output_tokens,
            capabilities=capabilities,
        )


class _ObservedBody(AsyncByteStream):
    """The body of an answer that has begun: all its data count as progress.

    The SDK drops pings, and during long arguments of a tool or hidden thinking there may be nothing else for minutes.
    """

    def __init__(self, body: Any, sink: ResponseStream) -> None:
        self._body = body
        self._sink = sink

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)  # the SDK's tracing has an attribute on the body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._body)
        try:
            async for chunk in chunks:
                if self._sink.pieces:  # an error may come instead of an answer
                    self._sink.heartbeat()
                yield chunk
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def aclose(self) -> None:
        await self._body.aclose()


def _client(api_key: str, base_url: str) -> AsyncAnthropic:
    # The SDK's own retries are off because they are invisible; the provider retries and emits events.
    http_client = DefaultAioHttpClient(verify=tls_context())
    return AsyncAnthropic(api_key=api_key, base_url=base_url, max_retries=0, http_client=http_client)


CLIENTS = ClientPool(_client)
