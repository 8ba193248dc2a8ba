from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from example_modules import EXAMPLES, Checker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def checker(tmp_path: Path) -> Iterator[Checker]:
    modules, path = set(sys.modules), list(sys.path)
    yield Checker(tmp_path)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith((str(tmp_path), str(EXAMPLES))):
            del sys.modules[name]
