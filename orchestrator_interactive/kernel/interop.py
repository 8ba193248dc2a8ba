"""Interoperate with `amplifier_core`, the public Amplifier kernel, in both directions.

`contracts.conversion` converts values. The `Foreign…` classes wrap amplifier_core's objects for our sessions, and the
adapters wrap our modules for its sessions. A module of ours that mounts through `to_local_coordinator` works in both.
Nothing here imports amplifier_core: if it is not in `sys.modules`, none of its objects can exist.
"""

from __future__ import annotations

import asyncio
import json
import math
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel

from orchestrator_interactive.kernel.contracts.conversion import (
    amplifier_core,
    foreign,
    foreign_error,
    is_foreign,
    local_errors,
    to_local,
    to_local_error,
)
from orchestrator_interactive.kernel.contracts.errors import InjectionTooLargeError, LLMError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, ToolCall
    from orchestrator_interactive.kernel.contracts.models import HookResult
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

    Complete = Callable[..., Awaitable[ChatResponse]]

__all__ = [
    "ForeignProvider",
    "accepts_both",
    "local_errors",
    "to_local",
    "to_local_coordinator",
    "to_local_error",
    "to_local_hooks",
    "to_local_provider",
    "to_local_tool",
]

# amplifier_core's token runs no callback when cancellation is requested on it directly, so its state is polled.
_POLL_INTERVAL_S = 0.05


def to_local_coordinator(coordinator: Any) -> ModuleCoordinator:
    """Wrap amplifier_core's coordinator so that it has our coordinator's interface; return any other unchanged."""
    core = amplifier_core()
    if core is not None and isinstance(coordinator, core.ModuleCoordinator):
        return cast("ModuleCoordinator", CoordinatorAdapter(coordinator))
    return cast("ModuleCoordinator", coordinator)


def to_local_provider(provider: Any) -> Any:
    """Return a provider that takes our requests.

    Unwrap a `ProviderAdapter`; wrap a provider whose `get_info()` returns amplifier_core's type; return others as is.
    """
    if isinstance(provider, ProviderAdapter):
        return provider.wrapped
    return ForeignProvider(provider) if is_foreign(provider.get_info()) else provider


def to_local_tool(tool: Any) -> Any:
    """Unwrap a `ToolAdapter`; return any other tool as is."""
    return tool.wrapped if isinstance(tool, ToolAdapter) else tool


def accepts_both(complete: Complete) -> Complete:
    """Decorate a provider's `complete`: a request in amplifier_core's types gets responses and errors in its types."""

    @wraps(complete)
    async def converted(provider: Any, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        if not is_foreign(request):
            return await complete(provider, request, **kwargs)
        try:
            response: ChatResponse = foreign(await complete(provider, to_local(request), **kwargs))
        except LLMError as e:
            raise foreign_error(e) from e
        return response

    return converted


def to_local_hooks(registry: Any) -> Any:
    """Wrap amplifier_core's registry so that it returns our types and has `listens`; return ours as is."""
    return registry if hasattr(registry, "listens") else ForeignHooks(registry)


class _Wrapper:
    """Has every attribute of the wrapped object that the subclass does not define."""

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)


class CoordinatorAdapter(_Wrapper):
    """Our coordinator's interface on top of amplifier_core's coordinator."""

    def __init__(self, coordinator: Any) -> None:
        super().__init__(coordinator)
        self.hooks = ForeignHooks(coordinator.hooks)
        self.cancellation = ForeignToken(coordinator.cancellation)

    async def mount(self, mount_point: str, module: Any, name: str | None = None) -> None:
        adapter = {"providers": ProviderAdapter, "tools": ToolAdapter}.get(mount_point)
        await self.wrapped.mount(mount_point, adapter(module) if adapter else module, name=name)

    async def process_hook_result(self, result: HookResult, event: str, hook_name: str = "unknown") -> HookResult:
        """Return the given result, except for `ask_user`, which returns the answer.

        amplifier_core returns "continue" for a persistent injection; the caller would omit it from its next request.
        """
        try:
            processed = await self.wrapped.process_hook_result(foreign(result), event, hook_name)
        except ValueError as e:  # an injection is too large; amplifier_core then injects none
            update: dict[str, Any] = {"action": "continue", "context_injection": None, "context_injections": []}
            raise InjectionTooLargeError(str(e), result.model_copy(update=update)) from e
        answered: HookResult = to_local(processed) if result.action == "ask_user" else result
        return answered


