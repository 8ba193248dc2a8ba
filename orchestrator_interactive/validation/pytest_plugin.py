"""pytest plugin for module authors: the fixture `validate_module` checks a module against its contract."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator_interactive.validation.process import validate
from orchestrator_interactive.validation.report import rendered

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator_interactive.validation.report import Report


@pytest.fixture(scope="session")
def validate_module() -> Callable[..., Report]:
    """Validate a module in a subprocess, and fail with the report if it violates a required rule.

    The function takes the arguments of `validate`: `path`, `module_type`, `config`, `time_limit_s` and `tool_input`. It
    warns of each violated recommendation, and returns the report.
    """

    def check(path: str | Path, *arguments: Any, **options: Any) -> Report:
        report = validate(Path(path), *arguments, **options)
        if not report.passed or not report.complete:
            pytest.fail(rendered(report), pytrace=False)
        for finding in report.of("warning"):
            warnings.warn(f"{finding.rule}: {finding.problem} Fix: {finding.fix}", stacklevel=2)
        return report

    return check
