from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator_interactive.validation import rendered, validate

_EXECUTE = "    async def execute(self, input):  # noqa: A002 - the name is the contract's\n"
_ENDED = "The validation ended there."


def broken(checker, line: str) -> Path:
    """A tool that does this when it is called."""
    return checker.changed("tool_words", (_EXECUTE, f"{_EXECUTE}        {line}\n"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import time; time.sleep(100)", "It blocks the process for more than 0.2 seconds"),
        ("import os; os._exit(3)", "It ends the process (it was busy with "),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "It ends the process by the signal SIGSEGV"),
    ],
)
def test_a_tool_that_blocks_or_ends_the_process_is_reported(checker, line, said):
    report = validate(broken(checker, line), time_limit_s=0.2)
    assert not report.passed
    [finding] = report.of("failed")
    assert said in finding.problem
    assert "it was busy with count_words: execute() with {}" in finding.problem
    assert [left.problem for left in report.of("not checked")] == [_ENDED]
    assert report.subject.module_type == "tool"


def test_a_tool_that_closes_all_files_is_reported(checker):
    assert not validate(broken(checker, "import os; os.closerange(3, 100)"), time_limit_s=0.2).passed


def test_a_tool_that_ignores_its_cancellation_is_abandoned(checker):
    loop = "import asyncio\n        while True:\n            try:\n                await asyncio.sleep(1000)"
    path = broken(checker, f"{loop}\n            except asyncio.CancelledError:\n                pass")
    report = validate(path, time_limit_s=0.2)
    [finding] = report.of("failed")
    assert finding.rule == "execute() ends in time, with any input that was tried"
    assert finding == report.findings[-5]


def test_the_last_output_of_a_process_that_ends_is_reported(checker):
    path = broken(checker, "import os, sys; print('Out of memory', file=sys.stderr, flush=True); os._exit(3)")
    [finding] = validate(path).of("failed")
    assert "It ends the process; its last output: Out of memory" in finding.problem


def test_a_module_reaches_neither_the_terminal_nor_the_files_of_the_user(checker, tmp_path, monkeypatch, capfd):
    home = tmp_path / "at_home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    mount = "async def mount(coordinator, config):\n"
    lines = (
        "import os, sys",
        "from pathlib import Path",
        "assert os.listdir() == []  # each session begins in an empty folder",
        "Path('made').touch()",
        "Path('~/log').expanduser().write_text('x')",
        "print('Hello', file=sys.stderr)",
        "print('Hello')",
        "assert 'hidden' not in Path('/proc/self/cmdline').read_text()",
    )
    path = checker.changed("tool_words", (mount, mount + "".join(f"    {line}\n" for line in lines)))
    assert validate(Path(path.name), config={"password": "hidden"}).passed
    assert {each.name for each in tmp_path.iterdir()} == {path.name, home.name}
    assert Path.cwd() == tmp_path
    assert not list(home.iterdir())
    assert capfd.readouterr() == ("", "")


def test_processes_that_a_module_started_are_killed(checker, tmp_path):
    note = tmp_path / "pid"
    start = "import subprocess; from pathlib import Path"
    run = f"Path({str(note)!r}).write_text(str(subprocess.Popen(['sleep', '1000']).pid))"
    assert validate(broken(checker, f"{start}; {run}")).passed
    with suppress(ProcessLookupError):
        ended, _, _ = select.select([os.pidfd_open(int(note.read_text()))], [], [], 10)
        assert ended


def test_a_path_without_a_module_raises(tmp_path):
    with pytest.raises(Exception, match="There is nothing at"):
        validate(tmp_path / "nothing")


def test_a_report_names_the_problem_and_the_fix(checker):
    path = broken(checker, "return None")
    text = rendered(validate(path), lambda outcome, word: f"<{outcome}>{word}" if outcome == "failed" else word)
    expected = (
        "  <failed>failed       execute() returns a ToolResult, with any input that was tried\n"
        "               wrong: count_words: execute() with {} returns None. "
        "count_words: execute() with values of the wrong types returns None. "
        "count_words: execute() with numbers only returns None. (4 more like this.)\n"
        "               fix: Return ToolResult(success=True, output=…), or success=False with an error. "
        "(Tool Contract: execute() Method)\n"
    )
    assert expected in text
    assert text.startswith(f"Module tool-words in {path}\nType: tool (detected: it mounts at 'tools').\n\nStructure\n")
    assert text.endswith("\n\n<failed>Failed: 16 of 19 checks passed, 1 failed, 2 not checked.")
