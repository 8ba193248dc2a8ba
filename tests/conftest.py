"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from chromium import chromium
from hypothesis import settings

# Every worker loads all tests, and many of them start a Python: who compiles first compiles for the others.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The default traceback shows the source of every frame, which takes longer than most tests.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)

# On a busy machine anything takes long now and then: a test says what, and never how long.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

# Folders whose tests take long, the longest first: begun last, they would be waited for alone.
_LONG = (
    "whole",
    "simulation",
    "orchestrator_interactive/modules/tool_web",
    "orchestrator_interactive/modules/tool_mcp",
    "benchmarks",
    "conformance",
    "service",
    "local_slack",
)
# The first test of a process with a browser waits for its start.
_BROWSER_S = 180
_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, and give the browser time to start."""
    items.sort(key=_rank)
    for item in items:
        if item.get_closest_marker("browser") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(_BROWSER_S))


def pytest_collection_finish() -> None:
    """What is loaded by now stays: frozen, it costs the collections of garbage nothing."""
    gc.collect()
    gc.freeze()


def _rank(item: pytest.Item) -> int:
    path = item.path.relative_to(_HERE).as_posix()
    return next((rank for rank, folder in enumerate(_LONG) if path.startswith(f"{folder}/")), len(_LONG))


@pytest.fixture
def agents_in(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of the agents of each service that the test starts; the mark `BOTH_PLACES` has both."""
    if getattr(request, "param", "service") != "service":
        monkeypatch.setenv("SESSIONS", "grpc")


@pytest.fixture(scope="session")
def chromium_address() -> Iterator[str]:
    """The Chromium of all browser tests of this process."""
    with chromium() as address:
        yield address
