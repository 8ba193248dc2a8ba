"""Skip tests whose sandbox does not work on this machine."""

from __future__ import annotations

import pytest

from orchestrator_interactive.modules.tool_bash.sandbox import Kind, problem_of


def require(*kinds: Kind) -> None:
    """Skip the test unless a sandbox of one of the kinds works."""
    problems = [problem_of(kind) for kind in kinds]
    if all(problems):
        pytest.skip("; ".join(problems))
