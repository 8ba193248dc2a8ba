"""``python -m local_slack``: run a Slack workspace, and optionally a bot that uses it."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from local_slack.methods.app import Shortcut
from local_slack.methods.web_api import SLACK_LIMITS
from local_slack.server import LocalSlack
from local_slack.web.loopback import is_loopback
from local_slack.web.tour import read_tour
from local_slack.workspace.errors import LocalSlackError
from local_slack.workspace.installations import Client
from local_slack.workspace.people import Bot

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from typing import Any

    from local_slack.workspace.people import Kind

_GRACE_S = 10.0
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CANNOT_START = 127


@asynccontextmanager
async def _child(command: Sequence[str], variables: Mapping[str, str], *, apart: bool) -> AsyncIterator[Process]:
    """Run ``command`` while the block runs; then terminate it, and kill it after a grace period.

    ``apart``: in a process group of its own, so that it gets no Ctrl-C of the terminal.

    Raises OSError if it cannot be started.
    """
    env = {**os.environ, **variables}
    process = await asyncio.create_subprocess_exec(*command, env=env, process_group=0 if apart else None)
    try:
        yield process
    finally:
        _send(process, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await process.wait()
        _send(process, signal.SIGKILL)
        await process.wait()


def _send(process: Process, number: signal.Signals) -> None:
    # `Process.send_signal` would reap a child that has just ended, and asyncio would then log an unknown child.
    with suppress(ProcessLookupError):
        if process.returncode is None:
            os.kill(process.pid, number)


class _App:
    """The app's process: it begins anew after each kill."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], *, apart: bool) -> None:
        self._child = partial(_child, command, variables, apart=apart)
        self._process: Process | None = None
        self._is_killed = False

    async def run(self) -> int:
        """Run it until it ends by itself; return the exit code as in a shell.

        Raises OSError if it cannot be started.
        """
        while True:
            async with self._child() as self._process:
                code = await self._process.wait()
            if not self._is_killed:
                return code if code >= 0 else 128 - code
            self._is_killed = False

    def kill(self) -> None:
        """Kill it like a crash of the machine (SIGKILL)."""
        if self._process is not None and self._process.returncode is None:
            self._is_killed = True
            _send(self._process, signal.SIGKILL)


def _loopback_host(_context: click.Context, _option: click.Parameter, host: str) -> str:
    if not is_loopback(host):
        raise click.BadParameter(f"{host!r} is not this machine; use 127.0.0.1, ::1 or localhost")
    return host


def _people(_context: click.Context, _option: click.Parameter, people: str) -> Mapping[str, Kind]:
    parts = (each.strip().partition(":") for each in people.split(",") if each.strip())
    return {name: cast("Kind", kind or "member") for name, _, kind in parts}


def _names(_context: click.Context, _option: click.Parameter, names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(",") if name.strip())


def _client(_context: click.Context, _option: click.Parameter, given: str | None) -> Client | None:
    name, _, secret = (given or "").partition(":")
    if given is not None and not (name and secret):
        raise click.BadParameter("is the id and the secret of the app, such as 1.2:secret")
    return Client(name, secret) if given else None


