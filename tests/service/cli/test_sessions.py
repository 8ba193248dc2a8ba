"""The command `amplifier-slack sessions serve`, and `run --sessions`, report each error in a sentence."""

from __future__ import annotations

import signal
import socket

import pytest
from service_process import free_address, run_command, serving

FILE = "instances: {alpha: {persona: {name: Alpha, emoji: ':owl:'}}}\n"


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("", ("--listen", "0.0.0.0:50551"), "sessions.listen: other machines reach 0.0.0.0:50551"),
        ("", ("--listen", "50551"), "--listen: must be a host and a port"),
        ("sessions: {address: 'http://here'}", (), "sessions.address: must be a URL such as grpc://127.0.0.1:50551"),
        ("sessions: {key: a.key}", (), "needs both `certificate` and `key`, or neither"),
        ("sessions: {certificate: a.pem, key: a.key}", (), "sessions.key: "),
        ("sessions: {certificate: config.yaml, key: config.yaml}", (), "config.yaml is not a PEM file"),
    ],
)
async def test_what_cannot_be_used_is_named_with_a_remedy(config_file, tmp_path, text, arguments, message):
    config = config_file(f"{FILE}{text}")
    ended = await run_command("sessions", "serve", "--config", str(config), *arguments, env={"HOME": str(tmp_path)})
    assert ended.code == 2
    assert message in ended.output
    assert "Traceback" not in ended.output


async def test_an_address_in_use_is_named(config_file, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        command = ("sessions", "serve", "--config", str(config_file(FILE)), "--listen", address)
        ended = await run_command(*command, env={"HOME": str(tmp_path)})
    assert ended.code == 2
    assert f"cannot listen on 127.0.0.1 port {address[10:]}" in ended.output


async def test_a_service_refuses_what_is_no_address_of_agents(config_file, tmp_path):
    env = {"HOME": str(tmp_path), "SLACK_APP_TOKEN": "xapp-a", "SLACK_BOT_TOKEN": "xoxb-b"}
    config = str(config_file(FILE))
    ended = await run_command("run", "--config", config, "--sessions", "127.0.0.1:50551", env=env)
    assert (ended.code, "--sessions: must be a URL such as grpc://" in ended.output) == (2, True)
    ended = await run_command("run", "--config", config, env={**env, "AMPLIFIER_SLACK_SESSIONS": "grpc://here/there"})
    assert (ended.code, "AMPLIFIER_SLACK_SESSIONS: must be a URL" in ended.output) == (2, True)


async def test_it_serves_until_sigterm(config_file, tmp_path):
    arguments = ("--config", str(config_file(FILE)), "--listen", free_address())
    async with serving({"HOME": str(tmp_path)}, *arguments, command=("sessions", "serve")) as process:
        await process.says("sessions.ready")
        assert await process.ended(signal.SIGTERM) == 0


async def test_it_ends_if_its_store_is_replaced(config_file, tmp_path):
    path, arguments = tmp_path / "kept.db", ("--config", str(config_file(FILE)), "--listen", free_address())
    env = {"HOME": str(tmp_path), "AMPLIFIER_SLACK_STORE": f"sqlite:{path}"}
    async with serving(env, *arguments, command=("sessions", "serve")) as process:
        await process.says("sessions.ready")
        (tmp_path / "other.db").write_bytes(path.read_bytes())
        (tmp_path / "other.db").replace(path)
        assert await process.ended(None, within_s=20) == 2
    assert "Error: The conversation log" in process.output
    assert "was removed or replaced while it was open" in process.output
    assert "ExceptionGroup" not in process.output
