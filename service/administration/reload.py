"""Reload the configuration of a running service: what changes at once, and what needs a restart."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import structlog

from connector.slack_api.errors import error_boundary
from service.administration.processes import registered
from service.config.config_errors import ConfigError
from service.sessions.preflight import preflight

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from pydantic import BaseModel

    from service.administration.processes import ServiceProcess
    from service.config.config import Environment, ServiceConfig

log = structlog.get_logger(__name__)

# The keys that take effect without a restart, with everything below them.
LIVE_KEYS = (
    "instances",
    "channels",
    "slack.users",
    "slack.channels",
    "slack.external",
    "slack.guests",
    "slack.bots",
    "slack.bot_exchanges",
    "slack.stop_reaction",
    "slack.status_interval_s",
    "slack.suggested_prompts",
    "slack.command",
    "slack.feedback",
    "slack.answers",
    "slack.long_answers",
    "slack.status",
    "slack.max_file_mb",
    "slack.file_timeout_s",
    "installations.settings",
    "limits",
    "log",
    "retention",
)

_UNEXPECTED = "an unexpected error, which is in the log of the service (config.reload_failed)"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration file (`None`: the default) and the function that reads it."""

    path: Path | None
    read: Callable[[], ServiceConfig]


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A changed configuration as it takes effect, and the changed keys: those in effect, and those for a restart."""

    config: ServiceConfig
    applied: tuple[str, ...]
    restart: tuple[str, ...]

    @classmethod
    def of(cls, before: ServiceConfig, after: ServiceConfig) -> ConfigChange:
        changed = tuple(_changed(before.model_dump(), after.model_dump()))
        live = tuple(f"{key}{end}" for key in LIVE_KEYS for end in (".", " "))
        applied = tuple(key for key in changed if f"{key}.".startswith(live))
        config = reduce(lambda config, key: _with(config, after, key.split(".")), LIVE_KEYS, before)
        return cls(config, applied, tuple(key for key in changed if key not in applied))


@asynccontextmanager
async def reloading(  # noqa: PLR0913 - the parts of a reload
    file: ConfigFile,
    config: ServiceConfig,
    environment: Environment,
    asked: asyncio.Event,
    *,
    apply: Callable[[ConfigChange], None],
    record: Callable[..., None],
) -> AsyncIterator[None]:
    """Reload the configuration whenever `asked` is set; `apply` puts a change into effect, `record` audits it.

    A file that cannot be used changes nothing.
    """
    now = config

    async def reload() -> dict[str, Any]:
        nonlocal now
        try:
            change = ConfigChange.of(now, file.read())
            await preflight(change.config, environment)
        except ConfigError as e:
            log.error("config.not_reloaded", problem=" ".join(str(e).split()))  # noqa: TRY400 - sentences
            record("config.not_reloaded", digest=file_digest(file.path))
            return {"problem": str(e)}
        apply(change)
        now = change.config
        result = {"applied": change.applied, "restart": change.restart}
        record("config.reloaded", digest=file_digest(file.path), **result)
        log.info("config.reloaded", **result)
        return result

    async def work(process: ServiceProcess | None) -> None:
        while await asked.wait():
            asked.clear()
            result = {"problem": _UNEXPECTED}
            with error_boundary("config.reload_failed"):
                result = await reload()
            if process is not None:
                process.report(result)

    with registered(file.path) as process:
        task = asyncio.create_task(work(process))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


def file_digest(path: Path | None) -> str | None:
    """Return the SHA-256 of a configuration file; `None` for the default, and for one that cannot be read."""
    with suppress(OSError):
        return None if path is None else sha256(path.read_bytes()).hexdigest()
    return None


def _changed(before: Any, after: Any, key: str = "") -> Iterator[str]:
    """Yield the keys whose values differ; of a mapping that only one of both has, only its own key."""
    if isinstance(before, dict) and isinstance(after, dict):
        if key == "instances" and next(iter(before), None) != next(iter(after), None):
            yield f"{key} (the default agent)"
        for name in dict.fromkeys((*before, *after)):
            yield from _changed(before.get(name), after.get(name), f"{key}.{name}" if key else str(name))
    elif before != after:
        yield key


def _with(to: BaseModel, source: BaseModel, key: list[str]) -> Any:
    """Return a copy of a section with the value of a key from another one."""
    name, *rest = key
    value = getattr(source, name)
    return to.model_copy(update={name: _with(getattr(to, name), value, rest) if rest else value})
