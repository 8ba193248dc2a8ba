"""`amplifier-slack conversations show | export`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from service_process import AMPLIFIER_SLACK
from stored_conversations import HERE, StoredConversations


@pytest.fixture
def kept(tmp_path) -> StoredConversations:
    kept = StoredConversations(tmp_path / "kept.db")
    kept.talk("look at the roadmap", "and the <budget>")
    return kept


def told(result) -> str:
    assert result.exit_code == 0, result.output
    return result.output


def refused(result, code: int = 1) -> str:
    assert result.exit_code == code, result.output
    (line,) = result.output.splitlines()
    return line


def test_what_was_said_is_shown_with_the_indices_that_a_rewind_takes(kept):
    head, *lines = told(kept.run("show", "C0GENERAL")).splitlines()
    assert head.split() == [HERE, "alpha", "main"]
    said = [line.split() for line in lines if "budget" in line or line.strip()[:1].isdigit()]
    assert [words[0] for words in said if words[0].isdigit()] == ["0", "1", "2", "3"]


def test_the_last_states_can_be_shown_alone(kept):
    output = told(kept.run("show", HERE, "--last", "1"))
    assert "and the <budget>: yes" in output
    assert "roadmap" not in output


def test_another_branch_can_be_shown_and_exported(kept):
    told(kept.run("rewind", HERE, "1"))
    for words in (("show", HERE), ("export", HERE), ("export", HERE, "--format", "html")):
        assert "budget" not in told(kept.run(*words))
        assert "budget" in told(kept.run(*words, "--branch", "branch-1"))
    assert told(kept.run("show", HERE, "--branch", "branch-1")).splitlines()[0].split()[-1] == "branch-1"


def test_json_lines_are_json_line_by_line(kept):
    lines = [json.loads(line) for line in told(kept.run("export", HERE)).splitlines()]
    assert [line["data"]["text"] for line in lines if line.get("kind") == "UserMessageState"] == [
        "look at the roadmap",
        "and the <budget>",
    ]


def test_a_page_is_whole_and_what_was_said_is_no_markup_in_it(kept, tmp_path):
    page = tmp_path / "page.html"
    output = told(kept.run("export", HERE, "--format", "html", "--output", str(page)))
    assert output == f"Wrote {page}.\n"
    text = page.read_text(encoding="utf-8")
    assert text.lstrip().lower().startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
    assert "<budget>" not in text
    assert "&lt;budget&gt;" in text


@pytest.mark.parametrize("words", [("show",), ("export",), ("export", "--format", "html")])
def test_a_branch_that_is_not_there_is_told(kept, words):
    said = refused(kept.run(*words, HERE, "--branch", "nope"))
    assert said == "Error: There is no branch 'nope'; existing branches: main."


@pytest.mark.parametrize("form", ["jsonl", "html"])
def test_a_file_is_not_touched_where_there_is_nothing_to_write(kept, tmp_path, form):
    file = tmp_path / "there"
    file.write_text("before")
    refused(kept.run("export", HERE, "--branch", "nope", "--format", form, "--output", str(file)))
    assert file.read_text() == "before"


def test_a_file_that_cannot_be_written_is_told(kept, tmp_path):
    for path in (tmp_path, tmp_path / "nowhere" / "page.html"):
        said = refused(kept.run("export", HERE, "--output", str(path)))
        assert str(path) in said
        assert said.endswith("Choose another file")


def test_a_reader_that_has_seen_enough_is_no_error(kept):
    kept.talk(*["words " * 500] * 40)
    command = f"{AMPLIFIER_SLACK} conversations show {HERE} --store {kept.url} | head -1"
    with os.popen(f"({command}) 2>&1") as pipe:  # noqa: S605 - the command stands here
        assert pipe.read() == f"{HERE}  alpha  main\n"


def test_the_store_is_not_written_over(kept):
    before = kept.path.read_bytes()
    for name in (kept.path, kept.path.with_name(f"{kept.path.name}-wal")):
        name.touch()
        result = kept.run("export", HERE, "--output", str(name))
        assert result.exit_code == 2
        assert f"{name} is the store. Choose another output file" in " ".join(result.output.split())
    assert kept.path.read_bytes() == before


def test_a_page_of_before_stays_where_the_new_one_cannot_be_made(kept, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("before")
    result = kept.run("export", HERE, "--branch", "gone", "--format", "html", "--output", str(page))
    assert result.exit_code == 1
    assert page.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".new-")] == []


def test_an_output_that_is_full_is_told_without_a_traceback(kept):
    command = [sys.executable, "-m", "service", "conversations", "export", HERE, "--store", kept.url]
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        ran = subprocess.run(command, check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=30)  # noqa: S603
    assert ran.returncode == 1
    assert ran.stderr == "Error: The output cannot be written: No space left on device.\n"


def test_a_terminal_that_does_not_know_a_sign_shows_another_one(kept):
    kept.talk("done ✅")
    command = [sys.executable, "-m", "service", "conversations", "show", HERE, "--store", kept.url]
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ran = subprocess.run(command, check=False, capture_output=True, text=True, env=env, timeout=30)  # noqa: S603
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "done ?" in ran.stdout
