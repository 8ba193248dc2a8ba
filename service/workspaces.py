"""The folders in which conversations keep their files."""

from __future__ import annotations

import asyncio
import re
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from service.config import WorkspaceConfig


class Workspaces:
    """One folder per conversation, begun as a copy of the template."""

    def __init__(self, config: WorkspaceConfig) -> None:
        self._config = config

    def folder(self, conversation_id: str) -> Path:
        return self._config.root / re.sub(r"[^\w.-]", "-", conversation_id)

    async def prepare(self, conversation_id: str) -> None:
        """Make sure that the conversation's folder is there.

        Raises:
            OSError: it cannot be made.
        """
        await asyncio.to_thread(self._prepare, self.folder(conversation_id))

    def _prepare(self, folder: Path) -> None:
        if folder.exists():
            return
        if self._config.template is None:
            folder.mkdir(parents=True)
        else:
            shutil.copytree(self._config.template, folder)
