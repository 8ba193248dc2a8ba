"""A file that is written whole, or stays as it was."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# As the umask of most users has it.
_MODE = 0o644


@contextmanager
def written_whole(path: Path, spared: Sequence[Path]) -> Iterator[IO[str]]:
    """A file in the place of this one, once the body is through; until then that stays as it is.

    Raises:
        click.ClickException: it is one of the files that are to be `spared`, or cannot be written.
    """
    try:
        if path.exists() and any(each.exists() and path.samefile(each) for each in spared):
            raise click.UsageError(f"{path} is the store itself: name another file.")
        if path.exists() and not path.is_file():  # a pipe, a device
            with path.open("w", encoding="utf-8") as file:
                yield file
        else:
            with _new(path) as new:
                yield new
    except OSError as e:
        raise click.FileError(str(path), f"{e.strerror}. Name another file") from e


@contextmanager
def _new(path: Path) -> Iterator[IO[str]]:
    made = tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=".new-", delete=False)  # noqa: SIM115 - closed below
    try:
        with made:
            yield made
    except BaseException:
        Path(made.name).unlink()
        raise
    Path(made.name).chmod(_MODE)
    Path(made.name).replace(path)
