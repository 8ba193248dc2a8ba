"""Conversations in an SQLite file, and the output or the error of a command."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result
from stored_conversations import StoredConversations


@pytest.fixture
def kept(tmp_path: Path) -> StoredConversations:
    return StoredConversations(tmp_path / "kept.db")


@pytest.fixture
def output_of():
    """Return the output of a successful command."""

    def output_of(result: Result) -> str:
        assert result.exit_code == 0, result.output
        return result.output

    return output_of


@pytest.fixture
def error_of():
    """Return the only line of a command that failed, without `Error: `."""

    def error_of(result: Result, code: int = 1) -> str:
        assert result.exit_code == code, result.output
        (line,) = result.output.splitlines()
        assert line.startswith("Error: ")
        return line.removeprefix("Error: ")

    return error_of
