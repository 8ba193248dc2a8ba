"""Options of `tool-web`."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field
from yarl import URL

from orchestrator_interactive.config import Options
from orchestrator_interactive.modules.tool_web.search import SearchOptions

_DEFAULT_PORTS = frozenset({80, 443, 8080, 8443})


def _host(given: str) -> str:
    """Return a host in the form in which addresses have it."""
    try:
        host = URL(f"//{given.strip().removeprefix('*.').rstrip('.')}").raw_host
    except ValueError:
        host = None
    if not host or re.search(r"[/@?#*\s]|:\d+$", given.strip().removeprefix("*.")):
        raise ValueError(f"{given!r} is not a host; write one such as example.com, which includes its subdomains")
    return host


_Host = Annotated[str, AfterValidator(_host)]


class WebOptions(Options):
    """Options of `tool-web`.

    Args:
        user_agent: how the tools introduce themselves; rules of robots.txt apply to the part before the slash.
        timeout_s: for a page with its redirects and robots.txt, and for a search.
        max_bytes: of a page, after decompression; the rest is left out.
        max_chars: of a result.
        robots: whether robots.txt is obeyed.
        allow: the only hosts that may be fetched, with their subdomains; all public ones unless set.
        deny: hosts that may not be fetched, with their subdomains.
        allow_private: whether private and loopback addresses may be fetched. Metadata services of clouds never are.
        ports: ports that may be used.
    """

    user_agent: str = Field(default="amplifier-slack/0.1 (tool-web)", pattern=r"^[\x21-\x7e][\x20-\x7e]*$")
    timeout_s: float = Field(default=30.0, gt=0, le=300)
    max_bytes: int = Field(default=5_000_000, ge=1_000, le=20_000_000)
    max_chars: int = Field(default=20_000, ge=100, le=90_000)
    robots: bool = True
    allow: frozenset[_Host] | None = None
    deny: frozenset[_Host] = frozenset()
    allow_private: bool = False
    ports: frozenset[Annotated[int, Field(ge=1, le=65_535)]] = _DEFAULT_PORTS
    search: SearchOptions = SearchOptions()
