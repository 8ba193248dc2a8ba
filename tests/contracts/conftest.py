"""Parts for the conformance tests: a coordinator on its own, what is logged, and a session of the shipped modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from orchestrator_interactive.kernel import AmplifierSession, ModuleCoordinator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


class Logs:
    """What was logged; `tell` looks for an entry of a level with all these words somewhere in it."""

    def __init__(self, entries: Sequence[Any]) -> None:
        self._entries = entries

    def tell(self, level: str, *words: str) -> bool:
        return any(e["log_level"] == level and all(word in str(e) for word in words) for e in self._entries)

    def count(self) -> int:
        return len(self._entries)


@pytest.fixture
def logs() -> Iterator[Logs]:
    with capture_logs() as entries:
        yield Logs(entries)


@pytest.fixture
def make_coordinator() -> Callable[..., ModuleCoordinator]:
    """A coordinator; keyword arguments are the policy in the `session` section."""

    def make(
        *, approvals: Any = None, display: Any = None, config: dict[str, Any] | None = None, **policy: Any
    ) -> ModuleCoordinator:
        plan = {"session": {"orchestrator": "o", "context": "c", **policy}, **(config or {})}
        session = AmplifierSession(
            plan, session_id="here", parent_id="above", approval_system=approvals, display_system=display
        )
        return session.coordinator

    return make


@pytest.fixture
def coordinator(make_coordinator: Callable[..., ModuleCoordinator]) -> ModuleCoordinator:
    return make_coordinator()


@pytest.fixture
def shipped_plan(tmp_path: Path) -> dict[str, Any]:
    """A mount plan of modules that ship with the project, and need neither a key nor a network."""
    return {
        "session": {"orchestrator": "loop-interactive", "context": "context-simple"},
        "providers": [{"module": "provider-demo", "config": {"think_s": 0, "word_s": 0}}],
        "tools": [
            {"module": "tool-filesystem", "config": {"root": str(tmp_path / "workspace")}},
            {"module": "tool-todo"},
        ],
    }
