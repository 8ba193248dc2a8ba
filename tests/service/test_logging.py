"""No log line contains a secret."""

from __future__ import annotations

import asyncio
import json
import sys

import anthropic_server
import pytest

from local_slack import DropBeforeCall, ErrorResponse, ServerError
from service.logging import hide_secrets

SECRET = "sk-ant-api03-abcdefghijklmnop"


@pytest.mark.parametrize("form", ["human", "json"])
async def test_the_log_of_failing_runs_contains_no_token(  # noqa: PLR0917 - fixtures
    slack, environment, model, model_env, config_file, form
):
    config = config_file(f"log: {{level: debug, format: {form}}}\nworkspace: {{root: files}}")
    model.fail(401, "authentication_error", f"invalid x-api-key: {SECRET}")
    env = {**model_env, "ANTHROPIC_API_KEY": SECRET}
    async with environment.serving("--config", str(config), **env) as service:
        await service.says("service.ready")
        slack.faults.next("users.info", ErrorResponse(f"refused:\n{slack.bot_token}"))
        slack.faults.next("reactions.add", DropBeforeCall())
        ts = await slack.as_person("ana").say("general", "@alpha look")
        await slack.until(lambda _: environment.found(ts, "does not accept our API key"))
        slack.socket_mode.drop()
        await slack.until(lambda ws: ws.bot_online)
        await service.says("run.failed")
        slack.faults.next("chat.delete", ServerError(500))
        model.reply(anthropic_server.text("It is **done**."))
        await slack.as_person("ana").say("general", "again", thread=ts)
        await slack.until(lambda _: environment.found(ts, "It is *done*."))
    assert "entering" not in service.output, "the Markdown parser's debug lines"
    assert "Traceback" in service.output, "an error was logged"
    for secret in (slack.bot_token, slack.app_token, SECRET):
        assert secret not in service.output


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("token xoxb-1-a.", "token xoxb-…"),
        ("\\nxoxb-1-a", "\\nxoxb-…"),
        ("axapp-1-a", "axapp-…"),
        ("xoxe.xoxp-1-a", "xoxe.…"),
        ("(sk-ant-api03-x)", "(sk-ant-…)"),
        ("does not begin with xoxb-: it", "does not begin with xoxb-: it"),
        ("'wss://wss-primary.slack.com/?ticket=a-b_c&app_id=1'", "'wss://wss-primary.slack.com/?ticket=…&app_id=1'"),
        ("url=ws%3A//a/%3Fticket%3Dabc", "url=ws%3A//a/%3Fticket%3D…"),
        ("url=ws%3A//a/%3Fticket%3dab%2Bc d", "url=ws%3A//a/%3Fticket%3d… d"),
        ('"wss://a/?ticket=a%2Bb+c/d==&app_id=1"', '"wss://a/?ticket=…&app_id=1"'),
        ('"wss://a/?ticket=a%2Bb+c/d=="', '"wss://a/?ticket=…"'),
        (r'"{\"url\": \"wss://a/?ticket=a+b\"}"', r'"{\"url\": \"wss://a/?ticket=…\"}"'),
        (r'"wss://a/?ticket\u003da/b\u0026app_id=1"', r'"wss://a/?ticket\u003d…\u0026app_id=1"'),
        ("the key of another kind!", "the … kind!"),
        ("short", "short"),
    ],
)
def test_tokens_and_known_secrets_are_hidden(text, left):
    assert hide_secrets(text, ("key of another", "short")) == left


@pytest.mark.parametrize("form", [str, json.dumps, repr, lambda text: repr(json.dumps(text))])
def test_a_known_secret_is_hidden_in_every_escaped_form(form):
    secret = "s\u00e9cret of 'two'\n\"lines\""
    assert "cret" not in hide_secrets(f"before {form(secret)} after", (secret,))


@pytest.mark.parametrize("form", ["human", "json"])
async def test_the_traceback_of_a_crash_contains_no_secret(form):
    program = (
        "from service.config.config import LogConfig\n"
        "from service.logging import configure_logging\n"
        f"configure_logging(LogConfig(format={form!r}), ('not to be read',))\n"
        f"raise RuntimeError('\\n{SECRET} not to be read')\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stderr=asyncio.subprocess.PIPE)
    _, log = await process.communicate()
    assert process.returncode == 1
    assert "service.crashed" in log.decode()
    assert "RuntimeError" in log.decode()
    assert "abcdef" not in log.decode()
    assert "to be read" not in log.decode()


async def test_a_failure_of_the_provider_is_one_line_without_a_traceback(slack, environment, model, model_env):
    failures = (
        (401, "authentication_error", {}),
        (429, "rate_limit_error", {"retry-after": "3600"}),
        (400, "invalid_request_error", {}),
    )
    async with environment.serving(**model_env) as service:
        await service.says("service.ready")
        for count, (status, kind, headers) in enumerate(failures, 1):
            model.fail(status, kind, f"reason {count}", headers=headers)
            await slack.as_person("ana").say("general", "@alpha look")
            await service.says(f"reason {count}")
    failed = [json.loads(line) for line in service.output.splitlines() if '"reason": "' in line]
    assert [(line["event"], line["level"]) for line in failed] == [("run.failed", "error")] * 3
    assert [line["error"] for line in failed] == ["AuthenticationError", "RateLimitError", "InvalidRequestError"]
    assert "Traceback" not in service.output
