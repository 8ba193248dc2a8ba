from __future__ import annotations

import asyncio
import re
import sys
import textwrap
from pathlib import Path

import pytest
import yaml
from hatchling import build
from service_process import run_command

from orchestrator_interactive.kernel import ModuleLoader, ResponseStream
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, Message, ToolCall
from orchestrator_interactive.testing import MockProvider, TestCoordinator
from service.config.config import SessionConfig, load_config
from service.sessions.mount_plan import find_problems, mount_plan

SESSION = {"orchestrator": "loop-interactive", "context": "context-simple"}
# Runs in its own process, and does not wait for the threads of amplifier-core at the end.
IN_AMPLIFIER_CORE = """
import asyncio, os, sys
import amplifier_core
import amplifier_module_tool_workdays, hooks_office, provider_parrot

async def main():
    plan = {"session": {"orchestrator": "loop-interactive", "context": "context-simple"}}
    session = amplifier_core.AmplifierSession(plan)
    for module in (provider_parrot, amplifier_module_tool_workdays, hooks_office):
        await module.mount(session.coordinator, {})
    await session.initialize()
    print(await session.execute("Hello!"))
    request = amplifier_core.ChatRequest(messages=[amplifier_core.Message(role="user", content="Who's a pretty boy?")])
    answer = await session.coordinator.get("providers")["parrot"].complete(request)
    print(isinstance(answer, amplifier_core.ChatResponse), answer.content[0].text)
    tool = session.coordinator.get("tools")["working_days"]
    result = await tool.execute({"start": "2026-12-24", "days": 2})
    print(isinstance(result, amplifier_core.ToolResult), result.output)
    denied = await session.coordinator.hooks.emit("tool:pre", {"tool_input": {"path": "x/.env"}})
    print(denied.action, denied.reason)

try:
    asyncio.run(main())
finally:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
"""


@pytest.fixture
def project(examples):
    return examples / "tool_workdays"


async def output_of(*command, **options):
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-B", *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, **options
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, output + errors
    return output.decode()


def test_every_code_block_is_a_part_of_an_example(page, examples):
    assert set(re.findall(r"^```(\w+)\n", page.text, re.MULTILINE)) == {"python", "toml", "yaml", "sh", "text"}
    files = [path.read_text("utf-8") for path in examples.rglob("*") if path.suffix in {".py", ".toml", ".yaml"}]
    blocks = page.blocks("python", "toml", "yaml")
    assert blocks
    for block in blocks:
        assert any(block in text or textwrap.indent(block, "    ") in text for text in files), block


@pytest.mark.parametrize(
    "file", ["amplifier_module_tool_workdays/__init__.py", "tests/test_tool_workdays.py", "../agents.yaml"]
)
def test_the_files_of_the_tool_are_complete_on_the_page(page, project, file):
    assert (project / file).read_text(encoding="utf-8") in page.blocks("python", "yaml")


def test_every_linked_or_named_file_exists(page, root):
    kernel_files = re.findall(r"`(kernel/[\w/]+\.py)`", page.text)
    commands = re.findall(r"docs/examples/[\w/.]+", " ".join(page.blocks("sh")))
    assert kernel_files
    assert len(commands) == 3
    named = [root / "orchestrator_interactive" / name for name in kernel_files] + [root / name for name in commands]
    assert [file for file in (*page.links(), *named) if not file.exists()] == []


async def test_the_tests_of_the_example_pass(project):
    # Without the plugin of amplifier-core.
    command = ("-m", "pytest", "-q", "-p", "no:amplifier_module", "-p", "no:cacheprovider")
    assert "6 passed" in await output_of(*command, cwd=project)


async def test_the_tool_can_be_installed_and_is_found_by_its_entry_point(tmp_path, monkeypatch, project):
    monkeypatch.chdir(project)
    wheel = tmp_path / build.build_wheel(str(tmp_path))
    monkeypatch.syspath_prepend(str(wheel))
    mount = await ModuleLoader().load("tool-workdays", {"holidays": ["2026-12-25"]})
    coordinator = TestCoordinator()
    tool = await mount(coordinator)
    assert coordinator.get("tools", "working_days") is tool
    assert Path(sys.modules[type(tool).__module__].__file__).is_relative_to(wheel)


