"""The commands `amplifier-slack workspaces …`: the installations of the app."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import click

from connector.setup import NotInstalled
from connector.slack_api.errors import SlackCallFailed
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.cli.setup import NotUsable, config_option
from service.cli.store_access import run_at, store_option
from service.config.config import Environment
from service.config.config_errors import ConfigError
from service.config.credentials import api_url, client_of
from service.config.installations import INSTALL
from service.doctor.slack_app import SlackProbe
from service.installations.stored import StoredInstallations
from service.store import inspect_run_store
from service.tables import moment, table
from service.vault import vault_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from service.config.config import ServiceConfig

_HEAD = ("id", "name", "installed by", "at", "token until")
_SLACK_WITHIN_S = 10.0


@click.group()
def workspaces() -> None:
    """List the workspaces and organisations in which the app is installed, or remove it from one."""


@workspaces.command("list")
@config_option
@store_option
def list_(config_path: Path | None, url: str | None) -> None:
    """List the installations, the latest first. Times are those of this machine."""

    async def rows(store_url: str, config: ServiceConfig) -> tuple[ServiceConfig, list[tuple[str, ...]]]:
        async with _open(store_url, config) as found:
            return config, [
                (each.id, each.name, each.by, moment(each.at_s), moment(each.until_s) if each.until_s else "-")
                for each in await found.listed()
            ]

    config, found = run_at(config_path, url, rows)
    if found:
        click.echo(table(_HEAD, found))
    else:
        click.echo(f"There is no installation. Open {config.connections.public_url}{INSTALL} in a browser.", err=True)


@workspaces.command()
@click.argument("installation_id", metavar="ID")
@config_option
@store_option
def remove(config_path: Path | None, url: str | None, installation_id: str) -> None:
    """Uninstall the app in Slack, and delete its tokens here. ID is an id that `list` prints.

    Conversations stay, and continue if the app is installed again. `amplifier-slack conversations prune --workspace ID
    --whole --unfinished --keep-days 0` deletes them.
    """
    environment = Environment.from_environ()

    async def end(store_url: str, config: ServiceConfig) -> str:
        async with _open(store_url, config) as found:
            if all(each.id != installation_id for each in await found.listed()):
                raise NotUsable(f"There is no installation {installation_id!r}. `amplifier-slack workspaces list`.")
            try:
                problem = await _uninstalled(environment, await found.token(installation_id))
            except NotInstalled:
                problem = "its token cannot be decrypted"
            # A service that hears of the end removes it, too.
            await found.remove(installation_id)
            return problem

    problem = run_at(config_path, url, end)
    click.echo(f"Removed {installation_id}.")
    if problem:
        click.echo(f"Slack did not uninstall the app ({problem}). Remove it in Slack under Manage apps.", err=True)


async def _uninstalled(environment: Environment, token: str) -> str:
    """Uninstall the app in Slack; return the problem, if there is one."""
    client = client_of(environment)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SLACK_WITHIN_S)) as http:
        api = SlackProbe(api_url(environment), http)
        try:
            await api.call("apps.uninstall", token, client_id=client.id, client_secret=client.secret)
        except SlackCallFailed as e:
            return e.error
    return ""


@asynccontextmanager
async def _open(store_url: str, config: ServiceConfig) -> AsyncIterator[StoredInstallations]:
    """Open the installations.

    Raises:
        ConfigError: the configuration has none.
    """
    vault = vault_of(config.connections.keys)
    if not config.installations.is_on or vault is None:
        raise ConfigError("This configuration is for one workspace: it has no section `installations`.")
    async with aclosing(await inspect_run_store(store_url)) as store:
        yield StoredInstallations(retrying(store, StoreRetryPolicy()), vault, None, None)
