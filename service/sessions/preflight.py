"""The check at the start: everything that would keep the agents of a configuration from working, at once."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from service.config.config import file_of, store_of
from service.config.config_errors import ConfigError
from service.sessions.mount_plan import agent_plans, find_problems, mount_plan
from service.sessions.workspaces import Workspaces, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from service.config.config import Environment, ServiceConfig


async def preflight(
    config: ServiceConfig, environment: Environment, more: Iterable[str] = (), *, creates: bool = True
) -> None:
    """Mount every instance once that runs in this process, to report problems at the start and not in a thread.

    `more` are problems that have been found already. `creates`: create the folder of the workspaces.

    Raises:
        ConfigError: a folder cannot be created, or a module is unknown, of the wrong type, or cannot be mounted.
    """
    workspaces, problems = Workspaces(config.workspace), []
    try:
        await workspaces.check(creates=creates)
    except ConfigError as e:
        problems.append(str(e))
    if config.audit is not None and not os.access(
        config.audit if config.audit.exists() else config.audit.parent, os.W_OK
    ):
        problems.append(f"audit: {config.audit} cannot be written. Name a file in a folder that the service may write.")
    file = file_of(store_of(config, environment))
    if file is not None and (file.is_dir() or not os.access(nearest(file), os.W_OK)):
        problems.append(f"store: {file} cannot be written. Name a file in a folder that the service may write.")
    for name, instance in () if config.sessions.is_remote else config.instances.items():
        with tempfile.TemporaryDirectory() as folder:
            plan = mount_plan(
                instance,
                environment.default_provider,
                Path(folder),
                limits=workspaces.limits,
                provider_keys=environment.provider_keys,
            )
            problems += [f"instances.{name}: {problem}" for problem in await find_problems(plan)]
            for agent, own in agent_plans(plan).items():
                problems += [f"instances.{name}.agents.{agent}: {problem}" for problem in await find_problems(own)]
    problems += more
    if problems:
        raise ConfigError("\n  ".join(problems if len(problems) == 1 else (f"{len(problems)} problems:", *problems)))
