"""The tools: list, read, search, write, edit, move, delete."""

from __future__ import annotations

import codecs
from functools import partial
from mimetypes import guess_type
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from pydantic import AliasChoices, Field

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel.tool_support import run_blocking
from orchestrator_interactive.modules.tool_filesystem.diff import diff
from orchestrator_interactive.modules.tool_filesystem.quota import MB
from orchestrator_interactive.modules.tool_filesystem.search import TIME_LIMIT_S, scan
from orchestrator_interactive.modules.tool_filesystem.search_process import (
    MAX_FILE_BYTES,
    MAX_FOLDERS,
    MAX_PATH_BYTES,
    MAX_TOTAL_CHARACTERS,
)
from orchestrator_interactive.modules.tool_filesystem.workspace import WorkspaceError
from orchestrator_interactive.validated_tool import InputT, ValidatedTool

if TYPE_CHECKING:
    from orchestrator_interactive.modules.tool_filesystem.search_process import Found
    from orchestrator_interactive.modules.tool_filesystem.workspace import WorkspaceFolder

MAX_WRITTEN_BYTES = 1_000_000
_MAX_LABEL = 48
_MAX_SHOWN_LINE = 300
_MAX_DIFF_CHARS = 4_000
_LOOKED_AT_FOR_BINARY = 8_192
_SKIPPED_AT_ONCE = 65_536
# The second name is that of Amplifier's tools of the same names.
_PATH = AliasChoices("path", "file_path")


class FileTool(ValidatedTool[InputT]):
    """Base class of the tools. Invalid input and refused files are error results, never exceptions."""

    description: ClassVar[str]
    side_effect_free: ClassVar[bool] = True
    destructive: ClassVar[bool] = False
    refusals = (ValueError, OSError)
    # The status text, with the value of one argument or without it.
    labels: ClassVar[tuple[str, str, str]]

    def __init__(self, workspace: WorkspaceFolder, max_read_bytes: int, max_results: int) -> None:
        self._workspace = workspace
        self._max_read_bytes = max_read_bytes
        self._max_results = max_results

    def label(self, input: dict[str, Any]) -> str:  # noqa: A002 - the name is the contract's
        """Return a status text for people; accepts any input."""
        argument, with_value, without = self.labels
        names = _PATH.choices if argument == "path" else [argument]
        value = (
            next(filter(None, (_short(input.get(str(name))) for name in names)), "") if isinstance(input, dict) else ""
        )
        return without if value in {"", "."} else with_value.format(value)

    def canonical(self, input: Any) -> dict[str, Any]:  # noqa: A002 - as of `execute`
        """Return the input for approval rules: arguments by their own names, and the path from the workspace's root."""
        given = dict(input) if isinstance(input, dict) else {}
        path = next((given.pop(str(name)) for name in _PATH.choices if str(name) in given), None)
        return given if path is None else {**given, "path": self._workspace.normal(str(path))}

    def _current(self, path: str) -> str:
        """Return the beginning of a file that is to be changed; blank: it does not exist, or cannot be read.

        Raises:
            WorkspaceError: it may not be changed.
        """
        self._workspace.check_change(path)
        try:
            with self._workspace.open(path) as file:
                return file.read(MAX_WRITTEN_BYTES).decode(errors="replace")
        except (OSError, WorkspaceError):
            return ""


class ListInput(Options):
    path: str = Field(".", description="A folder in the workspace. Default: all of it.")
    pattern: str | None = Field(
        None, max_length=500, description="Only files whose name or path matches this, such as *.md."
    )


