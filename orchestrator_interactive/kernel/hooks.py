"""The hook registry: who listens to which event, and what comes of it."""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive.kernel.models import HookAction, HookResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Handler = Callable[[str, dict[str, Any]], Awaitable[HookResult]]

log = structlog.get_logger(__name__)

CONTINUE = HookResult()
_WEIGHT: dict[HookAction, int] = {"continue": 0, "modify": 1, "inject_context": 2, "ask_user": 3, "deny": 4}


@dataclass(order=True, slots=True)
class _Registration:
    priority: int
    number: int
    name: str = field(compare=False)
    handler: Handler = field(compare=False)


class HookRegistry:
    """Handlers per event, lowest priority number first, then in order of registration.

    A handler that raises or returns something else than a `HookResult` is logged and counts as "continue".
    """

    def __init__(self) -> None:
        self._handlers: defaultdict[str, list[_Registration]] = defaultdict(list)
        self._defaults: dict[str, Any] = {}
        self._count = 0

    def register(self, event: str, handler: Handler, priority: int = 0, name: str | None = None) -> Callable[[], None]:
        """Listen to an event. Returns the function that ends it."""
        self._count += 1
        given: str = name or getattr(handler, "__name__", None) or type(handler).__name__
        registration = _Registration(priority, self._count, given, handler)
        insort(self._handlers[event], registration)

        def unregister() -> None:
            if registration in self._handlers[event]:
                self._handlers[event].remove(registration)

        return unregister

    on = register

    def unregister(self, name: str) -> None:
        """End every registration of this name."""
        for event, registrations in self._handlers.items():
            self._handlers[event] = [r for r in registrations if r.name != name]

    def set_default_fields(self, **fields: Any) -> None:
        """Fields that every event carries unless the emitter gives its own."""
        self._defaults = fields

    def list_handlers(self, event: str | None = None) -> dict[str, list[str]]:
        events = [event] if event is not None else [e for e, rows in self._handlers.items() if rows]
        return {e: [r.name for r in self._handlers.get(e, ())] for e in events}

    async def emit(self, event: str, data: dict[str, Any]) -> HookResult:
        """Ask every handler in turn; a deny ends the round.

        Of several wishes the strongest wins: deny > ask_user > inject_context > modify > continue. Texts to inject are
        joined. `data` of the result holds the event data after all modifications, whatever the action.
        """
        registrations = self._handlers.get(event)
        if not registrations:
            return CONTINUE
        current = {**self._defaults, **data}
        strongest, modified = CONTINUE, False
        for registration in list(registrations):
            result = await self._call(registration, event, current)
            if result.action == "modify" and result.data is not None:
                current, modified = {**current, **result.data}, True
            strongest = _combine(strongest, result)
            if strongest.action == "deny":
                break
        return strongest.model_copy(update={"data": current}) if modified else strongest

    async def emit_and_collect(
        self,
        event: str,
        data: dict[str, Any],
        timeout: float | None = None,  # noqa: ASYNC109 - the contract's name
    ) -> list[HookResult]:
        """Every handler's own answer, in order; one that takes longer than `timeout` seconds is left out."""
        results = []
        for registration in list(self._handlers.get(event, ())):
            try:
                async with asyncio.timeout(timeout):
                    results.append(await self._call(registration, event, {**self._defaults, **data}))
            except TimeoutError:
                log.warning("hook.timeout", hook=registration.name, hook_event=event, timeout_s=timeout)
        return results

    def listens(self, event: str) -> bool:
        """Whether anyone would hear of this event."""
        return bool(self._handlers.get(event))

    async def _call(self, registration: _Registration, event: str, data: dict[str, Any]) -> HookResult:
        try:
            result = await registration.handler(event, data)
        except Exception:  # an event sink may not break the run
            log.exception("hook.failed", hook=registration.name, hook_event=event)
            return CONTINUE
        if result is None:
            return CONTINUE
        if not isinstance(result, HookResult):
            log.warning("hook.nonsense", hook=registration.name, hook_event=event, got=type(result).__name__)
            return CONTINUE
        if result.action == "inject_context" and not result.context_injection:
            result = result.model_copy(update={"action": "continue"})
        return result.model_copy(update={"hook_name": registration.name})


def _combine(one: HookResult, other: HookResult) -> HookResult:
    """The stronger wish, with the texts and the messages to the user of both."""
    if other is CONTINUE:
        return one
    stronger, weaker = (other, one) if _WEIGHT[other.action] > _WEIGHT[one.action] else (one, other)
    update: dict[str, Any] = {}
    if one.action == other.action == "inject_context":
        update["context_injection"] = f"{one.context_injection}\n\n{other.context_injection}"
    if weaker.user_message and not stronger.user_message:
        update["user_message"] = weaker.user_message
        update["user_message_level"] = weaker.user_message_level
        update["user_message_source"] = weaker.user_message_source or weaker.hook_name
    elif weaker.user_message:
        update["user_message"] = f"{one.user_message}\n{other.user_message}"
    return stronger.model_copy(update=update) if update else stronger
