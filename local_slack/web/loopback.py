"""Restrict requests to this machine and to our own page, because the tokens are not secret."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from aiohttp.typedefs import Handler

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([\w.-]+))(?::\d+)?")
# Pages to which other sites may link.
_OPEN = ("/", "/oauth/v2/authorize")
_FOREIGN_SITES = ("cross-site", "same-site")


def is_loopback(host: str) -> bool:
    """Return whether a host name or address means this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@web.middleware
async def only_this_machine(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests with a foreign host name (DNS rebinding) or from pages of another origin."""
    if refusal := _refusal(request):
        return web.Response(status=403, text=refusal)
    try:
        return await handler(request)
    except ConnectionResetError:
        if request.transport is None or request.transport.is_closing():
            return web.Response()  # aiohttp drops it: the client has gone, as an app does at Ctrl-C
        raise


def _refusal(request: web.Request) -> str | None:
    host = request.headers.get("Host", "")
    if not is_loopback(_name_in(host)):
        return f"local_slack accepts requests for this machine only, not for {host!r}\n"
    origin = request.headers.get("Origin")
    if origin is not None and origin != f"http://{host}":
        return f"local_slack does not accept requests from pages of {origin!r}\n"
    foreign = request.headers.get("Sec-Fetch-Site") in _FOREIGN_SITES
    if foreign and request.path not in _OPEN:
        return "local_slack does not accept requests from other sites; open its own page\n"
    return None


def _name_in(host: str) -> str:
    match = _HOST.fullmatch(host)
    return (match[1] or match[2]) if match else ""
