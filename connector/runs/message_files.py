"""The files of the messages of a run: downloaded from Slack, and given to the session before it reads the message."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import structlog

from connector import texts
from connector.protocols import LeaseLost, MessageFile
from connector.runs.posts import service_post
from connector.slack_api.downloads import FileRefused, download

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from connector.message_text import SlackFile
    from connector.protocols import ConversationLease
    from connector.records import PendingMessage
    from connector.runs.outbox import Outbox
    from connector.runs.workspace import WorkspaceContext

    class ShowEvent(Protocol):
        """Shows a progress event in the status message."""

        def __call__(self, event: str, data: dict[str, object]) -> None: ...


log = structlog.get_logger(__name__)

# Downloads of one run at a time; and files of one message, as Slack's own limit.
_AT_ONCE = 3
_MOST_FILES = 10


class MessageFiles:
    """Fetches the files of messages, each once, and tells their authors which ones cannot be read.

    After a crash they are fetched again; a stored file stays as it is.

    Args:
        key: instance name and conversation id.
        show: shows the progress.
    """

    def __init__(
        self,
        key: tuple[str, str],
        workspace: WorkspaceContext,
        lease: ConversationLease,
        outbox: Outbox,
        show: ShowEvent,
    ) -> None:
        self._key = key
        self._lease = lease
        self._sessions, self._background = workspace.sessions, workspace.background
        self._outbox = outbox
        self._show = show
        self._free = asyncio.Semaphore(_AT_ONCE)
        # By file id. A file may be in several messages.
        self._fetching: dict[str, asyncio.Task[MessageFile]] = {}
        self._is_closed = False

    async def fetch(self, messages: Sequence[PendingMessage]) -> None:
        """Wait until the files of messages are stored or refused. If some are urgent, wait for their files only."""
        self.begin(messages)
        await self._end([each for each in messages if each.is_urgent] or messages)

    def begin(self, messages: Iterable[PendingMessage]) -> None:
        """Begin to fetch the files of messages."""
        for each in messages:
            for file in each.message.files[:_MOST_FILES]:
                if file.id and file.id not in self._fetching and not self._is_closed:
                    task = self._fetching[file.id] = asyncio.create_task(self._fetch(file))
                    self._background.keep(task)

    def of(self, inbound: PendingMessage) -> tuple[MessageFile, ...]:
        """Return the files of a message in their current state."""
        files = inbound.message.files
        return tuple(self._now(file, is_beyond=place >= _MOST_FILES) for place, file in enumerate(files))

    async def tell(self, inbound: PendingMessage) -> None:
        """Tell the author of a message which of its files cannot be read, once."""
        for file, read in zip(inbound.message.files, self.of(inbound), strict=True):
            if read.problem:
                notice = texts.file_refused(file.name, read.problem)
                await self._outbox.add(*service_post(f"file:{file.id or file.name}", notice))

    async def tell_at_end(self, inbound: PendingMessage) -> None:
        """Tell the author of a message that was read before its files were fetched; see `tell`."""
        await self._end((inbound,))
        await self.tell(inbound)

    async def drop(self, files: Iterable[SlackFile]) -> None:
        """Remove the files of a message that its author withdraws or edits before the model reads it."""
        ids = [each.id for each in files if each.id]
        given_up = [task for each in ids if (task := self._fetching.pop(each, None)) is not None]
        for task in given_up:
            task.cancel()
        if given_up:
            await asyncio.wait(given_up)
        if ids:
            await self._sessions.drop_files(*self._key, ids)

    def close(self) -> None:
        """Cancel all downloads, and begin no more."""
        self._is_closed = True
        for each in self._fetching.values():
            each.cancel()

    async def _end(self, messages: Iterable[PendingMessage]) -> None:
        ids = [file.id for each in messages for file in each.message.files]
        if tasks := [self._fetching[each] for each in ids if each in self._fetching]:
            await asyncio.wait(tasks)

    def _now(self, file: SlackFile, *, is_beyond: bool) -> MessageFile:
        task = self._fetching.get(file.id)
        if not file.id or (task is None and is_beyond):
            why = texts.TOO_MANY_FILES if file.id else texts.NO_FILE
            return MessageFile(file.name, problem=why, note=texts.file_note(file.name, why))
        if task is not None and not task.done():
            return MessageFile(file.name, note=texts.file_later(file.name, file.id))
        # Dropped, or the run is over.
        return MessageFile(file.name) if task is None or task.cancelled() else task.result()

    async def _fetch(self, file: SlackFile) -> MessageFile:
        call = {"tool": "download_file", "id": f"file:{file.id}", "label": texts.downloading(file.name)}
        async with self._free:
            self._show("tool:start", {**call, "args": {}})
            has_read = False
            try:
                read = await self._read(file)
                has_read = not read.problem
            finally:  # also if it is dropped
                self._show("tool:end", {**call, "success": has_read})
        return read

    async def _read(self, file: SlackFile) -> MessageFile:
        limits, problem = self._background.options.files, texts.FILE_FAILED
        try:
            with tempfile.TemporaryDirectory(prefix="slack-file-") as folder:
                content = Path(folder) / "content"
                file = await download(self._background.client, file, content, limits.most_bytes, limits.within_s)
                await self._lease.confirm()  # the next owner may have removed the file already
                read = await self._sessions.keep_file(*self._key, file.id, file.name, file.mimetype, content)
                return read if not file.is_quoted else MessageFile(read.name, read.note, problem=read.problem)
        except FileRefused as e:
            problem = str(e)
        except LeaseLost:
            log.info("file.not_kept", conversation=self._key[1], file=file.id)
        except Exception:
            log.exception("file.not_read", conversation=self._key[1], file=file.id)
        return MessageFile(file.name, problem=problem, note=texts.file_note(file.name, problem))
