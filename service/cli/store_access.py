"""How a command comes to the store of the conversations, and what it says where it cannot do what it was asked to."""

from __future__ import annotations

import asyncio
import functools
import shlex
import sys
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from pydantic import SecretStr

from orchestrator_interactive.interactions.errors import InteractionError
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.storage.errors import StoreError
from service.config.config import ConfigError, Environment, file_of, load_config, store_url
from service.config.secrets import passwords, secrets
from service.logging import hide_secrets
from service.runs.queries import Unclear

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from orchestrator_interactive.interactions.stores.base import LogStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """The store that a command was given, its URL and its files, and the options that lead another command to it."""

    store: LogStore
    url: str = field(repr=False)
    options: tuple[str, ...]
    files: tuple[Path, ...] = ()

    def command(self, *words: str) -> str:
        """A command to write next."""
        return shlex.join(("amplifier-slack", "conversations", *words, *self.options))


def on_shelf(function: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a command of an async function whose first argument is the shelf. Its options say where that is."""

    @click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path),
        help="The service's configuration file, which names the store.",
    )
    @click.option("--store", "url", metavar="URL", help="The store, whatever else names one.")
    @functools.wraps(function)
    def command(config_path: Path | None, url: str | None, **given: Any) -> None:
        options = _options(config_path, url)
        run_at(config_path, url, lambda place: _run(function, place, options, given))

    return command


def run_at(config_path: Path | None, url: str | None, use: Callable[[str], Coroutine[Any, Any, T]]) -> T:
    """What `use` makes of the store that was given: its URL, or else the one of the environment or the configuration.

    Raises:
        click.ClickException: it cannot do what it was asked to; the message says why, without a secret.
    """
    environment = Environment.read()
    urls = () if url is None else (url,)
    known = secrets(environment, None, *urls)
    try:
        config = load_config(config_path)
        known = secrets(environment, config, *urls)
        place = _place(url, environment.amplifier_slack_store, config.store)
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr] # a terminal may not know every sign
        return asyncio.run(use(place))
    except BrokenPipeError:
        raise
    except OSError as e:
        raise click.ClickException(f"The output cannot be written: {e.strerror}.") from e
    except (ConfigError, StoreError) as e:
        raise _Unusable(hide_secrets(str(e), known)) from e
    except (InteractionError, Unclear) as e:
        raise click.ClickException(hide_secrets(str(e), known)) from e


class _Unusable(click.ClickException):
    exit_code = 2


async def _run(
    function: Callable[..., Awaitable[None]], place: str, options: tuple[str, ...], given: dict[str, Any]
) -> None:
    path = file_of(place)
    files = () if path is None else tuple(Path(f"{path}{end}") for end in ("", "-wal", "-shm"))
    async with aclosing(await open_store(place)) as store:
        await function(StoreAccess(store, place, options, files), **given)


def _place(url: str | None, variable: SecretStr | None, configured: SecretStr) -> str:
    """The URL of the store, of those that were given.

    Raises:
        ConfigError: it is a file that is not there.
    """
    if url is not None:
        place = store_url("--store", SecretStr(url))
    elif variable is not None:
        place = store_url("AMPLIFIER_SLACK_STORE", variable)
    else:
        place = configured.get_secret_value()
    path = file_of(place)
    if path is not None and not path.exists():
        raise ConfigError(
            f"There are no conversations: there is no file {path}. The service makes it when it starts; "
            "check --config, --store and AMPLIFIER_SLACK_STORE."
        )
    return place


def _options(config_path: Path | None, url: str | None) -> tuple[str, ...]:
    config = () if config_path is None else ("--config", str(config_path))
    return config if url is None or passwords(url) else (*config, "--store", url)
