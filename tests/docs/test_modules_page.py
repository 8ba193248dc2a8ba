from __future__ import annotations

import asyncio
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from hatchling import build
from service_process import run_command

from orchestrator_interactive.kernel import ModuleLoader
from orchestrator_interactive.kernel.contracts.messages import ToolCall
from orchestrator_interactive.testing import MockProvider, TestCoordinator
from service.config.config import SessionConfig, load_config
from service.sessions.mount_plan import mount_plan
from service.sessions.preflight import find_problems

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
PROJECT = EXAMPLES / "tool_workdays"


def test_every_piece_of_code_on_the_page_stands_in_a_file_of_the_examples(page) -> None:
    files = [
        path.read_text(encoding="utf-8") for path in EXAMPLES.rglob("*") if path.suffix in {".py", ".toml", ".yaml"}
    ]
    pieces = page.blocks("python", "toml", "yaml")
    assert pieces
    for piece in pieces:
        assert any(piece in text or textwrap.indent(piece, "    ") in text for text in files), piece


def test_there_is_no_other_kind_of_code_on_the_page(page) -> None:
    assert page.languages() == {"python", "toml", "yaml", "sh", "text"}


@pytest.mark.parametrize(
    "whole", ["amplifier_module_tool_workdays/__init__.py", "tests/test_tool_workdays.py", "../agents.yaml"]
)
def test_what_a_writer_of_a_tool_needs_stands_on_the_page_as_a_whole(page, whole: str) -> None:
    assert (PROJECT / whole).read_text(encoding="utf-8") in page.blocks("python", "yaml")


def test_every_file_that_the_page_leads_to_is_there(page) -> None:
    assert [link for link in page.links() if not link.exists()] == []


def test_every_file_that_the_page_names_in_the_kernel_is_there(page) -> None:
    named = re.findall(r"`(kernel/[\w/]+\.py)`", page.text)
    assert named
    assert [name for name in named if not (ROOT / "orchestrator_interactive" / name).exists()] == []


async def test_the_example_s_own_tests_pass() -> None:
    # amplifier-core's plugin would be loaded; ours is named, in case that this checkout is not installed.
    plugins = ["no:amplifier_module", "no:amplifier_slack", "orchestrator_interactive.validation.pytest_plugin"]
    arguments = ["-q", *(argument for plugin in [*plugins, "no:cacheprovider"] for argument in ("-p", plugin))]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-B", "-m", "pytest", *arguments, cwd=PROJECT, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    assert b"6 passed" in output


async def test_the_tool_can_be_installed_and_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT)
    wheel = tmp_path / build.build_wheel(str(tmp_path))
    monkeypatch.syspath_prepend(str(wheel))
    mount = await ModuleLoader().load("tool-workdays", {"holidays": ["2026-12-25"]})
    coordinator = TestCoordinator()
    tool = await mount(coordinator)
    assert coordinator.get("tools", "working_days") is tool
    assert Path(sys.modules[type(tool).__module__].__file__ or "").is_relative_to(wheel)


async def test_the_configuration_can_be_served(page, tmp_path: Path) -> None:
    config = load_config(EXAMPLES / "agents.yaml")
    (instance,) = config.instances.values()
    assert await find_problems(mount_plan(instance, "provider-demo", tmp_path)) == []
    (shown,) = page.blocks("yaml")
    assert yaml.safe_load(shown)["instances"].keys() == config.instances.keys()


def test_the_limits_of_a_session_can_be_set_as_the_page_says(page) -> None:
    (shown,) = re.findall(r"`(session: \{[^}]+\})`", page.text)
    given = yaml.safe_load(shown)["session"]
    assert SessionConfig.model_validate(given).model_dump() == given


def test_every_command_of_the_page_names_files_that_are_there(page) -> None:
    named = re.findall(r"docs/examples/[\w/.]+", " ".join(page.blocks("sh")))
    assert len(named) == 3
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("source", ["tool_workdays", "tool_workdays/amplifier_module_tool_workdays", "workdays.py"])
async def test_a_source_is_a_project_a_package_or_a_file(tmp_path: Path, make_session, source: str) -> None:
    file = PROJECT / "amplifier_module_tool_workdays" / "__init__.py"
    (tmp_path / "workdays.py").write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    path = tmp_path / source if source.endswith(".py") else EXAMPLES / source
    plan: dict[str, Any] = {
        "session": {"orchestrator": "loop-interactive", "context": "context-simple"},
        "tools": [{"module": "tool-workdays", "source": str(path)}],
    }
    async with make_session(plan) as session:
        assert list(session.coordinator.get("tools")) == ["working_days"]


async def test_a_module_that_cannot_be_mounted_is_told_in_a_sentence(plan: dict[str, Any]) -> None:
    (tool,) = [entry for entry in plan["tools"] if entry["module"] == "tool-workdays"]
    wrong = {**plan, "tools": [{**tool, "config": {"holidays": ["Christmas"]}}]}
    (problem,) = await find_problems({**wrong, "providers": [{"module": "provider-demo"}]})
    assert problem.startswith("tool-workdays: 'holidays.0': ")


async def test_the_examples_work_together_in_a_session_of_the_configuration(
    plan: dict[str, Any], tmp_path: Path, make_session
) -> None:
    (tmp_path / ".env").write_text("KEY=1", encoding="utf-8")
    model = MockProvider(
        [
            [
                ToolCall(id="1", name="working_days", arguments={"start": "2026-12-24", "days": 2}),
                ToolCall(id="2", name="read_file", arguments={"path": ".env"}),
            ],
            "On Tuesday.",
        ]
    )
    labels: list[str] = []

    async def on_progress(event: str, data: dict[str, Any]) -> None:
        labels.extend([data["label"]] if event == "tool:start" else [])

    async with make_session(plan, model) as session:
        assert await session.execute("When is it due?", on_progress=on_progress) == "On Tuesday."
        counts = session.coordinator.get_capability("journal.counts")
        history = await session.coordinator.get("context").get_messages()
    assert labels == ["Counting 2 working days"]
    *_, due, refused, today = [message.content for message in model.requests[-1].messages]
    assert due == "Tuesday, 2026-12-29"
    assert refused == "Denied: Access to .env is not allowed."
    assert str(today).startswith("Today is ")
    assert "Today is " not in str(history)
    assert (counts["provider:request"], counts["tool:pre"], counts["execution:end"]) == (2, 2, 1)


async def test_the_examples_pass_the_validation_and_the_page_shows_what_it_says(
    page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (command,) = [line for block in page.blocks("sh") for line in block.splitlines() if "module validate" in line]
    (shown,) = page.blocks("text")
    commands = [
        command.partition("amplifier-slack ")[2].split(),
        ["module", "validate", "docs/examples/hooks_office.py", "--type", "hook"],
        ["module", "validate", "docs/examples/hooks_journal.py"],
        ["module", "validate", "docs/examples/provider_parrot.py", "--type", "provider"],
    ]
    reports = await asyncio.gather(*(run_command(*command) for command in commands))
    assert [report.code for report in reports] == [0] * len(commands), reports
    assert not any("warning" in report.output for report in reports), reports
    assert _is_an_excerpt(shown, reports[0].output), reports[0].output


def _is_an_excerpt(shown: str, whole: str) -> bool:
    """Whether a text is another one, except for the lines that a line of dots stands for."""
    pieces = [re.escape(piece) for piece in shown.strip().split("…\n")]
    return re.fullmatch("(?s:.+)".join(pieces), whole.strip()) is not None