class ListFiles(FileTool[ListInput]):
    name = "list_files"
    description = (
        "List the files of the workspace with their sizes, folders included. Hidden files are left out. "
        "Use it first to see which files exist."
    )
    input_kind = ListInput
    labels = ("path", "Listing files in {}", "Listing files")

    async def _work(self, wanted: ListInput) -> str:
        job = {"pattern": wanted.pattern, "query": None, "regex": False, "ignore_case": False}
        found = await scan(self._workspace, wanted.path, limit=self._max_results + 1, **job)
        shown = [f"{path} ({size:,} bytes)" for path, size in found["items"][: self._max_results]]
        if wanted.path in {"", "."} and self._workspace.mounts:
            shown += [f"{name}/ (a read-only folder; list it by its path)" for name in self._workspace.mounts]
        return _capped(shown, found, nothing="There are no such files.")


class ReadInput(Options):
    path: str = Field(validation_alias=_PATH, description="The file to read, such as notes.md.")
    offset: int = Field(1, ge=1, description="The number of the first line to read.")
    limit: int | None = Field(None, ge=1, description="How many lines to read. Default: as many as fit.")


class ReadFile(FileTool[ReadInput]):
    name = "read_file"
    description = (
        "Read a text file of the workspace. A large file is truncated; a final note gives the offset to continue with."
    )
    input_kind = ReadInput
    labels = ("path", "Reading {}", "Reading a file")

    async def _work(self, wanted: ReadInput) -> str:
        return await run_blocking(self._workspace.root, self._read, wanted)

    def _read(self, wanted: ReadInput) -> str:
        with self._workspace.open(wanted.path) as file:
            if b"\0" in file.read(_LOOKED_AT_FOR_BINARY):
                kind = guess_type(wanted.path)[0] or "of unknown type"
                size = file.seek(0, 2)
                problem = f"'{wanted.path}' is a binary file ({kind}, {size:,} bytes)"
                raise WorkspaceError(f"{problem}; only text files can be read.")
            file.seek(0)
            skipped = 0
            while skipped < wanted.offset - 1 and (piece := file.readline(_SKIPPED_AT_ONCE)):
                skipped += piece.endswith(b"\n")
            if skipped < wanted.offset - 1:
                hint = f"Use an offset of at most {max(skipped, 1)}."
                raise WorkspaceError(f"'{wanted.path}' has only {skipped} lines. {hint}")
            return _excerpt(file, wanted.offset, wanted.limit, self._max_read_bytes)


class SearchInput(Options):
    query: str = Field(min_length=1, max_length=500, description="The text to search for.")
    path: str = Field(".", description="The folder or file to search. Default: the whole workspace.")
    regex: bool = Field(False, description="Whether the query is a (Python) regular expression.")
    case_sensitive: bool = False


class SearchFiles(FileTool[SearchInput]):
    name = "search_files"
    description = (
        "Find the lines that contain a text, in all files of the workspace. Returns lines like 'path:line: text'."
    )
    input_kind = SearchInput
    labels = ("query", "Searching for “{}”", "Searching files")

    async def _work(self, wanted: SearchInput) -> str:
        job = {"pattern": None, "query": wanted.query, "regex": wanted.regex, "ignore_case": not wanted.case_sensitive}
        found = await scan(self._workspace, wanted.path, limit=self._max_results + 1, **job)
        lines = found["items"][: self._max_results]
        shown = [f"{path}:{number}: {_cut(text.strip())}" for path, number, text in lines]
        return _capped(shown, found, nothing=f"No line contains “{wanted.query}”.")


class WriteInput(Options):
    path: str = Field(
        validation_alias=_PATH, description="The file to write, such as plans/may.md. Folders are created."
    )
    content: str = Field(description="The text.")
    append: bool = Field(False, description="Append the text instead of replacing the file.")


