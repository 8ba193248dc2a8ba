"""The service process: CLI, configuration, agent sessions, stores, and the composition root (`app`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from service.notes import notify

__all__ = ["notify"]


def __getattr__(name: str) -> Any:
    if name == "notify":
        from service.notes import notify  # noqa: PLC0415 - the commands start faster without it

        return notify
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
