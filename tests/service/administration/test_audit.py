"""The audit log records who did what, and every change of it is found."""

from __future__ import annotations

import asyncio
import hashlib
import json
import signal
from pathlib import Path

import pytest
from anthropic_server import Gate, text
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from service_process import run_command
from structlog.testing import capture_logs

from service.administration.audit import AuditLog, verify
from service.cli.main import main
from service.config.config_errors import ConfigError

FILE = """
instances: {{alpha: {{persona: {{name: Alpha, emoji: ":owl:"}}, instructions: "{instructions}"}}}}
slack: {{users: [U0ANA]}}
audit: audit.jsonl
"""


async def record(path: Path, *numbers: int) -> None:
    log = AuditLog(path)
    for number in numbers:
        log.record("test", number=number)
    await log.aclose()


def entries(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_starts_reloads_stops_and_refusals_are_recorded_without_texts(  # noqa: PLR0917 - fixtures
    slack, environment, model, model_env, config_file, tmp_path
):
    path, audit, held = config_file(FILE.format(instructions="Old.")), tmp_path / "audit.jsonl", Gate()
    env = {"XDG_RUNTIME_DIR": str(tmp_path)}
    model.reply(text("I begin. ", held, "And end."))
    async with environment.serving("--config", str(path), **model_env, **env) as service:
        await service.says("service.ready")
        root = await slack.as_person("ana").say("general", "@alpha a private question")
        await held.reached.wait()
        await slack.as_person("ana").react("general", root, "x")
        await slack.until(lambda _: environment.found(root, "Stopped by"))
        await slack.as_person("ben").say("general", "@alpha a private wish")
        await service.says("access.refused")
        config_file(FILE.format(instructions="New."))
        assert (await run_command("reload", "--config", str(path), env=env)).code == 0
        again = await run_command("doctor", "--audit", str(audit))
        assert (again.code, "each unchanged and in its place" in again.output) == (0, True), "it can be read meanwhile"
        assert await service.ended(signal.SIGKILL) == -signal.SIGKILL
    found = [(each["kind"], each["fields"]) for each in entries(audit)]
    started, stop, refused, reloaded = (fields for _, fields in found)
    assert [kind for kind, _ in found] == ["service.started", "run.stop", "access.refused", "config.reloaded"]
    assert started["digest"] != reloaded["digest"]
    assert (stop["user"], stop["door"], root in stop["conversation"]) == ("U0ANA", "reaction", True)
    assert (refused["user"], "only certain people" in refused["why"]) == ("U0BEN", True)
    assert reloaded["applied"] == ["instances.alpha.instructions"]
    assert "private" not in audit.read_text()
    assert "New." not in audit.read_text()
    assert audit.stat().st_mode & 0o777 == 0o600


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("audit") / "audit.jsonl"
    asyncio.run(record(path, *range(12)))
    return path


@given(chance=st.randoms(use_true_random=False))
def test_a_changed_file_is_found_with_the_line(written, chance):
    lines = written.read_bytes().splitlines(keepends=True)
    first = at = chance.randrange(len(lines))
    match chance.choice(["edit", "remove", "insert", "swap", "truncate", "rewrite"]):
        case "edit":
            byte = chance.randrange(len(lines[at]) - 1)
            lines[at] = (
                lines[at][:byte] + bytes([(lines[at][byte] + chance.randrange(1, 256)) % 256]) + lines[at][byte + 1 :]
            )
        case "remove":
            del lines[at]
        case "insert":
            lines.insert(at, lines[chance.randrange(len(lines))])
        case "swap":
            at, other = chance.sample(range(len(lines)), 2)
            lines[at], lines[other] = lines[other], lines[at]
            first = min(at, other)
        case "truncate":
            lines = lines[:at]
        case "rewrite":  # with a hash that fits
            forged = {**json.loads(lines[at]), "kind": "forged"}
            del forged["hash"]
            canonical = json.dumps(forged, sort_keys=True, separators=(",", ":"))
            forged["hash"] = hashlib.sha256(canonical.encode()).hexdigest()
            lines[at] = f"{json.dumps(forged)}\n".encode()
    changed = written.with_name("changed.jsonl")
    changed.write_bytes(b"".join(lines))
    problems = verify(changed, verify(written).checkpoint).problems
    assert problems
    named = int("".join(filter(str.isdigit, problems[0].partition("line ")[2].partition(" ")[0].rstrip(":"))))
    assert first <= named <= first + 2


def test_entries_removed_at_the_end_are_found_by_a_checkpoint_only(written, tmp_path):
    checkpoint = CliRunner().invoke(main, ["doctor", "--audit", str(written)]).output.split()[-1]
    shorter = tmp_path / "shorter.jsonl"
    shorter.write_text("".join(written.read_text().splitlines(keepends=True)[:-1]))
    without = CliRunner().invoke(main, ["doctor", "--audit", str(shorter)])
    kept = CliRunner().invoke(main, ["doctor", "--audit", str(shorter), "--checkpoint", checkpoint])
    assert (without.exit_code, kept.exit_code) == (0, 1)
    assert "after line 11: the checkpoint 12:" in kept.output
    assert CliRunner().invoke(main, ["doctor", "--audit", str(tmp_path / "no")]).exit_code == 2


async def test_an_entry_in_another_form_is_found_and_the_checkpoint_of_an_empty_file_holds(tmp_path):
    path = tmp_path / "audit.jsonl"
    path.touch()
    empty = verify(path).checkpoint
    await record(path, 1, 2)
    assert verify(path, empty).problems == ()
    text = path.read_text()
    for changed in (
        text.replace('"fields": {', '"fields": {"user": "U0FAKE"}, "fields": {', 1),
        text.replace("\n", "\r\n", 1),
    ):
        path.write_bytes(changed.encode())
        assert verify(path).problems[0] == "line 1 is not an entry."
    wrong = CliRunner().invoke(main, ["doctor", "--audit", str(path), "--checkpoint", "nonsense"])
    assert (wrong.exit_code, "SEQ:HASH" in wrong.output) == (2, True)


async def test_a_torn_last_line_is_dropped_and_reported(tmp_path):
    path = tmp_path / "audit.jsonl"
    await record(path, 1, 2)
    with path.open("ab") as file:
        file.write(b'{"seq": 3, "time": "20')
    assert (verify(path).problems, verify(path).is_torn) == ((), True)
    with capture_logs() as lines:
        await record(path, 3)
    assert [line["event"] for line in lines] == ["audit.repaired"]
    assert [(each["seq"], each["kind"]) for each in entries(path)][2:] == [(3, "audit.repaired"), (4, "test")]
    assert (verify(path).problems, verify(path).is_torn) == ((), False)


@pytest.mark.parametrize(
    "content",
    ["my notes", "\n", "[" * 100_000 + "\n", '{"seq": 1}\n', '{"seq": "1", "hash": "a"}\n', "[1]\n", "x" * 2_000_000],
)
def test_a_file_of_something_else_is_refused_and_kept(tmp_path, content):
    path = tmp_path / "audit.jsonl"
    path.write_text(content)
    with pytest.raises(ConfigError, match="Name another file"):
        AuditLog(path)
    assert path.read_text() == content


@pytest.mark.parametrize("is_moved", [True, False], ids=["moved", "removed"])
async def test_a_moved_file_is_continued_in_a_new_one_with_its_checkpoint(tmp_path, is_moved):
    path, old = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    first, second = AuditLog(path), AuditLog(path)
    first.record("test", number=1)
    await first.aclose()
    checkpoint = verify(path).checkpoint
    path.rename(old) if is_moved else path.unlink()
    with capture_logs() as lines:
        second.record("test", number=2)
        await second.aclose()
    assert [line["event"] for line in lines] == ["audit.file_changed"]
    continued, entry = entries(path)
    assert (continued["kind"], continued["fields"]) == ("audit.continued", {"previous": checkpoint})
    assert entry["fields"] == {"number": 2}
    assert verify(path).problems == ()
    if is_moved:
        assert verify(old, continued["fields"]["previous"]).problems == ()


async def test_processes_may_share_a_file(tmp_path):
    path = tmp_path / "audit.jsonl"
    first, second = AuditLog(path), AuditLog(path)
    for number in range(20):
        (first, second)[number % 2].record("test", number=number)
    await first.aclose()
    await second.aclose()
    assert sorted(each["fields"]["number"] for each in entries(path)) == list(range(20))
    assert verify(path).problems == ()


async def test_an_entry_that_cannot_be_written_is_reported_and_kept(tmp_path):
    path = tmp_path / "audit.jsonl"
    await record(path, 1)
    log = AuditLog(path)
    with capture_logs() as lines:
        with path.open("ab") as file:
            file.write(b'{"seq": 2}\n')
        log.record("test", number=2)
        async with asyncio.timeout(50):
            while not lines:  # noqa: ASYNC110 - the writer's thread only logs
                await asyncio.sleep(0.001)
        assert [line["event"] for line in lines] == ["audit.not_written"]
        with pytest.raises(ConfigError, match="not an entry of an audit log"):
            AuditLog(path)
        path.write_text(path.read_text().replace('{"seq": 2}\n', ""))
        log.record("test", number=3)
    await log.aclose()
    assert [each["fields"]["number"] for each in entries(path)] == [1, 2, 3]
    assert verify(path).problems == ()
