"""What holds for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# On a busy machine anything takes long now and then: a test says what, and never how long.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# Folders whose tests take long, the longest first: begun last, they would be waited for alone.
_LONG = ("whole", "simulation", "benchmarks", "service", "store", "local_slack")
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long."""
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    folder = item.path.relative_to(_HERE).parts[0]
    return _LONG.index(folder) if folder in _LONG else len(_LONG)
