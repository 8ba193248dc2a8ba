"""Logging set-up: readable lines on a terminal, JSON elsewhere, with secrets removed."""

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

# The secret in a Socket Mode URL, plain, percent-encoded or JSON-escaped.
_TICKET = r"ticket(?:=|%3[Dd]|\\+u003[Dd])"
# Token prefixes. No word boundary before them: a preceding escaped newline (`\n`) ends in a letter.
_PREFIX = re.compile(rf"xox[a-z]-|xoxe\.|xapp-|sk-ant-|{_TICKET}")
# Shorter values are ignored: hiding them would remove parts of ordinary words.
_LEAST_SECRET_CHARS = 8
# Libraries whose debug and info logs are dropped.
_NOISY = ("slack_bolt", "slack_sdk", "aiohttp", "asyncio", "httpx2", "httpcore2", "anthropic", "openai", "markdown_it")


def hide_secrets(text: str, known: tuple[str, ...] = ()) -> str:
    """Remove anything that looks like a token, and the known secrets in plain or escaped form."""
    return _secret(known).sub(_redacted, text)


def hide_known(text: str, known: tuple[str, ...]) -> str:
    """Remove the known secrets only. Text that merely looks like a token stays: it may be an example."""
    return _known(known).sub(_redacted, text) if any(form in text for form in _forms(known)) else text


@functools.cache
def _secret(known: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"{_known(known).pattern}|{_TICKET}[^\s\"'&\\]+|(?:{_PREFIX.pattern})[\w.-]+")


@functools.cache
def _known(known: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(f"{re.escape(form)}[\\w.-]*" for form in _forms(known)) or r"(?!)")


@functools.cache
def _forms(known: tuple[str, ...]) -> tuple[str, ...]:
    """Return the known secrets in every escaped form, longest first because one may be a prefix of another."""
    forms = {value.strip() for value in known if len(value.strip()) >= _LEAST_SECRET_CHARS}
    forms |= {quote(form, safe="") for form in forms}
    for _ in range(2):  # a log line may quote text that is already quoted
        forms |= {quoted(form)[1:-1] for form in forms for quoted in (json.dumps, repr)}
    return tuple(sorted(forms, key=len, reverse=True))


def _redacted(secret: re.Match[str]) -> str:
    """Keep the token's prefix: it shows the kind of token and reveals nothing."""
    kind = _PREFIX.match(secret[0])
    return f"{kind[0] if kind else ''}…"


def configure_logging(config: LogConfig, secrets: tuple[str, ...] = ()) -> None:
    """Send structlog and standard library logging to standard error in one format, without `secrets`."""
    human = config.format == "human" or (config.format == "auto" and sys.stderr.isatty())
    before: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if human else "iso", utc=not human),
    ]
    handler = logging.StreamHandler(sys.stderr)
    if human:
        plain = structlog.dev.plain_traceback
        last: list[Any] = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    else:
        last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    handler.setFormatter(_Formatter(secrets, before, last))
    logging.basicConfig(level=config.level.upper(), handlers=[handler], force=True)
    # Bolt warns about settings that are deliberate here.
    logging.getLogger("connector.bolt").setLevel(logging.ERROR)
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(config.level.upper())))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *before,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        # Loggers are cached; the level, which a reload may change, is checked by `filter_by_level`.
        wrapper_class=_Logger,
        cache_logger_on_first_use=True,
    )
    # Python's default hook would print the traceback with secrets in it.
    sys.excepthook = _log_crash


class _Logger(structlog.make_filtering_bound_logger(logging.DEBUG)):  # type: ignore[misc]
    """Skip debug messages at other levels before they are prepared: each session writes dozens."""

    def debug(self, event: str, *args: Any, **fields: Any) -> Any:
        if logging.root.level <= logging.DEBUG:
            return super().debug(event, *args, **fields)
        return None


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Hide secrets in the finished line, including tracebacks."""

    def __init__(self, secrets: tuple[str, ...], before: list[Any], last: list[Any]) -> None:
        super().__init__(foreign_pre_chain=before, processors=[self.remove_processors_meta, *last])
        self._secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        return hide_secrets(super().format(record), self._secrets)


def _log_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    structlog.get_logger(__name__).critical("service.crashed", exc_info=(kind, error, trace))
