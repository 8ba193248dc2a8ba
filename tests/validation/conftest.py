from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from example_modules import EXAMPLES, ExampleValidator, Mutant

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path


@pytest.fixture
def examiner(tmp_path: Path) -> Iterator[ExampleValidator]:
    modules, path = set(sys.modules), list(sys.path)
    yield ExampleValidator(tmp_path)
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith((str(tmp_path), str(EXAMPLES))):
            del sys.modules[name]


@pytest.fixture
def check_broken(examiner: ExampleValidator) -> Callable[[str, Mutant], Awaitable[None]]:
    """Break an example, and see that exactly the rules that it breaks are told, with the right words."""

    async def check(example: str, broken: Mutant) -> None:
        report = await examiner.examine(examiner.changed(example, (broken.old, broken.new)), limit_s=broken.limit_s)
        found = {f.check.rule: f for f in report.findings if f.outcome in {"failed", "warning"}}
        assert set(found) == {rule.check.rule for rule in broken.rules}, found
        first = broken.rules[0].check
        assert broken.said in found[first.rule].problem
        assert found[first.rule].outcome == ("failed" if first.required else "warning")
        assert found[first.rule].fix == first.fix

    return check
