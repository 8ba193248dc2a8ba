"""What a module does to the process that it is examined in is a finding, and nothing else."""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator_interactive.validation import rendered, validate

_EXECUTE = "    async def execute(self, input):  # noqa: A002 - the name is the contract's\n"
_ENDED = "The validation ended there."


def broken(examiner, line: str) -> Path:
    """A tool that does this when it is called."""
    return examiner.changed("tool_words", (_EXECUTE, f"{_EXECUTE}        {line}\n"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import time; time.sleep(100)", "It blocks the process for more than 0.2 seconds"),
        ("import os; os._exit(3)", "It ends the process"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "It ends the process by the signal SIGSEGV"),
    ],
)
def test_a_tool_that_takes_the_process_with_it_is_told(examiner, line, said):
    report = validate(broken(examiner, line), time_limit_s=0.2)
    assert not report.passed
    [finding] = report.of("failed")
    assert said in finding.problem
    assert "it was busy with count_words: execute() with {}" in finding.problem
    assert [left.problem for left in report.of("not checked")] == [_ENDED]
    assert report.subject.module_type == "tool"


def test_a_tool_that_closes_what_is_not_its_own_is_told(examiner):
    assert not validate(broken(examiner, "import os; os.closerange(3, 100)"), time_limit_s=0.2).passed


def test_a_tool_that_heeds_no_cancellation_is_left_behind(examiner):
    loop = "import asyncio\n        while True:\n            try:\n                await asyncio.sleep(1000)"
    path = broken(examiner, f"{loop}\n            except asyncio.CancelledError:\n                pass")
    report = validate(path, time_limit_s=0.2)
    [finding] = report.of("failed")
    assert finding.check.rule == "execute() ends in time, with any input that was tried"
    assert finding == report.findings[-5]


def test_the_last_words_of_a_process_that_ends_are_told(examiner):
    path = broken(examiner, "import os, sys; print('Out of memory', file=sys.stderr, flush=True); os._exit(3)")
    [finding] = validate(path).of("failed")
    assert "It ends the process; its last output: Out of memory" in finding.problem


def test_a_process_that_ends_without_a_word_has_no_last_words(examiner):
    [finding] = validate(broken(examiner, "import os; os._exit(3)")).of("failed")
    assert finding.problem.startswith("It ends the process (it was busy with ")


def test_what_a_module_prints_does_not_come_between(examiner, capfd):
    report = validate(broken(examiner, "print('Hello'); import sys; print('Oh', file=sys.stderr)"))
    assert report.passed
    assert capfd.readouterr() == ("", "")


def test_what_a_module_has_started_ends_with_it(examiner, tmp_path):
    note = tmp_path / "pid"
    start = "import subprocess; from pathlib import Path"
    run = f"Path({str(note)!r}).write_text(str(subprocess.Popen(['sleep', '1000']).pid))"
    assert validate(broken(examiner, f"{start}; {run}")).passed
    with suppress(ProcessLookupError):
        ended, _, _ = select.select([os.pidfd_open(int(note.read_text()))], [], [], 10)
        assert ended


def test_a_module_finds_an_empty_folder_and_leaves_the_callers_alone(examiner, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = broken(
        examiner, "import os; assert os.listdir() == [], os.listdir(); open('made', 'w').close(); os.remove('made')"
    )
    assert validate(Path(path.name)).passed
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    assert Path.cwd() == tmp_path


def test_a_module_does_not_write_into_the_users_home(examiner, tmp_path, monkeypatch):
    home = tmp_path / "at_home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    assert validate(broken(examiner, "from pathlib import Path; Path('~/log').expanduser().write_text('x')")).passed
    assert not list(home.iterdir())


def test_secrets_of_the_configuration_stand_in_no_command_line(examiner):
    line = "import sys; from pathlib import Path; assert 'hidden' not in Path('/proc/self/cmdline').read_text()"
    assert validate(broken(examiner, line), config={"password": "hidden"}).passed


def test_a_path_is_needed_that_leads_to_a_module(tmp_path):
    with pytest.raises(Exception, match="There is nothing at"):
        validate(tmp_path / "nothing")


def test_a_report_names_what_is_wrong_and_what_to_do(examiner):
    path = broken(examiner, "return None")
    text = rendered(validate(path), lambda outcome, word: f"<{outcome}>{word}" if outcome == "failed" else word)
    expected = (
        "  <failed>failed       execute() returns a ToolResult, with any input that was tried\n"
        "               wrong: count_words: execute() with {} returns None. "
        "count_words: execute() with values of the wrong types returns None. "
        "count_words: execute() with the required properties only returns None. (1 more like this.)\n"
        "               fix: Return ToolResult(success=True, output=…), or success=False with an error. "
        "(Tool Contract: execute() Method)\n"
    )
    assert expected in text
    assert text.startswith(f"Module tool-words in {path}\nType: tool (detected: it mounts at 'tools').\n\nStructure\n")
    assert text.endswith("\n\n<failed>Failed: 18 of 21 checks passed, 1 failed, 2 not checked.")
