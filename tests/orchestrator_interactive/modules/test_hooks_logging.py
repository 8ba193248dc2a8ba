"""`hooks-logging` and `hooks-redaction`: the lines of the log, masks, and the effect on the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agents.provider import call, say, use
from agents.session import make_agent
from agents.tools import echo
from hypothesis import given
from hypothesis import strategies as st

from orchestrator_interactive.config import validate
from orchestrator_interactive.modules import hooks_logging, hooks_redaction
from orchestrator_interactive.modules.hooks_redaction import RedactionOptions

MASKED = validate(RedactionOptions, {}, "hooks-redaction").masked
MAIL = "ana@example.org"


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


async def logged(folder: Path, prompt: str, redaction: dict[str, Any] | None = None, **options: Any) -> tuple[str, str]:
    """Run an agent; return its log, and the request to the model."""
    agent = await make_agent(call(use("echo", "a", text=f"to {MAIL}")), say("done"), tools=[echo()])
    options = {"session_log_template": str(folder / "{session_id}.jsonl"), **options}
    await hooks_logging.mount(agent.coordinator, options)
    if redaction is not None:
        await hooks_redaction.mount(agent.coordinator, redaction)
    await agent.run(prompt)
    return "".join(each.read_text() for each in files(folder)), str(agent.provider.sent(0))


@pytest.mark.parametrize(
    ("redaction", "options", "is_logged", "is_read"),
    [
        (None, {}, False, True),
        (None, {"content": True}, True, True),
        ({}, {"content": True}, False, True),
        ({"rules": ["secrets"]}, {"content": True}, True, True),
        ({"scope": "all"}, {"content": True}, False, False),
    ],
)
async def test_content_is_logged_by_choice_and_masked_where_that_is_configured(
    tmp_path: Path, redaction: dict[str, Any] | None, options: dict[str, Any], *, is_logged: bool, is_read: bool
) -> None:
    found, read = await logged(tmp_path, f"write to {MAIL}", redaction, **options)
    assert (MAIL in found) is is_logged
    assert (MAIL in read) is is_read


async def test_each_line_has_an_event_with_names_and_numbers(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (await logged(tmp_path, "go"))[0].splitlines()]
    assert {"execution:start", "provider:request", "tool:pre", "tool:post", "execution:end"} <= {
        line["event"] for line in lines
    }
    [tool] = [line for line in lines if line["event"] == "tool:pre"]
    assert tool["data"]["tool_name"] == "echo"
    assert tool["data"]["tool_input"] == {"text": "(18 characters)"}
    assert [path.stat().st_mode & 0o777 for path in files(tmp_path)] == [0o600]


async def test_a_file_that_is_too_large_is_kept_once_and_begun_anew(tmp_path: Path) -> None:
    await logged(tmp_path, "go", max_mb=0.001)
    assert [path.suffix for path in files(tmp_path)] == [".jsonl", ".1"]
    assert all(path.stat().st_size <= 1_000 for path in files(tmp_path))


@pytest.mark.parametrize(
    "secret",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "xoxb-123456789012-abcdefghijkl",
        "xapp-1-A0123456789-abcdefghij",
        "ghp_" + "a" * 36,
        "github_pat_" + "a" * 30,
        "glpat-" + "a" * 20,
        "sk-ant-api03-abcdefghijklmnopqrst",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4",
        "token_eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4",
        f"eyJ{'a' * 5_000}.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMIIEow",
        "AIza" + "a" * 35,
        "+49 170 1234567",
        "4111 1111 1111 1111",
        "(030) 123-45678",
        "ana.b+c@mail.example.co.uk",
    ],
)
def test_secrets_and_personal_data_are_masked_anywhere(secret: str) -> None:
    found = json.dumps(MASKED({"a": [{"b": f"x {secret} y"}], secret[:2]: secret}))
    assert "REDACTED" in found
    assert json.dumps(secret)[1:-1] not in found


@pytest.mark.parametrize(
    "text",
    [
        "1795527356.212785",
        "12:30:45",
        "version 3.11.7",
        "2026-11-24T13:00:00Z",
        "a@b",
        "",
        pytest.param("eyJ" * 300_000, id="beginnings of tokens, which take quadratic time if each is read to the end"),
    ],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert MASKED({"session_id": "ana@example.org", "text": text}) == {"session_id": "ana@example.org", "text": text}


json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_data)
def test_masking_keeps_the_shape_of_data_and_finds_nothing_a_second_time(data: Any) -> None:
    once = MASKED(data)
    assert MASKED(once) == once
    assert type(once) is type(data)


@pytest.mark.parametrize(
    ("module", "config", "problem"),
    [
        (hooks_logging, {"session_log_template": "events.jsonl"}, "session_id"),
        (hooks_logging, {"max_mb": 0}, "max_mb"),
        (hooks_redaction, {"rules": ["names"]}, "rules"),
        (hooks_redaction, {"scope": "model"}, "scope"),
    ],
)
async def test_a_configuration_that_is_not_possible_is_refused(
    module: Any, config: dict[str, Any], problem: str
) -> None:
    agent = await make_agent(say("x"))
    with pytest.raises(ValueError, match=problem):
        await module.mount(agent.coordinator, config)
