"""The composition root: here, and only here, Slack and the agents are joined."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import structlog

from connector import Instance, Persona, SlackAccess, connected
from service.config import ConfigError
from service.sessions import InProcessSessionManager
from service.workspaces import Workspaces

if TYPE_CHECKING:
    from pydantic import SecretStr

    from service.config import Environment, ServiceConfig

log = structlog.get_logger(__name__)


async def serve(config: ServiceConfig, environment: Environment) -> None:
    """Serve the workspace until SIGINT or SIGTERM.

    Raises:
        ConfigError: a token or a module is missing or wrong.
        ConnectionRefused: Slack does not let us in.
    """
    access = _access(environment)
    provider = "provider-anthropic" if environment.anthropic_api_key else "provider-demo"
    if provider == "provider-demo":
        log.info("provider.demo", hint="set ANTHROPIC_API_KEY to answer with a real model")
    instances = [
        Instance(name, Persona(instance.persona.name, instance.persona.emoji))
        for name, instance in config.instances.items()
    ]
    ended = _ended_by_signal()
    async with (
        InProcessSessionManager(config.instances, provider, Workspaces(config.workspace)) as sessions,
        connected(access, instances, sessions),
    ):
        log.info("service.ready", instances=list(config.instances))
        await ended.wait()
        log.info("service.stopping")


def _access(environment: Environment) -> SlackAccess:
    url = environment.slack_api_url
    return SlackAccess(
        app_token=_token("SLACK_APP_TOKEN", "xapp-", environment.slack_app_token),
        bot_token=_token("SLACK_BOT_TOKEN", "xoxb-", environment.slack_bot_token),
        api_url=url if url.endswith("/") else f"{url}/",
    )


def _token(variable: str, prefix: str, token: SecretStr | None) -> str:
    if token is None:
        raise ConfigError(f"{variable} is not set. Put your Slack app's token ({prefix}…) into the environment.")
    if not token.get_secret_value().startswith(prefix):
        raise ConfigError(f"{variable} does not begin with {prefix}: it is another kind of token.")
    return token.get_secret_value()


def _ended_by_signal() -> asyncio.Event:
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def end(number: signal.Signals) -> None:
        ended.set()
        # Asked a second time, the process ends at once.
        loop.remove_signal_handler(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end, number)
    return ended
