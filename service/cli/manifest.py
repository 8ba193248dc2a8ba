"""The command `amplifier-slack manifest`: the Slack app that a configuration needs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click
import yaml

from connector.setup import PATH
from connector.setup import manifest as manifest_of
from service.cli.setup import Setup, config_option
from service.config.config import Environment
from service.config.config_errors import ConfigError
from service.config.installations import INSTALL, RETURN
from service.config.slack import command_of, pairs_of

if TYPE_CHECKING:
    from pathlib import Path

    from service.config.config import ServiceConfig

_MOST_URL = 3500
_NEXT = """\
New app: open api.slack.com/apps → Create New App → From a manifest, paste the manifest and install the app.
Existing app: paste the manifest under App Manifest, and reinstall the app if Slack asks for it."""
_DISTRIBUTED = f"""\
New app: open api.slack.com/apps → Create New App → From a manifest, and paste the manifest.
Existing app: paste the manifest under App Manifest.
Then turn on Public Distribution under Manage Distribution. People install the app at {INSTALL} of the public URL."""


@click.command()
@config_option
@click.option(
    "--url",
    help=f"For `transport: http`: the public URL at which Slack reaches the service. Default path: {PATH}.",
)
@click.option("--format", "form", type=click.Choice(("yaml", "json")), default="yaml", show_default=True)
def manifest(config_path: Path | None, url: str | None, form: str) -> None:
    """Print the manifest of the Slack app that this configuration requires.

    The manifest goes to standard output, instructions to standard error.
    """
    setup = Setup(Environment.from_environ())
    with setup.errors():
        config = setup.load(config_path)
        # The display names in Slack; the first is the default agent.
        names = [each.persona.name.strip() or name for name, each in config.instances.items()]
        given = (config.slack.suggested_prompts, *(each.suggested_prompts for each in config.instances.values()))
        command = command_of(config.slack, next(iter(config.instances)))
        return_url = f"{config.connections.public_url}{RETURN}" if config.installations.is_on else None
        made = manifest_of(names, _request_url(config, url), command, list(map(pairs_of, given)), return_url)
    if form == "json":
        click.echo(json.dumps(made, indent=2, ensure_ascii=False))
    else:
        click.echo(yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=120).rstrip("\n"))
    click.echo(_NEXT if return_url is None else _DISTRIBUTED, err=True)


def _request_url(config: ServiceConfig, url: str | None) -> str | None:
    """Return the URL to which Slack sends events; `None` for Socket Mode.

    Raises:
        ConfigError: the URL is missing, invalid, or given although the configuration uses Socket Mode.
    """
    if config.slack.transport == "socket":
        if url is not None:
            raise ConfigError(
                "--url is for `slack: {transport: http}`; this configuration uses Socket Mode. Leave it out."
            )
        return None
    if url is None:
        raise ConfigError(
            "`transport: http` requires the public URL at which Slack reaches the service. Add --url https://… with "
            "the address of your reverse proxy."
        )
    try:
        parts = urlsplit(url)
        is_url = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0 and len(url) <= _MOST_URL
    except ValueError:
        is_url = False
    if not is_url or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError("--url is not a valid HTTPS URL. Example: https://agents.example.com.")
    return url if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}{PATH}"
