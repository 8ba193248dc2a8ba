"""The pages of the documentation, their examples, and sessions that use the examples."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchestrator_interactive.kernel import AmplifierSession
from service.config.config import load_config
from service.sessions.mount_plan import LocalSources, mount_plan

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
EXAMPLE_MODULES = ("amplifier_module_tool_workdays", "hooks_", "provider_parrot", "tool_checks")


@dataclass(frozen=True)
class Page:
    path: Path

    @property
    def text(self):
        return self.path.read_text(encoding="utf-8")

    def blocks(self, *languages):
        """Return the code blocks in these languages, or all."""
        found = re.findall(r"^```(\w*)\n(.*?)^```$", self.text, re.MULTILINE | re.DOTALL)
        return [text for language, text in found if not languages or language in languages]

    def links(self):
        """Return the linked files of the project."""
        return [self.path.parent / target for target in re.findall(r"\[[^]]+\]\((?!https?:)([^)#]+)", self.text)]

    def tables(self):
        """Return the rows of each table, without the heading, as lists of cells."""
        tables = re.findall(r"(?:^\|.*\n?)+", self.text, re.MULTILINE)
        return [[[cell.strip() for cell in row.strip("|").split(" | ")] for row in t.splitlines()] for t in tables]

    def table(self, first_heading):
        (table,) = [rows for rows in self.tables() if rows[0][0] == first_heading]
        return table[2:]


@pytest.fixture
def root():
    return ROOT


@pytest.fixture
def examples():
    return EXAMPLES


@pytest.fixture
def page(request):
    """The page of the test file: docs/modules.md for `test_modules_page*.py`."""
    name = re.fullmatch(r"test_(\w+)_page\w*", request.path.stem)[1]
    return Page(ROOT / "docs" / f"{name.replace('_', '-')}.md")


@pytest.fixture(autouse=True)
def _restore_imports(monkeypatch):
    """Remove the examples that a test has imported from `sys.modules`, and restore `sys.path`."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if sys.modules[name].__name__.startswith(EXAMPLE_MODULES):
            del sys.modules[name]


@pytest.fixture
def plan(tmp_path):
    """The mount plan of docs/examples/agents.yaml, without a provider."""
    (instance,) = load_config(EXAMPLES / "agents.yaml").instances.values()
    return {**mount_plan(instance, "provider-demo", tmp_path), "providers": []}


@pytest.fixture
def make_session():
    """Create a session as the service does, with this provider."""

    def make(plan, provider=None, **parts):
        session = AmplifierSession(plan, **parts)
        session.coordinator.mount("module-source-resolver", LocalSources())
        if provider is not None:
            session.coordinator.mount("providers", provider)
        return session

    return make
