"""The composition root: here, and only here, Slack and the agents are joined."""

from __future__ import annotations

import asyncio
import gc
import re
import signal
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import structlog

from connector import Instance, Persona, SlackAccess, connected
from orchestrator_interactive.interactions.stores import open_store
from service.config import ConfigError, store_url
from service.sessions import InProcessSessionManager
from service.workspaces import Workspaces

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pydantic import SecretStr

    from service.config import Environment, ServiceConfig

log = structlog.get_logger(__name__)

_TOKEN = re.compile(r"[\w.-]+")


async def serve(config: ServiceConfig, environment: Environment) -> None:
    """Serve the workspace until SIGINT or SIGTERM.

    Raises:
        ConfigError: a token or a module is missing or wrong.
        StoreError: the store of the conversations cannot be used.
        ConnectionRefused: Slack does not let us in.
    """
    access = _access(environment)
    provider = "provider-anthropic" if environment.anthropic_api_key else "provider-demo"
    instances = [
        Instance(name, Persona(instance.persona.name, instance.persona.emoji))
        for name, instance in config.instances.items()
    ]
    given = environment.amplifier_slack_store
    url = store_url("AMPLIFIER_SLACK_STORE", given) if given else config.store.get_secret_value()
    workspaces = Workspaces(config.workspace)
    async with (
        _until_signalled() as ended,
        aclosing(await open_store(url)) as store,
        InProcessSessionManager(config.instances, provider, workspaces, store) as sessions,
        connected(access, instances, sessions, sessions.known),
    ):
        gc.collect()
        gc.freeze()  # what is loaded by now stays: looking at it again and again would hold up every run
        log.info(
            "service.ready",
            instances=list(config.instances),
            default_provider=provider,
            known_conversations=len(sessions.known),
        )
        await ended.wait()
        log.info("service.stopping")


@asynccontextmanager
async def _until_signalled() -> AsyncIterator[asyncio.Event]:
    """An event that SIGINT and SIGTERM set. While the body does not wait for it yet, they end it there.

    Asked a second time, the process ends at once.
    """
    ended, loop, body = _Ended(), asyncio.get_running_loop(), asyncio.current_task()

    def end() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        ended.set()
        if not ended.awaited and body is not None:
            body.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end)
    try:
        yield ended
    except asyncio.CancelledError:
        if not ended.is_set():
            raise
        log.info("service.stopped_at_start")
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


class _Ended(asyncio.Event):
    awaited = False

    async def wait(self) -> Literal[True]:
        self.awaited = True
        return await super().wait()


def _access(environment: Environment) -> SlackAccess:
    url = environment.slack_api_url
    try:
        reachable = bool(urlsplit(url).hostname) and url.startswith(("http://", "https://"))
    except ValueError:
        reachable = False
    if not reachable:
        raise ConfigError(f"SLACK_API_URL is no address: {url!r}. It looks like https://slack.com/api/.")
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
    if not _TOKEN.fullmatch(token.get_secret_value()):
        raise ConfigError(f"{variable} has characters that no token has: copy it again, without spaces or line ends.")
    return token.get_secret_value()
