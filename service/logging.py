"""The log: lines for people on a terminal, JSON elsewhere; never a token."""

from __future__ import annotations

import functools
import json
import logging
import re
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import structlog

if TYPE_CHECKING:
    from types import TracebackType

    from service.config.config import LogConfig

# In the URL of a Socket Mode connection, also where the URL is escaped in a URL or in JSON.
_TICKET = r"ticket(?:=|%3[Dd]|\\+u003[Dd])"
# What begins so is a token wherever it stands: an escaped newline before it ends in a letter.
_PREFIX = re.compile(rf"xox[a-z]-|xoxe\.|xapp-|sk-ant-|{_TICKET}")
# Shorter values are nobody's secret, and hiding them would blot out the words that they are part of.
_LEAST_SECRET_CHARS = 8
# What these libraries log below a warning is their own inner life.
_LOUD = ("slack_bolt", "slack_sdk", "aiohttp", "asyncio", "httpx2", "httpcore2", "anthropic")


def hide_secrets(text: str, known: tuple[str, ...] = ()) -> str:
    """A text without what looks like a token, and without the secrets that are known, however they are escaped."""
    return _secret(known).sub(_beginning, text)


def hide_known(text: str, known: tuple[str, ...]) -> str:
    """Return a text without the known secrets. Text that merely looks like a token stays: it may be an example."""
    return _known(known).sub(_beginning, text) if any(form in text for form in _forms(known)) else text


@functools.cache
def _secret(known: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"{_known(known).pattern}|{_TICKET}[^\s\"'&\\]+|(?:{_PREFIX.pattern})[\w.-]+")


@functools.cache
def _known(known: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"{re.escape(form)}[\\w.-]*" for form in _forms(known)) or r"(?!)")


@functools.cache
def _forms(known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the known secrets in every form they have in a text, longest first: one may begin with another."""
    forms = {value.strip() for value in known if len(value.strip()) >= _LEAST_SECRET_CHARS}
    forms |= {quote(form, safe="") for form in forms}
    for _ in range(2):  # a log line may quote what is quoted already
        forms |= {quoted(form)[1:-1] for form in forms for quoted in (json.dumps, repr)}
    return tuple(sorted(forms, key=len, reverse=True))


def _beginning(secret: re.Match[str]) -> str:
    """What kind of a token it was helps, and tells nothing."""
    kind = _PREFIX.match(secret[0])
    return f"{kind[0] if kind else ''}…"


def configure_logging(config: LogConfig, secrets: tuple[str, ...] = ()) -> None:
    """Send structlog and the standard library's logging to standard error in one form, without these secrets."""
    human = config.format == "human" or (config.format == "auto" and sys.stderr.isatty())
    before: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if human else "iso", utc=not human),
    ]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(secrets, before, _last(human=human)))
    logging.basicConfig(level=config.level.upper(), handlers=[handler], force=True)
    # Bolt warns of choices that are deliberate here.
    logging.getLogger("connector.bolt").setLevel(logging.ERROR)
    for name in _LOUD:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(config.level.upper())))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *before,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(config.level.upper())),
        cache_logger_on_first_use=True,
    )
    # Python would print the traceback itself, and nothing would be hidden in it.
    sys.excepthook = _log_crash


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Hides secrets when everything else of a line is done, tracebacks too."""

    def __init__(self, secrets: tuple[str, ...], before: list[Any], last: list[Any]) -> None:
        super().__init__(foreign_pre_chain=before, processors=[self.remove_processors_meta, *last])
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return hide_secrets(super().format(record), self._secrets)


def _last(*, human: bool) -> list[Any]:
    if human:
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _log_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    structlog.get_logger(__name__).critical("service.crashed", exc_info=(kind, error, trace))
