"""The border around handlers of Slack events and calls: one failure is logged and ends nothing else."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import structlog

from connector.protocols import LeaseLost

if TYPE_CHECKING:
    from collections.abc import Iterator

log = structlog.get_logger(__name__)


@contextmanager
def error_boundary(event: str, **fields: Any) -> Iterator[None]:
    """Log an error of the body as `event`, and continue after the body. `LeaseLost` is raised."""
    try:
        yield
    except LeaseLost:
        raise
    except Exception:  # a Slack handler's border
        log.exception(event, **fields)
