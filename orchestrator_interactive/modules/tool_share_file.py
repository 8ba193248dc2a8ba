"""`tool-share-file`: share files of the workspace in the thread, also those that an answer names.

The bytes go to Slack first, by an address from the capability `slack.upload`. They are invisible until the capability
`people.share` has stored that they are to be shared. Sharing the same content again in a run has no effect.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar

import aiohttp
import structlog
from pydantic import Field

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.kernel.tool_support import current_call
from orchestrator_interactive.modules.tool_filesystem.workspace import WorkspaceFolder
from orchestrator_interactive.validated_tool import ValidatedTool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

log = structlog.get_logger(__name__)

_MOST_FILES = 10
_MB = 1_000_000
_WITHIN_S = 120.0
# Of people; the agent did not make these.
_ATTACHED = "files"
_IMAGES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp"})
# A name of a file in an answer: in backticks or a link, or with an ending between spaces.
_NAMED = re.compile(
    r"`([^`\n]{1,200})`|\]\(([^()\s]{1,200})\)|(?<![\w/.@-])([\w./-]{1,200}\.[A-Za-z0-9]{1,8})(?![\w/@])"
)
_NOT_CONNECTED = "Files cannot be shared here. Give the content in your answer instead."


class ShareFileOptions(Options):
    """Options of `tool-share-file`.

    Args:
        root: folder whose files can be shared; default: the workspace of the conversation.
        max_mb: largest size of a file, in millions of bytes.
        referred: whether files that a run has made are shared when its answer names them.
    """

    root: str | None = None
    max_mb: float = Field(default=25, gt=0, le=1000)
    referred: bool = True


class _Input(Options):
    paths: list[str] = Field(
        min_length=1, max_length=_MOST_FILES, description="Up to ten files of the workspace, by their paths."
    )
    title: str = Field("", max_length=200, description="Title, if it is one file. Blank: its name.")
    alt_text: str = Field("", max_length=1000, description="What an image shows, for people who cannot see it.")
    comment: str = Field("", max_length=2000, description="A sentence or two above the files. Blank: none.")


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    content: bytes

    @property
    def digest(self) -> str:
        return sha256(self.content).hexdigest()[:32]


class ShareFileTool(ValidatedTool[_Input]):
    """Shares files of the workspace in the thread of the conversation, in one message."""

    name = "share_file"
    description = (
        "Share files of your workspace with the people in the thread, in one message. Use it for results that people "
        "want to keep or that are too long for a message: reports, tables, images, patches."
    )
    input_kind = _Input
    # A repeated call shares nothing twice.
    repeatable: ClassVar[bool] = True
    side_effect_free: ClassVar[bool] = False
    destructive: ClassVar[bool] = False

    def __init__(self, coordinator: ModuleCoordinator, root: Path, options: ShareFileOptions) -> None:
        self._coordinator = coordinator
        self._root = root
        self._most_bytes = int(options.max_mb * _MB)

    def label(self, input: dict[str, Any]) -> str:  # noqa: A002 - the name is the contract's
        paths = input.get("paths") if isinstance(input, dict) else None
        return f"Sharing {', '.join(map(str, paths[:3]))}" if isinstance(paths, list) and paths else "Sharing files"

    async def _work(self, wanted: _Input) -> str:
        files = [await asyncio.to_thread(self._read, path) for path in wanted.paths]
        call = current_call.get()
        shared = await self._share(f"call:{call.id if call else ''}", files, wanted)
        again = [file.name for file in files if file.name not in shared]
        told = f"Shared in the thread: {', '.join(shared)}." if shared else ""
        return f"{told} Shared before: {', '.join(again)}.".strip() if again else told

    async def share_referred(self, answer: str) -> None:
        """Share the files that this run has made and that its answer names. What cannot be shared is logged."""
        state = await self._state()
        if state is None:
            return
        try:
            found = await asyncio.to_thread(self._made, answer, state["since_s"])
            if found:
                await self._share("answer", found, None)
        except (ValueError, OSError) as e:
            log.warning("file.not_shared", error=str(e))

    def _made(self, answer: str, since_s: float) -> list[_File]:
        found: dict[str, _File] = {}
        folder = WorkspaceFolder(self._root)
        for named in _NAMED.finditer(answer):
            path = (named[1] or named[2] or named[3]).removeprefix("sandbox:").removeprefix("./").strip()
            if not path or "://" in path or len(found) == _MOST_FILES:
                continue
            try:
                with folder.open(path) as opened:
                    status = os.fstat(opened.fileno())
                inside = PurePosixPath(folder.normal(path))
                if inside.parts[0] != _ATTACHED and status.st_ctime >= since_s:
                    file = self._read(path)
                    if not self._is_of_template(inside, file.content):
                        found.setdefault(str(inside), file)
            except (ValueError, IndexError):
                continue
        return list(found.values())

    def _is_of_template(self, inside: PurePosixPath, content: bytes) -> bool:
        """Return whether the workspace's template has this file: it may be copied after the run's first message."""
        template = self._coordinator.get_capability("workspace.template")
        if template is None:
            return False
        try:
            return Path(template, inside).read_bytes() == content
        except OSError:
            return False

    def _read(self, path: str) -> _File:
        """Return a file of the workspace.

        Raises:
            WorkspaceError: it is outside of the workspace, missing, or no regular file.
            ValueError: it is empty or too large.
        """
        with WorkspaceFolder(self._root).open(path) as file:
            content = file.read(self._most_bytes + 1)
        if not content:
            raise ValueError(f"'{path}' is empty: Slack takes no empty files.")
        if len(content) > self._most_bytes:
            raise ValueError(f"'{path}' is larger than {self._most_bytes / _MB:g} MB. Share a part of it.")
        return _File(PurePosixPath(path).name, content)

    async def _state(self) -> dict[str, Any] | None:
        """Return the shared contents (`digests`) and the begin of the run (`since_s`); `None`: no one is there."""
        shared = self._coordinator.get_capability("people.shared")
        return None if shared is None else await shared()

    async def _share(self, share_id: str, files: Sequence[_File], wanted: _Input | None) -> list[str]:
        """Upload the files that the run has not shared, and share them; return their names.

        Raises:
            ValueError: they cannot be uploaded, or no one is there.
        """
        state, share = await self._state(), self._coordinator.get_capability("people.share")
        if state is None or share is None:
            raise ValueError(_NOT_CONNECTED)
        new = {file.digest: file for file in files if file.digest not in state["digests"]}
        title = wanted.title if wanted is not None and len(new) == 1 else ""
        uploaded = [
            {
                "id": await self._upload(file, wanted.alt_text if wanted is not None else ""),
                "name": file.name,
                "title": title or file.name,
                "digest": digest,
            }
            for digest, file in new.items()
        ]
        if uploaded:
            await share(share_id, uploaded, wanted.comment if wanted is not None else "")
        return [file.name for file in new.values()]

    async def _upload(self, file: _File, alt_text: str) -> str:
        """Send a file to Slack, where it is invisible for now; return its id."""
        address = self._coordinator.get_capability("slack.upload")
        if address is None:
            raise ValueError(_NOT_CONNECTED)
        is_image = PurePosixPath(file.name).suffix.lower() in _IMAGES
        described = (alt_text or file.name) if is_image else ""
        found = await address(name=file.name, size=len(file.content), alt_text=described)
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_WITHIN_S)) as http,
                http.post(found["url"], data=file.content, allow_redirects=False) as response,
            ):
                response.raise_for_status()
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            raise ValueError(f"Slack did not take '{file.name}'. Try again later.") from e
        return str(found["id"])


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Mount `share_file`.

    Raises:
        ValueError: an unknown option, or a value out of range.
    """
    coordinator = to_local_coordinator(coordinator)
    options = validate(ShareFileOptions, config, "tool-share-file")
    root = options.root or coordinator.get_capability("session.working_dir") or "."
    tool = ShareFileTool(coordinator, Path(root), options)
    if options.referred:
        coordinator.register_capability("files.share_referred", tool.share_referred)
    await coordinator.mount("tools", tool, name=tool.name)
