"""Parts for the tests of the documentation: its pages, the examples beside it, and sessions in which they are tried."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator_interactive.kernel import AmplifierSession
from service.config.config import load_config
from service.sessions.module_sources import LocalSources
from service.sessions.mount_plan import mount_plan

if TYPE_CHECKING:
    pass

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^]]+\]\((?!https?:)([^)#]+)")


@dataclass(frozen=True)
class Page:
    path: Path

    @property
    def text(self):
        return self.path.read_text(encoding="utf-8")

    def blocks(self, *languages):
        return [text for language, text in _BLOCK.findall(self.text) if language in languages]

    def languages(self):
        return {language for language, _ in _BLOCK.findall(self.text)}

    def links(self):
        """The files of the project that it leads to."""
        return [self.path.parent / target for target in _LINK.findall(self.text)]

    def table(self, first_heading):
        """The rows of the table whose first column is called so, cell by cell."""
        after = self.text.partition(f"| {first_heading} |")[2].splitlines()[2:]
        rows = []
        for line in after:
            if not line.startswith("|"):
                break
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
        return rows


@pytest.fixture
def page():
    return Page(ROOT / "docs" / "modules.md")


@pytest.fixture(autouse=True)
def _imports_stay_here(monkeypatch):
    """What a test imports from the examples, and where from, is forgotten after it."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    examples = {name for name in set(sys.modules) - before if _is_example(sys.modules[name])}
    for name in examples:
        del sys.modules[name]


def _is_example(module):
    name: str = module.__name__
    return name.startswith(("amplifier_module_tool_workdays", "hooks_", "provider_parrot", "tool_checks"))


@pytest.fixture
def plan(tmp_path):
    """The mount plan of the page's configuration file, with no provider in it."""
    (instance,) = load_config(EXAMPLES / "agents.yaml").instances.values()
    return {**mount_plan(instance, "provider-demo", tmp_path), "providers": []}


@pytest.fixture
def make_session():
    """A session as the service makes one, with this model in it."""

    def make(plan, model=None, **parts):
        session = AmplifierSession(plan, **parts)
        session.coordinator.mount("module-source-resolver", LocalSources())
        if model is not None:
            session.coordinator.mount("providers", model)
        return session

    return make
