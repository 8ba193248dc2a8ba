from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run_pytest(folder, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_contract.py").write_text(text)
    plugin = "orchestrator_interactive.validation.pytest_plugin"
    return subprocess.run(  # noqa: S603 - pytest itself
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            plugin,
            "-p",
            "no:amplifier_slack",
            "-p",
            "no:cacheprovider",
            str(folder),
        ],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("change", "outcome", "output"),
    [
        (("", ""), "1 passed in", ""),
        (('name = "count_words"', 'name = "countWords"'), "1 passed, 1 warning in", "A tool is called 'countWords'."),
        (
            ("if not isinstance(text, str):", "if text is None:"),
            "1 failed in",
            "fix: Check the input first, and return ToolResult(success=False",
        ),
        (
            ("async def mount(coordinator, config):", "async def mount(coordinator, config):\n    return None"),
            "1 failed in",
            "fix: Pass its configuration with --config.",
        ),
    ],
    ids=["no violation", "a recommendation", "a violation", "not validated"],
)
def test_the_fixture_fails_with_the_report_of_a_violation(checker, tmp_path, change, outcome, output):
    path = checker.changed("tool_words", change)
    ended = run_pytest(tmp_path, f"def test_it(validate_module):\n    validate_module({str(path)!r}, 'tool')\n")
    assert outcome in ended.stdout, ended.stdout + ended.stderr
    assert output in ended.stdout


def test_the_fixture_passes_options_and_returns_the_report(checker, tmp_path):
    path = checker.changed("tool_words", ("side_effect_free = True", "side_effect_free = False"))
    options = "tool_input={'text': 'one'}, config={'a': 1}, time_limit_s=5"
    check = "assert len(report.of('passed')) == len(report.findings)"
    text = f"def test_it(validate_module):\n    report = validate_module({str(path)!r}, {options})\n    {check}\n"
    ended = run_pytest(tmp_path, text)
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr
