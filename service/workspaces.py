"""The folders in which conversations keep their files."""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from service.config import ConfigError

if TYPE_CHECKING:
    from service.config import WorkspaceConfig


class Workspaces:
    """One folder per conversation, begun as a copy of the template."""

    def __init__(self, config: WorkspaceConfig) -> None:
        self._config = config

    async def check(self) -> None:
        """Make sure that conversations can have folders here.

        Raises:
            ConfigError: the root cannot be written to, or lies inside the template.
        """
        await asyncio.to_thread(self._check)

    def folder(self, conversation_id: str) -> Path:
        return self._config.root / re.sub(r"[^\w.-]", "-", conversation_id)

    async def prepare(self, conversation_id: str) -> None:
        """Make sure that the conversation's folder is there.

        Raises:
            OSError: it cannot be made.
        """
        await asyncio.to_thread(self._prepare, self.folder(conversation_id))

    def _check(self) -> None:
        root, template = self._config.root, self._config.template
        if template is not None and root.resolve().is_relative_to(template.resolve()):
            raise ConfigError(
                f"workspace.root: {root} lies inside workspace.template, so that new folders would be copied into each "
                "other. Name a folder outside of the template."
            )
        try:
            root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=root):
                pass
        except OSError as e:
            raise ConfigError(
                f"workspace.root: nothing can be written to {root}: {e.strerror}. "
                "Let the service write there, or name another folder."
            ) from e

    def _prepare(self, folder: Path) -> None:
        if folder.is_dir():
            return
        if self._config.template is None:
            folder.mkdir(parents=True, exist_ok=True)
        else:
            _copy_whole(self._config.template, folder)


def _copy_whole(template: Path, folder: Path) -> None:
    """Copy beside the folder and rename: a copy that was interrupted is never taken for a whole one."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    copy = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        shutil.copytree(template, copy, dirs_exist_ok=True)
        copy.rename(folder)
    except OSError:
        # Another instance of the same conversation may have been faster.
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(copy, ignore_errors=True)
