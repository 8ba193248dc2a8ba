"""`tool-bash`: run commands in the workspace, in a sandbox.

`rules` parses commands, `sandbox` confines them, `confined` and `forward` are programs that run them, `proxy` is their
way to the network, `tool` runs one call.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import structlog
from pydantic import AliasChoices, Field, field_validator

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.kernel.tool_support import run_blocking
from orchestrator_interactive.modules.tool_bash.proof import prove
from orchestrator_interactive.modules.tool_bash.proxy import NetworkOptions  # noqa: TC001 - pydantic reads it
from orchestrator_interactive.modules.tool_bash.rules import CommandRule  # noqa: TC001 - pydantic reads it
from orchestrator_interactive.modules.tool_bash.sandbox import Limits, Sandbox, choose
from orchestrator_interactive.modules.tool_bash.tool import BashTool

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

__all__ = ["BashOptions", "mount", "prove"]

log = structlog.get_logger(__name__)


class BashOptions(Options):
    """Options of `tool-bash`.

    Args:
        root: the workspace folder, which commands see as `/workspace`; default: that of the conversation.
        sandbox: `auto` (bubblewrap, else Landlock), `bubblewrap`, `landlock`, or `none`: commands run with all rights
            of the service's user.
        network: hosts that commands may reach; default: none.
        rules: which commands are allowed, need approval or are denied; other commands need approval.
        without_approval: run commands also if no user is asked, since `hooks-approval` is not configured.
        timeout_s: time limit of a command in seconds, if the model sets none; `max_timeout_s`: the most it may set.
        max_output_chars: characters of an output that the model reads; a file has the rest.
        read_only_paths: files and folders outside of the workspace that commands may read.
        environment: variables of commands; they have none of the service's.
        memory_mb, file_mb, processes, open_files: limits of each process of a command.
        quota_mb: size of the workspace above which no command runs.
        reserve_mb: free space of its disk below which no command runs.
    """

    root: Path | None = Field(None, validation_alias=AliasChoices("root", "working_dir"))
    sandbox: Literal["auto", "bubblewrap", "landlock", "none"] = "auto"
    network: NetworkOptions | None = None
    rules: tuple[CommandRule, ...] = ()
    without_approval: bool = False
    timeout_s: float = Field(default=120.0, gt=0)
    max_timeout_s: float = Field(default=1_800.0, gt=0)
    max_output_chars: int = Field(default=30_000, ge=1_000)
    read_only_paths: tuple[Path, ...] = ()
    environment: dict[str, str] = Field(default_factory=dict)
    memory_mb: int = Field(default=2_048, ge=64)
    file_mb: int = Field(default=256, ge=1)
    processes: int = Field(default=256, ge=8)
    open_files: int = Field(default=1_024, ge=32)
    quota_mb: int | None = Field(default=None, gt=0)
    reserve_mb: int = Field(default=0, ge=0)

    @field_validator("read_only_paths")
    @classmethod
    def _exist(cls, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        found = tuple(path.expanduser() for path in paths)
        if missing := next((path for path in found if not path.is_absolute() or not path.exists()), None):
            raise ValueError(f"{missing} must be the absolute path of a file or folder that exists")
        return found

    def limits(self) -> Limits:
        """Return the limits of a process."""
        return Limits(self.memory_mb, self.file_mb, self.processes, self.open_files, int(self.max_timeout_s) + 1)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Mount `bash`.

    Raises:
        ValueError: an unknown option, or no sandbox works here; the message names the remedy.
    """
    coordinator = to_local_coordinator(coordinator)
    options = validate(BashOptions, config, "tool-bash")
    if options.rules and (find_spec("tree_sitter_bash") is None or find_spec("tree_sitter") is None):
        raise ValueError(
            "tool-bash: the parser of commands is not installed, which `rules` need. Install it with "
            "`pip install 'amplifier-slack[shell]'`."
        )
    root = options.root or Path(coordinator.get_capability("session.working_dir") or ".")
    kind = await run_blocking("sandbox", lambda: choose(options.sandbox, has_proxy=options.network is not None))
    if kind == "none":
        log.warning("tool_bash.no_sandbox", what_to_do="set `sandbox: auto`; commands have all rights of the service")
    sandbox = Sandbox(
        kind, root.expanduser().absolute(), options.limits(), options.environment, options.read_only_paths
    )
    tool = BashTool(coordinator, options, sandbox)
    await coordinator.mount("tools", tool, name=tool.name)
