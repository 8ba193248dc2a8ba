"""Where the service keeps its conversations: which store it is, and what is said where it cannot be used."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing

import pytest
from redis_server import redis_server
from service_process import run_command

from orchestrator_interactive.interactions.stores import open_store
from service.config.config import ConfigError, Environment, load_config
from service.config.secrets import secrets
from service.logging import hide_secrets

TOKENS = {"SLACK_APP_TOKEN": "xapp-a", "SLACK_BOT_TOKEN": "xoxb-b"}
PERSONA = "persona: {name: A, emoji: ':owl:'}"


def written(folder, text):
    path = folder / "config.yaml"
    path.write_text(f"instances: {{a: {{{PERSONA}}}}}\nworkspace: {{root: files}}\n{text}\n")
    return path


def store_in(folder, text):
    return load_config(written(folder, text)).store.get_secret_value()


async def made(path):
    await (await open_store(f"sqlite:{path}")).aclose()


async def refused(folder, store):
    """What the command says of this store."""
    config = written(folder, "")
    ended = await run_command("run", "--config", str(config), env={**TOKENS, "AMPLIFIER_SLACK_STORE": store})
    assert ended.code == 2, ended.output
    assert "Traceback" not in ended.output
    (line,) = ended.output.splitlines()
    assert line.startswith("Error: ")
    return line


def test_a_file_that_the_configuration_names_is_relative_to_the_configuration(tmp_path):
    assert store_in(tmp_path, "store: sqlite:kept/a b.db") == f"sqlite:{tmp_path}/kept/a b.db"
    assert store_in(tmp_path, "store: sqlite:../a.db") == f"sqlite:{tmp_path.parent}/a.db"
    assert store_in(tmp_path, "store: sqlite:///var/lib/a.db") == "sqlite:/var/lib/a.db"
    assert store_in(tmp_path, "store: sqlite:/var/lib/a.db") == "sqlite:/var/lib/a.db"


@pytest.mark.parametrize("url", ["redis://:geheim@host:6379/0?ttl_days=30", "postgres://host"])
def test_every_other_url_stays_as_it_is(tmp_path, url):
    assert store_in(tmp_path, f"store: '{url}'") == url


def test_without_one_the_conversations_are_kept_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    kept = f"sqlite:{tmp_path}/.local/share/amplifier-slack/conversations.db"
    assert (load_config(None).store.get_secret_value(), store_in(tmp_path, "")) == (kept, kept)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("store: 5", "store: must be text"),
        ("store:", "store: is blank; give it a value"),
        ("store: [sqlite:a.db]", "store: must be text"),
        ("store: 'sqlite:~nobody-is-called-this/a.db'", "store: invalid path"),
        ('store: "sqlite:a\\0b"', "store: invalid path"),
        ("store: 'memory:'", "store: `memory:` is not persistent; .* Use a file .* or Redis"),
        ("stores: 'memory:'", "stores: unknown key; valid keys: instances, slack, workspace, store, limits, log"),
    ],
)
def test_what_cannot_be_a_store_is_told_by_its_key(tmp_path, text, told):
    with pytest.raises(ConfigError, match=told):
        load_config(written(tmp_path, text))


@pytest.mark.parametrize("option", ["store: 'memory:'", "conversation_id: x", "agent_id: x"])
def test_the_place_of_a_conversation_in_the_store_is_not_for_an_instance_to_choose(tmp_path, option):
    path = tmp_path / "config.yaml"
    path.write_text(f"instances: {{a: {{{PERSONA}, context: {{module: context-stack, config: {{{option}}}}}}}}}")
    with pytest.raises(
        ConfigError, match=r"instances\.a\.context: '.*' of context-stack is set by the service; .*`store:` at"
    ):
        load_config(path)


async def test_the_environment_goes_before_the_configuration(stage, tmp_path):
    config = written(tmp_path, "store: sqlite:of-the-file.db")
    url = f"sqlite:{tmp_path}/below/of-the-environment.db"
    async with stage.serving("--config", str(config), AMPLIFIER_SLACK_STORE=url) as service:
        await service.says("service.ready")
        assert await service.ended(signal.SIGTERM) == 0
    assert (tmp_path / "below/of-the-environment.db").exists()
    assert not (tmp_path / "of-the-file.db").exists()


async def test_nobody_else_may_read_what_people_say(stage, tmp_path):
    async with stage.serving() as service:
        await service.says("service.ready")
        assert await service.ended(signal.SIGTERM) == 0
    kept = tmp_path / ".local/share/amplifier-slack/conversations.db"
    assert kept.stat().st_mode & 0o077 == 0
    with closing(sqlite3.connect(kept)) as database:
        assert database.execute("SELECT count(*) FROM logs").fetchone() == (0,), "the check at the start writes nothing"


async def test_a_url_of_no_store_is_told_without_repeating_it(tmp_path):
    line = await refused(tmp_path, "hunter2-hunter2")
    assert "use `sqlite:PATH`" in line
    assert "hunter2" not in line


async def test_a_file_of_a_newer_version_is_told(tmp_path):
    path = tmp_path / "kept.db"
    await made(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    assert "has version 99" in await refused(tmp_path, f"sqlite:{path}")
    assert path.read_bytes() == before


async def test_a_file_that_is_locked_is_told(tmp_path):
    path = tmp_path / "kept.db"
    await made(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        assert "another process" in await refused(tmp_path, f"sqlite:{path}")


@pytest.mark.parametrize("content", [b"a text and no database, whatever its name says" * 50, None])
async def test_what_is_no_file_of_ours_is_told_and_left_alone(tmp_path, content):
    path = tmp_path / "kept.db"
    path.mkdir() if content is None else path.write_bytes(content)
    assert str(path) in await refused(tmp_path, f"sqlite:{path}")
    assert content is None or path.read_bytes() == content


async def test_a_wrong_password_of_redis_is_told_and_not_shown(tmp_path):
    with redis_server("--requirepass", "the-right-password") as server:
        url = f"redis://:the-wrong-password@127.0.0.1:{server.port}/0"
        line = await refused(tmp_path, url)
    assert f"127.0.0.1:{server.port}" in line
    assert "password" in line
    assert "wrong-password" not in line


async def test_the_service_keeps_its_conversations_in_redis(stage, tmp_path):
    with redis_server("--requirepass", "the-right-password") as server:
        url = f"redis://:the-right-password@127.0.0.1:{server.port}/0"
        async with stage.serving("--config", str(written(tmp_path, f"store: '{url}'"))) as service:
            await service.says("service.ready")
            ts = await stage.slack.as_person("ana").say("general", "@alpha hello")
            await stage.slack.until(lambda _: stage.found(ts, "offline demo"))
            assert await service.ended(signal.SIGTERM) == 0
        listed = await run_command("conversations", "list", "--store", url)
    assert "the-right-password" not in service.output
    assert ts in listed.output


@pytest.mark.parametrize(
    ("url", "hidden"),
    [
        ("redis://:geheimgeheim@host:6379/0", ["geheimgeheim"]),
        ("rediss://user:geheim%40geheim@host/0", ["geheim%40geheim", "geheim@geheim"]),
        ("redis://:geheim/geheim@geheim@host/0", ["geheim/geheim@geheim"]),
        ("geheimgeheim", ["geheimgeheim"]),
        ("geheim-geheim:geheim", ["geheim-geheim:geheim", "geheim-geheim"]),
    ],
)
@pytest.mark.parametrize("where", ["variable", "file"])
def test_the_password_of_a_store_is_hidden_wherever_it_was_given(tmp_path, monkeypatch, url, hidden, where):
    monkeypatch.setenv("AMPLIFIER_SLACK_STORE", url if where == "variable" else "")
    config = load_config(written(tmp_path, f"store: '{url}'" if where == "file" else ""))
    known = secrets(Environment.from_environ(), config)
    assert [hide_secrets(f"({secret})", known) for secret in hidden] == ["(…)"] * len(hidden)


@pytest.mark.parametrize("url", ["memory:", "sqlite:/var/lib/conversations.db", "redis://host.example:6379/0"])
def test_of_an_address_without_a_password_nothing_is_hidden(tmp_path, monkeypatch, url):
    monkeypatch.setenv("AMPLIFIER_SLACK_STORE", url)
    assert hide_secrets(f"cannot use {url}", secrets(Environment.from_environ())) == f"cannot use {url}"