class WriteFile(FileTool[WriteInput]):
    name = "write_file"
    description = "Write a text file in the workspace. It replaces an existing file, or appends to it with append=true."
    side_effect_free = False
    destructive = True
    input_kind = WriteInput
    labels = ("path", "Writing {}", "Writing a file")

    async def _work(self, wanted: WriteInput) -> str:
        return await run_blocking(self._workspace.root, self._write, wanted)

    async def preview(self, input: dict[str, Any]) -> str:  # noqa: A002 - the name is the contract's
        """Return the change as a diff, in Markdown, for people who are to approve it."""
        wanted = validate(self.input_kind, input, self.name)
        return await run_blocking(self._workspace.root, self._preview, wanted)

    def _preview(self, wanted: WriteInput) -> str:
        old = self._current(wanted.path)
        return diff(wanted.path, old, old + wanted.content if wanted.append else wanted.content)

    def _write(self, wanted: WriteInput) -> str:
        content = wanted.content.encode(errors="replace")
        size = self._workspace.write(wanted.path, content, append=wanted.append, max_bytes=MAX_WRITTEN_BYTES)
        done = "Added to" if wanted.append else "Wrote"
        return f"{done} {wanted.path}; it has {size:,} bytes now."


class EditInput(Options):
    path: str = Field(validation_alias=_PATH, description="The file to change.")
    old_string: str = Field(min_length=1, description="The exact text to replace.")
    new_string: str = Field(description="The text to put there.")
    replace_all: bool = Field(False, description="Replace every occurrence; otherwise there must be only one.")


class EditFile(FileTool[EditInput]):
    name = "edit_file"
    description = "Replace a text in a file of the workspace, and leave the rest of the file as it is."
    side_effect_free = False
    destructive = True
    input_kind = EditInput
    labels = ("path", "Editing {}", "Editing a file")

    async def _work(self, wanted: EditInput) -> str:
        return await run_blocking(self._workspace.root, self._edit, wanted)

    async def preview(self, input: dict[str, Any]) -> str:  # noqa: A002 - the name is the contract's
        """Return the change as a diff, in Markdown, for people who are to approve it."""
        wanted = validate(self.input_kind, input, self.name)
        return await run_blocking(self._workspace.root, self._preview, wanted)

    def _preview(self, wanted: EditInput) -> str:
        old = self._current(wanted.path)
        if wanted.old_string not in old:  # the call will fail; show the given texts
            old, new = wanted.old_string, wanted.new_string
        else:
            new = old.replace(wanted.old_string, wanted.new_string, -1 if wanted.replace_all else 1)
        return diff(wanted.path, old, new)

    def _edit(self, wanted: EditInput) -> str:
        with self._workspace.open(wanted.path) as file:
            content = file.read(MAX_WRITTEN_BYTES + 1)
        if len(content) > MAX_WRITTEN_BYTES:
            raise WorkspaceError(f"'{wanted.path}' is larger than {MAX_WRITTEN_BYTES:,} bytes and cannot be edited.")
        old, new = wanted.old_string.encode(errors="replace"), wanted.new_string.encode(errors="replace")
        found = content.count(old)
        if old == new:
            raise WorkspaceError(
                "old_string and new_string are the same. Give the text that is to replace the old one."
            )
        if not found:
            raise WorkspaceError(f"'{wanted.path}' does not contain old_string. Read the file and copy the exact text.")
        if found > 1 and not wanted.replace_all:
            hint = "Give more of the text around it, or set replace_all=true."
            raise WorkspaceError(f"'{wanted.path}' contains old_string {found} times. {hint}")
        changed = content.replace(old, new)
        size = self._workspace.write(wanted.path, changed, replaced=content, max_bytes=MAX_WRITTEN_BYTES)
        done = f"Replaced {found} occurrence{'s' * (found > 1)} in {wanted.path}; it has {size:,} bytes now."
        if found > _MAX_DIFF_CHARS:  # a diff has at least a character for each
            return done
        shown = diff(wanted.path, *(each.decode(errors="replace") for each in (content, changed)))
        return f"{done}\n\n{shown}" if len(shown) <= _MAX_DIFF_CHARS else done


class MoveInput(Options):
    path: str = Field(validation_alias=_PATH, description="The file or folder to move.")
    to: str = Field(description="Its new path, such as old/notes.md. Folders are created.")


