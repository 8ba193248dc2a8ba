"""Atomic file output: a complete new file, or the unchanged old one."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# The mode under the usual umask of 022.
_MODE = 0o644


@contextmanager
def atomic_output(path: Path, protected: Sequence[Path]) -> Iterator[IO[str]]:
    """Open a temporary file that replaces `path` when the body has succeeded.

    Raises:
        click.ClickException: `path` is one of the `protected` files, or cannot be written.
    """
    try:
        if path.exists() and any(each.exists() and path.samefile(each) for each in protected):
            raise click.UsageError(f"{path} is the store. Choose another output file.")
        if path.exists() and not path.is_file():  # a pipe, a device
            with path.open("w", encoding="utf-8") as file:
                yield file
        else:
            with _new(path) as new:
                yield new
    except OSError as e:
        raise click.FileError(str(path), f"{e.strerror}. Choose another file") from e


@contextmanager
def _new(path: Path) -> Iterator[IO[str]]:
    made = tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=".new-", delete=False)  # noqa: SIM115 - closed below
    with ExitStack() as on_failure:
        on_failure.callback(Path(made.name).unlink)
        with made:
            yield made
        on_failure.pop_all()
    Path(made.name).chmod(_MODE)
    Path(made.name).replace(path)
