"""Questions of servers to people (elicitation), asked in private of the author of the message behind the call."""

from __future__ import annotations

import asyncio
import re
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import TYPE_CHECKING, Any

import structlog
from mcp_types import ElicitRequestURLParams, ElicitResult

from orchestrator_interactive.modules.tool_mcp.options import is_safe
from orchestrator_interactive.modules.tool_mcp.results import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

log = structlog.get_logger(__name__)

_MOST_FIELDS = 16
# Slack shows ten options of a question.
_MOST_OPTIONS = 10
_MOST_QUESTIONS = 10
_TRIES = 3
_TEXT_CHARS, _NAME_CHARS, _LABEL_CHARS, _URL_CHARS = 400, 60, 70, 2_000
_DECLINE, _SKIP, _DONE = "Do not answer", "Leave blank", "I have done it"
# Forms must not ask for these (specification of the protocol, "Elicitation", "Safe URL handling").
_PRIVATE = (
    r"passw|passphrase|secret|token|credential|api.?key|private.?key|\bpwd\b|otp\b|one.?time|2fa|mfa|credit|\bcard\b|"
    r"card.?n|cvv|cvc|iban|ssn|social.?security|seed.?phrase|recovery"
)
# Descriptions may warn people of sending a PIN.
_IN_NAMES, _IN_TEXTS = re.compile(rf"{_PRIVATE}|\bpin\b", re.IGNORECASE), re.compile(_PRIVATE, re.IGNORECASE)


class CallClock:
    """The time limit of a call, which is suspended while people are asked. It is used within the call's task."""

    def __init__(self, limit_s: float) -> None:
        self.timeout = asyncio.timeout(limit_s)
        self._pauses = 0
        self._left_s = 0.0

    @contextmanager
    def stopped(self) -> Iterator[None]:
        now_s = asyncio.get_running_loop().time
        self._pauses += 1
        if self._pauses == 1 and (when := self.timeout.when()) is not None:
            self._left_s = when - now_s()
            self.timeout.reschedule(None)
        try:
            yield
        finally:
            self._pauses -= 1
            if not self._pauses and not self.timeout.expired():
                self.timeout.reschedule(now_s() + self._left_s)


