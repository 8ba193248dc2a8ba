"""The command `amplifier-slack reload`."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import click

from service.administration.processes import running
from service.cli.setup import NotUsable, Setup, config_option
from service.config.config import Environment, LogConfig
from service.logging import configure_logging

if TYPE_CHECKING:
    from pathlib import Path

    from service.administration.processes import ServiceProcess

_WITHIN_S = 30.0
_LOOK_EVERY_S = 0.05


@click.command()
@config_option
@click.pass_context
def reload(context: click.Context, config_path: Path | None) -> None:
    """Check the configuration file, and let the services of this user that run with it take it over.

    Active runs keep theirs; the next run of a conversation has the new configuration. Tokens and other
    environment variables take effect at a restart only.

    Exit codes: 0 reloaded, 1 a service did not reload or none runs, 2 the file cannot be used and no service was asked.
    """
    from service.sessions.preflight import preflight  # noqa: PLC0415 - `--help` is faster without it

    setup = Setup(Environment.take_from_environ())
    with setup.errors():
        config = setup.load(config_path)
        configure_logging(LogConfig(level="error"), setup.secrets)
        asyncio.run(preflight(config, setup.environment))
    try:
        found = running(config_path)
    except OSError as e:
        raise NotUsable(str(e)) from e
    if not found:
        raise click.ClickException(
            f"No service of this user runs with {config_path or 'the default configuration'}. Start one with "
            "`amplifier-slack run`, or give the file that it was started with as --config."
        )
    numbers = {process: process.result().get("number", 0) for process in found}
    for process in found:
        os.kill(process.pid, signal.SIGHUP)
    ends = time.monotonic() + _WITHIN_S
    results = [_result(process, number, ends) for process, number in numbers.items()]
    for process, result in zip(found, results, strict=True):
        click.echo(setup.hide(f"Process {process.pid}: {_sentence(result)}"))
    context.exit(1 if any("applied" not in result for result in results) else 0)


def _result(process: ServiceProcess, number: int, ends: float) -> dict[str, Any]:
    """Wait for the result after this number; empty if there is none in time."""
    while time.monotonic() < ends:
        result = process.result()
        if result.get("number", 0) > number:
            return result
        time.sleep(_LOOK_EVERY_S)
    return {}


def _sentence(result: dict[str, Any]) -> str:
    match result:
        case {"problem": problem}:
            return f"not reloaded: {problem}"
        case {"applied": [], "restart": []}:
            return "nothing has changed."
        case {"applied": applied, "restart": restart}:
            parts = [f"in effect: {', '.join(applied)}."] if applied else []
            parts += [f"after a restart: {', '.join(restart)}."] if restart else []
            return " ".join(parts)
    return f"no answer within {_WITHIN_S:.0f} seconds; look into its log."
