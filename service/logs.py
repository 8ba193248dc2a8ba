"""The log: lines for people on a terminal, JSON elsewhere; never a token."""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from service.config import LogConfig

_SECRET = re.compile(r"\b(xox[a-z]-|xapp-|sk-ant-)[\w-]+")
# What these libraries log below a warning is their own inner life.
_LOUD = ("slack_bolt", "slack_sdk", "aiohttp", "asyncio", "httpx2", "httpcore2", "anthropic")


def configure_logging(config: LogConfig) -> None:
    """Send structlog and the standard library's logging to standard error in one form."""
    human = config.format == "human" or (config.format == "auto" and sys.stderr.isatty())
    before: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if human else "iso", utc=not human),
    ]
    last: list[Any] = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    if human:
        plain = structlog.dev.plain_traceback
        last = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=before,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last, _hide_secrets],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
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
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _hide_secrets(_logger: Any, _method: str, line: Any) -> str:
    return _SECRET.sub(r"\1…", str(line))
