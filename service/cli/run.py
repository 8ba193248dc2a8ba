"""The command `amplifier-slack run`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import click
import uvloop

from connector import ConnectionRefused
from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable
from service.administration.reload import ConfigFile
from service.app import serve
from service.cli.setup import Setup, config_option
from service.config.config import Environment
from service.logging import configure_logging

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@config_option
def run(config_path: Path | None) -> None:
    """Serve a Slack workspace until Ctrl-C. SIGHUP reloads the configuration; see `amplifier-slack reload`.

    Required environment variables: SLACK_BOT_TOKEN, and SLACK_APP_TOKEN for Socket Mode or SLACK_SIGNING_SECRET for
    HTTP. Optional: SLACK_API_URL, ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL and AMPLIFIER_SLACK_STORE.
    """
    setup = Setup(Environment.take_from_environ())
    with setup.errors(ConnectionRefused, StoreUnavailable, unusable=StoreError):
        config = setup.load(config_path)
        configure_logging(config.log, setup.secrets)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(config, setup.environment, ConfigFile(config_path, partial(setup.load, config_path))))
