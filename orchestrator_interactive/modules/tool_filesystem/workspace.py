"""Access to a folder that cannot be escaped.

A path is first resolved and checked, then walked from the root, one folder at a time, without following links. If a
link is swapped in between the check and the walk, the walk fails.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from orchestrator_interactive.modules.tool_filesystem.quota import DRAFT, Limits, NoRoom, Quota
from orchestrator_interactive.modules.tool_filesystem.search_process import (
    FILE,
    FOLDER,
    MAX_FOLDERS,
    MAX_NAME_BYTES,
    MAX_PATH_BYTES,
    is_short,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_UNLIMITED = Limits()
# Paths of `workspace.save`; the model may read them even if they are not in the allowed paths.
_SAVED = re.compile(r"results/[\w-]*-[0-9a-f]{8}\.txt", re.ASCII)
_TOO_LONG = (
    f"This path is too long. Use at most {MAX_FOLDERS} folders, one inside the other, {MAX_PATH_BYTES:,} bytes in "
    f"all, and {MAX_NAME_BYTES} bytes a name."
)
_MAX_GIVEN = 4_096  # characters of a path argument, including the workspace's own path


class WorkspaceError(ValueError):
    """A file operation failed; the message states a remedy."""


@dataclass(frozen=True, slots=True)
class Access:
    """Files and folders of the workspace that may be used; None is the whole workspace. `read_only` ranks first.

    `mounts` are folders outside of it that are shown under a name at its top, and never changed.
    """

    readable: Sequence[Path] | None = None
    writable: Sequence[Path] | None = None
    read_only: Sequence[Path] = ()
    mounts: Mapping[str, Path] = field(default_factory=dict)


_UNRESTRICTED = Access()


class WorkspaceFolder:
    """The files under one root folder, which is created if it is missing.

    Its methods block: call them in a thread. Paths in `access` are relative to the root, or absolute.
    """

    def __init__(self, root: Path, limits: Limits = _UNLIMITED, access: Access = _UNRESTRICTED) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root = root.resolve(strict=True)
        self._quota = Quota(self.root, limits)
        readable = None if access.readable is None else self._resolved(access.readable)
        # Without paths inside another one: each is scanned once.
        self._readable = readable and [path for path in dict.fromkeys(readable) if {*readable}.isdisjoint(path.parents)]
        self._writable = None if access.writable is None else self._resolved(access.writable)
        self._read_only = self._resolved(access.read_only)
        allowed = [*(readable or ()), *(self._writable or ())]
        inside = [path for path in allowed if path.is_relative_to(self.root) or self.root.is_relative_to(path)]
        self.mounts = {name: WorkspaceFolder(path) for name, path in access.mounts.items()}
        self.unreachable = [path for path in allowed if path not in inside]

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """Open a regular file for reading.

        Raises:
            WorkspaceError: outside of the workspace, missing, or not a regular file.
        """
        if (mounted := self._mounted(path)) is not None:
            with mounted[1].open(mounted[2]) as file:
                yield file
            return
        folders, name = self._file_parts(path)
        self._refuse_unless("read", self._readable, path, [*folders, name])
        with _explained(path), open_folder(self.root, folders) as folder:
            file = _opened(name, folder, path)
        with file:
            yield file

    @contextmanager
    def place(self, path: str) -> Iterator[tuple[list[str], list[list[str]], int]]:
        """Open a folder or a regular file; yield its path from the root, what may be read in it, and a descriptor.

        Raises:
            WorkspaceError: outside of the workspace, missing, or neither a folder nor a regular file.
        """
        if (mounted := self._mounted(path)) is not None:
            with mounted[1].place(mounted[2]) as (inner, inner_starts, fd):
                yield [mounted[0], *inner], [[mounted[0], *each] for each in inner_starts], fd
            return
        parts = self._parts(path)
        inside = [each for each in self._readable or () if each.is_relative_to(self.root.joinpath(*parts))]
        if not inside:
            self._refuse_unless("read", self._readable, path, parts)
        starts = [list(each.relative_to(self.root).parts) for each in inside] or [parts]
        with _explained(path), open_folder(self.root, parts[:-1]) as folder:
            fd = os.open(parts[-1] if parts else ".", FILE, dir_fd=folder)
        try:
            mode = os.fstat(fd).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise _not_a_file(path, mode)
            yield parts, starts, fd
        finally:
            os.close(fd)

    def write(
        self, path: str, content: bytes, *, append: bool = False, replaced: bytes | None = None, max_bytes: int
    ) -> int:
        """Write or extend a file atomically, creating its folders; return its new size in bytes.

        `replaced` is the content that the new content was made from.

        Raises:
            WorkspaceError: outside of the workspace, too large, not a regular file, changed since, or over a limit.
        """
        folders, name = self._file_parts(path)
        self._refuse_to_change(path, [*folders, name])
        room = self._quota.room([*folders, name], len(content), append=append)
        with _explained(path), room, open_folder(self.root, folders, create=True) as folder:
            mode = _mode_to_keep(name, folder, path)
            before = b""
            if mode is not None and (append or replaced is not None):
                with _opened(name, folder, path) as present:
                    before = present.read(max_bytes + 1)
            if replaced is not None and before != replaced:
                raise WorkspaceError(f"'{path}' was changed in the meantime. Read it again, then repeat the call.")
            content = before + content if append else content
            if len(content) > max_bytes:
                raise WorkspaceError(f"'{path}' would be larger than {max_bytes:,} bytes. Split it into several files.")
            _replace(name, folder, content, mode)
        return len(content)

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file, a link, or a folder; `recursive`: with all that is in it.

        Raises:
            WorkspaceError: outside of the workspace, missing, protected, or a folder that is not empty.
        """
        folders, name = self._file_parts(path, follow=False)
        self._refuse_to_change(path, [*folders, name], whole=True)
        with _explained(path), open_folder(self.root, folders) as folder:
            if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=folder)
            elif recursive:
                shutil.rmtree(name, dir_fd=folder)
            else:
                os.rmdir(name, dir_fd=folder)

    def move(self, path: str, to: str) -> None:
        """Move a file, a link or a folder to a path where nothing is, creating its folders.

        Raises:
            WorkspaceError: outside of the workspace, missing, protected, not readable, or something is at the new path.
        """
        (folders, name), (to_folders, to_name) = (self._file_parts(each, follow=False) for each in (path, to))
        self._refuse_to_change(path, [*folders, name], whole=True)
        # Otherwise the new path may be one that may be read, or a protected path may be in the moved folder.
        self._refuse_unless("read", self._readable, path, [*folders, name])
        self._refuse_to_change(to, [*to_folders, to_name], whole=True)
        if [*to_folders, to_name][: len(folders) + 1] == [*folders, name]:
            raise WorkspaceError(f"'{to}' is in '{path}'. Give a path outside of it.")
        with _explained(path), open_folder(self.root, folders) as source:
            os.stat(name, dir_fd=source, follow_symlinks=False)
            room = self._quota.room([*to_folders, to_name], 0, append=False)
            with _explained(to), room, open_folder(self.root, to_folders, create=True) as target:
                with suppress(FileNotFoundError):
                    os.stat(to_name, dir_fd=target, follow_symlinks=False)
                    raise WorkspaceError(f"'{to}' exists already. Delete it first, or give another path.")
                os.rename(name, to_name, src_dir_fd=source, dst_dir_fd=target)

    def check_change(self, path: str) -> None:
        """Raise WorkspaceError if no file of this path may be written."""
        folders, name = self._file_parts(path)
        self._refuse_to_change(path, [*folders, name])

    def normal(self, path: str) -> str:
        """Return a path from the root, links resolved, in the form `plans/may.md`; one outside stays as it is."""
        try:
            return "/".join(self._parts(path))
        except WorkspaceError:
            return path

    def _mounted(self, path: str) -> tuple[str, WorkspaceFolder, str] | None:
        """Return the name and the folder of the mount that a path is in, and the path there; `None`: in none."""
        first, *rest = PurePosixPath(path).parts or ("",)
        folder = self.mounts.get(first)
        return None if folder is None else (first, folder, str(PurePosixPath(*rest)))

    def _resolved(self, paths: Sequence[Path]) -> list[Path]:
        return [Path(os.path.realpath(self.root / path)) for path in paths]

    def _refuse_to_change(self, path: str, parts: Sequence[str], *, whole: bool = False) -> None:
        """Raise WorkspaceError if a file must not be changed; `whole`: or anything that is in a folder."""
        if self._mounted(path) is not None or (parts and parts[0] in self.mounts):
            raise WorkspaceError(f"'{path}' must not be changed: the configuration of this agent makes it read-only.")
        target = self.root.joinpath(*parts)
        for each in self._read_only:
            if target.is_relative_to(each) or (whole and each.is_relative_to(target)):
                raise WorkspaceError(f"'{path}' must not be changed: the configuration of this agent protects it.")
        self._refuse_unless("write", self._writable, path, parts)

    def _refuse_unless(self, verb: str, allowed: Sequence[Path] | None, path: str, parts: Sequence[str]) -> None:
        if allowed is None or any(self.root.joinpath(*parts).is_relative_to(each) for each in allowed):
            return
        if verb == "read" and _SAVED.fullmatch("/".join(parts)):
            return
        inside = ", ".join(str(each.relative_to(self.root)) for each in allowed if each.is_relative_to(self.root))
        raise WorkspaceError(f"You may not {verb} '{path}'. You may {verb} in: {inside or 'no folder'}.")

    def _file_parts(self, path: str, *, follow: bool = True) -> tuple[list[str], str]:
        *folders, name = self._parts(path, follow=follow) or [""]
        if not name:
            raise WorkspaceError("That is the workspace itself. Give the path of a file in it, such as notes.md.")
        return folders, name

    def _parts(self, path: str, *, follow: bool = True) -> list[str]:
        """Return a path from the root with links resolved, except the last part if not `follow`."""
        outside = f"'{path}' is not in the workspace. Give a path inside it, such as notes.md or plans/may.md."
        if len(path) > _MAX_GIVEN:
            raise WorkspaceError(_TOO_LONG)
        if "\0" in path or ".." in PurePosixPath(path).parts:
            raise WorkspaceError(outside)
        try:
            given = self.root / path
            resolved = Path(os.path.realpath(given if follow else given.parent))
            resolved = resolved if follow or given == self.root else resolved / given.name
        except (OSError, ValueError) as e:  # a path that cannot be encoded
            raise WorkspaceError(outside) from e
        if not resolved.is_relative_to(self.root):
            raise WorkspaceError(outside)
        parts = list(resolved.relative_to(self.root).parts)
        if not is_short(parts):
            raise WorkspaceError(_TOO_LONG)
        return parts


