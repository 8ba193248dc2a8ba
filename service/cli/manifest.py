"""The command `amplifier-slack manifest`: the Slack app that a configuration needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
import yaml

from connector.setup.manifest import manifest as manifest_of
from connector.setup.scopes import PATH
from service.config.config import ConfigError, Environment, load_config
from service.config.secrets import secrets
from service.logging import hide_secrets

if TYPE_CHECKING:
    from service.config.config import ServiceConfig

_MOST_URL = 3500
_NEXT = """\
To use it: api.slack.com/apps → Create New App → From a manifest, and paste it there; then install the app. Of an app
that is there already, paste it under App Manifest, and reinstall the app where Slack asks for it."""


@click.command()
@click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="The service's configuration file; without it, the manifest is for one instance called alpha.",
)
@click.option(
    "--url",
    help=f"For `door: http`: the address by which Slack reaches the service from outside; without a path, {PATH}.",
)
@click.option("--format", "form", type=click.Choice(("yaml", "json")), default="yaml", show_default=True)
def manifest(config_path: Path | None, url: str | None, form: str) -> None:
    """Print the manifest of the Slack app that this configuration needs.

    It goes to standard output, and what to do with it to standard error.
    """
    known = secrets(Environment.read())
    try:
        config = load_config(config_path)
        made = manifest_of(names_of(config), _request_url(config, url))
    except ConfigError as e:
        raise _NotConfigured(hide_secrets(str(e), known)) from e
    click.echo(_written(made, form))
    click.echo(_NEXT, err=True)


class _NotConfigured(click.ClickException):
    exit_code = 2


def names_of(config: ServiceConfig) -> list[str]:
    """What the agents are called in Slack; the first one is the default."""
    return [each.persona.name.strip() or name for name, each in config.instances.items()]


def _request_url(config: ServiceConfig, url: str | None) -> str | None:
    """Where Slack sends what happens; `None`: over Socket Mode.

    Raises:
        ConfigError: it takes a URL and there is none, or the other way round.
    """
    if config.slack.door == "socket":
        if url is not None:
            raise ConfigError("--url is for `slack: {door: http}`; this configuration uses Socket Mode. Leave it out.")
        return None
    if url is None:
        raise ConfigError(
            "`door: http` needs to know where Slack reaches the service from outside. Add --url https://…, the "
            "address at your reverse proxy."
        )
    try:
        parts = urlsplit(url)
        is_url = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0 and len(url) <= _MOST_URL
    except ValueError:
        is_url = False
    if not is_url or not url.isascii() or not url.isprintable() or " " in url:
        raise ConfigError("--url is no address that Slack can send to. It looks like https://agents.example.com.")
    return url if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}{PATH}"


def _written(made: dict[str, Any], form: str) -> str:
    if form == "json":
        return json.dumps(made, indent=2, ensure_ascii=False)
    return yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=120).rstrip("\n")
