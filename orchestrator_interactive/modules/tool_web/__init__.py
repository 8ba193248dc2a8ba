"""`tool-web`: read web pages as Markdown, and search the web.

`download` connects to public addresses only, `reading` turns pages into text in a process of its own, `robots` obeys
robots.txt, `search` asks the configured search engine.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.config import validate
from orchestrator_interactive.kernel.contracts.errors import ModuleLoadError
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.modules.tool_web.download import Downloader
from orchestrator_interactive.modules.tool_web.options import WebOptions
from orchestrator_interactive.modules.tool_web.tools import WebFetch, WebSearch

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator

__all__ = ["WebOptions", "mount"]


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
    """Mount `web_fetch` and `web_search`.

    Raises:
        ModuleLoadError: a library is not installed.
        ValueError: an unknown option, or a value out of range.
    """
    for library in ("trafilatura", "protego"):
        if find_spec(library) is None:
            hint = "Install it with `pip install 'amplifier-slack[web]'`."
            raise ModuleLoadError(f"tool-web: {library} is not installed. {hint}")
    coordinator = to_local_coordinator(coordinator)
    options = validate(WebOptions, config, "tool-web")
    for tool in (WebFetch(options, Downloader(options)), WebSearch(options)):
        await coordinator.mount("tools", tool, name=tool.name)
