"""The command `amplifier-slack play`: a Slack workspace on this machine with an agent in it."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import socket
import sys
from pathlib import Path

import click

_PLAY = Path(__file__).parents[1] / "play"
_HINT = "Open it in a browser and write to {to}. Ctrl-C ends it."
# The names that a bot may have in the workspace, and those of the people there.
_HANDLE, _PEOPLE = re.compile(r"[a-z0-9._-]+"), ("ana", "ben", "chloe")
_LOCKED = ("play.lock", "play.db.lock")  # the latter is that of the service, which may outlive a killed workspace


@click.command()
@click.option("--port", default=8040, show_default=True, type=click.IntRange(0, 65535), help="0 selects a free port.")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("~/.local/share/amplifier-slack/play"),
    show_default=True,
    help="Where its conversations and files are until the next play.",
)
@click.option("--config", type=click.Path(path_type=Path), help="Your own agents instead of the demonstration.")
def play(port: int, folder: Path, config: Path | None) -> None:
    """Try an agent in a small Slack on this machine, without an account.

    It needs no key: without ANTHROPIC_API_KEY the agent is an offline demo. Each play begins anew.
    """
    from connector.setup import manifest  # noqa: PLC0415 - it takes long

    folder = folder.expanduser().absolute()
    bot, to, command = (
        ("alpha", "the agent: the first message is suggested", "/alpha") if config is None else _addressed(config)
    )
    held = _locked(folder, port)
    options: tuple[str, ...] = ("--port", str(port), "--bot", bot, "--hint", _HINT.format(to=to))
    options += ("--command", command)
    for each in manifest([bot.capitalize()])["features"]["shortcuts"]:
        options += ("--shortcut", f"{each['callback_id']}:{each['type']}:{each['name']}")
    for suffix in ("", "-wal", "-shm"):
        (folder / f"play.db{suffix}").unlink(missing_ok=True)
    if config is None:
        shutil.copytree(_PLAY, folder, copy_function=shutil.copyfile, dirs_exist_ok=True)
        config = folder / "config.yaml"
        options += (
            "--people",
            f"{','.join(_PEOPLE)}:guest",
            "--channels",
            "general,random,alerts",
            "--apps",
            "monitor",
        )
        options += ("--scene", str(folder / "scene.json"), "--tour", str(folder / "tour.json"))
    os.environ["AMPLIFIER_SLACK_STORE"] = f"sqlite:{folder}/play.db"
    python = (sys.executable, "-P")  # without the current folder, which may have packages of the same names
    agent = (*python, "-m", "amplifier_slack", "run", "--config", str(config))
    # Ctrl-C waits until the workspace handles it: Python would print a traceback while it is loaded.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    os.set_inheritable(held, True)  # the lock ends with the workspace
    os.execv(sys.executable, (*python, "-m", "local_slack", *options, "--", *agent))  # noqa: S606 - no shell


def _addressed(path: Path) -> tuple[str, str, str]:
    """Return the name of the bot of a configuration, how to address its agents, and the slash command."""
    from service.cli.setup import NotUsable  # noqa: PLC0415 - the demonstration starts faster without it
    from service.config.config import Environment, load_config  # noqa: PLC0415
    from service.config.config_errors import ConfigError  # noqa: PLC0415
    from service.config.slack import command_of  # noqa: PLC0415

    try:
        config = load_config(path, Environment.from_environ())
    except ConfigError as e:
        raise NotUsable(str(e)) from e
    if config.slack.transport != "socket":
        raise NotUsable(f"{path}: `play` delivers over Socket Mode. Leave `transport: http` out of the file you play.")
    first, *others = config.instances
    bot = first.lower() if _HANDLE.fullmatch(first.lower()) and first.lower() not in _PEOPLE else "agent"
    addresses = " or ".join((f"@{bot}", *(f"`@{bot} {name}:`" for name in others)))
    return bot, addresses, command_of(config.slack, first)


def _locked(folder: Path, port: int) -> int:
    """Lock the folder and return the lock's file descriptor.

    Raises:
        click.ClickException: another play uses it, it has files of others, it cannot be written, or the port is in use.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if any(folder.iterdir()) and not (folder / _LOCKED[0]).exists():
            raise click.ClickException(
                f"{folder} has files that are not of an earlier play, which a play would overwrite. Name an empty or a "
                "new folder with --folder."
            )
        locks = [os.open(folder / name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600) for name in _LOCKED]
    except OSError as e:
        raise click.ClickException(f"{folder} cannot be used: {e.strerror}. Choose another one with --folder.") from e
    try:
        for lock in locks:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        url = os.pread(locks[0], 100, 0).decode()
        raise click.ClickException(
            f"amplifier-slack play is already running{url and f': {url}'}. End it, or name another --folder and --port."
        ) from None
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError as e:
        other = port + 1 if port < 65_535 else 8040
        raise click.ClickException(
            f"Port {port} cannot be used: {e.strerror}. Choose another one: amplifier-slack play --port {other}, or "
            f"make play PORT={other}."
        ) from e
    os.ftruncate(locks[0], 0)
    os.pwrite(locks[0], f"http://127.0.0.1:{port}/".encode() if port else b"", 0)
    os.close(locks[1])  # the service takes it
    return locks[0]
