"""The provider: calls to Claude with retries, model information, and the shared HTTP clients."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import structlog
from anthropic import AsyncAnthropic, DefaultAioHttpClient
from httpx2 import Timeout, create_ssl_context
from pydantic_core import to_jsonable_python

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import LLMError, LLMTimeoutError
from orchestrator_interactive.kernel.contracts.messages import ToolCall, ToolCallBlock
from orchestrator_interactive.kernel.contracts.models import ModelInfo, ProviderInfo
from orchestrator_interactive.kernel.interop import accepts_both
from orchestrator_interactive.modules.provider_anthropic.convert import api_request, check_tool_pairs
from orchestrator_interactive.modules.provider_anthropic.errors import FAILURES, incomplete_stream, kernel_error
from orchestrator_interactive.modules.provider_anthropic.streaming import StreamedAnswer

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from anthropic.types import ModelInfo as ApiModel

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, ResponseStream
    from orchestrator_interactive.kernel.hooks import HookRegistry
    from orchestrator_interactive.modules.provider_anthropic.config import AnthropicConfig
    from orchestrator_interactive.modules.provider_anthropic.convert import ApiRequest

log = structlog.get_logger(__name__)

_CONNECT_TIMEOUT_S = 10.0
_MAX_BACKOFF_S = 30.0
# The provider does not wait longer than this for a retry: a run without output for minutes looks dead.
_MAX_WAIT_S = 60.0
# Time slice for reading events before other tasks run.
_YIELD_EVERY_S = 0.002
# After the answer is complete, the response is read to its end so that the connection can be reused.
_TAIL_S = 1.0


class AnthropicProvider:
    """Claude, through the Messages API. It is stateless: one instance serves any number of concurrent calls."""

    name = "anthropic"

    def __init__(self, client: AsyncAnthropic, config: AnthropicConfig, hooks: HookRegistry) -> None:
        self._client = client
        self._config = config
        self._hooks = hooks
        self.priority = config.priority  # the provider with the lowest number is called first

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

    @accepts_both
    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Call Claude; `stream=` takes a `ResponseStream` that receives the answer as it arrives.

        `extended_thinking=True` enables thinking for this call if the configuration does not.

        With a `stream`, a failed call raises at once, because parts of the answer may already be visible: the caller
        decides about a retry. Without one, it is retried here. `request.timeout` includes the retries.

        Raises:
            InvalidRequestError: a tool call without its result, or a result without its call.
            LLMError: an error of the kernel's family; it states whether and when a retry may succeed.
        """
        config = self._config.with_thinking() if kwargs.get("extended_thinking") else self._config
        api_call = api_request(request, config)
        check_tool_pairs(api_call.body["messages"])
        stream: ResponseStream | None = kwargs.get("stream")
        async with _deadline(request.timeout, api_call.model):
            return await (self._with_retries(api_call) if stream is None else self._ask(api_call, stream))

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        if response.tool_calls is not None:
            return response.tool_calls
        calls = [block for block in response.content if isinstance(block, ToolCallBlock)]
        return [ToolCall(id=call.id, name=call.name, arguments=call.input) for call in calls]

    async def _with_retries(self, api_call: ApiRequest) -> ChatResponse:
        for attempt in count(1):
            try:
                return await self._ask(api_call, None)
            except LLMError as error:
                delay_s = self._delay_s(error, attempt)
                if delay_s is None:
                    raise
                await self._announce_retry(api_call.model, attempt, delay_s, error)
                await asyncio.sleep(delay_s)
        raise AssertionError  # pragma: no cover - count() has no end

    async def _ask(self, api_call: ApiRequest, stream: ResponseStream | None) -> ChatResponse:
        answer = StreamedAnswer(api_call, stream, self._config.prices if api_call.model == self._config.model else None)
        timeout = Timeout(self._config.timeout_s, connect=_CONNECT_TIMEOUT_S)
        await self._announce_call(
            events.LLM_REQUEST, api_call, {"message_count": len(api_call.body["messages"])}, api_call.body
        )
        try:
            async with asyncio.timeout(None) as tail:
                async with await self._client.messages.create(**api_call.body, stream=True, timeout=timeout) as sent:
                    last_s = time.monotonic()
                    async for event in sent:
                        answer.feed(event)
                        if time.monotonic() - last_s > _YIELD_EVERY_S:  # the SDK does not yield between buffered events
                            await asyncio.sleep(0)
                            last_s = time.monotonic()
                        if answer.complete:
                            tail.reschedule(asyncio.get_running_loop().time() + _TAIL_S)
        except (*FAILURES, TimeoutError) as e:
            if not answer.complete:
                raise self._kernel_error(e, api_call.model) from e
        if not answer.complete:
            raise incomplete_stream(api_call.model)
        response = answer.response()
        facts = {"status": "ok", "usage": response.usage, "finish_reason": response.finish_reason}
        await self._announce_call(events.LLM_RESPONSE, api_call, facts, response)
        return response

    def _delay_s(self, error: LLMError, attempt: int) -> float | None:
        """Return the delay before a retry in seconds; `None` if a retry is useless."""
        if not error.retryable or attempt > self._config.max_retries:
            return None
        backoff_s = min(self._config.retry_base_delay_s * 2.0 ** (attempt - 1), _MAX_BACKOFF_S)
        jitter_s = random.uniform(0, backoff_s / 2)  # noqa: S311 - spreads retries; not security-relevant
        if error.retry_after is None:
            return backoff_s - jitter_s
        return error.retry_after + jitter_s if error.retry_after <= _MAX_WAIT_S else None

    async def _announce_call(self, event: str, api_call: ApiRequest, facts: dict[str, Any], payload: Any) -> None:
        """Emit an event of a call, with its whole payload if `raw` is set."""
        if self._hooks.listens(event):
            raw = {"raw": payload} if self._config.raw else {}
            data = {"provider": self.name, "model": api_call.model, **facts, **raw}
            await self._hooks.emit(event, to_jsonable_python(data, exclude_none=True))

    async def _announce_retry(self, model: str, attempt: int, delay_s: float, error: LLMError) -> None:
        log.info("provider.retry", provider=self.name, model=model, attempt=attempt, delay_s=delay_s, error=str(error))
        data = {"provider": self.name, "model": model, "attempt": attempt, "delay_s": delay_s, "error": str(error)}
        await self._hooks.emit(events.PROVIDER_RETRY, data)

    def _kernel_error(self, error: Exception, model: str) -> LLMError:
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


@asynccontextmanager
async def _deadline(timeout_s: float | None, model: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s) as whole:
            yield
    except TimeoutError as e:
        if not whole.expired():
            raise
        message = f"{model} did not finish its answer within the {timeout_s:g} seconds that the request allows."
        raise LLMTimeoutError(message, provider="anthropic", model=model) from e


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
