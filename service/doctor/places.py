"""Where conversations and their files are kept: whether that can be used, found out as a visitor."""

from __future__ import annotations

import os
from contextlib import aclosing
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.errors import StoreError
from orchestrator_interactive.interactions.stores import open_store
from service.config import ConfigError, file_of, store_url
from service.doctor.findings import lacking, well, wrong
from service.store import refuse_unprepared, visit_run_store

if TYPE_CHECKING:
    from pathlib import Path

    from service.config import Environment, ServiceConfig
    from service.doctor.findings import Finding


async def look_at_store(config: ServiceConfig, environment: Environment) -> Finding:
    """Whether the store can be opened and written; a file that is not there is not made."""
    given = environment.amplifier_slack_store
    try:
        url = store_url("AMPLIFIER_SLACK_STORE", given) if given else config.store.get_secret_value()
        path = file_of(url)
        if path is not None and not path.exists():
            return _of_new("store", path)
        if path is not None and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            return wrong("store", f"{path} cannot be written: let the service write it and its folder.")
        if path is not None:
            try:
                refuse_unprepared(url)
            except StoreError as e:  # the service will prepare it when it starts
                return lacking("store", str(e))
        async with aclosing(await open_store(url)), aclosing(await visit_run_store(url)):
            return well("store", f"{path or 'Redis'} can be used.")
    except (ConfigError, StoreError) as e:
        return wrong("store", str(e))
    except OSError as e:
        return wrong("store", f"{e.filename} cannot be looked at: {e.strerror}. Let the service use it.")


def look_at_workspace(config: ServiceConfig) -> Finding:
    """Whether conversations can have folders."""
    root = config.workspace.root
    try:
        if root.is_dir() and os.access(root, os.W_OK):
            return well("workspace", f"{root} can be written.")
        return _of_new("workspace", root)
    except OSError as e:
        return wrong("workspace", f"{e.filename} cannot be looked at: {e.strerror}. Let the service use it.")


def _of_new(area: str, path: Path) -> Finding:
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if there != path and there.is_dir() and os.access(there, os.W_OK):
        return well(area, f"{path} will be made when the service starts.")
    return wrong(area, f"{path} cannot be made or written: let the service write to {there}, or name another place.")
