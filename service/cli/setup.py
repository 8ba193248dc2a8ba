"""Parts that all commands use: the configuration with its secrets, and error messages without secrets."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from service.config.config import load_config
from service.config.config_errors import ConfigError
from service.config.credentials import secrets
from service.logging import hide_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.config.config import Environment, ServiceConfig

config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="YAML configuration file of the service. Default: one instance named alpha.",
)


class NotUsable(click.ClickException):
    """The configuration, the store or an argument cannot be used."""

    exit_code = 2


class Setup:
    """The environment and configuration of a command, and their secrets. `urls` are those of its options."""

    def __init__(self, environment: Environment, *urls: str) -> None:
        self.environment = environment
        self.secrets = secrets(environment, None, *urls)
        self._urls = urls
        # The variables that were removed from the environment, for a file that is read again.
        self._taken = environment.secrets()

    def load(self, config_path: Path | None, *, needs_agents: bool = True) -> ServiceConfig:
        """Read the configuration file; `needs_agents` as in `References`.

        Raises:
            ConfigError: the file cannot be used.
        """
        config = load_config(config_path, self.environment, self._taken, needs_agents=needs_agents)
        self.secrets = secrets(self.environment, config, *self._urls)
        return config

    def hide(self, text: str) -> str:
        return hide_secrets(text, self.secrets)

    @contextmanager
    def errors(self, *failed: type[Exception], unusable: type[Exception] = ConfigError) -> Iterator[None]:
        """Print errors without secrets. The exit code is 1 for `failed`, 2 for `ConfigError` and `unusable`."""
        try:
            yield
        except failed as e:
            raise click.ClickException(self.hide(str(e))) from e
        except (ConfigError, unusable) as e:
            raise NotUsable(self.hide(str(e))) from e
