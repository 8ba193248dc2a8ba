"""Files: first an unshared upload, then part of the messages that share it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from local_slack.workspace.people import Member

# Slack's names for common file types; other files are named by their extension.
_KINDS = {
    "txt": ("text", "text/plain", "Plain Text"),
    "md": ("markdown", "text/markdown", "Markdown"),
    "py": ("python", "text/x-python", "Python"),
    "json": ("json", "application/json", "JSON"),
    "csv": ("csv", "text/csv", "CSV"),
    "html": ("html", "text/html", "HTML"),
    "png": ("png", "image/png", "PNG"),
    "jpg": ("jpg", "image/jpeg", "JPEG"),
    "jpeg": ("jpg", "image/jpeg", "JPEG"),
    "webp": ("webp", "image/webp", "WebP"),
    "gif": ("gif", "image/gif", "GIF"),
    "pdf": ("pdf", "application/pdf", "PDF"),
}


@dataclass(frozen=True, slots=True)
class File:
    """``base_url`` is the server's; ``content`` is None until it is uploaded; ``snippet_type`` is empty for others.

    ``alt`` describes an image for people who cannot see it.
    """

    id: str
    name: str
    title: str
    size: int
    user: str
    created: int
    base_url: str
    team: str
    ticket: str
    content: bytes | None = None
    completed: bool = False
    deleted: bool = False
    snippet_type: str = ""
    alt: str = ""
    is_canvas: bool = False
    # The channels whose members may read a canvas, and the people with access of their own.
    shown_in: tuple[str, ...] = ()

    @property
    def kind(self) -> tuple[str, str, str]:
        """Return Slack's ``filetype``, ``mimetype`` and ``pretty_type``."""
        if self.is_canvas:
            return "quip", "application/vnd.slack-docs", "Canvas"
        ending = self.snippet_type or PurePosixPath(self.name).suffix.lstrip(".").lower()
        return _KINDS.get(ending, (ending or "binary", "application/octet-stream", ending.upper() or "Binary"))

    @property
    def mimetype(self) -> str:
        return self.kind[1]

    @property
    def upload_url(self) -> str:
        return f"{self.base_url}upload/v1/{self.ticket}"


class Files:
    """Own all files of a workspace; each step of an upload is accepted once."""

    def __init__(self, team: str, clock: Callable[[], float]) -> None:
        self._team = team
        self._clock = clock
        self._files: dict[str, File] = {}
        self._tickets: dict[str, str] = {}

    def get(self, file_id: str) -> File | None:
        """Return a file that is neither deleted nor still being uploaded."""
        file = self._files.get(file_id)
        return file if file and file.completed and not file.deleted else None

    def begin(  # noqa: PLR0913, PLR0917 - the arguments of Slack's method
        self, member: Member, name: str, size: int, base_url: str, snippet_type: str = "", alt: str = ""
    ) -> File:
        file = File(
            id=f"F0LOCAL{len(self._files) + 1:04d}",
            name=name,
            title=name,
            size=size,
            user=member.id,
            created=int(self._clock()),
            base_url=base_url,
            team=self._team,
            ticket=secrets.token_urlsafe(24),
            snippet_type=snippet_type,
            alt=alt,
        )
        self._tickets[file.ticket] = file.id
        return self._keep(file)

    def uploader(self, ticket: str) -> str:
        """Return the id of the member whose upload this is; empty if there is none."""
        file = self._files.get(self._tickets.get(ticket, ""))
        return file.user if file else ""

    def fill(self, ticket: str, content: bytes) -> File | None:
        """Store the uploaded content; returns None if the URL is not open or the announced size differs."""
        file = self._files.get(self._tickets.get(ticket, ""))
        if file is None or file.completed or len(content) != file.size:
            return None
        return self._keep(replace(file, content=content))

    def complete(self, member: Member, wanted: Sequence[tuple[str, str]]) -> tuple[File, ...]:
        """Complete uploads, given as id and title; all or none."""
        files = [self._finishable(member, file_id) for file_id, _ in wanted]
        if len({file.id for file in files}) != len(files):
            raise SlackRefused("invalid_arguments", "[ERROR] a file can be completed once [json-pointer:/files]")
        titled = zip(files, (title for _, title in wanted), strict=True)
        return tuple(self._keep(replace(file, title=title or file.name, completed=True)) for file, title in titled)

    def new_canvas(self, member: Member, title: str, content: str, base_url: str) -> File:
        file = self.begin(member, title, len(content.encode()), base_url)
        return self._keep(replace(file, content=content.encode(), completed=True, is_canvas=True))

    def fill_canvas(self, canvas: File, content: str) -> None:
        self._keep(replace(canvas, content=content.encode(), size=len(content.encode())))

    def open_canvas(self, canvas: File, readers: tuple[str, ...]) -> None:
        self._keep(replace(canvas, shown_in=tuple(dict.fromkeys((*canvas.shown_in, *readers)))))

    def delete(self, member: Member, file_id: str) -> File:
        file = self.get(file_id)
        if file is None:
            raise SlackRefused("file_deleted" if file_id in self._files else "file_not_found")
        if file.user != member.id:
            raise SlackRefused("cant_delete_file")
        return self._keep(replace(file, content=None, deleted=True))

    def _finishable(self, member: Member, file_id: str) -> File:
        file = self._files.get(file_id)
        if file is None or file.user != member.id or file.completed or file.content is None:
            raise SlackRefused("file_not_found")
        return file

    def _keep(self, file: File) -> File:
        self._files[file.id] = file
        return file
