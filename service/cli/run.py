"""The command `amplifier-slack run`."""

from __future__ import annotations

import asyncio
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

    from service.config.config import ServiceConfig


@click.command()
@config_option
@click.option(
    "--sessions", metavar="URL", help="Run the agents in `amplifier-slack sessions serve` at grpc://HOST:PORT."
)
def run(config_path: Path | None, sessions: str | None) -> None:
    """Serve a Slack workspace until Ctrl-C. SIGHUP reloads the configuration; see `amplifier-slack reload`.

    Required environment variables: SLACK_BOT_TOKEN, and SLACK_APP_TOKEN for Socket Mode or SLACK_SIGNING_SECRET for
    HTTP. Optional: SLACK_API_URL, ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL, AMPLIFIER_SLACK_STORE and
    AMPLIFIER_SLACK_SESSIONS.
    """
    setup = Setup(Environment.take_from_environ())

    def load() -> ServiceConfig:
        config = setup.load(config_path)
        section = config.sessions
        for name, given in (
            ("AMPLIFIER_SLACK_SESSIONS", setup.environment.amplifier_slack_sessions),
            ("--sessions", sessions),
        ):
            section = section.with_option(name, "address", given)
        return config.model_copy(update={"sessions": section})

    with setup.errors(ConnectionRefused, StoreUnavailable, unusable=StoreError):
        config = load()
        configure_logging(config.log, setup.secrets)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(config, setup.environment, ConfigFile(config_path, load)))
