"""amplifier_core's things where we use them: its providers, and the hook registry and the token of its sessions."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.conversion import foreign, own, own_errors
from orchestrator_interactive.kernel.contracts.event_data import as_json, changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ChatResponse, ToolCall
    from orchestrator_interactive.kernel.contracts.models import HookResult

# amplifier_core's token tells nobody when it is requested directly, so it is looked at.
_LOOK_EVERY_S = 0.05


def own_hooks(registry: Any) -> Any:
    """A registry that answers in our types and can say whether anybody listens."""
    return registry if hasattr(registry, "listens") else ForeignHooks(registry)


class ForeignProvider:
    """A provider that knows amplifier_core's requests and answers only, and nothing of a `ResponseStream`."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    async def complete(self, request: ChatRequest, **kwargs: Any) -> ChatResponse:
        kwargs.pop("stream", None)
        with own_errors():
            answer: ChatResponse = own(await self._provider.complete(foreign(request), **kwargs))
        return answer

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return [own(call) for call in self._provider.parse_tool_calls(foreign(response))]


class ForeignHooks:
    """amplifier_core's registry, which sends every event through JSON and gives the data back even unchanged.

    Its recorder for tests can only be told: then everybody listens.
    """

    def __init__(self, registry: Any) -> None:
        self._registry = registry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._registry, name)

    def listens(self, event: str) -> bool:
        list_handlers = getattr(self._registry, "list_handlers", None)
        return list_handlers is None or bool(list_handlers(event).get(event))

    async def emit(self, event: str, data: dict[str, Any] | None = None) -> HookResult:
        """As ours does it; amplifier_core's word for a modification is "continue"."""
        sent = as_json(data or {})
        result: HookResult = own(await self._registry.emit(event, sent))
        changed = changes(sent, result.data)
        action = "modify" if changed and result.action == "continue" else result.action
        return result.model_copy(update={"action": action, "data": changed or None})


class ForeignToken:
    """amplifier_core's cancellation token, with the one thing that the loop needs besides: to be watched."""

    def __init__(self, token: Any) -> None:
        self._token = token

    def __getattr__(self, name: str) -> Any:
        return getattr(self._token, name)

    @contextmanager
    def watch(self, callback: Callable[[], object]) -> Iterator[None]:
        """Call `callback` at every step the token takes, up to 50 ms later; once at entry if it is requested."""
        look = _Look(self._token, callback)
        try:
            look.now()
            yield
        finally:
            look.end()


class _Look:
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
        self._timer = self._loop.call_later(_LOOK_EVERY_S, self.now)

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