class Asker:
    """Asks the person of one call, in the context of this call."""

    def __init__(self, server: str, ask: Callable[..., Awaitable[Mapping[str, Any] | None]], clock: CallClock) -> None:
        self._server = server
        self._ask = ask
        self._clock = clock
        self._context: Context = copy_context()
        self._tasks: set[asyncio.Task[ElicitResult]] = set()
        self._asked = 0

    async def answer(self, params: Any) -> ElicitResult:
        """Ask the question of the server; the time limit of the call is suspended."""
        self._asked += 1
        if self._asked > _MOST_QUESTIONS:
            return ElicitResult(action="cancel")
        task = asyncio.create_task(self._answered(params, self._asked), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            with self._clock.stopped():
                return await task
        finally:
            task.cancel()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _answered(self, params: Any, number: int) -> ElicitResult:
        if isinstance(params, ElicitRequestURLParams):
            return await self._opened(params, number)
        schema = params.requested_schema
        fields, required = schema.get("properties"), schema.get("required") or []
        if not isinstance(fields, dict) or not isinstance(required, list) or len(fields) > _MOST_FIELDS:
            return self._refused("the form is not valid, or too long")
        if not all(map(_is_harmless, fields.items())):
            return self._refused("it asks for something that belongs in no form, such as a password")
        content: dict[str, Any] = {}
        for place, (name, field) in enumerate(fields.items()):
            part = f"{number}.{place}"
            found = await self._field(params.message, name, field, part, is_required=name in required)
            if isinstance(found, ElicitResult):
                return found
            if found is not None:
                content[name] = found
        if not fields and (refused := await self._confirmed(params.message, str(number))):
            return refused
        return ElicitResult(action="accept", content=content)

    def _refused(self, why: str) -> ElicitResult:
        log.warning("mcp.elicitation_declined", server=self._server, why=why)
        return ElicitResult(action="decline")

    def _said(self, message: str) -> str:
        text = one_line(message, _TEXT_CHARS)
        return f"The MCP server '{self._server}' asks: “{text}” Never send it a password."

    async def _confirmed(self, message: str, part: str) -> ElicitResult | None:
        answer = await self._ask(self._said(message), ("OK", _DECLINE), part, takes_text=False)
        if answer is None:
            return ElicitResult(action="cancel")
        return None if answer["chosen"] == ["OK"] else ElicitResult(action="decline")

    async def _opened(self, params: ElicitRequestURLParams, number: int) -> ElicitResult:
        if not is_safe(params.url) or len(params.url) > _URL_CHARS or one_line(params.url, _URL_CHARS) != params.url:
            return self._refused("the link is not safe to open")
        text = f"{self._said(params.message)} It wants you to open {params.url}"
        answer = await self._ask(text, (_DONE, _DECLINE), str(number), takes_text=False)
        if answer is None:
            return ElicitResult(action="cancel")
        return ElicitResult(action="accept" if answer["chosen"] == [_DONE] else "decline")

    async def _field(
        self, message: str, name: str, field: dict[str, Any], part: str, *, is_required: bool
    ) -> ElicitResult | Any:
        """Return the value of a field, `None` for a blank one, or the end of the form."""
        choices = _choices(field)
        options = (*(choices or ()), *(() if is_required else (_SKIP,)), _DECLINE)
        if choices == {} or len(options) > _MOST_OPTIONS:
            return self._refused("a field has no choices, or too many")
        title = one_line(str(field.get("title") or name), _NAME_CHARS)
        note = one_line(str(field.get("description") or ""), _TEXT_CHARS)
        question = f"{self._said(message)} {title}{f' ({note})' if note else ''}:"
        for attempt in range(_TRIES):
            is_list = field.get("type") == "array"
            answer = await self._ask(
                question, options, f"{part}.{attempt}", takes_text=choices is None, is_multiple=is_list
            )
            if answer is None:
                break
            chosen = answer["chosen"]
            if _DECLINE in chosen:
                return ElicitResult(action="decline")
            if _SKIP in chosen:
                return None
            if chosen:
                values = [choices[each] for each in chosen if choices and each in choices]
                return values if is_list else next(iter(values), None)
            try:
                return _value(field, str(answer["text"]))
            except ValueError as e:
                question = f"{e} {title}:"
        return ElicitResult(action="cancel")


def _is_harmless(named: tuple[str, Any]) -> bool:
    name, field = named
    if not isinstance(field, dict):
        return False
    text = str(field.get("description"))
    return not (_IN_NAMES.search(f"{name} {field.get('title')}".replace("_", " ")) or _IN_TEXTS.search(text))


def _choices(field: dict[str, Any]) -> dict[str, Any] | None:
    """Return the values of a field to choose from, by their labels; `None`: people write the value."""
    if field.get("type") == "boolean":
        return {"Yes": True, "No": False}
    if field.get("type") == "array":
        items = field.get("items")
        return _choices({**items, "type": "string"}) if isinstance(items, dict) else {}
    titled = field.get("oneOf", field.get("anyOf"))
    if isinstance(titled, list):
        pairs = [(each.get("title"), each.get("const")) for each in titled if isinstance(each, dict)]
    elif isinstance(field.get("enum"), list):
        names = field.get("enumNames")
        values = field["enum"]
        pairs = list(
            zip(names if isinstance(names, list) and len(names) == len(values) else values, values, strict=True)
        )
    else:
        return None if field.get("type") in ("string", "number", "integer") else {}
    return {one_line(str(label), _LABEL_CHARS): value for label, value in pairs if isinstance(value, str)}


def _value(field: dict[str, Any], text: str) -> Any:
    """Return a person's text as the value of a field.

    Raises:
        ValueError: it does not fit; the message is for the person.
    """
    text = text.strip()
    if not text:
        raise ValueError("Write an answer.")
    if field["type"] == "string":
        low, high = _number(field.get("minLength"), 0), _number(field.get("maxLength"), 10_000)
        if not low <= len(text) <= high:
            raise ValueError(f"Write between {low:g} and {high:g} characters.")
        return text
    try:
        number = int(text) if field["type"] == "integer" else float(text)
    except ValueError as e:
        raise ValueError("Write a whole number." if field["type"] == "integer" else "Write a number.") from e
    low, high = _number(field.get("minimum"), float("-inf")), _number(field.get("maximum"), float("inf"))
    if not low <= number <= high or number in (float("inf"), float("-inf")):
        raise ValueError(f"Write a number between {low:g} and {high:g}.")
    return number


def _number(value: Any, default: float) -> float:
    return value if isinstance(value, int | float) else default


_current: ContextVar[Asker | None] = ContextVar("mcp_call", default=None)


class Elicitations:
    """Finds the call that a question of a server belongs to."""

    def __init__(self) -> None:
        self._running: dict[Asker, None] = {}

    @contextmanager
    def running(self, asker: Asker) -> Iterator[None]:
        token = _current.set(asker)
        self._running[asker] = None
        try:
            yield
        finally:
            del self._running[asker]
            _current.reset(token)
            asker.close()

    async def answer(self, context: Any, params: Any) -> ElicitResult:  # noqa: ARG002 - the SDK's signature
        """Answer a question. It is cancelled if it is not certain which call it belongs to."""
        asker = _current.get()
        if asker is None and len(self._running) == 1:
            [asker] = self._running
        if asker not in self._running:
            return ElicitResult(action="cancel")
        return await asker.answer(params)
