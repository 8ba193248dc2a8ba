"""List and search a workspace in a bounded pool of worker processes."""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.modules.tool_filesystem import search_process
from orchestrator_interactive.modules.tool_filesystem.workspace import WorkspaceError
from orchestrator_interactive.modules.worker_process import WAIT_S, PoolBusyError, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator_interactive.modules.tool_filesystem.search_process import Found
    from orchestrator_interactive.modules.tool_filesystem.workspace import WorkspaceFolder

TIME_LIMIT_S = 3.0
# Additional time of a process: to finish the current file at the time limit, and to start on a busy machine.
_SPARE_S = 0.5
_MAX_PROCESSES = 4
_MAX_OF_A_WORKSPACE = 2

_BUSY = f"Nothing was searched: all search processes were busy for {WAIT_S:g} s. Try again later."
_TOO_LONG = "This takes too long. Use a simpler expression, search without regex, or narrow it down to a folder."

_POOL = WorkerPool(
    "search", ["-I", "-S", search_process.__file__], _MAX_PROCESSES, _MAX_OF_A_WORKSPACE, keeps_idle=False
)


async def scan(workspace: WorkspaceFolder, path: str, **job: Any) -> Found:
    """Scan the files at or under a path in a worker process; see `search_process.Job` for the other arguments.

    Raises:
        WorkspaceError: no such path, a malformed expression, or too little time.
    """
    try:
        reply: Any = await _POOL.ask(workspace.root, partial(_request, workspace, path, job), TIME_LIMIT_S + _SPARE_S)
    except PoolBusyError as e:
        raise WorkspaceError(_BUSY) from e
    except TimeoutError as e:
        raise WorkspaceError(_TOO_LONG) from e
    except OSError as e:
        raise WorkspaceError(f"The files cannot be read now: {e.strerror or e}. Try again later.") from e
    if reason := reply.get("error"):
        problem = f"'{job['query']}' is not a regular expression: {reason}."
        raise WorkspaceError(f"{problem} Correct it, or search without regex.")
    found: Found = reply
    return found


@contextmanager
def _request(workspace: WorkspaceFolder, path: str, options: dict[str, Any]) -> Iterator[tuple[bytes, list[int]]]:
    with workspace.place(path) as (parts, starts, fd):
        job = {"path": parts, "starts": starts, "time_limit_s": TIME_LIMIT_S, **options}
        yield json.dumps(job).encode() + b"\n", [fd]
