"""Check the store, the workspace folders and their disks, without taking leases or locks."""

from __future__ import annotations

import os
from contextlib import aclosing
from typing import TYPE_CHECKING

from orchestrator_interactive.storage.errors import StoreError
from service.config.config import ConfigError, file_of, store_url
from service.doctor.findings import failed, passed, warning
from service.sessions.workspaces import excess, template_entries
from service.store import inspect_run_store, open_log_store, refuse_unprepared
from service.store.maintenance import free_mb, places

if TYPE_CHECKING:
    from pathlib import Path

    from service.config.config import Environment, ServiceConfig
    from service.doctor.findings import DoctorFinding

# Maximum number of skipped template entries that a finding lists.
_MOST_NAMED = 5


async def check_store(config: ServiceConfig, environment: Environment) -> DoctorFinding:
    """Check that the store can be opened and written. A missing file is not created."""
    try:
        url = _url(config, environment)
        path = file_of(url)
        if path is not None and not path.exists():
            return _of_new("store", path)
        if path is not None and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            return failed("store", f"{path} is not writable. Give the service write access to it and its folder.")
        if path is not None:
            try:
                refuse_unprepared(url)
            except StoreError as e:  # the service prepares it when it starts
                return warning("store", str(e))
        async with aclosing(await open_log_store(url)), aclosing(await inspect_run_store(url)):
            return passed("store", f"{path or 'Redis'} is usable.")
    except (ConfigError, StoreError) as e:
        return failed("store", str(e))
    except OSError as e:
        return failed("store", f"{e.filename} is not accessible: {e.strerror}. Give the service access to it.")


def check_workspace(config: ServiceConfig) -> DoctorFinding:
    """Check that workspace folders can be created, each with a complete copy of the template."""
    root = config.workspace.root
    try:
        entries = template_entries(config.workspace)
        if problem := excess(config.workspace, entries):
            return failed("workspace", problem)
        if skipped := [f"{entry.path} {entry.problem}" for entry in entries if entry.problem is not None]:
            more = f" (and {len(skipped) - _MOST_NAMED} more)" if len(skipped) > _MOST_NAMED else ""
            return warning(
                "workspace",
                f"workspace.template: not copied: {'; '.join(skipped[:_MOST_NAMED])}{more}. Remove or fix it.",
            )
        if root.is_dir() and os.access(root, os.W_OK):
            return passed("workspace", f"{root} is writable.")
        return _of_new("workspace", root)
    except OSError as e:
        return failed("workspace", f"{e.filename} is not accessible: {e.strerror}. Give the service access to it.")


def check_disks(config: ServiceConfig, environment: Environment) -> DoctorFinding:
    """Check that the disks of the store and of the workspaces have more free space than the reserve."""
    reserve = config.workspace.reserve_mb
    try:
        found = free_mb(places(config.workspace, _url(config, environment)))
    except ConfigError:
        found = free_mb({"workspaces": config.workspace.root})
    free_space = ", ".join(f"{name} {free:,} MB" for name, free in found.items())
    if low := [name for name, free in found.items() if free < reserve]:
        return warning(
            "disk",
            f"free: {free_space}; workspace.reserve_mb is {reserve:,}. Free space on the disk of the "
            f"{' and the '.join(low)}: agents cannot write files, and a full store stops all conversations.",
        )
    return passed("disk", f"free: {free_space}.")


def _url(config: ServiceConfig, environment: Environment) -> str:
    given = environment.amplifier_slack_store
    return store_url("AMPLIFIER_SLACK_STORE", given) if given else config.store.get_secret_value()


def _of_new(area: str, path: Path) -> DoctorFinding:
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    if existing != path and existing.is_dir() and os.access(existing, os.W_OK):
        return passed(area, f"{path} will be created when the service starts.")
    return failed(
        area,
        f"{path} cannot be created or written. Give the service write access to {existing}, or choose another path.",
    )