class ProviderAdapter(_Wrapper):
    """One of our providers with metadata in amplifier_core's types. Its `complete` needs `@accepts_both`."""

    def get_info(self) -> Any:
        return foreign(self.wrapped.get_info())

    async def list_models(self) -> list[Any]:
        models: list[Any] = foreign(await self.wrapped.list_models())
        return models

    async def complete(self, request: Any, **kwargs: Any) -> Any:
        return await self.wrapped.complete(request, **kwargs)

    def parse_tool_calls(self, response: Any) -> list[Any]:
        calls: list[Any] = foreign(self.wrapped.parse_tool_calls(to_local(response)))
        return calls


class ToolAdapter(_Wrapper):
    """One of our tools that returns amplifier_core's results."""

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002 - the name is the contract's
        return foreign(await self.wrapped.execute(input))


class ForeignProvider(_Wrapper):
    """A provider that accepts amplifier_core's requests only and does not support `ResponseStream`."""

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        kwargs.pop("stream", None)
        with local_errors():
            response: ChatResponse = to_local(await self.wrapped.complete(foreign(request), **kwargs))
        return response

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return [to_local(call) for call in self.wrapped.parse_tool_calls(foreign(response))]


class ForeignHooks(_Wrapper):
    """amplifier_core's registry, which converts event data to JSON and back and returns it even if no hook changed it.

    Its test recorder cannot list handlers; `listens` is then always true.
    """

    def listens(self, event: str) -> bool:
        list_handlers = getattr(self.wrapped, "list_handlers", None)
        return list_handlers is None or bool(list_handlers(event).get(event))

    async def emit(self, event: str, data: dict[str, Any] | None = None) -> HookResult:
        """Emit and return a result of our type. amplifier_core returns changed data with the action "continue"."""
        sent = as_json(data or {})
        result: HookResult = to_local(await self.wrapped.emit(event, sent))
        changed = changes(sent, result.data)
        action = "modify" if changed and result.action == "continue" else result.action
        return result.model_copy(update={"action": action, "data": changed or None})


class ForeignToken(_Wrapper):
    """amplifier_core's cancellation token with the `watch` method that the loop needs."""

    @contextmanager
    def watch(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call `callback` within 50 ms of each new stage of cancellation, and at entry if already requested."""
        loop = asyncio.get_running_loop()
        seen, timer = "none", None

        def poll() -> None:
            nonlocal seen, timer
            timer = loop.call_later(_POLL_INTERVAL_S, poll)
            if self.wrapped.state != seen:
                seen = self.wrapped.state
                if self.wrapped.is_cancelled:
                    callback()

        try:
            poll()
            yield
        finally:
            if timer is not None:
                timer.cancel()


def as_json(data: dict[str, Any]) -> dict[str, Any]:
    """Convert event data to JSON values: models become dictionaries, other values that JSON cannot encode become text.

    NaN, integers of more than 64 bits and lone surrogates become text too: the registry refuses events with them.
    """
    text = json.dumps(data, default=_plain, skipkeys=True, ensure_ascii=False)
    plain: dict[str, Any] = json.loads(text.encode(errors="replace"), parse_constant=str, parse_int=_whole_number)
    return plain


def changes(sent: dict[str, Any], returned: dict[str, Any] | None) -> dict[str, Any]:
    """Return the values that hooks changed; the registry returns unchanged data too.

    The caller can keep its original objects for unchanged values instead of their JSON form.
    """
    back = returned or {}
    return {key: back[key] for key in sent if key in back and not _same(back[key], sent[key])}


def _same(one: Any, other: Any) -> bool:
    """Compare values; floats may differ in the last digit, which the registry does not preserve."""
    if one == other:
        return True
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
        case list(), list():
            return len(one) == len(other) and all(map(_same, one, other))
        case float(), float():
            return math.isclose(one, other, rel_tol=1e-12)
        case _:
            return False


def _plain(value: Any) -> Any:
    return value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else str(value)


def _whole_number(digits: str) -> int | str:
    number = int(digits)
    return number if -(2**63) <= number < 2**64 else digits