@contextmanager
def open_folder(root: Path, parts: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """Open a folder below another one without following links; yield its descriptor.

    Raises:
        OSError: there is no such folder, or a part of it is a link.
    """
    fd = os.open(root, FOLDER)
    try:
        for part in parts:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=fd)
            inner = os.open(part, FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _opened(name: str, folder: int, path: str) -> BinaryIO:
    fd = os.open(name, FILE, dir_fd=folder)
    status = os.fstat(fd)
    if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
        return os.fdopen(fd, "rb")
    os.close(fd)
    if stat.S_ISREG(status.st_mode):
        raise WorkspaceError(f"'{path}' has several names (hard links): it may be a file outside of the workspace.")
    raise _not_a_file(path, status.st_mode)


def _mode_to_keep(name: str, folder: int, path: str) -> int | None:
    """Return the permissions of the existing file; `None` if there is none."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise _not_a_file(path, mode)
    return stat.S_IMODE(mode)


def _replace(name: str, folder: int, content: bytes, mode: int | None) -> None:
    draft = f"{DRAFT}{secrets.token_hex(8)}"
    fd = os.open(draft, _NEW_FILE, 0o600, dir_fd=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            if mode is not None:
                os.fchmod(file.fileno(), mode)
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):  # renamed
            os.unlink(draft, dir_fd=folder)


def _not_a_file(path: str, mode: int) -> WorkspaceError:
    if stat.S_ISDIR(mode):
        return WorkspaceError(f"'{path}' is a folder. List it with list_files, or give the path of a file.")
    return WorkspaceError(f"'{path}' is neither a file nor a folder, and cannot be used.")


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except NoRoom as e:
        raise WorkspaceError(str(e)) from e
    except FileNotFoundError as e:
        raise WorkspaceError(f"There is no '{path}' in the workspace. Use list_files to see the existing files.") from e
    except NotADirectoryError as e:
        raise WorkspaceError(f"'{path}' cannot be reached: a part of its path is not a folder.") from e
    except OSError as e:
        if e.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise WorkspaceError(f"The folder '{path}' is not empty. Set recursive=true to delete all of it.") from e
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            raise WorkspaceError(
                "Nothing was written: the disk is full. Tell the people here that the operator must free disk space."
            ) from e
        raise WorkspaceError(f"'{path}' cannot be used: {e.strerror or e}.") from e
