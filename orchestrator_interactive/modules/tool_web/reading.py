"""Read pages in a small pool of worker processes; see `reading_process`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.modules.tool_web import reading_process
from orchestrator_interactive.modules.tool_web.http_client import WebError, shown
from orchestrator_interactive.modules.worker_process import PoolBusyError, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Hashable

    from orchestrator_interactive.modules.tool_web.download import Download
    from orchestrator_interactive.modules.tool_web.reading_process import Reading

TIME_LIMIT_S = 8.0
_MAX_PROCESSES = 2

# A process ends after a minute without a request.
_POOL = WorkerPool("reading", ["-I", reading_process.__file__], _MAX_PROCESSES, 1, keeps_idle=True)


async def _result(key: Hashable, job: dict[str, Any], body: bytes, subject: str) -> dict[str, Any]:
    head = json.dumps({**job, "size": len(body)}).encode() + b"\n"
    try:
        reply = await _POOL.ask(key, lambda: nullcontext((head + body, ())), TIME_LIMIT_S)
    except (PoolBusyError, TimeoutError) as e:
        is_slow = isinstance(e, TimeoutError)
        reason = f"takes more than {TIME_LIMIT_S:g} seconds to read" if is_slow else "waits for too many others"
        raise WebError(f"{subject} {reason}. Try its source with raw=true, or another page.") from e
    except OSError as e:
        raise WebError(f"{subject} cannot be read: its parser failed. Try its source with raw=true.") from e
    if "error" in reply:
        raise WebError(f"{subject} is too large or too deeply nested to be read. Try its source with raw=true.")
    return reply


async def read(key: Hashable, page: Download, *, raw: bool) -> Reading:
    """Return the text of a page as Markdown; of other texts, and with `raw`, the text itself.

    Calls of the same `key` run one after the other.

    Raises:
        WebError: it cannot be read within the limits.
    """
    kind = "html" if page.is_html and not raw else "text"
    job = {"kind": kind, "url": str(page.url), "charset": page.charset, "agent": "", "is_cut": page.is_cut}
    reading: Any = await _result(key, job, page.body, shown(page.url))
    return reading  # type: ignore[no-any-return]


async def robots_allow(key: Hashable, text: str, url: str, agent: str) -> bool:
    """Return whether the rules of a robots.txt allow an address.

    Raises:
        WebError: it cannot be read within the limits.
    """
    job = {"kind": "robots", "url": url, "charset": "", "agent": agent, "is_cut": False}
    return bool((await _result(key, job, text.encode(), "The robots.txt of this host"))["allowed"])
