"""Where a suspended task stands, down to the innermost await."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio


def standing(task: asyncio.Task[Any]) -> str:
    """The task's name and its frames, outermost first. `Task.get_stack` tells only the outermost."""
    places: list[str] = []
    at: Any = task.get_coro()
    while at is not None:
        frame = getattr(at, "cr_frame", None) or getattr(at, "gi_frame", None)
        if frame is not None:
            code = frame.f_code
            places.append(f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
        at = getattr(at, "cr_await", None) or getattr(at, "gi_yieldfrom", None)
    return f"{task.get_name()}: {' > '.join(places) or 'has not begun'}"
