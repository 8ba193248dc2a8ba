"""Wrappers around amplifier_core's providers, hook registry and cancellation token."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.conversion import foreign, local_errors, to_local
from orchestrator_interactive.kernel.contracts.event_data import as_json, changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, ToolCall
    from orchestrator_interactive.kernel.contracts.models import HookResult

# amplifier_core's token runs no callback when cancellation is requested on it directly, so its state is polled.
_POLL_INTERVAL_S = 0.05


def to_local_hooks(registry: Any) -> Any:
    """Wrap amplifier_core's registry so that it returns our types and has `listens`; return ours as is."""
    return registry if hasattr(registry, "listens") else ForeignHooks(registry)


class ForeignProvider:
    """A provider that accepts amplifier_core's requests only and does not support `ResponseStream`."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        kwargs.pop("stream", None)
        with local_errors():
            response: ChatResponse = to_local(await self._provider.complete(foreign(request), **kwargs))
        return response

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return [to_local(call) for call in self._provider.parse_tool_calls(foreign(response))]


class ForeignHooks:
    """amplifier_core's registry, which converts event data to JSON and back and returns it even if no hook changed it.

    Its test recorder cannot list handlers; `listens` is then always true.
    """

    def __init__(self, registry: Any) -> None:
        self._registry = registry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def listens(self, event: str) -> bool:
        list_handlers = getattr(self._registry, "list_handlers", None)
        return list_handlers is None or bool(list_handlers(event).get(event))

    async def emit(self, event: str, data: dict[str, Any] | None = None) -> HookResult:
        """Emit and return a result of our type. amplifier_core returns changed data with the action "continue"."""
        sent = as_json(data or {})
        result: HookResult = to_local(await self._registry.emit(event, sent))
        changed = changes(sent, result.data)
        action = "modify" if changed and result.action == "continue" else result.action
        return result.model_copy(update={"action": action, "data": changed or None})


class ForeignToken:
    """amplifier_core's cancellation token with the `watch` method that the loop needs."""

    def __init__(self, token: Any) -> None:
        self._token = token

    def __getattr__(self, name: str) -> Any:
        return getattr(self._token, name)

    @contextmanager
    def watch(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call `callback` within 50 ms of each new stage of cancellation, and at entry if already requested."""
        poll = _Poll(self._token, callback)
        try:
            poll.now()
            yield
        finally:
            poll.end()


class _Poll:
    def __init__(self, token: Any, callback: Callable[[], object]) -> None:
        self._token, self._callback = token, callback
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._seen = "none"

    def now(self) -> None:
        if self._token.state != self._seen:
            self._seen = self._token.state
            if self._token.is_cancelled:
                self._callback()
        self._timer = self._loop.call_later(_POLL_INTERVAL_S, self.now)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
