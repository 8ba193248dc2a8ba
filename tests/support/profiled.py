"""Note which functions of the code under test are called."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def noting_calls() -> Iterator[set[str]]:
    """Collect the names of the functions that are called in this thread."""
    called: set[str] = set()

    def note(frame: Any, _event: str, _argument: Any) -> None:
        called.add(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(before)
