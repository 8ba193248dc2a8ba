"""The provider: calls to the API, model information, and the shared HTTP clients."""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING

import httpx2
import structlog
from openai import AsyncOpenAI, AsyncStream, BadRequestError, DefaultAioHttpClient, UnprocessableEntityError

from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo
from orchestrator_interactive.modules.provider_base import (
    CONNECT_TIMEOUT_S,
    TAIL_S,
    YIELD_EVERY_S,
    ApiRequest,
    BaseProvider,
    ClientPool,
    tls_context,
)
from orchestrator_interactive.modules.provider_openai.config import OpenAIConfig
from orchestrator_interactive.modules.provider_openai.convert import api_request, has_images, without_images
from orchestrator_interactive.modules.provider_openai.errors import FAILURES, kernel_error
from orchestrator_interactive.modules.provider_openai.streaming import StreamedAnswer

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.errors import LLMError
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, ResponseStream
    from orchestrator_interactive.kernel.hooks import HookRegistry

log = structlog.get_logger(__name__)

_ABOUT_IMAGES = re.compile(r"image|vision|multi-?modal|mmproj", re.IGNORECASE)
# A local server needs no key, and the SDK needs one.
_NO_KEY = "none"
# Time between the end of an answer and its usage.
_USAGE_WITHIN_S = 5.0


class OpenAIProvider(BaseProvider[OpenAIConfig]):
    """A model behind the Chat Completions API."""

    name = "openai"

    def __init__(self, client: AsyncOpenAI, config: OpenAIConfig, hooks: HookRegistry) -> None:
        super().__init__(config, hooks)
        self._client = client
        # Whether the model takes images; `None`: as long as the server refuses none.
        self._sees_images = config.sees_images

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(
            id=self.name,
            display_name="OpenAI" if self._config.is_openai else "OpenAI-compatible server",
            credential_env_vars=["OPENAI_API_KEY"],
            capabilities=["streaming", "tools", "tool_choice"],
            defaults={
                "model": self._config.model,
                "context_window": self._config.context_window,
                "max_output_tokens": self._config.max_output_tokens,
            },
        )

    async def list_models(self) -> list[ModelInfo]:
        """List the models that the key may use.

        Raises:
            LLMError: the API rejected the request or could not be reached.
        """
        limits = {
            "context_window": self._config.context_window,
            "max_output_tokens": self._config.max_output_tokens,
            "capabilities": ["streaming", "tools", "tool_choice"],
        }
        try:
            found = [model async for model in self._client.models.list()]
        except FAILURES as e:
            raise self._kernel_error(e, self._config.model) from e
        return [ModelInfo(id=model.id, display_name=model.id, **limits) for model in found]

    def _api_call(self, request: ChatRequest, *, thinks: bool) -> ApiRequest:  # noqa: ARG002 - see below
        # `thinks` has no effect: models that can reason do so anyway, and others refuse an effort.
        call = api_request(request, self._config)
        return without_images(call) if self._sees_images is False else call

    async def _ask(self, api_call: ApiRequest, stream: ResponseStream | None) -> ChatResponse:
        prices = self._config.prices if api_call.model == self._config.model else None
        answer = StreamedAnswer(api_call, stream, prices)
        timeout = httpx2.Timeout(self._config.timeout_s, connect=CONNECT_TIMEOUT_S)
        await self._announce_request(api_call)
        try:
            async with asyncio.timeout(None) as tail:
                # Chunks stay as they are: the SDK's objects cost several times as much, and say less of other servers.
                sent: AsyncStream[object] = await self._client.post(
                    "/chat/completions",
                    body=api_call.body,
                    options={"timeout": timeout},
                    cast_to=object,
                    stream=True,
                    stream_cls=AsyncStream[object],
                )
                async with sent:
                    last_s = time.monotonic()
                    async for chunk in sent:
                        answer.feed(chunk)
                        if time.monotonic() - last_s > YIELD_EVERY_S:  # the SDK does not yield between buffered events
                            await asyncio.sleep(0)
                            last_s = time.monotonic()
                        if answer.complete:
                            wait_s = TAIL_S if answer.has_usage else _USAGE_WITHIN_S
                            tail.reschedule(asyncio.get_running_loop().time() + wait_s)
        except (*FAILURES, TimeoutError) as e:
            if self._refuses_images(e, api_call):
                log.warning("provider.sees_no_images", model=api_call.model)
                self._sees_images = False
                return await self._ask(without_images(api_call), stream)
            if not answer.complete:
                raise self._kernel_error(e, api_call.model) from e
        if not answer.complete:
            raise self._kernel_error(None, api_call.model)
        response = answer.response()
        await self._announce_response(api_call, response)
        return response

    def _refuses_images(self, error: Exception, api_call: ApiRequest) -> bool:
        """Return whether the server refuses a request because of its images: each later one would fail, too."""
        is_refused = isinstance(error, BadRequestError | UnprocessableEntityError) and self._sees_images is None
        return is_refused and has_images(api_call) and _ABOUT_IMAGES.search(str(error)) is not None

    def _kernel_error(self, error: Exception | None, model: str) -> LLMError:
        return kernel_error(error, model=model, api_key=self._config.api_key, timeout_s=self._config.timeout_s)


def _client(api_key: str, base_url: str, organization: str, project: str) -> AsyncOpenAI:
    # The SDK's own retries are off because they are invisible; the provider retries and emits events.
    return AsyncOpenAI(
        api_key=api_key or _NO_KEY,
        base_url=base_url,
        organization=organization or None,
        project=project or None,
        max_retries=0,
        http_client=DefaultAioHttpClient(verify=tls_context()),
    )


CLIENTS = ClientPool(_client)
