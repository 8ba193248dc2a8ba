"""What the agent logs, as lines of the story."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping


@contextmanager
def heard_logs(hear: Callable[[str, dict[str, Any]], None]) -> Iterator[None]:
    """Give every log entry from the level "info" on to `hear`, and to nobody else."""
    before = structlog.get_config()

    def process(_logger: Any, method: str, entry: MutableMapping[str, Any]) -> Any:
        if method != "debug":
            fields = dict(entry)
            hear(fields.pop("event"), fields)
        raise structlog.DropEvent

    structlog.configure(
        processors=[process],
        wrapper_class=structlog.make_filtering_bound_logger(0),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)
