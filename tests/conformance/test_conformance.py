"""The suite as its users run it: against this project's agent, and against agents with known defects."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from conformance.agent import Agent

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NAIVE = f"""
name: naive
command: {sys.executable} {HERE}/naive_agent.py
patience_s: 3
env: {{ANTHROPIC_API_KEY: none, ANTHROPIC_BASE_URL: "{{model}}", HABIT: none}}
"""


async def conformance(*arguments):
    command = (sys.executable, "-m", "conformance", *map(str, arguments))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=pipe, stderr=pipe)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
def described(tmp_path):
    def described(text):
        path = tmp_path / "agent.yaml"
        path.write_bytes(text.encode(errors="surrogateescape"))
        return path

    return described


def chosen(*names):
    return [part for name in names for part in ("--only", name)]


async def test_this_agent_passes(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    file = tmp_path / "results.json"
    names = ("edit", "edit-answered", "call-doubtful", "kill-posting")
    code, out, _ = await conformance(ROOT / "conformance/agents/amplifier-slack.yaml", *chosen(*names), "--json", file)
    (agent,) = json.loads(file.read_text())["agents"]
    assert {each["scenario"]: each["verdict"] for each in agent["results"]} == dict.fromkeys(names, "passed"), out
    assert code == 0


async def test_the_defects_of_a_naive_agent_are_found_and_explained(described, tmp_path):
    table, folder = tmp_path / "table.md", tmp_path / "kept"
    wrong = {
        "edit": "1 not answered (mk0003); 1 answered in spite of the change (mk0002)",
        "event-twice": "1 answered more than once (mk0002)",
        "kill-waiting": "3 not answered (mk0001 mk0002 mk0003)",
    }
    names = ("answer", *wrong, "stop-word")
    path = described(NAIVE)
    code, out, _ = await conformance(path, *chosen(*names), "--markdown", table, "--folder", folder)
    assert code == 1
    assert "naive: answer: passed\n" in out
    assert "naive: stop-word: not tried\n" in out
    for name, detail in wrong.items():
        assert f"naive: {name}: failed ({detail})\n" in out
    assert "| `edit`: an edit before the message is read counts | **no** |" in table.read_text()
    assert (folder / "1-naive" / "edit-0" / "agent.log").exists()


@pytest.mark.parametrize(
    ("habit", "scenario", "detail"),
    [
        ("repeat", "event-again", "1 answered more than once (mk0001)"),
        ("shout", "answer", "1 answered outside of its thread (mk0001)"),
    ],
)
async def test_an_answer_counts_each_time_that_it_is_shown(described, habit, scenario, detail):
    code, out, _ = await conformance(described(NAIVE.replace("HABIT: none", f"HABIT: {habit}")), *chosen(scenario))
    assert f"naive: {scenario}: failed ({detail})\n" in out
    assert code == 1


async def test_a_lost_connection_may_take_longer_than_an_answer(described):
    code, out, _ = await conformance(described(NAIVE), *chosen("connection"))
    assert "naive: connection: passed\n" in out
    assert code == 0


async def test_an_agent_without_a_model_is_judged_by_the_number_of_its_replies(described):
    app = f"{sys.executable} {ROOT}/docs/examples/ten_line_app.py"
    path = described(f"name: bolt\ncommand: {app}\nmodel: false\nevents: [app_mention]\n")
    code, out, _ = await conformance(path, *chosen("answer", "edit-answered", "steer"))
    assert code == 1
    assert "bolt: answer: passed\n" in out
    assert "bolt: edit-answered: failed (2 answers to 1 messages)\n" in out
    assert "bolt: steer: not tried\n" in out


def test_the_page_describes_every_key():
    page = (ROOT / "docs/conformance.md").read_text()
    assert {name for name in Agent.model_fields if f"`{name}`" not in page} == set()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a", "command: Field required"),
        ("name: a\ncommand: b\nstop: [shout]", "stop.0: Input should be 'reaction', 'word' or 'button'"),
        ("name: a\ncommand: b\nmentions: every", "mentions: Extra inputs are not permitted"),
        ("name: a\ncommand: b\nevents: [mention]", "events.0: Value error, must be one of message, app_mention, "),
        ("- a", "the file: Input should be a valid dictionary"),
        ("a: [", "cannot be read"),
        ("name: \udcff", "agent.yaml cannot be read: 'utf-8' codec can't decode"),
        ("name: 2026-13-45", "agent.yaml cannot be read: month must be in 1..12"),
    ],
)
async def test_a_wrong_description_is_an_error_that_names_the_key(described, text, message):
    code, _, err = await conformance(described(text))
    assert (code, "Traceback" in err) == (2, False)
    assert message in err


async def test_an_agent_that_ends_is_reported_with_its_last_words(described):
    code, out, _ = await conformance(described("name: a\ncommand: echo no token; exit 3"), *chosen("answer"))
    assert code == 1
    assert "a: answer: failed (the agent ended; the last line of its output: 'no token')" in out


async def test_agents_of_one_name_have_folders_of_their_own_whose_names_have_no_space(described):
    path = described("name: my agent\ncommand: mkdir {folder}/seen && echo fresh")
    _, out, _ = await conformance(path, path, *chosen("answer"))
    assert out.count("my agent: answer: failed (the agent ended; the last line of its output: 'fresh')\n") == 2


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--folder", ".", "is not empty"),
        ("--markdown", "missing/table.md", "there is no folder"),
        ("--json", "missing/results.json", "there is no folder"),
    ],
)
async def test_an_output_that_cannot_be_written_is_refused_before_the_first_scenario(
    described, tmp_path, option, value, message
):
    code, out, err = await conformance(described(NAIVE), *chosen("answer"), option, tmp_path / value)
    assert (code, out, "Traceback" in err) == (2, "", False)
    assert message in err


async def test_an_error_of_the_suite_fails_only_its_scenario(described):
    code, out, _ = await conformance(described('name: a\ncommand: "a\\0b"'), *chosen("answer", "threads"))
    assert code == 1
    assert out.count("failed (the suite: ValueError: embedded null byte)\n") == 2
    assert "| `threads`: ten threads at once get one answer each | **no** |" in out
