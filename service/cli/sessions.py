"""The command `amplifier-slack sessions`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
import uvloop

from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable
from service.administration.reload import ConfigFile
from service.cli.setup import Setup, config_option
from service.config.config import Environment
from service.config.sessions import require_grpc
from service.logging import configure_logging

if TYPE_CHECKING:
    from pathlib import Path

    from service.config.config import ServiceConfig


@click.group()
def sessions() -> None:
    """Run the agents of a service in a process of their own."""


@sessions.command()
@config_option
@click.option("--listen", metavar="HOST:PORT", help="Address to listen on. Default: 127.0.0.1:50551.")
@click.option("--unencrypted", is_flag=True, help="Allow other machines to connect without TLS.")
def serve(config_path: Path | None, listen: str | None, unencrypted: bool) -> None:
    """Run agents for `amplifier-slack run --sessions grpc://HOST:PORT` until Ctrl-C, over gRPC.

    It uses the configuration file and the store of the service; certificates are in the section `sessions` of the file.
    SIGHUP reloads the file. Optional environment variables: ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL and
    AMPLIFIER_SLACK_STORE.
    """
    setup = Setup(Environment.take_from_environ())

    def load() -> ServiceConfig:
        config = setup.load(config_path)
        section = config.sessions.with_option("--listen", "listen", listen)
        here = {"address": None, "unencrypted": unencrypted or section.unencrypted}
        return config.model_copy(update={"sessions": section.model_copy(update=here)})

    with setup.errors(StoreUnavailable, unusable=StoreError):
        require_grpc()
        from service.session_server import serve_sessions  # noqa: PLC0415 - it imports gRPC

        config = load()
        configure_logging(config.log, setup.secrets)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve_sessions(config, setup.environment, ConfigFile(config_path, load)))
