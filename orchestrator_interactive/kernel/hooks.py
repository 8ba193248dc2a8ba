"""Hook registry: register handlers for events, call them and merge their results."""

from __future__ import annotations

import asyncio
import inspect
from bisect import insort
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import ValidationError

from orchestrator_interactive.kernel.contracts.conversion import to_local
from orchestrator_interactive.kernel.contracts.events import TOOL_ERROR
from orchestrator_interactive.kernel.contracts.models import HookAction, HookResult
from orchestrator_interactive.kernel.error_boundary import error_text, without_input
from orchestrator_interactive.kernel.timeout import with_timeout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orchestrator_interactive.kernel.contracts.models import Level

    Handler = Callable[[str, dict[str, Any]], Awaitable[HookResult]]

log = structlog.get_logger(__name__)

CONTINUE = HookResult()
_PRECEDENCE: dict[HookAction, int] = {"continue": 0, "modify": 1, "inject_context": 2, "ask_user": 3, "deny": 4}
_SEVERITY: tuple[Level, ...] = ("info", "warning", "error")

# A hook may wait for a person, for as long as the default timeout of an approval.
_TIMEOUT_S = 300.0


@dataclass(order=True, slots=True)
class _Registration:
    priority: int
    number: int
    name: str = field(compare=False)
    handler: Handler = field(compare=False)
    is_unregistered: bool = field(default=False, compare=False)


