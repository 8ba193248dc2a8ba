"""Where conversations and their files are kept: whether that can be used, found out as a visitor."""

from __future__ import annotations

import os
from contextlib import aclosing
from typing import TYPE_CHECKING

from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.storage.errors import StoreError
from service.config.config import ConfigError, file_of, store_url
from service.doctor.findings import lacking, well, wrong
from service.sessions.workspaces import excess, template_entries
from service.store import refuse_unprepared, visit_run_store
from service.store.disk_space import free_mb, places

if TYPE_CHECKING:
    from pathlib import Path

    from service.config.config import Environment, ServiceConfig
    from service.doctor.findings import DoctorFinding

# Of the entries of a template that are not copied.
_MOST_NAMED = 5


async def look_at_store(config: ServiceConfig, environment: Environment) -> DoctorFinding:
    """Whether the store can be opened and written; a file that is not there is not made."""
    try:
        url = _url(config, environment)
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


def look_at_workspace(config: ServiceConfig) -> DoctorFinding:
    """Whether conversations can have folders, each a whole copy of the template."""
    root = config.workspace.root
    try:
        entries = template_entries(config.workspace)
        if problem := excess(config.workspace, entries):
            return wrong("workspace", problem)
        if skipped := [f"{entry.path} {entry.problem}" for entry in entries if entry.problem is not None]:
            more = f" (and {len(skipped) - _MOST_NAMED} more)" if len(skipped) > _MOST_NAMED else ""
            return lacking(
                "workspace",
                f"workspace.template: not copied: {'; '.join(skipped[:_MOST_NAMED])}{more}. Remove or correct it.",
            )
        if root.is_dir() and os.access(root, os.W_OK):
            return well("workspace", f"{root} can be written.")
        return _of_new("workspace", root)
    except OSError as e:
        return wrong("workspace", f"{e.filename} cannot be looked at: {e.strerror}. Let the service use it.")


def look_at_disks(config: ServiceConfig, environment: Environment) -> DoctorFinding:
    """Whether the disks of the store and of the workspaces have more free space than the reserve."""
    reserve = config.workspace.reserve_mb
    try:
        found = free_mb(places(config.workspace, _url(config, environment)))
    except ConfigError:
        found = free_mb({"workspaces": config.workspace.root})
    said = ", ".join(f"{name} {free:,} MB" for name, free in found.items())
    if low := [name for name, free in found.items() if free < reserve]:
        return lacking(
            "disk",
            f"free: {said}; workspace.reserve_mb is {reserve:,}. Make room on the disk of the {' and the '.join(low)}: "
            "agents write no more files, and where the store has no room, everything waits.",
        )
    return well("disk", f"free: {said}.")


def _url(config: ServiceConfig, environment: Environment) -> str:
    given = environment.amplifier_slack_store
    return store_url("AMPLIFIER_SLACK_STORE", given) if given else config.store.get_secret_value()


def _of_new(area: str, path: Path) -> DoctorFinding:
    there = next(folder for folder in (path, *path.parents) if folder.exists())
    if there != path and there.is_dir() and os.access(there, os.W_OK):
        return well(area, f"{path} will be made when the service starts.")
    return wrong(area, f"{path} cannot be made or written: let the service write to {there}, or name another place.")
