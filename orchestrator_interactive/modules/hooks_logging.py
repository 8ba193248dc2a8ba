"""`hooks-logging`: write the events of a session to a file, a line of JSON each."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import Field, field_validator
from pydantic_core import to_json, to_jsonable_python

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.models import HookResult
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.modules.hooks_redaction import REDACT

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

log = structlog.get_logger(__name__)

_SCHEMA = {"name": "amplifier.log", "ver": "1.0.0"}
_PRIORITY = 1_000  # after the hooks that change an event
_MB = 1_000_000
_UNSAFE = re.compile(r"[^\w.-]")
# Without `content`, texts are left out except these, which name something.
_NAMES = frozenset({
    "call_id", "error_type", "instance", "model", "module_id", "name", "orchestrator", "parent_id", "provider",
    "reason", "session_id", "status", "tool_call_id", "tool_name", "type",
})  # fmt: skip
_NAME_CHARS = 200


class LoggingOptions(Options):
    """Options of `hooks-logging`.

    Args:
        session_log_template: path of the file of a session, with `{session_id}`.
        content: whether lines have the texts of messages, tool calls and results; otherwise only names and numbers.
        additional_events: events of other modules that are logged, too.
        auto_discover: log the events that modules declare by the capability `observability.events`.
        max_mb: size at which the file is renamed to `….1`, in place of an older one.
    """

    session_log_template: str = "~/.amplifier/sessions/{session_id}/events.jsonl"
    content: bool = False
    additional_events: tuple[str, ...] = ()
    auto_discover: bool = True
    max_mb: float = Field(default=50.0, gt=0)

    @field_validator("session_log_template")
    @classmethod
    def _names_the_session(cls, template: str) -> str:
        if "{session_id}" not in template:
            raise ValueError("must contain {session_id}, so that each session has a file of its own")
        return template


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Register the hook on all events. If `hooks-redaction` is mounted, lines are masked.

    Raises:
        ValueError: an unknown option, or a value out of range.
    """
    coordinator = to_local_coordinator(coordinator)
    options = validate(LoggingOptions, config, "hooks-logging")
    names = {*events.ALL_EVENTS, *options.additional_events}
    if options.auto_discover:
        names |= set(coordinator.get_capability("observability.events") or ())
    for event in sorted(names):
        handler = partial(_write, coordinator, options)
        coordinator.hooks.register(event, handler, priority=_PRIORITY, name="hooks-logging")


async def _write(
    coordinator: ModuleCoordinator, options: LoggingOptions, event: str, data: dict[str, Any]
) -> HookResult:
    with ErrorBoundary(log, "events.not_logged", logged=event):
        session_id = str(data.get("session_id") or coordinator.session_id or "unknown")
        plain = to_jsonable_python(data, fallback=lambda value: type(value).__name__, exclude_none=True)
        if not options.content:
            plain = _without_texts(plain)
        for hide in (coordinator.get_capability(REDACT), _secrets_hidden(coordinator)):
            plain = plain if hide is None else hide(plain)
        line = {"ts": datetime.now(UTC).isoformat(timespec="milliseconds"), "schema": _SCHEMA, "event": event}
        path = options.session_log_template.format(session_id=_UNSAFE.sub("_", session_id))
        _append(path, to_json({**line, "session_id": session_id, "data": plain}) + b"\n", options.max_mb * _MB)
    return HookResult()


def _append(name: str, line: bytes, max_bytes: float) -> None:
    path = Path(name).expanduser()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size + len(line) > max_bytes:
        path.replace(path.with_name(f"{path.name}.1"))
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, line)
    finally:
        os.close(fd)


def _without_texts(value: Any, name: str = "") -> Any:
    match value:
        case dict():
            return {key: _without_texts(each, key) for key, each in value.items()}
        case list():
            return len(value)
        case str() if name not in _NAMES or len(value) > _NAME_CHARS:
            return f"({len(value)} characters)"
    return value


def _secrets_hidden(coordinator: ModuleCoordinator) -> Any:
    """Return a function that removes the service's secrets from data; `None`: it has none."""
    hide = coordinator.get_capability("secrets.filter")
    if hide is None:
        return None

    def hidden(value: Any) -> Any:
        match value:
            case str():
                return hide(value)
            case dict():
                return {key: hidden(each) for key, each in value.items()}
            case list():
                return [hidden(each) for each in value]
        return value

    return hidden