def _shortcuts(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> tuple[Shortcut, ...]:
    def shortcut(text: str) -> Shortcut:
        callback_id, kind, name = (*text.split(":", 2), "", "")[:3]
        return Shortcut(callback_id, name, cast("Any", kind))

    try:
        return tuple(map(shortcut, given))
    except ValueError as e:
        raise click.BadParameter(str(e)) from e


@click.command(context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]})
@click.option("--host", default="127.0.0.1", show_default=True, callback=_loopback_host, help="Loopback only.")
@click.option("--port", default=8040, show_default=True, type=click.IntRange(0, 65535), help="0 selects a free port.")
@click.option("--bot", default="alpha", show_default=True, help="The bot's name.")
@click.option(
    "--people",
    default="ana,ben,chloe",
    show_default=True,
    callback=_people,
    help="Names, separated by commas; ben:guest, ben:single_channel_guest and ben:external are not members.",
)
@click.option(
    "--channels", default="general,random", show_default=True, callback=_names, help="Names, separated by commas."
)
@click.option(
    "--teams", default="Playground", show_default=True, callback=_names, help="Workspaces, separated by commas."
)
@click.option("--client", metavar="ID:SECRET", callback=_client, help="People install the app, with these credentials.")
@click.option(
    "--installed",
    default="",
    callback=_names,
    help="With --client: the workspaces with the app at first. Default: none.",
)
@click.option("--organisation", metavar="NAME", help="With --client: the organisation of all workspaces.")
@click.option(
    "--rotation", "rotation_s", type=click.FloatRange(1), help="With --client: seconds until a token expires."
)
@click.option("--apps", default="", callback=_names, help="Other apps that post, separated by commas.")
@click.option("--command", "commands", multiple=True, metavar="/NAME", help="A slash command of the app; repeatable.")
@click.option(
    "--shortcut",
    "shortcuts",
    multiple=True,
    callback=_shortcuts,
    metavar="ID:TYPE:NAME",
    help="A shortcut of the app, of the type message or global; repeatable.",
)
@click.option("--scene", type=click.Path(dir_okay=False, path_type=Path), help="Begin with the messages of this file.")
@click.option(
    "--tour", type=click.Path(dir_okay=False, path_type=Path), help="Offer the guided tour of this file on the page."
)
@click.option("--deliver-to", metavar="URL", help="Send events to this request URL, not over Socket Mode.")
@click.option("--record", type=click.Path(dir_okay=False, path_type=Path), help="Write the record as JSON lines.")
@click.option("--no-limits", is_flag=True, help="Turn off Slack's rate limits.")
@click.option(
    "--hint",
    metavar="TEXT",
    help="Print the page's URL with this text once COMMAND is connected, and no variables. Ctrl-C terminates COMMAND.",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def main(  # noqa: PLR0913, PLR0917 - one argument per option
    host: str,
    port: int,
    bot: str,
    people: Mapping[str, Kind],
    channels: tuple[str, ...],
    teams: tuple[str, ...],
    client: Client | None,
    installed: tuple[str, ...],
    organisation: str | None,
    rotation_s: float | None,
    apps: tuple[str, ...],
    commands: tuple[str, ...],
    shortcuts: tuple[Shortcut, ...],
    scene: Path | None,
    tour: Path | None,
    deliver_to: str | None,
    record: Path | None,
    no_limits: bool,
    hint: str | None,
    command: tuple[str, ...],
) -> None:
    """Run a Slack workspace on this machine.

    COMMAND, given after --, is started with SLACK_API_URL, SLACK_APP_TOKEN, SLACK_BOT_TOKEN and
    SLACK_SIGNING_SECRET set, and ends together with the workspace.
    """
    try:
        slack = LocalSlack(
            host=host,
            port=port,
            bot=bot,
            people=people.keys(),
            kinds=people,
            channels=channels,
            teams=teams,
            apps=apps,
            client=client,
            installed=installed,
            organisation=organisation,
            rotation_s=rotation_s,
            commands=commands,
            shortcuts=shortcuts,
            request_url=deliver_to,
            tour=read_tour(tour) if tour else None,
            limits=None if no_limits else SLACK_LIMITS,
        )
    except ValueError as e:
        raise click.UsageError(str(e)) from e
    except LocalSlackError as e:
        raise click.ClickException(str(e)) from e
    try:
        messages = _read_scene(scene) if scene else []
        with _recording(slack, record):
            code = asyncio.run(_run(slack, command, hint, messages))
    except LocalSlackError as e:
        raise click.ClickException(str(e)) from e
    sys.exit(code)


@contextmanager
def _recording(slack: LocalSlack, path: Path | None) -> Iterator[None]:
    """Write the record to a file while the block runs."""
    if path is None:
        yield
        return
    try:
        file = path.open("w", encoding="utf-8", buffering=1)
    except OSError as e:
        raise LocalSlackError(f"cannot write to {path}: {e.strerror or e}") from e
    with file:
        slack.record.write_to = file
        yield


def _read_scene(path: Path) -> list[Any]:
    try:
        messages = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise LocalSlackError(f"cannot read the scene {path}: {e}. It is a JSON list of messages.") from e
    if isinstance(messages, list):
        return messages
    raise LocalSlackError(f"the scene {path} is not a JSON list of messages")


async def _run(slack: LocalSlack, command: Sequence[str], hint: str | None, scene: Sequence[Any]) -> int:
    """Serve until a signal or the child ends it; returns the exit code."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in _ENDING:
        loop.add_signal_handler(number, stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)  # who started this process may hold them back until here
    async with slack:
        await _begin_with(slack, scene)
        if hint is None:
            click.echo(_block(slack))
        if not command:
            click.echo(f"Or start one with:\n\n  {slack.start_command}")
            await stop.wait()
            return 0
        return await _run_beside(slack, command, stop, hint)


async def _begin_with(slack: LocalSlack, scene: Sequence[Any]) -> None:
    """Post messages: objects with ``by``, ``channel``, content, and replies in ``thread``."""

    async def post(by: str, channel: str, text: str = "", thread: str | None = None, **content: Any) -> str:
        if isinstance(slack.workspace.directory.named(by), Bot):
            return await slack.as_app(by).post(channel, text or None, thread=thread, **content)
        return await slack.as_person(by).say(channel, text, thread=thread, **content)

    for message in scene:
        try:
            root = await post(**{**message, "thread": None})
            for reply in message.get("thread", ()):
                await post(**{**reply, "channel": message["channel"], "thread": root})
        except (KeyError, TypeError, LocalSlackError) as e:
            said = f"This message of the scene cannot be posted ({e}): {json.dumps(message)}"
            raise LocalSlackError(f"{said}. A message has `by`, `channel`, and `text` or the content of an app.") from e


async def _run_beside(slack: LocalSlack, command: Sequence[str], stop: asyncio.Event, hint: str | None) -> int:
    app = _App(command, slack.variables, apart=hint is not None)
    slack.control.kill_app = app.kill
    ended = asyncio.create_task(app.run())
    stopped = asyncio.create_task(stop.wait())
    connected = asyncio.create_task(slack.until(lambda workspace: workspace.bot_online, math.inf))
    if hint is not None:
        await asyncio.wait((ended, stopped, connected), return_when=asyncio.FIRST_COMPLETED)
        if connected.done():
            click.echo(f"\n  {slack.url}\n\n{hint}")
    connected.cancel()
    await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if stop.is_set():
        ended.cancel()  # it terminates the process, and waits for its end
    try:
        code = await ended
    except asyncio.CancelledError:
        return 0
    except OSError as e:
        click.echo(f"Error: cannot start {command[0]!r}: {e.strerror or e}", err=True)
        return _CANNOT_START
    return 0 if stop.is_set() else code  # Ctrl-C reaches a child that is just being started, too


def _block(slack: LocalSlack) -> str:
    variables = "\n".join(f"  {name}={value}" for name, value in slack.variables.items())
    others = "".join(f"\nIts bot token in {team.name}: {team.bot_token}\n" for team in slack.teams[1:])
    for team in slack.teams:
        tokens = (
            f"\nThe bot token of {app.name} in {team.name}: {app.token}\n" for app in team.workspace.directory.apps
        )
        others += "".join(tokens)
    return (
        f"local_slack is running. Open its page in a browser:\n\n  {slack.url}\n\n"
        f"Point a bot at it with these variables:\n\n{variables}\n{others}"
    )


if __name__ == "__main__":
    main()
