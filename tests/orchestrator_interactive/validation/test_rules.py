"""Each file in `violations` changes an example so that it violates rules.

`@@ label: keys of the violated rules`, `> part of the first problem`, then the lines to replace. `(0.3 s)` is the time
limit of a check; `(warning)` marks a required rule whose violation is a warning; `*` stands for further rules.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from orchestrator_interactive.validation.report import RULES

_HEAD = re.compile(r"(?P<label>.+): (?P<keys>[\w, *]+?)(?P<warning> \(warning\))?( \((?P<limit>[\d.]+) s\))?")


class Violation(NamedTuple):
    example: str
    keys: tuple[str, ...]
    warning: bool
    limit_s: float
    problem: str
    changes: tuple[tuple[str, str], ...]


def violations() -> dict[str, Violation]:
    found = {}
    for file in sorted((Path(__file__).parent / "violations").glob("*.diff")):
        for text in file.read_text().split("@@ ")[1:]:
            head, problem, *lines = text.splitlines()
            parts = _HEAD.fullmatch(head)
            assert parts, head
            hunks = re.findall(r"((?:^-.*\n)+)((?:^\+.*\n)*)", "".join(f"{line}\n" for line in lines), re.MULTILINE)
            changes = tuple(tuple("\n".join(line[1:] for line in side.splitlines()) for side in hunk) for hunk in hunks)
            keys, limit_s = tuple(parts["keys"].split(", ")), float(parts["limit"] or 5)
            violation = Violation(file.stem, keys, bool(parts["warning"]), limit_s, problem[2:], changes)
            found[f"{file.stem}: {parts['label']}"] = violation
    return found


VIOLATIONS = violations()


@pytest.mark.parametrize("violation", VIOLATIONS.values(), ids=VIOLATIONS)
async def test_a_violation_is_found_with_its_problem_and_fix(checker, violation):
    path = checker.changed(violation.example, *violation.changes)
    report = await checker.report(path, limit_s=violation.limit_s)
    found = {finding.key: finding for finding in (*report.of("failed"), *report.of("warning"))}
    expected = set(violation.keys) - {"*"}
    assert expected == (set(found) & expected if "*" in violation.keys else set(found)), found
    first = found[violation.keys[0]]
    rule = RULES[first.module_type or "every module"][violation.keys[0]]
    assert violation.problem in first.problem
    assert first.outcome == ("warning" if violation.warning else rule.outcome)
    assert first.fix == rule.fix


@pytest.mark.parametrize("table", RULES)
def test_each_rule_has_a_violation(table):
    examples = {"orchestrator": "loop", "provider": "provider", "hook": "hooks", "context": "context", "tool": "tool"}
    violated = {v.keys[0] for v in VIOLATIONS.values() if v.example.startswith(examples.get(table, ""))}
    # They have tests of their own.
    assert set(RULES[table]) - violated - {"executes_valid_input", "is_declared"} == set()


@pytest.mark.parametrize(
    ("example", "module_type"),
    [
        ("tool_words", "tool"),
        ("hooks_guard", "hook"),
        ("context_short", "context"),
        ("loop_plain", "orchestrator"),
        ("provider_web", "provider"),
    ],
)
async def test_a_module_that_keeps_the_contract_passes_every_rule_of_its_type(checker, example, module_type):
    report = await checker.report(checker.changed(example))
    assert {finding.outcome for finding in report.findings} == {"passed"}
    assert {finding.key for finding in report.findings if finding.module_type} == set(RULES[module_type])
