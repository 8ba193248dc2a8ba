"""`amplifier-slack conversations show | export`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from service_process import AMPLIFIER_SLACK
from stored_conversations import HERE


@pytest.fixture
def kept(kept):
    kept.talk("look at the roadmap", "and the <budget>")
    return kept


def run_process(kept, *words, **options):
    command = [sys.executable, "-m", "service", "conversations", *words, "--store", kept.url]
    return subprocess.run(command, check=False, text=True, timeout=30, **options)  # noqa: S603


def test_show_prints_each_state_with_the_index_for_rewind(kept, output_of):
    head, *lines = output_of(kept.run("show", "C0GENERAL")).splitlines()
    assert head.split() == [HERE, "alpha", "main"]
    first_words = [line.split()[0] for line in lines if line.strip()[:1].isdigit()]
    assert [word for word in first_words if word.isdigit()] == ["0", "1", "2", "3"]


def test_show_prints_only_the_last_states(kept, output_of):
    output = output_of(kept.run("show", HERE, "--last", "1"))
    assert "and the <budget>: yes" in output
    assert "roadmap" not in output


def test_another_branch_can_be_shown_and_exported(kept, output_of):
    output_of(kept.run("rewind", HERE, "1"))
    for words in (("show", HERE), ("export", HERE), ("export", HERE, "--format", "html")):
        assert "budget" not in output_of(kept.run(*words))
        assert "budget" in output_of(kept.run(*words, "--branch", "branch-1"))
    assert output_of(kept.run("show", HERE, "--branch", "branch-1")).splitlines()[0].split()[-1] == "branch-1"


def test_export_writes_one_json_object_per_line(kept, output_of):
    lines = [json.loads(line) for line in output_of(kept.run("export", HERE)).splitlines()]
    prompts = [line["data"]["text"] for line in lines if line.get("kind") == "UserMessageState"]
    assert prompts == ["look at the roadmap", "and the <budget>"]


def test_an_exported_page_is_complete_and_escapes_markup(kept, tmp_path, output_of):
    page = tmp_path / "page.html"
    assert output_of(kept.run("export", HERE, "--format", "html", "--output", str(page))) == f"Wrote {page}.\n"
    text = page.read_text(encoding="utf-8")
    assert text.lstrip().lower().startswith("<!doctype html>")
    assert text.rstrip().endswith("</html>")
    assert "<budget>" not in text
    assert "&lt;budget&gt;" in text


@pytest.mark.parametrize("words", [("show",), ("export",), ("export", "--format", "html")])
def test_a_missing_branch_is_an_error(kept, error_of, words):
    error = error_of(kept.run(*words, HERE, "--branch", "nope"))
    assert error == "There is no branch 'nope'; existing branches: main."


@pytest.mark.parametrize("form", ["jsonl", "html"])
def test_a_failed_export_leaves_the_file_unchanged(kept, tmp_path, error_of, form):
    file = tmp_path / "existing"
    file.write_text("before")
    error_of(kept.run("export", HERE, "--branch", "nope", "--format", form, "--output", str(file)))
    assert file.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".new-")] == []


def test_a_file_that_cannot_be_written_is_an_error(kept, tmp_path, error_of):
    for path in (tmp_path, tmp_path / "nowhere" / "page.html"):
        error = error_of(kept.run("export", HERE, "--output", str(path)))
        assert str(path) in error
        assert error.endswith("Choose another file.")


def test_the_store_is_not_overwritten(kept):
    before = kept.path.read_bytes()
    for name in (kept.path, kept.path.with_name(f"{kept.path.name}-wal")):
        name.touch()
        result = kept.run("export", HERE, "--output", str(name))
        assert result.exit_code == 2
        assert f"{name} is the store. Choose another output file" in " ".join(result.output.split())
    assert kept.path.read_bytes() == before


def test_a_closed_pipe_is_no_error(kept):
    kept.talk(*["words " * 500] * 40)
    command = f"{AMPLIFIER_SLACK} conversations show {HERE} --store {kept.url} | head -1"
    with os.popen(f"({command}) 2>&1") as pipe:  # noqa: S605 - a constant command
        assert pipe.read() == f"{HERE}  alpha  main\n"


def test_a_full_disk_is_an_error_without_a_traceback(kept):
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        ended = run_process(kept, "export", HERE, stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == 1
    assert ended.stderr == "Error: The output cannot be written: No space left on device.\n"


def test_a_character_that_the_terminal_lacks_is_replaced(kept):
    kept.talk("done ✅")
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ended = run_process(kept, "show", HERE, capture_output=True, env=env)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "done ?" in ended.stdout
