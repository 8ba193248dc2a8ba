"""What providers of model APIs share: calls with retries and a time limit, their events, and shared HTTP clients."""

from __future__ import annotations

import asyncio
import json
import random
from abc import ABC, abstractmethod
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

import aiohttp
import httpx2
import structlog
from pydantic import AfterValidator
from pydantic_core import to_jsonable_python

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import LLMError, LLMTimeoutError
from orchestrator_interactive.kernel.contracts.tool_calls import calls_of
from orchestrator_interactive.kernel.interop import accepts_both

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Mapping

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, ResponseStream, ToolCall
    from orchestrator_interactive.kernel.hooks import HookRegistry

log = structlog.get_logger(__name__)

CONNECT_TIMEOUT_S = 10.0
_MAX_BACKOFF_S = 30.0
# The provider does not wait longer than this for a retry: a run without output for minutes looks dead.
_MAX_WAIT_S = 60.0
# Time slice for reading events before other tasks run.
YIELD_EVERY_S = 0.002
# After the answer is complete, the response is read to its end so that the connection can be reused.
TAIL_S = 1.0
# The SDKs wrap errors before the response. Errors while the stream is read are not wrapped: those of httpx2, of aiohttp
# if the transport does not map them, JSON and UTF-8 errors for a malformed event, and RecursionError for a deep one.
STREAM_FAILURES = (
    httpx2.HTTPError,
    httpx2.StreamError,
    aiohttp.ClientError,
    ConnectionError,
    json.JSONDecodeError,
    UnicodeDecodeError,
    RecursionError,
)


def _one_printable_word(api_key: str) -> str:
    api_key = api_key.strip()
    if not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise ValueError("the API key contains invalid characters; was it copied completely?")
    return api_key


ApiKey = Annotated[str, AfterValidator(_one_printable_word)]


class CallConfig(Protocol):
    """The settings of every provider; times in seconds."""

    @property
    def max_retries(self) -> int: ...
    @property
    def retry_base_delay_s(self) -> float: ...
    @property
    def priority(self) -> int: ...
    @property
    def raw(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """The body of a request in the form of an API. `tool_names` maps the API's tool names to the declared ones."""

    body: dict[str, Any]
    tool_names: dict[str, str]

    @property
    def model(self) -> str:
        model: str = self.body["model"]
        return model


ConfigT = TypeVar("ConfigT", bound=CallConfig)
ClientT = TypeVar("ClientT", bound="Closable")


class BaseProvider(ABC, Generic[ConfigT]):
    """A provider that calls an API. It is stateless: one instance serves any number of concurrent calls."""

    name: ClassVar[str]

    def __init__(self, config: ConfigT, hooks: HookRegistry) -> None:
        self._config = config
        self._hooks = hooks
        self.priority = config.priority  # the provider with the lowest number is called first

    @accepts_both
    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        """Call the model; `stream=` takes a `ResponseStream` that receives the answer as it arrives.

        `extended_thinking=True` enables thinking for this call if the configuration does not.

        With a `stream`, a failed call raises at once, because parts of the answer may already be visible: the caller
        decides about a retry. Without one, it is retried here. `request.timeout` includes the retries.

        Raises:
            InvalidRequestError: a tool call without its result, or a result without its call.
            LLMError: an error of the kernel's family; it states whether and when a retry may succeed.
        """
        api_call = self._api_call(request, thinks=bool(kwargs.get("extended_thinking")))
        stream: ResponseStream | None = kwargs.get("stream")
        async with _deadline(request.timeout, api_call.model, self.name):
            return await (self._with_retries(api_call) if stream is None else self._ask(api_call, stream))

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return calls_of(response.content) if response.tool_calls is None else response.tool_calls

    @abstractmethod
    def _api_call(self, request: ChatRequest, *, thinks: bool) -> ApiRequest:
        """Convert a request.

        Raises:
            InvalidRequestError: the API would refuse it.
        """

    @abstractmethod
    async def _ask(self, api_call: ApiRequest, stream: ResponseStream | None) -> ChatResponse:
        """Make one call.

        Raises:
            LLMError: it failed.
        """

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

    def _delay_s(self, error: LLMError, attempt: int) -> float | None:
        """Return the delay before a retry in seconds; `None` if a retry is useless."""
        if not error.retryable or attempt > self._config.max_retries:
            return None
        backoff_s = min(self._config.retry_base_delay_s * 2.0 ** (attempt - 1), _MAX_BACKOFF_S)
        jitter_s = random.uniform(0, backoff_s / 2)  # noqa: S311 - spreads retries; not security-relevant
        if error.retry_after is None:
            return backoff_s - jitter_s
        return error.retry_after + jitter_s if error.retry_after <= _MAX_WAIT_S else None

    async def _announce_request(self, api_call: ApiRequest) -> None:
        await self._announce_call(
            events.LLM_REQUEST, api_call, {"message_count": len(api_call.body["messages"])}, api_call.body
        )

    async def _announce_response(self, api_call: ApiRequest, response: ChatResponse) -> None:
        facts = {"status": "ok", "usage": response.usage, "finish_reason": response.finish_reason}
        await self._announce_call(events.LLM_RESPONSE, api_call, facts, response)

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


@asynccontextmanager
async def _deadline(timeout_s: float | None, model: str, provider: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s) as whole:
            yield
    except TimeoutError as e:
        if not whole.expired():
            raise
        message = f"{model} did not finish its answer within the {timeout_s:g} seconds that the request allows."
        raise LLMTimeoutError(message, provider=provider, model=model) from e


def is_timeout(error: Exception, wrapper: type[Exception]) -> bool:
    """Return whether an established connection timed out; `wrapper` is the SDK's class for timeouts."""
    cause = error.__cause__ if isinstance(error, wrapper) else error
    return isinstance(cause, httpx2.TimeoutException) and not isinstance(cause, httpx2.ConnectTimeout)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Return the requested wait in seconds, from `retry-after-ms`, or `retry-after` in seconds or as a date."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit_s)
        except (KeyError, ValueError):
            continue
    try:
        moment = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, (moment.replace(tzinfo=moment.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


class Closable(Protocol):
    """A client of an SDK."""

    async def close(self) -> None: ...


ClientKey = tuple[str, ...]


@dataclass(slots=True)
class _Shared(Generic[ClientT]):
    client: ClientT
    users: int = 0


@dataclass(slots=True)
class ClientLease(Generic[ClientT]):
    """A use of a shared client; `release` may be called more than once."""

    client: ClientT
    _clients: dict[ClientKey, _Shared[ClientT]] = field(repr=False)
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


class ClientPool(Generic[ClientT]):
    """Counts the users of each client; `create` makes one from the parts of its key.

    A client owns a pool of connections. Connections belong to one event loop, so each loop has its own clients.
    """

    def __init__(self, create: Callable[..., ClientT]) -> None:
        self._create = create
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[ClientKey, _Shared[ClientT]]] = (
            WeakKeyDictionary()
        )

    def lease(self, *address: str) -> ClientLease[ClientT]:
        clients = self._by_loop.setdefault(asyncio.get_running_loop(), {})
        if address not in clients:
            clients[address] = _Shared(self._create(*address))
        shared = clients[address]
        shared.users += 1
        return ClientLease(shared.client, clients, address)


@cache
def tls_context() -> ssl.SSLContext:
    """Return the default context. Loading certificates takes tens of milliseconds, so all clients share it."""
    return httpx2.create_ssl_context()
