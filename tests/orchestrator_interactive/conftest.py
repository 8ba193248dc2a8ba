"""Logs on one line: the default renderer formats the locals of every traceback, which takes long."""

import pytest
import structlog


@pytest.fixture(autouse=True, scope="session")
def _logs_on_one_line() -> None:
    structlog.configure(processors=[structlog.processors.KeyValueRenderer(key_order=["event"])])
