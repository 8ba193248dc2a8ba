"""A service takes over a changed configuration file while it answers."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys

import pytest
from anthropic_server import Gate, text
from service_process import run_command

from service.administration.processes import ServiceProcess, registered, running
from service.administration.reload import ConfigChange
from service.config.config import Environment, load_config

FILE = """
instances:
  alpha: {{persona: {{name: Alpha, emoji: ":owl:"}}, instructions: "{instructions}"}}
  {other}: {{persona: {{name: Other, emoji: ":fox_face:"}}}}
slack: {{stop_reaction: {reaction}}}
limits: {{runs: {runs}}}
store: "sqlite:{store}.db"
log: {{level: {level}}}
audit: audit.jsonl
"""


@pytest.fixture
def write(config_file, tmp_path, monkeypatch):
    """Write the file with these values; processes of this test are registered in a folder of its own."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    values = {"instructions": "Old.", "other": "beta", "reaction": "x", "runs": 5, "store": "kept", "level": "info"}
    return lambda **changed: config_file(FILE.format(**{**values, **changed}))


@pytest.fixture
def alone(environment, tmp_path):
    """The environment of a service whose store is that of its file."""
    return {"XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}


def system_of(model) -> str:
    return str(model.bodies[-1]["system"])


async def test_a_run_survives_a_reload_and_the_next_run_has_the_new_configuration(  # noqa: PLR0917 - fixtures
    slack, environment, model, model_env, write, alone, tmp_path
):
    path, ana, held = write(), slack.as_person("ana"), Gate()
    async with environment.serving("--config", str(path), **model_env, **alone) as service:
        await service.says("service.ready")
        of_beta = await ana.say("general", "@alpha beta: hello")
        await slack.until(lambda _: environment.found(of_beta, "fine"))
        model.reply(text("The old", held, " answer."))
        root = await ana.say("general", "@alpha look")
        await held.reached.wait()
        changed = {"instructions": "New.", "other": "gamma", "reaction": "octagonal_sign", "runs": 7, "level": "debug"}
        write(**changed, store="elsewhere")
        reloaded = await run_command("reload", "--config", str(path), env=alone)
        assert reloaded.code == 0, reloaded.output
        assert (
            f"Process {service.process.pid}: in effect: instances.alpha.instructions, instances.beta, "
            "instances.gamma, slack.stop_reaction, limits.runs, log.level. after a restart: store." in reloaded.output
        )
        held.open()
        await slack.until(lambda _: environment.found(root, "The old answer."))
        assert "Old." in system_of(model)
        await ana.say("general", "and now?", thread=root)
        await slack.until(lambda _: len(environment.said(root)) == 2 and environment.found(root, "fine"))
        assert "New." in system_of(model)
        assert sum("The old answer." in said for said in environment.said(root)) == 1
        assert '"level": "debug"' in service.output
        await ana.say("general", "still there?", thread=of_beta)
        gone = await slack.until(lambda _: environment.found(of_beta, "no longer one of my agents"))
        assert "`alpha: …`" in gone.text
        of_gamma = await ana.say("general", "@alpha gamma: hello")
        await slack.until(lambda _: environment.found(of_gamma, "fine"))
        await ana.say("general", "alpha: go on", thread=of_beta)
        await slack.until(lambda _: environment.found(of_beta, "fine") and "New." in system_of(model))
        for name, value in (("limits: {runs: 0}", "limits.runs"), ("limts: {}", "did you mean limits?")):
            path.write_text(path.read_text().partition("limits:")[0] + name)
            refused = await run_command("reload", "--config", str(path), env=alone)
            assert (refused.code, value in refused.output) == (2, True), refused.output
        assert "config.not_reloaded" not in service.output, "nothing was signalled"
        service.process.send_signal(signal.SIGHUP)
        await service.says("config.not_reloaded")
        write(**changed)  # the store of the start: nothing is left for a restart
        assert "nothing has changed." in (await run_command("reload", "--config", str(path), env=alone)).output
        assert await service.ended(signal.SIGTERM) == 0
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert kinds == ["service.started", "config.reloaded", "config.not_reloaded", "config.reloaded"]
    ended = await run_command("reload", "--config", str(path), env=alone)
    assert (ended.code, "No service of this user runs with" in ended.output) == (1, True)


async def test_a_service_ends_with_its_terminal(environment, tmp_path):
    pid, terminal = pty.fork()
    if not pid:
        env = {**os.environ, **environment.env, "AMPLIFIER_SLACK_STORE": f"sqlite:{tmp_path}/kept.db"}
        os.execve(sys.executable, [sys.executable, "-m", "amplifier_slack", "run"], env)  # noqa: S606 - no shell

    def read() -> None:
        output = b""
        while b"service.ready" not in output:
            output += os.read(terminal, 65_536)

    async with asyncio.timeout(20):
        await asyncio.to_thread(read)
        os.close(terminal)  # sends SIGHUP
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert os.WIFEXITED(status)


def test_keys_that_need_a_restart_keep_their_value(write):
    before = load_config(write())
    change = ConfigChange.of(before, load_config(write(store="elsewhere", runs=9, reaction="stop_sign")))
    assert (change.applied, change.restart) == (("slack.stop_reaction", "limits.runs"), ("store",))
    assert (change.config.store, change.config.limits.runs) == (before.store, 9)
    assert ConfigChange.of(change.config, load_config(write(store="other"))).restart == ("store",)


def test_another_default_agent_is_reported(config_file):
    agents = {name: f"{name}: {{persona: {{name: {name}, emoji: ':owl:'}}}}" for name in ("alpha", "beta")}
    before = load_config(config_file(f"instances: {{{agents['alpha']}, {agents['beta']}}}"))
    after = load_config(config_file(f"instances: {{{agents['beta']}, {agents['alpha']}}}"))
    assert ConfigChange.of(before, after).applied == ("instances (the default agent)",)
    assert ConfigChange.of(before, before).applied == ()


def test_a_variable_of_a_secret_option_can_be_read_again(config_file, monkeypatch):
    monkeypatch.setenv("TEAM_API_KEY", "k-1")
    config = config_file(
        "instances: {a: {persona: {name: A, emoji: ':owl:'}, "
        "providers: [{module: provider-anthropic, config: {api_key: '${TEAM_API_KEY}'}}]}}"
    )
    taken: dict[str, str] = {}
    first = load_config(config, Environment(), taken)
    assert "TEAM_API_KEY" not in os.environ
    assert load_config(config, Environment(), taken) == first


def test_a_process_is_found_by_a_link_whose_target_has_changed(write, tmp_path):
    link, new = tmp_path / "link.yaml", tmp_path / "new.yaml"
    link.symlink_to(write())
    with registered(link) as process:
        link.unlink()
        link.symlink_to(new)
        assert running(link) == [process]


def test_only_live_processes_of_the_same_file_are_found(write, tmp_path):
    path = write()
    left = ServiceProcess(tmp_path / f"amplifier-slack-{os.getuid()}" / "x.pid", 1)
    with registered(path) as process:
        assert running(path) == [process]
        assert running(tmp_path / "other.yaml") == []
        left = process.path.with_name(process.path.name.replace(str(process.pid), "4000000"))
        left.touch()
        assert running(path) == [process]
        assert not left.exists(), "a dead process holds no lock"
    assert running(path) == []
    process.path.parent.chmod(0o755)
    with pytest.raises(PermissionError, match="must belong to this user and have the mode 0700"):
        running(path)