class MoveFile(FileTool[MoveInput]):
    name = "move_file"
    description = "Move or rename a file or a folder of the workspace. Nothing may be at the new path."
    side_effect_free = False
    destructive = True
    input_kind = MoveInput
    labels = ("path", "Moving {}", "Moving a file")

    def canonical(self, input: Any) -> dict[str, Any]:  # noqa: A002 - as of `execute`
        """Return the input for approval rules, with both paths from the workspace's root."""
        found = super().canonical(input)
        return {**found, "to": self._workspace.normal(str(found["to"]))} if "to" in found else found

    async def _work(self, wanted: MoveInput) -> str:
        await run_blocking(self._workspace.root, self._workspace.move, wanted.path, wanted.to)
        return f"Moved {wanted.path} to {wanted.to}."


class DeleteInput(Options):
    path: str = Field(validation_alias=_PATH, description="The file or folder to delete.")
    recursive: bool = Field(False, description="Delete a folder with all that is in it.")


class DeleteFile(FileTool[DeleteInput]):
    name = "delete_file"
    description = "Delete a file or an empty folder of the workspace, or with recursive=true a folder and its contents."
    side_effect_free = False
    destructive = True
    input_kind = DeleteInput
    labels = ("path", "Deleting {}", "Deleting a file")

    async def _work(self, wanted: DeleteInput) -> str:
        await run_blocking(
            self._workspace.root, partial(self._workspace.delete, wanted.path, recursive=wanted.recursive)
        )
        return f"Deleted {wanted.path}."


ALL_TOOLS: tuple[type[FileTool[Any]], ...] = (
    ListFiles,
    ReadFile,
    SearchFiles,
    WriteFile,
    EditFile,
    MoveFile,
    DeleteFile,
)


def _short(given: Any) -> str:
    """Return a path or query in one line of at most 48 characters; keeps the end, the most specific part."""
    if not isinstance(given, str):
        return ""
    text = " ".join(given.split()).removeprefix("./")
    return text if len(text) <= _MAX_LABEL else "…" + text[1 - _MAX_LABEL :]


def _excerpt(file: BinaryIO, first: int, limit: int | None, max_bytes: int) -> str:
    """Return as many lines as fit, from number `first` on; a final note in brackets tells where to continue."""
    taken: list[bytes] = []
    room, number, note = max_bytes, first, ""
    while not note and (line := file.readline(max_bytes + 1)):
        if limit is not None and number >= first + limit:
            note = f"[… The file continues. Read on with offset={number}.]"
        elif len(line) <= room:
            taken.append(line)
            room, number = room - len(line), number + 1
        elif taken:
            note = f"[… Truncated after {max_bytes - room:,} bytes. Read on with offset={number}.]"
        else:
            taken.append(line[:room])
            note = f"\n[… Line {number} is truncated after {room:,} bytes. Read on with offset={number + 1}.]"
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(b"".join(taken), final=not note)
    return text + note or "(The file is empty.)"


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_SHOWN_LINE else line[:_MAX_SHOWN_LINE] + " …"


def _capped(lines: list[str], found: Found, *, nothing: str) -> str:
    notes = []
    if len(found["items"]) > len(lines):
        notes.append(f"[… There are more results; only the first {len(lines)} are shown. Narrow the search.]")
    elif found["is_late"]:
        notes.append(f"[… Not all files were searched within {TIME_LIMIT_S:g} seconds. Narrow the search.]")
    elif found["is_full"]:
        notes.append(
            f"[… Only the first {MAX_TOTAL_CHARACTERS // MB} million characters were searched. Narrow the search to a "
            "folder.]"
        )
    if found["too_large"]:
        notes.append(
            f"[… Files larger than {MAX_FILE_BYTES // MB} MB were not searched: {found['too_large']}. "
            "Look into them with read_file.]"
        )
    if found["too_deep"]:
        notes.append(
            f"[… {found['too_deep']} files or folders are left out: their paths are longer than {MAX_FOLDERS} folders "
            f"or {MAX_PATH_BYTES:,} bytes.]"
        )
    return "\n".join([*(lines or [nothing]), *notes])