async def test_the_configuration_is_valid(page, examples, tmp_path):
    config = load_config(examples / "agents.yaml")
    (instance,) = config.instances.values()
    assert await find_problems(mount_plan(instance, "provider-demo", tmp_path)) == []
    (shown,) = page.blocks("yaml")
    assert yaml.safe_load(shown)["instances"].keys() == config.instances.keys()
    (limits,) = re.findall(r"`(session: \{[^}]+\})`", page.text)
    given = yaml.safe_load(limits)["session"]
    assert SessionConfig.model_validate(given).model_dump() == given


@pytest.mark.parametrize("source", ["tool_workdays", "tool_workdays/amplifier_module_tool_workdays", "workdays.py"])
async def test_a_source_is_a_project_a_package_or_a_file(tmp_path, examples, project, make_session, source):
    code = (project / "amplifier_module_tool_workdays" / "__init__.py").read_text(encoding="utf-8")
    (tmp_path / "workdays.py").write_text(code, encoding="utf-8")
    path = tmp_path / source if source.endswith(".py") else examples / source
    async with make_session(
        {"session": SESSION, "tools": [{"module": "tool-workdays", "source": str(path)}]}
    ) as session:
        assert list(session.coordinator.get("tools")) == ["working_days"]


async def test_a_module_that_cannot_be_mounted_is_reported_in_a_sentence(plan):
    (tool,) = [entry for entry in plan["tools"] if entry["module"] == "tool-workdays"]
    tools = [{**tool, "config": {"holidays": ["Christmas"]}}]
    (problem,) = await find_problems({**plan, "tools": tools, "providers": [{"module": "provider-demo"}]})
    assert problem.startswith("tool-workdays: 'holidays.0': ")


async def test_the_examples_work_together_in_a_session(plan, tmp_path, make_session):
    (tmp_path / ".env").write_text("KEY=1", encoding="utf-8")
    calls = [
        ToolCall(id="1", name="working_days", arguments={"start": "2026-12-24", "days": 2}),
        ToolCall(id="2", name="read_file", arguments={"path": ".env"}),
    ]
    provider, labels = MockProvider([calls, "On Tuesday."]), []

    async def on_progress(event, data):
        labels.extend([data["label"]] if event == "tool:start" else [])

    async with make_session(plan, provider) as session:
        assert await session.execute("When is it due?", on_progress=on_progress) == "On Tuesday."
        counts = session.coordinator.get_capability("journal.counts")
        history = await session.coordinator.get("context").get_messages()
    assert labels == ["Counting 2 working days"]
    *_, due, refused, today = [message.content for message in provider.requests[-1].messages]
    assert due == "Tuesday, 2026-12-29"
    assert refused == "Denied: Access to .env is not allowed."
    assert str(today).startswith("Today is ")
    assert "Today is " not in str(history)
    assert (counts["provider:request"], counts["tool:pre"], counts["execution:end"]) == (2, 2, 1)


async def test_the_examples_pass_the_validation_with_the_shown_output(page, monkeypatch, root):
    monkeypatch.chdir(root)
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
    pattern = "(?s:.+)".join(re.escape(piece) for piece in shown.strip().split("…\n"))  # "…" stands for lines
    assert re.fullmatch(pattern, reports[0].output.strip()), reports[0].output


async def test_the_provider_answers_in_a_session(examples, make_session):
    providers = [{"module": "provider-parrot", "source": str(examples / "provider_parrot.py")}]
    async with make_session({"session": SESSION, "providers": providers}) as session:
        assert await session.execute("Polly wants a cracker.\nNow.") == "Polly wants a cracker.\nNow."


async def test_the_provider_streams_its_answer(monkeypatch, examples):
    monkeypatch.syspath_prepend(str(examples))
    import provider_parrot  # noqa: PLC0415 - importable only now

    provider, stream = await provider_parrot.mount(TestCoordinator(), {}), ResponseStream()
    request = ChatRequest(messages=[Message(role="user", content="Polly wants\na cracker.")])
    answer = await provider.complete(request, stream=stream)
    assert stream.pieces == 3
    assert stream.valid_blocks() == answer.content
    assert provider.parse_tool_calls(answer) == []


async def test_the_examples_work_in_a_session_of_amplifier_core(examples, project):
    output = await output_of("-c", IN_AMPLIFIER_CORE, env={"PYTHONPATH": f"{examples}:{project}"})
    assert output.splitlines() == [
        "Hello!",
        "True Who's a pretty boy?",
        "True Monday, 2026-12-28",
        "deny Access to .env is not allowed.",
    ]
