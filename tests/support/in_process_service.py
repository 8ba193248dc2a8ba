"""The service in this process, which starts faster than a process of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from uuid import uuid4

from connector import Instance, Persona, SlackCredentials, SocketTransport, connected
from local_slack import LocalSlack
from orchestrator_interactive.interactions.stores import open_store, retrying
from orchestrator_interactive.storage.retry import StoreRetryPolicy
from service.config.config import ServiceConfig
from service.runs.runs import StoredRuns
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces
from service.store import open_run_store


@asynccontextmanager
async def serving_in_process(slack: LocalSlack, config: ServiceConfig) -> AsyncIterator[None]:
    """Serve a workspace with the agents of a configuration. The environment has the URL of the model."""
    access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
    instances = [Instance(name, Persona(one.persona.name, one.persona.emoji)) for name, one in config.instances.items()]
    url, patience = config.store.get_secret_value(), StoreRetryPolicy()
    async with (
        aclosing(await open_store(url)) as logs,
        aclosing(await open_run_store(url)) as store,
        StoredRuns(store, uuid4().hex, config.lease_s, patience) as runs,
        InProcessSessionManager(
            config.instances, "provider-anthropic", Workspaces(config.workspace), retrying(logs, patience)
        ) as sessions,
        connected(access, instances, sessions, runs, shutdown_grace_s=config.shutdown_grace_s),
    ):
        await slack.until(lambda ws: ws.bot_online)
        yield
