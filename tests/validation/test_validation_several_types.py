"""A module that puts things of several types into a session is held to the contract of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator_interactive.validation import rendered, validate

if TYPE_CHECKING:
    from pathlib import Path

_MOUNT = "    tool = CountWords()\n"
_REGISTER = "    unregister = coordinator.hooks.register('tool:pre', look, priority=50, name='look')\n"
_CLEAN_UP = "    def clean_up():\n"
_LOOK = "async def look(event, data):\n    return {}\n\n\n"


@pytest.fixture
def path(examiner) -> Path:
    """A tool whose module also registers a handler, which returns nonsense."""
    return examiner.changed(
        "tool_words",
        (_MOUNT, _REGISTER + _MOUNT),
        (_CLEAN_UP, _CLEAN_UP + "        unregister()\n"),
        ("async def mount(", _LOOK + "async def mount("),
    )


def test_every_type_is_examined(path):
    report = validate(path)
    assert report.subject.module_type == "tool"
    assert report.subject.others == (("hook", "detected: it registers handlers"),)
    [failed] = report.of("failed")
    assert (failed.check.rule, failed.module_type) == ("its handlers return a HookResult", "hook")
    assert "(Hook Contract: HookResult Actions)" in rendered(report)


def test_the_report_says_what_was_examined_as_what(path):
    lines = rendered(validate(path)).splitlines()
    assert lines[1:3] == [
        "Type: tool (detected: it mounts at 'tools').",
        "Also: hook (detected: it registers handlers).",
    ]
    titles = [line for line in lines if line.startswith(("Structure", "Behaviour"))]
    assert titles == ["Structure", "Behaviour as a tool", "Behaviour as a hook"]


@pytest.mark.parametrize(
    ("wanted", "also"), [("tool", "It also registers handlers."), ("hook", "It also mounts a tool.")]
)
async def test_with_a_type_the_others_are_not_checked_and_told(examiner, path, wanted, also):
    report = await examiner.examine(path, wanted)
    [left] = [finding for finding in report.of("not checked") if finding.check.rule.startswith("its behaviour")]
    assert (left.problem, left.fix) == (also, "Validate without --type.")
    assert report.complete
    assert report.passed == (wanted == "tool")


async def test_where_one_type_lacks_what_its_protocol_asks_for_the_others_are_examined_all_the_same(examiner, path):
    path.write_text(path.read_text().replace("    async def execute(", "    async def work("))
    rules = {finding.check.rule for finding in (await examiner.examine(path)).of("failed")}
    assert rules == {"it implements the Tool protocol", "its handlers return a HookResult"}
