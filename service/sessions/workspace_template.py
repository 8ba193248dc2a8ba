"""Listing and copying of the template of workspace folders."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class WorkspaceTemplateTooLarge(OSError):  # noqa: N818 - a fact about the template
    """A copy of the template exceeds the quota of a workspace folder; the message is for the operator."""


@dataclass(frozen=True, slots=True)
class TemplateEntry:
    """A file or folder of a template; `path` is relative to it. With a `problem`, it is not copied."""

    path: str
    is_folder: bool = False
    size_bytes: int = 0
    problem: str | None = None


def entries(template: Path) -> Iterator[TemplateEntry]:
    """List a template, each folder before its contents. A link within the template is listed as its target.

    Entries with a problem: broken links, links out of the template or to a parent folder, unreadable entries, and
    entries that are neither files nor folders.
    """
    top = Path(os.path.realpath(template))
    folders: list[tuple[Path, frozenset[Path]]] = [(top, frozenset({top}))]
    while folders:
        folder, above = folders.pop()
        try:
            inside = sorted(folder.iterdir())
        except OSError as e:
            yield TemplateEntry(str(folder.relative_to(top)), problem=f"cannot be read: {e.strerror}")
            continue
        for path in inside:
            target = Path(os.path.realpath(path))  # Path.resolve raises on a link loop
            entry = _entry(path, target, top, above)
            yield entry
            if entry.is_folder:
                folders.append((path, above | {target}))


def _entry(path: Path, target: Path, top: Path, above: frozenset[Path]) -> TemplateEntry:
    name, problem = str(path.relative_to(top)), None
    try:
        found = target.stat()
    except OSError as e:
        return TemplateEntry(name, problem=f"is a broken link to {target}: {e.strerror}")
    is_folder = stat.S_ISDIR(found.st_mode)
    if not target.is_relative_to(top):
        problem = f"links out of the template, to {target}"
    elif target in above:
        problem = "links to a parent folder"
    elif not is_folder and not stat.S_ISREG(found.st_mode):
        problem = "is neither a file nor a folder"
    elif not os.access(target, os.R_OK):
        problem = "is not readable by the service"
    if problem is not None:
        return TemplateEntry(name, problem=problem)
    return TemplateEntry(name, is_folder, 0 if is_folder else found.st_size)


def copy(template: Path, folder: Path) -> None:
    """Copy the entries without a problem into an existing folder. Modes are preserved, except that of the folder.

    Raises:
        OSError: an entry cannot be written.
    """
    folders: list[str] = []
    for entry in entries(template):
        if entry.problem is not None:
            continue
        if entry.is_folder:
            (folder / entry.path).mkdir(mode=0o700)
            folders.append(entry.path)
        else:
            shutil.copy2(template / entry.path, folder / entry.path)
    for path in reversed(folders):  # last, because files cannot be added to a read-only folder
        shutil.copystat(template / path, folder / path)
