"""The command `amplifier-slack run`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click
import uvloop

from connector import ConnectionRefused
from orchestrator_interactive.storage.errors import StoreError
from service.app import serve
from service.config.config import ConfigError, Environment, load_config
from service.config.secrets import secrets
from service.logging import configure_logging, hide_secrets


@click.command()
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="YAML configuration file. Default: one instance named alpha.",
)
def run(config_path: Path | None) -> None:
    """Serve a Slack workspace until Ctrl-C.

    Required environment variables: SLACK_BOT_TOKEN, and SLACK_APP_TOKEN for Socket Mode or SLACK_SIGNING_SECRET for
    HTTP. Optional: SLACK_API_URL, ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL and AMPLIFIER_SLACK_STORE.
    """
    environment = Environment.take_from_environ()
    known = secrets(environment)
    try:
        config = load_config(config_path)
        known = secrets(environment, config)
        configure_logging(config.log, known)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(config, environment))
    except (ConfigError, StoreError) as e:
        raise _NotConfigured(hide_secrets(str(e), known)) from e
    except ConnectionRefused as e:
        raise _NotConnected(hide_secrets(str(e), known)) from e


class _NotConfigured(click.ClickException):
    exit_code = 2


class _NotConnected(click.ClickException):
    exit_code = 1