class HookRegistry:
    """Handlers per event, lowest priority number first, then in order of registration.

    If a handler raises, exceeds `timeout_s` seconds or returns anything but a `HookResult`, this is logged and its
    result is "continue".
    """

    def __init__(self, timeout_s: float = _TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self._handlers: defaultdict[str, list[_Registration]] = defaultdict(list)
        self._defaults: dict[str, Any] = {}
        self._count = 0

    def register(self, event: str, handler: Handler, priority: int = 0, name: str | None = None) -> Callable[[], None]:
        """Register a handler for an event. Returns a function that unregisters it.

        Raises:
            ValueError: `event` is blank.
            TypeError: `event` is not a string, `handler` not callable, or `priority` not an integer.
        """
        if not isinstance(event, str):
            raise TypeError(f"event must be the name of an event, not {event!r}.")
        if not event.strip():
            raise ValueError("event is blank; name the event to listen to, such as 'tool:pre'.")
        if not callable(handler):
            raise TypeError(f"handler must be a function `async (event, data) -> HookResult`, not {handler!r}.")
        if not isinstance(priority, int):
            raise TypeError(f"priority must be a whole number (lower is earlier), not {priority!r}.")
        self._count += 1
        given: str = name or getattr(handler, "__name__", None) or type(handler).__name__
        registration = _Registration(priority, self._count, given, handler)
        insort(self._handlers[event], registration)
        return partial(self._unregister, event, registration)

    on = register

    def unregister(self, name: str) -> None:
        """Unregister every handler of this name."""
        self._unregister_where(lambda registration: registration.name == name)

    def checkpoint(self) -> int:
        """Return the position for `unregister_since`."""
        return self._count

    def unregister_since(self, checkpoint: int) -> None:
        """Unregister every handler that was registered after the checkpoint."""
        self._unregister_where(lambda registration: registration.number > checkpoint)

    def _unregister_where(self, is_one: Callable[[_Registration], bool]) -> None:
        for event, registrations in self._handlers.items():
            for registration in filter(is_one, tuple(registrations)):
                self._unregister(event, registration)

    def _unregister(self, event: str, registration: _Registration) -> None:
        registration.is_unregistered = True
        if registration in self._handlers[event]:
            self._handlers[event].remove(registration)

    def set_default_fields(self, **fields: Any) -> None:
        """Set fields that every event contains unless the emitter overrides them."""
        self._defaults = fields

    def list_handlers(self, event: str | None = None) -> dict[str, list[str]]:
        events = [event] if event is not None else [e for e, rows in self._handlers.items() if rows]
        return {e: [r.name for r in self._handlers.get(e, ())] for e in events}

    def listens(self, event: str) -> bool:
        """Return whether the event has a handler."""
        return bool(self._handlers.get(event))

    async def emit(self, event: str, data: dict[str, Any] | None = None) -> HookResult:
        """Call the handlers in order and merge their results into one. A deny ends the iteration, not at `tool:error`.

        Precedence of actions: deny > ask_user > inject_context > modify > continue. All injections are kept, also
        those next to `ask_user`; two `ask_user` results are merged; a deny drops the others. `data` of the result is
        the event data after all modifications, for every action.
        """
        registrations = self._handlers.get(event)
        if not registrations:
            return CONTINUE
        current = self._with_defaults(data)
        strongest, modified = CONTINUE, False
        for registration in tuple(registrations):
            if registration.is_unregistered:  # unregistered by an earlier handler
                continue
            result = await self._call_handler(registration, event, current, self.timeout_s)
            if result is None or (
                result.action == "continue" and not result.user_message and not result.suppress_output
            ):
                continue
            result = result.model_copy(update={"hook_name": registration.name})
            if result.action == "modify" and result.data is not None:
                current, modified = {**current, **result.data}, True
            strongest = _merge(strongest, result, event)
            if strongest.action == "deny" and event != TOOL_ERROR:  # a report: audit hooks must hear of every failure
                break
        return strongest.model_copy(update={"data": current}) if modified else strongest

    async def emit_and_collect(
        self,
        event: str,
        data: dict[str, Any] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the contract's name
    ) -> list[HookResult]:
        """Return the result of each handler in order, with its `hook_name`; `timeout` is in seconds per handler.

        Handlers that exceed it are left out.
        """
        limit_s = self.timeout_s if timeout is None else timeout
        given = self._with_defaults(data)
        answers = []
        for registration in tuple(self._handlers.get(event, ())):
            answer = await self._call_handler(registration, event, dict(given), limit_s)
            if answer is not None:
                answers.append(answer.model_copy(update={"hook_name": registration.name}))
        return answers

    def _with_defaults(self, data: dict[str, Any] | None) -> dict[str, Any]:
        if data is None:
            return dict(self._defaults)
        if not isinstance(data, dict):
            raise TypeError(f"data must be a dictionary, not {data!r}.")
        return {**self._defaults, **data}

    async def _call_handler(
        self, registration: _Registration, event: str, data: dict[str, Any], timeout_s: float
    ) -> HookResult | None:
        """Return the handler's result; `None` after a timeout."""
        name = registration.name
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task else 0
        # A cancellation that the handler's first await raises.
        is_cancelled_next = bool(task and task._must_cancel)  # type: ignore[attr-defined]  # noqa: SLF001 - no public way
        # Not an ErrorBoundary, which would cost half as much as the whole call of a short handler.
        try:
            answer: Any = registration.handler(event, data)
            if inspect.isawaitable(answer):
                answer = await with_timeout(timeout_s, answer)
            result: HookResult | None = _validated(answer, name, event)
        except TimeoutError:
            # The handler itself may have raised it.
            log.warning("hook.timeout", hook=name, hook_event=event, timeout_s=timeout_s)
            result = None
        except asyncio.CancelledError:
            if task is not None and (is_cancelled_next or task.cancelling() > cancelled_before):
                raise
            log.exception("hook.failed", hook=name, hook_event=event)
            result = CONTINUE
        except (SystemExit, Exception):  # an event sink must not break the run
            log.exception("hook.failed", hook=name, hook_event=event)
            result = CONTINUE
        if task is not None and task.cancelling() > cancelled_before:
            raise asyncio.CancelledError  # even if the handler swallowed it
        return result


def without_denial(hook_result: HookResult, event: str) -> HookResult:
    """Remove `deny` and `ask_user` from the result of an event that reports a past fact; keep its injections."""
    if hook_result.action not in {"deny", "ask_user"}:
        return hook_result
    log.info("hook.denial_ignored", hook=hook_result.hook_name, hook_event=event)
    return hook_result.model_copy(update={"action": "inject_context" if hook_result.injections() else "continue"})


def _validated(answer: Any, name: str, event: str) -> HookResult:
    if answer is None or answer is CONTINUE:
        return CONTINUE
    try:
        result = to_local(answer)
        if not isinstance(result, HookResult):
            raise TypeError(f"{type(answer).__name__} is no HookResult")  # noqa: TRY301 - one place logs nonsense
        if result.action != "continue" or result.user_message:
            result = HookResult.model_validate(dict(result))  # pydantic's copies are not validated
    except (TypeError, ValueError) as e:
        problem = without_input(e) if isinstance(e, ValidationError) else error_text(e)
        log.warning("hook.result_invalid", hook=name, hook_event=event, error=problem)
        return CONTINUE
    if result.action == "inject_context" and not any(i.content.strip() for i in result.injections()):
        return result.model_copy(update={"action": "continue"})
    return result


def _merge(one: HookResult, other: HookResult, event: str) -> HookResult:
    """Return the result of higher precedence, with the injections and user messages of both."""
    if one is CONTINUE:
        return other
    stronger, weaker = (other, one) if _PRECEDENCE[other.action] > _PRECEDENCE[one.action] else (one, other)
    update: dict[str, Any] = {}
    if one.action == other.action == "ask_user":  # one request, with the shorter timeout and the stricter default
        same = one.approval_options == other.approval_options
        update = {
            "approval_prompt": "\n".join(prompt for prompt in (one.approval_prompt, other.approval_prompt) if prompt),
            "approval_options": one.approval_options if same else None,
            "approval_timeout": min(one.approval_timeout, other.approval_timeout),
            "approval_default": "deny" if "deny" in {one.approval_default, other.approval_default} else "allow",
        }
    both = [each.model_copy(update={"event": event}) for each in (*one.injections(), *other.injections())]
    if both and stronger.action in {"inject_context", "ask_user"}:
        update["context_injections"] = both
        update["context_injection"] = "\n\n".join(injection.content for injection in both)
    if weaker.suppress_output:
        update["suppress_output"] = True
    if weaker.user_message and not stronger.user_message:
        update["user_message"] = weaker.user_message
        update["user_message_level"] = weaker.user_message_level
        update["user_message_source"] = weaker.user_message_source or weaker.hook_name
    elif weaker.user_message:
        update["user_message"] = f"{one.user_message}\n{other.user_message}"
        update["user_message_level"] = max(one.user_message_level, other.user_message_level, key=_SEVERITY.index)
    return stronger.model_copy(update=update) if update else stronger
