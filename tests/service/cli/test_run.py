"""The command `amplifier-slack run` reports each error in one line, without secrets."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sqlite3
import sys
from contextlib import closing

import pytest
from redis_server import redis_server
from service_process import AMPLIFIER_SLACK, Ended, run_command

from local_slack import LocalSlack
from orchestrator_interactive.interactions.stores import open_store

TOKENS = {"SLACK_APP_TOKEN": "xapp-a", "SLACK_BOT_TOKEN": "xoxb-b"}
SECRET = "sk-ant-api03-abcdefghijklmnop"
INSTANCE = "instances: {a: {persona: {name: A, emoji: ':owl:'}}}"


def instance(more):
    return INSTANCE.replace("}}}", f"}}, {more}}}}}")


def error_of(ended, code=2):
    """Return the error message of a command that printed only this."""
    assert ended.code == code, ended.output
    assert [line.startswith("Error: ") for line in ended.output.splitlines()].count(True) == 1, ended.output
    assert "Traceback" not in ended.output
    return ended.output.partition("Error: ")[2]


@pytest.fixture
def error(config_file, tmp_path):
    """Run the service with a wrong configuration file or environment; return its error message."""

    async def run(text=INSTANCE, code=2, **env):
        env = {**TOKENS, "SLACK_API_URL": "http://127.0.0.1:9/", "HOME": str(tmp_path), **env}
        return error_of(await run_command("run", "--config", str(config_file(text)), env=env), code)

    return run


@pytest.mark.parametrize("program", [(AMPLIFIER_SLACK,), (sys.executable, "-m", "service")], ids=["script", "package"])
async def test_the_service_is_a_script_and_a_package(program):
    env = {name: value for name, value in os.environ.items() if name not in TOKENS}
    process = await asyncio.create_subprocess_exec(*program, "run", env=env, stderr=asyncio.subprocess.PIPE)
    _, output = await process.communicate()
    ended = Ended(process.returncode, output.decode())
    assert re.fullmatch(
        r"2 problems:\n  SLACK_BOT_TOKEN is not set.+\n  SLACK_APP_TOKEN is not set.+\n", error_of(ended)
    )


async def test_missing_tokens_and_a_misspelt_module_are_reported_at_once(config_file):
    config = config_file(f"{instance('tools: [tool-tdo]')}\nslack: {{transport: http}}")
    ended = await run_command("run", "--config", str(config))
    assert [line.split(". ")[0] for line in error_of(ended).splitlines()] == [
        "3 problems:",
        "  instances.a: There is no module 'tool-tdo'",
        "  SLACK_BOT_TOKEN is not set",
        "  SLACK_SIGNING_SECRET is not set: `transport: http` requires it",
    ]
    assert "Did you mean 'tool-todo'?" in ended.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lease_s: 1.5", "lease_s: must be 2 or more."),
        ("slack: {transport: http}", "SLACK_SIGNING_SECRET is not set: `transport: http` requires it."),
        (instance("tools: [tool-nowhere]"), "instances.a: There is no module 'tool-nowhere'."),
        (instance("tools: [provider-demo]"), "it is under the wrong key."),
        (instance("providers: [provider-anthropic]"), "set ANTHROPIC_API_KEY"),
        (f"{INSTANCE}\nworkspace: {{root: notes/files, template: notes}}", "workspace.root: "),
        (f"{INSTANCE}\nworkspace: {{root: config.yaml}}", "workspace.root: "),
    ],
)
async def test_a_configuration_error_exits_with_code_2(error, tmp_path, text, message):
    (tmp_path / "notes").mkdir()
    assert message in await error(text)


@pytest.mark.parametrize(
    "text",
    [
        instance(f"providers: [{{module: provider-anthropic, config: {SECRET}}}]"),
        instance(f"providers: [{{module: provider-anthropic, config: {{api_key: {SECRET}, nonsense: 1}}}}]"),
        f"{INSTANCE}\nANTHROPIC_API_KEY: {SECRET}",
        f"{INSTANCE}\nslack: xoxb-123456-abcdef",
        f"instances: {{a: {{persona: {SECRET}}}}}",
        f"api_key: {SECRET}: x",
    ],
)
async def test_a_secret_in_a_wrong_file_is_not_repeated(error, text):
    assert "abcdef" not in await error(text)


async def test_tokens_that_slack_refuses_exit_with_code_1(error):
    async with LocalSlack() as slack:
        line = await error(code=1, SLACK_API_URL=slack.api_url)
        assert line.startswith("Slack does not accept SLACK_BOT_TOKEN (invalid_auth).")
        line = await error(code=1, SLACK_API_URL=slack.api_url, SLACK_BOT_TOKEN=slack.bot_token)
        assert line.startswith("Slack does not accept SLACK_APP_TOKEN (invalid_auth).")


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "http://127.0.0.1:99999/"])
async def test_an_unreachable_slack_exits_with_code_1(error, url):
    assert (await error(code=1, SLACK_API_URL=url)).startswith(f"Slack cannot be reached at {url}")


@pytest.mark.parametrize(
    ("store", "message"),
    [
        ("memory:", "AMPLIFIER_SLACK_STORE: `memory:` is not persistent"),
        ("hunter2-hunter2", "use `sqlite:PATH`"),
        ("sqlite:{folder}/folder.db", "{folder}/folder.db"),
        ("sqlite:{folder}/text.db", "{folder}/text.db"),
        ("sqlite:{folder}/newer.db", "has version 99"),
    ],
)
async def test_a_store_that_cannot_be_used_exits_with_code_2_and_is_left_unchanged(error, tmp_path, store, message):
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "text.db").write_bytes(b"a text and no database, whatever its name says" * 50)
    await (await open_store(f"sqlite:{tmp_path}/newer.db")).aclose()
    with closing(sqlite3.connect(tmp_path / "newer.db")) as newer:
        newer.execute("PRAGMA user_version = 99")
    before = [(tmp_path / f"{name}.db").read_bytes() for name in ("text", "newer")]
    line = await error(AMPLIFIER_SLACK_STORE=store.format(folder=tmp_path))
    assert message.format(folder=tmp_path) in line
    assert "hunter2" not in line
    assert [(tmp_path / f"{name}.db").read_bytes() for name in ("text", "newer")] == before


@pytest.mark.parametrize(
    ("store", "message"),
    [("sqlite:{folder}/locked.db", "another process"), ("redis://127.0.0.1:9/0", "Connection refused")],
)
async def test_a_store_that_is_unavailable_exits_with_code_1(error, tmp_path, store, message):
    await (await open_store(f"sqlite:{tmp_path}/locked.db")).aclose()
    with closing(sqlite3.connect(tmp_path / "locked.db", isolation_level=None)) as locked:
        locked.execute("BEGIN EXCLUSIVE")
        assert message in await error(code=1, AMPLIFIER_SLACK_STORE=store.format(folder=tmp_path))


async def test_a_wrong_password_of_redis_is_reported_without_the_password(error):
    with redis_server("--requirepass", "the-right-password") as server:
        url = f"redis://:the-wrong-password@127.0.0.1:{server.port}/0"
        line = await error(AMPLIFIER_SLACK_STORE=url)
    assert f"127.0.0.1:{server.port}" in line
    assert "password" in line
    assert "wrong-password" not in line


async def test_the_store_of_the_environment_overrides_the_configuration(environment, config_file, tmp_path):
    url = f"sqlite:{tmp_path}/below/environment.db"
    config = config_file(f"{INSTANCE}\nstore: sqlite:file.db")
    async with environment.serving("--config", str(config), AMPLIFIER_SLACK_STORE=url) as service:
        await service.says("service.ready")
        assert await service.ended(signal.SIGTERM) == 0
    assert (tmp_path / "below/environment.db").exists()
    assert not (tmp_path / "file.db").exists()


async def test_the_default_store_is_private_and_empty_after_a_start(environment, tmp_path):
    async with environment.serving() as service:
        await service.says("service.ready")
        assert await service.ended(signal.SIGTERM) == 0
    store = tmp_path / ".local/share/amplifier-slack/conversations.db"
    assert store.stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(store)) as database:
        assert database.execute("SELECT count(*) FROM logs").fetchone() == (0,)


async def test_a_service_over_redis_with_a_password_stores_its_conversations_there(slack, environment, config_file):
    with redis_server("--requirepass", "the-right-password") as server:
        url = f"redis://:the-right-password@127.0.0.1:{server.port}/0"
        async with environment.serving("--config", str(config_file(f"{INSTANCE}\nstore: '{url}'"))) as service:
            await service.says("service.ready")
            ts = await slack.as_person("ana").say("general", "@alpha hello")
            await slack.until(lambda _: environment.found(ts, "offline demo"))
            assert await service.ended(signal.SIGTERM) == 0
        listed = await run_command("conversations", "list", "--store", url)
    assert "the-right-password" not in service.output
    assert ts in listed.output


async def test_help_and_version_need_no_configuration():
    assert (await run_command("--version")).output.startswith("amplifier-slack, version ")
    help_text = await run_command("run", "--help")
    assert help_text.code == 0
    assert "SLACK_APP_TOKEN" in help_text.output
