"""The service processes of this user, by configuration file: each has a locked file named after both."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

log = structlog.get_logger(__name__)

_PRIVATE = 0o700


@dataclass(frozen=True, slots=True)
class ServiceProcess:
    """A process that serves a configuration file; `path` is the file that it keeps locked while it lives."""

    path: Path
    pid: int

    def report(self, result: Mapping[str, Any]) -> None:
        """Store the result of a reload next to the file, for the process that asked for it."""
        new = self._result.with_suffix(".new")
        new.write_text(json.dumps({"number": self.result().get("number", 0) + 1, **result}))
        new.replace(self._result)

    def result(self) -> dict[str, Any]:
        """Return the last result; it has a `number`, which increases. Empty if there is none."""
        with suppress(OSError, ValueError):
            found: dict[str, Any] = json.loads(self._result.read_text())
            return found
        return {}

    def remove(self) -> None:
        for path in (self._result, self.path):
            path.unlink(missing_ok=True)

    @property
    def _result(self) -> Path:
        return self.path.with_suffix(".json")


@contextmanager
def registered(config: Path | None) -> Iterator[ServiceProcess | None]:
    """Register this process while the context is open; `None` if that is impossible, which the log reports."""
    with ExitStack() as opened:
        try:
            process = ServiceProcess(_folder() / f"{_name(config)}-{os.getpid()}.pid", os.getpid())
            file = opened.enter_context(process.path.open("w"))
            fcntl.flock(file, fcntl.LOCK_EX)
            opened.callback(process.remove)
        except OSError as e:
            log.warning("service.not_registered", problem=str(e), effect="`amplifier-slack reload` does not find it")
            yield None
            return
        yield process


def running(config: Path | None) -> list[ServiceProcess]:
    """Return the live processes of this user that serve this file; remove what dead ones left.

    Raises:
        OSError: the folder cannot be used.
    """
    found = []
    for path in sorted(_folder().glob(f"{_name(config)}-*.pid")):
        process = ServiceProcess(path, int(path.stem.rpartition("-")[2]))
        with suppress(FileNotFoundError), path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(process)
            else:
                process.remove()
    return found


def _folder() -> Path:
    """Return this user's folder of such files, created if it is missing.

    Raises:
        OSError: it cannot be created, or another user may write to it.
    """
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base) / f"amplifier-slack-{os.getuid()}"
    folder.mkdir(mode=_PRIVATE, exist_ok=True)
    state = folder.lstat()
    if state.st_uid != os.getuid() or state.st_mode & 0o777 != _PRIVATE:
        raise PermissionError(f"{folder} must belong to this user and have the mode 0700. Remove it, or correct it.")
    return folder


def _name(config: Path | None) -> str:
    if config is None:
        return "default"
    # A link itself, not its target, which an update of the configuration may change.
    return sha256(str(config.parent.resolve() / config.name).encode()).hexdigest()[:16]
