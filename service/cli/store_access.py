"""Opening of the conversation store for commands, and their error messages."""

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
from orchestrator_interactive.storage.errors import StoreError
from service.cli.setup import Setup, config_option
from service.config.config import ConfigError, Environment, file_of, store_of, store_url
from service.config.secrets import passwords
from service.runs.queries import AmbiguousConversation
from service.store import open_log_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from orchestrator_interactive.interactions.stores import LogStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """An open store, its URL and files, and the CLI options that select the same store in a follow-up command."""

    store: LogStore
    url: str = field(repr=False)
    options: tuple[str, ...]
    files: tuple[Path, ...] = ()

    def command(self, *arguments: str) -> str:
        """Format a follow-up command."""
        return shlex.join(("amplifier-slack", "conversations", *arguments, *self.options))


def with_store(function: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Turn an async function whose first argument is a `StoreAccess` into a command with --config and --store."""

    @config_option
    @click.option("--store", "url", metavar="URL", help="The store's URL; overrides all others.")
    @functools.wraps(function)
    def command(config_path: Path | None, url: str | None, **given: Any) -> None:
        options = _options(config_path, url)
        run_at(config_path, url, lambda store: _run(function, store, options, given))

    return command


def run_at(config_path: Path | None, url: str | None, use: Callable[[str], Coroutine[Any, Any, T]]) -> T:
    """Run `use` with the store's URL: `url`, or else that of the environment or the configuration.

    Raises:
        click.ClickException: the command failed; the message gives the reason and contains no secret.
    """
    setup = Setup(Environment.from_environ(), *(() if url is None else (url,)))
    try:
        with setup.errors(InteractionError, AmbiguousConversation, unusable=StoreError):
            config = setup.load(config_path)
            store = store_of(config, setup.environment) if url is None else store_url("--store", SecretStr(url))
            _refuse_missing(store)
            for stream in (sys.stdout, sys.stderr):
                stream.reconfigure(errors="replace")  # type: ignore[union-attr] # the terminal's encoding may lack characters
            return asyncio.run(use(store))
    except BrokenPipeError:
        raise
    except OSError as e:
        raise click.ClickException(f"The output cannot be written: {e.strerror}.") from e


async def _run(
    function: Callable[..., Awaitable[None]], url: str, options: tuple[str, ...], given: dict[str, Any]
) -> None:
    path = file_of(url)
    files = () if path is None else tuple(Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm"))
    async with aclosing(await open_log_store(url)) as store:
        await function(StoreAccess(store, url, options, files), **given)


def _refuse_missing(url: str) -> None:
    """Raise ConfigError if the store is a file that does not exist."""
    path = file_of(url)
    if path is not None and not path.exists():
        raise ConfigError(
            f"The store file {path} does not exist. The service creates it when it starts; "
            "check --config, --store and AMPLIFIER_SLACK_STORE."
        )


def _options(config_path: Path | None, url: str | None) -> tuple[str, ...]:
    config = () if config_path is None else ("--config", str(config_path))
    return config if url is None or passwords(url) else (*config, "--store", url)
